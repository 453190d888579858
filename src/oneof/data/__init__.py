"""Data in: files of every form (`formats`), the paper's sets by name (`named`) and how to get them (`fetch`)."""
