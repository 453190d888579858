"""Data sets by name: load them (`catalogue`), download them (`fetch`), check them against the paper (`verify`)."""
