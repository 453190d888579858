"""Write tables as Parquet or, with lists as text, as CSV; the ending of the file decides."""

from pathlib import Path
from typing import Any

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
        expected = endings[0] if len(endings) == 1 else f"one of {', '.join(endings)}"
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
    check_out(path)
    with atomic_write(path) as file:
        if path.suffix.lower() == ".parquet":
            pq.write_table(table, file, compression="zstd")
        else:
            pa.csv.write_csv(_flatten(table, separator), file)


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
                f"labels in a CSV must not hold {separator!r}, which divides them; got {str(label)[:60]!r}. "
                "Write .parquet, or say another --separator where the command has it."
            )
        if details:
            described = ", ".join(_describe_detail(name, value) for name, value in details)
            texts.append(f"{label} ({described})")
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
