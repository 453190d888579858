"""The version, importable without the rest."""

__version__ = "0.1.0"
