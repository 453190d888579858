"""Tables of votes: CSV, TSV, Parquet, JSON records, Arrow or pandas, of which only the named columns are read."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from oneof.data.files.columns import open_table
from oneof.data.roles import check_column
from oneof.votes.records import as_array, keys_of, read_records

ENDINGS = ("csv", "tsv", "parquet", "jsonl", "ndjson", "json")


class VoteTable(NamedTuple):
    """An Arrow table, and what to call it in messages."""

    name: str
    columns: Any  # pa.Table
    typed: bool  # does the source know types, or is all of it text?
    lines: Sequence[int] | None = None  # where each row stands in a file of JSON Lines

    def row(self, i: int) -> str:
        """What to call row i in messages."""
        return f"row {i}" if self.lines is None else f"row {i} (line {self.lines[i]})"


def load(source: Any, columns: Sequence[str]) -> VoteTable:
    """Read the named columns of a file, an Arrow table or a data frame; at least one row.

    >>> load(pa.table({"item": [1, 2], "label": ["a", "b"], "other": [0, 0]}), ["item", "label"]).columns.column_names
    ['item', 'label']
    """
    wanted = list(dict.fromkeys(columns))
    ending = _ending(Path(source)) if isinstance(source, (str, Path)) else None
    if ending in ("json", "jsonl", "ndjson"):
        return _load_records(Path(source), wanted)
    opened = open_table(source)
    for name in wanted:
        check_column(name, opened.names, opened.name)
    opened.check_distinct(wanted)
    pieces: dict[str, list[pa.Array]] = {name: [] for name in wanted}
    for name, _, values in opened.pieces([], wanted):
        pieces[name].append(values)
    if not any(map(len, pieces[wanted[0]])):
        raise ValueError(f"votes must have at least one row; {opened.name} has none.")
    table = pa.table({name: pa.chunked_array(parts) for name, parts in pieces.items()})
    if ending in ("csv", "tsv"):  # all of it is text, since a guess would make 007 a 7 and the label NA a null
        table = pa.table({name: pc.if_else(pc.equal(table[name], ""), None, table[name]) for name in wanted})
    return VoteTable(opened.name, table, typed=ending not in ("csv", "tsv"))


def _load_records(path: Path, wanted: list[str]) -> VoteTable:
    records = read_records(path)
    for name in wanted:
        check_column(name, keys_of(records), str(path))
    columns = pa.table({key: as_array(records, key) for key in wanted})
    return VoteTable(str(path), columns, typed=True, lines=records.lines)


def _ending(path: Path) -> str:
    ending = path.name.lower().removesuffix(".gz").rpartition(".")[2]
    if ending not in ENDINGS:
        raise ValueError(
            f"a file of votes must end in one of {', '.join(f'.{known}' for known in ENDINGS)}, or in such an ending and .gz; got {path}."
        )
    return ending


# ----------------------------------------------------------------------------------------------------------- its columns


def refuse_missing(table: VoteTable, column: str) -> None:
    """Every row of the column must hold something."""
    missing = pc.is_null(table.columns[column], nan_is_null=True).to_numpy()
    if missing.any():
        raise ValueError(
            f"column {column!r} must hold a value in every row; {table.name} has none in {table.row(int(missing.argmax()))}"
            f" ({int(missing.sum())} such rows). Fill or drop them."
        )


def strings(table: VoteTable, column: str) -> Any:
    """A column as one Arrow array of strings; nulls stay."""
    return _as_strings(_whole(table, column), table, column)


def texts(table: VoteTable, column: str) -> tuple[NDArray[np.intp], Any]:
    """The texts of a column without its nulls, and their rows; a list is as many texts."""
    array = _whole(table, column)
    row = np.arange(len(array))
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        row, array = pc.list_parent_indices(array).to_numpy(), pc.list_flatten(array)
    kept = pc.invert(pc.is_null(array, nan_is_null=True))
    return row[kept.to_numpy(zero_copy_only=False)].astype(np.intp), _as_strings(array.filter(kept), table, column)


def keys(table: VoteTable, column: str) -> tuple[NDArray[np.intp], Any]:
    """The number of each row's item, and the distinct ids in order of first appearance.

    Ids of a text file that are whole numbers, plainly written, become numbers.
    """
    array = _whole(table, column)
    if pa.types.is_nested(array.type):
        raise TypeError(f"column {column!r} must hold text or numbers; {table.name} has {array.type}.")
    encoded = array.dictionary_encode()
    distinct = encoded.dictionary if table.typed else _whole_numbers(encoded.dictionary)
    return encoded.indices.to_numpy().astype(np.intp), distinct


def numbers(table: VoteTable, column: str) -> NDArray[np.float64]:
    """A column of confidences in [0, 1]."""
    array = _whole(table, column)
    try:
        values = array.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowException as error:
        row = next(row for row, value in enumerate(array) if not _is_number(value))
        raise ValueError(
            f"column {column!r} must hold numbers; {table.name} has {array[row]} in {table.row(row)}."
        ) from error
    wrong = ~((values >= 0) & (values <= 1))
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(f"column {column!r} must lie in [0, 1]; {table.name} has {array[row]} in {table.row(row)}.")
    return np.asarray(values, dtype=np.float64)


def _is_number(value: Any) -> bool:
    try:
        value.cast(pa.float64())
    except pa.ArrowException:
        return False
    return True


def _whole(table: VoteTable, column: str) -> Any:
    array = table.columns[column].combine_chunks()
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _as_strings(array: Any, table: VoteTable, column: str) -> Any:
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
