"""Data: reading it, naming it, making it."""
