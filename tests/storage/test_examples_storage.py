"""Small examples of what the functions of this package do; pytest runs them as they stand."""


def example_of_written_beside() -> None:
    """
    >>> from pathlib import Path
    >>> from oneof.storage.files import atomic_write
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "note"
    >>> with atomic_write(path) as file:
    ...     _ = file.write(b"whole")
    >>> path.read_bytes(), len(list(path.parent.iterdir()))
    (b'whole', 1)
    """


def example_of_printable() -> None:
    r"""
    >>> from oneof.storage.printable import printable
    >>> printable("red\x1b[31m alert\u202e")
    'red\\x1b[31m alert\\u202e'
    """


def example_of_first_misfit() -> None:
    """
    >>> from oneof.storage.schema import find_schema_error
    >>> find_schema_error({"classes": ["cat", "dog"], "n": 3}, {"classes": [str], "n": int}) is None
    True
    >>> find_schema_error({"classes": ["cat", 7], "n": 3}, {"classes": [str], "n": int})
    'classes[1] must be text, not 7'
    >>> find_schema_error({"classes": []}, {"classes": [str], "n": int})
    'n is missing'
    """


def example_of_from_serializable() -> None:
    """
    >>> from oneof.storage.settings import to_serializable, from_serializable
    >>> from oneof.purify import Pop
    >>> from_serializable(to_serializable((Pop(e0=0.5), None)), {"Pop": Pop}) == (Pop(e0=0.5), None)
    True
    """


def example_of_digest() -> None:
    """
    >>> from oneof.storage.settings import digest
    >>> digest({"lr": 0.1, "epochs": 5}) == digest({"epochs": 5, "lr": 0.1})
    True
    """


def example_of_first_difference() -> None:
    """
    >>> from oneof.storage.settings import first_difference
    >>> first_difference({"training": {"epochs": 5}}, {"training": {"epochs": 9}})
    'training.epochs was 5, now 9'
    """


def example_of_plain_value() -> None:
    """
    >>> from oneof.storage.settings import to_serializable
    >>> from oneof.purify import Pop
    >>> to_serializable(Pop())["kind"], to_serializable((1, 2.5, None))
    ('Pop', [1, 2.5, None])
    """


def example_of_as_written() -> None:
    """
    >>> import pyarrow as pa
    >>> from oneof.storage.sheets import as_written
    >>> as_written(pa.array(["'=1+1", "'", "it's"])).to_pylist()
    ['=1+1', "'", "it's"]
    """


def example_of_lists_of() -> None:
    """
    >>> import numpy as np
    >>> import pyarrow as pa
    >>> from oneof.storage.sheets import list_array
    >>> list_array(np.array([0, 0, 2]), 3, pa.array(["a", "b", "c"])).to_pylist()
    [['a', 'b'], [], ['c']]
    """


def example_of_write_sheet() -> None:
    """
    >>> import pyarrow as pa
    >>> from pathlib import Path
    >>> from oneof.storage.sheets import write_sheet
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "sheet.csv"
    >>> write_sheet(pa.table({"label": ["a", None], "kept": [["a", "b"], []], "fell": [[{"label": "c", "round": 7}], []]}), path)
    >>> print(path.read_text().strip())
    "label","kept","fell"
    "a","a|b","c (round 7)"
    ,"",""
    """


def example_of_load_package() -> None:
    """
    >>> from oneof.storage.optional_packages import load_package
    >>> load_package("no_such_package", "export")
    Traceback (most recent call last):
    ValueError: export needs the package no-such-package; it is not installed. Run: pip install no-such-package.
    """
