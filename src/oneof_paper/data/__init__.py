"""The paper's data sets by name: what they are (`catalogue`), how to get them (`fetch`), whether they are right (`verify`)."""
