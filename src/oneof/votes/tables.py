"""Tables of votes: CSV, TSV, Parquet, Arrow or pandas, of which only the named columns are read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from numpy.typing import NDArray

ONE_THREAD = pacsv.ReadOptions(use_threads=False)  # only then does Arrow number a bad row


class Table(NamedTuple):
    """An Arrow table, and what to call it in messages."""

    name: str
    columns: Any  # pa.Table
    typed: bool  # does the source know types, or is all of it text?


def load(source: Any, columns: Sequence[str]) -> Table:
    """Read the named columns of a file, an Arrow table or a data frame; at least one row.

    >>> load(pa.table({"item": [1, 2], "label": ["a", "b"], "other": [0, 0]}), ["item", "label"]).columns.column_names
    ['item', 'label']
    """
    wanted = list(dict.fromkeys(columns))
    if isinstance(source, (str, Path)):
        table = _load_file(Path(source), wanted)
    else:
        whole = source if isinstance(source, pa.Table) else _from_frame(source)
        _require("the table", whole.column_names, wanted)
        table = Table("the table", whole.select(wanted), typed=True)
    if table.columns.num_rows == 0:
        raise ValueError(f"votes must have at least one row; {table.name} has none.")
    return table


def names(path: str | Path) -> list[str]:
    """The columns that a file has."""
    path = Path(path)
    with _explained(path):
        if _ending(path) == "parquet":
            return list(pq.read_schema(path).names)
        with pacsv.open_csv(path, ONE_THREAD, _dialect(path)) as reader:
            return list(reader.schema.names)


def _load_file(path: Path, wanted: list[str]) -> Table:
    _require(str(path), names(path), wanted)
    typed = _ending(path) == "parquet"
    with _explained(path):
        return Table(str(path), pq.read_table(path, columns=wanted) if typed else _read_csv(path, wanted), typed)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Make one line, with the file's name, of what Arrow says; what the system says has it already."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ValueError(_unreadable(path, error)) from error


def _ending(path: Path) -> str:
    ending = path.name.lower().removesuffix(".gz").rpartition(".")[2]
    if ending not in ("csv", "tsv", "parquet"):
        raise ValueError(f"a table of votes must end in .csv, .tsv, .csv.gz, .tsv.gz or .parquet; got {path}.")
    return ending


def _dialect(path: Path) -> pacsv.ParseOptions:
    # Answers of language models hold line breaks.
    return pacsv.ParseOptions(delimiter="\t" if _ending(path) == "tsv" else ",", newlines_in_values=True)


def _read_csv(path: Path, wanted: list[str]) -> pa.Table:
    """All text, since a guess would make 007 a 7 and the label NA a null."""
    return pacsv.read_csv(
        path,
        ONE_THREAD,
        _dialect(path),
        pacsv.ConvertOptions(
            include_columns=wanted,
            column_types=dict.fromkeys(wanted, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
        ),
    )


def _from_frame(frame: Any) -> pa.Table:
    if not hasattr(frame, "columns"):
        raise TypeError(f"votes must be a path, an Arrow table or a data frame; got {type(frame).__name__}.")
    return pa.Table.from_pandas(frame, preserve_index=False)


def _unreadable(path: Path, error: Exception) -> str:
    """One line of Arrow's message, its row counted as we count."""
    if path.stat().st_size == 0 or "Empty CSV" in str(error):
        return f"votes must have at least one row; {path} is empty."
    first = str(error).splitlines()[0]
    return f"{path} cannot be read: " + re.sub(r"Row #(\d+)", lambda match: f"row {int(match[1]) - 2}", first)


def _require(name: str, present: list[str], wanted: list[str]) -> None:
    for column in wanted:
        if present.count(column) == 1:
            continue
        if column in present:
            raise ValueError(f"{name} must have one column {column!r}; it has {present.count(column)}. Rename them.")
        close = get_close_matches(column, present, 1)
        hint = f"Did you mean {close[0]!r}?" if close else "Say which column to read."
        raise ValueError(f"{name} must have the column {column!r}; it has {', '.join(present) or 'none'}. {hint}")


def load_json(path: Path) -> Any:
    """Read a JSON file, or say in one line where it breaks."""
    try:
        return json.loads(path.read_bytes())
    except RecursionError as error:
        raise ValueError(f"{path} cannot be read: it is nested too deeply.") from error
    except ValueError as error:  # broken JSON, or not UTF-8
        raise ValueError(f"{path} cannot be read: it is not JSON ({error}).") from error


# ----------------------------------------------------------------------------------------------------------- its columns


def refuse_missing(table: Table, column: str) -> None:
    """Every row of the column must hold something."""
    missing = pc.is_null(table.columns[column], nan_is_null=True).to_numpy()
    if missing.any():
        raise ValueError(
            f"column {column!r} must hold a value in every row; {table.name} has none in row {int(missing.argmax())}"
            f" ({int(missing.sum())} such rows). Fill or drop them."
        )


def strings(table: Table, column: str) -> Any:
    """A column as one Arrow array of strings; nulls stay."""
    return _as_strings(_whole(table, column), table, column)


def texts(table: Table, column: str) -> tuple[NDArray[np.intp], Any]:
    """The texts of a column without its nulls, and their rows; a list is as many texts."""
    array = _whole(table, column)
    row = np.arange(len(array))
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        row, array = pc.list_parent_indices(array).to_numpy(), pc.list_flatten(array)
    kept = pc.invert(pc.is_null(array, nan_is_null=True))
    return row[kept.to_numpy(zero_copy_only=False)].astype(np.intp), _as_strings(array.filter(kept), table, column)


def keys(table: Table, column: str) -> tuple[NDArray[np.intp], Any]:
    """The number of each row's item, and the distinct ids in order of first appearance.

    Ids of a text file that are whole numbers, plainly written, become numbers.
    """
    array = _whole(table, column)
    if pa.types.is_nested(array.type):
        raise TypeError(f"column {column!r} must hold text or numbers; {table.name} has {array.type}.")
    encoded = array.dictionary_encode()
    distinct = encoded.dictionary if table.typed else _whole_numbers(encoded.dictionary)
    return encoded.indices.to_numpy().astype(np.intp), distinct


def numbers(table: Table, column: str) -> NDArray[np.float64]:
    """A column of confidences in [0, 1]."""
    array = _whole(table, column)
    try:
        values = array.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowException as error:
        row = next(row for row, value in enumerate(array) if not _is_number(value))
        raise ValueError(f"column {column!r} must hold numbers; {table.name} has {array[row]} in row {row}.") from error
    wrong = ~((values >= 0) & (values <= 1))
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(f"column {column!r} must lie in [0, 1]; {table.name} has {array[row]} in row {row}.")
    return np.asarray(values, dtype=np.float64)


def _is_number(value: Any) -> bool:
    try:
        value.cast(pa.float64())
    except pa.ArrowException:
        return False
    return True


def _whole(table: Table, column: str) -> Any:
    array = table.columns[column].combine_chunks()
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _as_strings(array: Any, table: Table, column: str) -> Any:
    try:
        return array.cast(pa.string())
    except pa.ArrowException as error:
        raise TypeError(f"column {column!r} must hold text or numbers; {table.name} has {array.type}.") from error


def _whole_numbers(ids: Any) -> Any:
    try:
        numbers = ids.cast(pa.int64())
    except pa.ArrowInvalid:
        return ids
    return numbers if numbers.cast(pa.string()).equals(ids) else ids
