"""Write tables as Parquet or, with lists as text, as CSV; the ending of the file decides."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from oneof.storage.files import atomic_write

ENDINGS = (".parquet", ".csv")
# Matches the start of texts that a spreadsheet would run as a formula, and of such texts that were escaped before.
_FORMULA_START = r"^'*[=+\-@\t\r]"
_NUMBER = r"^[+-]?[0-9.]+([eE][+-]?[0-9]+)?$"


def as_written(texts: Any) -> Any:
    """Return an Arrow array of cells without the apostrophes with which `write_sheet` escaped formulas."""
    return pc.replace_substring_regex(texts, r"^'('*[=+\-@\t\r])", r"\1")


def check_out(path: Path, endings: tuple[str, ...] = ENDINGS, name: str = "out") -> None:
    """Raise ValueError if a file could not be written, so that this is known before the work and not after it."""
    if path.suffix.lower() not in endings:
        expected = endings[0]
        if len(endings) > 1:
            expected = f"one of {', '.join(endings)}"
        raise ValueError(f"{name} must end in {expected}; got {str(path)!r}.")
    if not path.parent.is_dir():
        raise ValueError(
            f"{name} must lie in a folder that exists; got {str(path)!r}. Make {str(path.parent)!r} first."
        )


def list_array(rows: NDArray[np.integer[Any]], n: int, values: pa.Array) -> pa.ListArray:
    """Return a column of n lists from values that are sorted by row; `rows` has the row of each value."""
    lengths = np.bincount(rows, minlength=n)
    offsets = np.concatenate([[0], lengths.cumsum()]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values)


def write_sheet(table: pa.Table, path: Path, separator: str = "|") -> None:
    """Write a table; in CSV the elements of a list are joined by the separator, and a struct becomes `first (rest)`.

    In CSV a text that a spreadsheet would run as a formula, such as =1+1, gets an apostrophe before it, which our readers
    remove.
    """
    with SheetWriter(path, separator=separator) as writer:
        writer.write(table)


class SheetWriter:
    """Writes a table in parts, as `write_sheet` does; the file appears under its name when all of them are written.

    Parameters
    ----------
    path
        File to write, .parquet or .csv. The first part decides its columns.
    metadata
        Keys and values to store in the schema of a Parquet file.
    separator
        Between the elements of a list in a CSV.
    """

    def __init__(self, path: Path, metadata: Mapping[bytes, bytes] | None = None, separator: str = "|") -> None:
        check_out(path)
        self.path = path
        self.separator = separator
        self._metadata = dict(metadata or {})
        self._is_parquet = path.suffix.lower() == ".parquet"
        self._stack = ExitStack()
        self._schema: pa.Schema | None = None
        self._writer: Any = None

    def __enter__(self) -> Self:
        """Open a temporary file beside the path."""
        self._file = self._stack.enter_context(atomic_write(self.path))
        return self

    def __exit__(self, *error: Any) -> bool | None:
        """Close the file and give it its name, or remove it after an error."""
        return self._stack.__exit__(*error)

    def write(self, table: pa.Table) -> None:
        """Append the rows of a table."""
        if not self._is_parquet:
            table = _flatten(table, self.separator)
        if self._schema is None:
            self._open(table.schema)
        self._writer.write_table(table.cast(self._schema))

    def _open(self, schema: pa.Schema) -> None:
        """Write the header of the file."""
        self._schema = schema
        if self._is_parquet:
            if self._metadata:
                self._schema = schema.with_metadata({**(schema.metadata or {}), **self._metadata})
            writer = pq.ParquetWriter(self._file, self._schema, compression="zstd")
        else:
            writer = pa.csv.CSVWriter(self._file, schema)
        self._writer = self._stack.enter_context(writer)


def _flatten(table: pa.Table, separator: str) -> pa.Table:
    """Return the table with lists joined to texts, and with formulas escaped in cells and column names."""
    columns = []
    for column in table.columns:
        if pa.types.is_list(column.type):
            texts = [_join_list(cell or [], separator) for cell in column.to_pylist()]
            column = pa.array(texts, pa.string())
        if pa.types.is_string(column.type):
            column = _escape_formulas(column)
        columns.append(column)
    names = _escape_formulas(pa.array(table.column_names, pa.string()))
    return pa.table(columns, names=names.to_pylist())


def _join_list(cell: list[Any], separator: str) -> str:
    """Join the elements of a list: labels, or structs of a label and details."""
    texts = []
    for element in cell:
        if isinstance(element, dict):
            (_, label), *details = element.items()
        else:
            label = element
            details = []
        if separator in str(label):
            raise ValueError(
                f"labels in a CSV must not hold {separator!r}, which separates them; got {str(label)[:60]!r}. "
                "Write .parquet, or give another --separator where the command has it."
            )
        if details:
            described = ", ".join(_describe_detail(name, value) for name, value in details)
            texts.append(f"{label} ({described})")
        elif isinstance(label, float):
            texts.append(f"{label:g}")
        else:
            texts.append(str(label))
    return separator.join(texts)


def _describe_detail(name: str, value: Any) -> str:
    if isinstance(value, float):
        return f"{name} {value:.2f}"
    return f"{name} {value}"


def _escape_formulas(texts: Any) -> Any:
    """Put an apostrophe before texts that a spreadsheet would run as a formula; numbers stay as they are."""
    is_risky = pc.match_substring_regex(texts, _FORMULA_START)
    is_number = pc.match_substring_regex(texts, _NUMBER)
    escaped = pc.binary_join_element_wise("'", texts, "")
    return pc.if_else(pc.and_not(is_risky, is_number), escaped, texts)
