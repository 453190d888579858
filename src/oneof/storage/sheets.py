"""Tables out, by the ending of the file: Parquet as they are, CSV with lists as text."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from oneof.storage.files import written_beside

ENDINGS = (".parquet", ".csv")


def check_out(path: Path, endings: tuple[str, ...] = ENDINGS, name: str = "out") -> None:
    """Refuse a file that could not be written, before the work and not after it."""
    if path.suffix.lower() not in endings:
        wanted = endings[0] if len(endings) == 1 else f"one of {', '.join(endings)}"
        raise ValueError(f"{name} must end in {wanted}; got {str(path)!r}.")
    if not path.parent.is_dir():
        raise ValueError(
            f"{name} must lie in a folder that exists; got {str(path)!r}. Make {str(path.parent)!r} first."
        )


def lists_of(rows: NDArray[np.integer[Any]], n: int, values: pa.Array) -> pa.ListArray:
    """A column of n lists: values that are sorted by their row, which `rows` says.

    >>> lists_of(np.array([0, 0, 2]), 3, pa.array(["a", "b", "c"])).to_pylist()
    [['a', 'b'], [], ['c']]
    """
    offsets = np.concatenate([[0], np.bincount(rows, minlength=n).cumsum()]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values)


def write_sheet(table: pa.Table, path: Path, separator: str = "|") -> None:
    """Write a table; in CSV the parts of a list are joined by the separator, a struct is `first (rest)`.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "sheet.csv"
    >>> write_sheet(pa.table({"label": ["a", None], "kept": [["a", "b"], []], "fell": [[{"label": "c", "round": 7}], []]}), path)
    >>> print(path.read_text().strip())
    "label","kept","fell"
    "a","a|b","c (round 7)"
    ,"",""
    """
    check_out(path)
    with written_beside(path) as file:
        if path.suffix.lower() == ".parquet":
            pq.write_table(table, file, compression="zstd")
        else:
            pa.csv.write_csv(_flat(table, separator), file)


def _flat(table: pa.Table, separator: str) -> pa.Table:
    columns = [
        pa.array([separator.join(map(_word, cell or ())) for cell in column.to_pylist()], pa.string())
        if pa.types.is_list(column.type)
        else column
        for column in table.columns
    ]
    return pa.table(columns, names=table.column_names)


def _word(value: Any) -> str:
    if not isinstance(value, dict):
        return str(value)
    first, *rest = value.items()
    return f"{first[1]} ({', '.join(f'{name} {_short(part)}' for name, part in rest)})"


def _short(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)
