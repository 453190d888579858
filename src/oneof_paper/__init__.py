"""Reproduce the POP paper: its tables, theorems and data sets, and comparisons with a method of your own.

The package imports `oneof`, which never imports it: `oneof` finds its commands (`oneof paper ...`) and its reader of .mat files by
the entry points in pyproject.toml.
"""
