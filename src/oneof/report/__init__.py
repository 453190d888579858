"""Rows and runs, made readable."""
