"""The version, importable without the rest."""

__version__ = "0.2.0"

RUN_FORMAT = 1
"""Of run folders: later versions read every format that a release wrote, and refuse one that they do not know."""
