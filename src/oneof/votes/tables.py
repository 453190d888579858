"""Tables of votes: CSV, TSV, Parquet, JSON records, Arrow or pandas, of which only the named columns are read."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from oneof.data.files.columns import is_number, open_table
from oneof.data.roles import check_column
from oneof.votes.records import as_array, read_records

ENDINGS = ("csv", "tsv", "parquet", "jsonl", "ndjson", "json")


class VoteTable(NamedTuple):
    """Columns, and what to call them in messages."""

    name: str
    columns: dict[str, Any]  # Arrow arrays [n]
    typed: bool  # does the source know types, or is all of it text?
    lines: Sequence[int] | None = None  # where each row stands in a file of JSON Lines

    def row(self, i: int) -> str:
        """What to call row i in messages."""
        return f"row {i}" if self.lines is None else f"row {i} (line {self.lines[i]})"

    def strings(self, column: str) -> Any:
        """A column as an Arrow array of strings; nulls stay."""
        return self._as_strings(self.columns[column], column)

    def texts(self, column: str) -> tuple[NDArray[np.intp], Any]:
        """The texts of a column without its nulls, and their rows; a list is as many texts."""
        array = self.columns[column]
        row = np.arange(len(array))
        if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
            row, array = pc.list_parent_indices(array).to_numpy(), pc.list_flatten(array)
        kept = pc.invert(pc.is_null(array, nan_is_null=True))
        return row[kept.to_numpy(zero_copy_only=False)].astype(np.intp), self._as_strings(array.filter(kept), column)

    def keys(self, column: str) -> tuple[NDArray[np.intp], Any]:
        """The number of each row's item, and the distinct ids in order of first appearance.

        Ids of a text file that are whole numbers, plainly written, become numbers.
        """
        array = self.columns[column]
        if pa.types.is_nested(array.type):
            raise TypeError(f"column {column!r} must hold text or numbers; {self.name} has {array.type}.")
        encoded = array.dictionary_encode()
        distinct = encoded.dictionary if self.typed else _whole_numbers(encoded.dictionary)
        return encoded.indices.to_numpy().astype(np.intp), distinct

    def confidences(self, column: str) -> NDArray[np.float64]:
        """A column of numbers in [0, 1]."""
        array = self.columns[column]
        try:
            values = array.cast(pa.float64()).to_numpy(zero_copy_only=False)
        except pa.ArrowException as error:
            row = next((row for row, value in enumerate(array.to_pylist()) if not is_number(value)), 0)
            said = f"{self.name} has {array[row]} in {self.row(row)}"
            raise ValueError(f"column {column!r} must hold numbers; {said}.") from error
        wrong = ~((values >= 0) & (values <= 1))
        if wrong.any():
            row = int(wrong.argmax())
            raise ValueError(f"column {column!r} must lie in [0, 1]; {self.name} has {array[row]} in {self.row(row)}.")
        return np.asarray(values, dtype=np.float64)

    def _as_strings(self, array: Any, column: str) -> Any:
        try:
            return array.cast(pa.string())
        except pa.ArrowException as error:
            raise TypeError(f"column {column!r} must hold text or numbers; {self.name} has {array.type}.") from error


def load(source: Any, full: Sequence[str], gappy: Sequence[str] = ()) -> VoteTable:
    """Read columns of a file, an Arrow table or a data frame: at least one row, and a value in every row of those that are `full`.

    >>> list(load(pa.table({"item": [1, 2], "label": ["a", "b"], "other": [0, 0]}), ["item", "label"]).columns)
    ['item', 'label']
    """
    wanted = list(dict.fromkeys([*full, *gappy]))
    ending = _ending(Path(source)) if isinstance(source, (str, Path)) else ""
    typed = ending not in ("csv", "tsv")
    table = _records(Path(source), wanted) if "json" in ending else _columns(source, wanted, typed)
    for name in full:
        missing = pc.is_null(table.columns[name], nan_is_null=True).to_numpy(zero_copy_only=False)
        if missing.any():
            got = f"{table.name} has none in {table.row(int(missing.argmax()))} ({int(missing.sum())} such rows)"
            remedy = "Fill or drop them."
            raise ValueError(f"column {name!r} must hold a value in every row; {got}. {remedy}")
    return table


def _columns(source: Any, wanted: list[str], typed: bool) -> VoteTable:
    opened = open_table(source)
    for name in wanted:
        check_column(name, opened.names, opened.name)
    opened.check_distinct(wanted)
    pieces: dict[str, list[pa.Array]] = {name: [] for name in wanted}
    for name, _, values in opened.pieces([], wanted):
        pieces[name].append(values.dictionary_decode() if pa.types.is_dictionary(values.type) else values)
    if not any(map(len, pieces[wanted[0]])):
        raise ValueError(f"votes must have at least one row; {opened.name} has none.")
    columns = {name: pa.chunked_array(parts).combine_chunks() for name, parts in pieces.items()}
    if not typed:  # all of it is text, since a guess would make 007 a 7 and the label NA a null
        columns = {name: pc.if_else(pc.equal(cells, ""), None, cells) for name, cells in columns.items()}
    return VoteTable(opened.name, columns, typed)


def _records(path: Path, wanted: list[str]) -> VoteTable:
    records = read_records(path)
    keys = list(dict.fromkeys(key for record in records.objects for key in record))
    for name in wanted:
        check_column(name, keys, str(path))
    return VoteTable(str(path), {key: as_array(records, key) for key in wanted}, typed=True, lines=records.lines)


def _ending(path: Path) -> str:
    ending = path.name.lower().removesuffix(".gz").rpartition(".")[2]
    if ending not in ENDINGS:
        known = ", ".join(f".{ending}" for ending in ENDINGS)
        raise ValueError(f"a file of votes must end in one of {known}, or in such an ending and .gz; got {path}.")
    return ending


def _whole_numbers(ids: Any) -> Any:
    try:
        numbers = ids.cast(pa.int64())
    except pa.ArrowInvalid:
        return ids
    return numbers if numbers.cast(pa.string()).equals(ids) else ids
