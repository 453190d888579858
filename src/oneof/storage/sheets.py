"""Tables out, by the ending of the file: Parquet as they are, CSV with lists as text."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from oneof.storage.files import written_beside

ENDINGS = (".parquet", ".csv")
RISKY = r"^'*[=+\-@\t\r]"  # how a text begins that a spreadsheet runs, or that was made harmless before


def as_written(texts: Any) -> Any:
    """An Arrow array of cells as they were before `write_sheet` made them harmless."""
    return pc.replace_substring_regex(texts, r"^'('*[=+\-@\t\r])", r"\1")


def check_out(path: Path, endings: tuple[str, ...] = ENDINGS, name: str = "out") -> None:
    """Refuse a file that could not be written, before the work and not after it."""
    if path.suffix.lower() not in endings:
        wanted = endings[0] if len(endings) == 1 else f"one of {', '.join(endings)}"
        raise ValueError(f"{name} must end in {wanted}; got {str(path)!r}.")
    if not path.parent.is_dir():
        got = f"got {str(path)!r}. Make {str(path.parent)!r} first."
        raise ValueError(f"{name} must lie in a folder that exists; {got}")


def lists_of(rows: NDArray[np.integer[Any]], n: int, values: pa.Array) -> pa.ListArray:
    """A column of n lists: values that are sorted by their row, which `rows` says."""
    offsets = np.concatenate([[0], np.bincount(rows, minlength=n).cumsum()]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values)


def write_sheet(table: pa.Table, path: Path, separator: str = "|") -> None:
    """Write a table; in CSV the parts of a list are joined by the separator, a struct is `first (rest)`."""
    # A text that a spreadsheet would run, such as =1+1, gets an apostrophe before it, which our readers take off again.
    check_out(path)
    with written_beside(path) as file:
        if path.suffix.lower() == ".parquet":
            pq.write_table(table, file, compression="zstd")
        else:
            pa.csv.write_csv(_flat(table, separator), file)


def _flat(table: pa.Table, separator: str) -> pa.Table:
    columns = []
    for column in table.columns:
        if pa.types.is_list(column.type):
            column = pa.array([_joined(cell or [], separator) for cell in column.to_pylist()], pa.string())
        columns.append(_harmless(column) if pa.types.is_string(column.type) else column)
    return pa.table(columns, names=_harmless(pa.array(table.column_names, pa.string())).to_pylist())


def _joined(cell: list[Any], separator: str) -> str:
    said = []
    for part in cell:
        (_, label), *rest = part.items() if isinstance(part, dict) else [("", part)]
        if separator in str(label):
            got = f"got {str(label)[:60]!r}. Write .parquet, or say another --separator where the command has it."
            raise ValueError(f"labels in a CSV must not hold {separator!r}, which divides them; {got}")
        more = ", ".join(f"{key} {one:.2f}" if isinstance(one, float) else f"{key} {one}" for key, one in rest)
        said.append(f"{label} ({more})" if more else str(label))
    return separator.join(said)


def _harmless(texts: Any) -> Any:
    """Texts with an apostrophe before what a spreadsheet would run; numbers stay as they are."""
    risky = pc.match_substring_regex(texts, RISKY)
    number = pc.match_substring_regex(texts, r"^[+-]?[0-9.]+([eE][+-]?[0-9]+)?$")
    return pc.if_else(pc.and_not(risky, number), pc.binary_join_element_wise("'", texts, ""), texts)
