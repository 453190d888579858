"""Tables of votes: CSV, TSV, Parquet, JSON records, Arrow or pandas, of which only the named columns are read."""

from __future__ import annotations

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

from oneof.data.files.columns import Unreadable, check_encoding, csv_message, readable
from oneof.votes.records import as_array, keys_of, read_records

ONE_THREAD = pacsv.ReadOptions(use_threads=False)  # only then does Arrow number a bad row
ENDINGS = ("csv", "tsv", "parquet", "jsonl", "ndjson", "json")


class Table(NamedTuple):
    """An Arrow table, and what to call it in messages."""

    name: str
    columns: Any  # pa.Table
    typed: bool  # does the source know types, or is all of it text?
    lines: Sequence[int] | None = None  # where each row stands in a file of JSON Lines

    def row(self, i: int) -> str:
        """What to call row i in messages."""
        return f"row {i}" if self.lines is None else f"row {i} (line {self.lines[i]})"


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


def _load_file(path: Path, wanted: list[str]) -> Table:
    match _ending(path):
        case "json" | "jsonl" | "ndjson":
            return _load_records(path, wanted)
        case "parquet":
            with _explained(path):
                _require(str(path), pq.read_schema(path).names, wanted)
                return Table(str(path), pq.read_table(path, columns=wanted), typed=True)
        case _:
            return Table(str(path), _read_csv(path, wanted), typed=False)


def _load_records(path: Path, wanted: list[str]) -> Table:
    records = read_records(path)
    _require(str(path), keys_of(records), wanted)
    return Table(str(path), pa.table({key: as_array(records, key) for key in wanted}), typed=True, lines=records.lines)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Make one line, with the file's name, of what Arrow says; what the system says has it already."""
    try:
        with readable(str(path)):
            yield
    except Unreadable as error:
        if path.stat().st_size == 0 or "Empty CSV" in str(error):
            raise ValueError(f"votes must have at least one row; {path} is empty.") from error
        raise ValueError(csv_message(path, str(error), {})) from error


def _ending(path: Path) -> str:
    ending = path.name.lower().removesuffix(".gz").rpartition(".")[2]
    if ending not in ENDINGS:
        raise ValueError(
            f"a file of votes must end in one of {', '.join(f'.{known}' for known in ENDINGS)}, or in such an ending and .gz; got {path}."
        )
    return ending


def _dialect(path: Path) -> pacsv.ParseOptions:
    # Answers of language models hold line breaks.
    return pacsv.ParseOptions(delimiter="\t" if _ending(path) == "tsv" else ",", newlines_in_values=True)


def _read_csv(path: Path, wanted: list[str]) -> pa.Table:
    """All text, since a guess would make 007 a 7 and the label NA a null."""
    as_text = pacsv.ConvertOptions(
        include_columns=wanted,
        column_types=dict.fromkeys(wanted, pa.string()),
        null_values=[""],
        strings_can_be_null=True,
    )
    check_encoding(path)
    with _explained(path):
        with pacsv.open_csv(path, ONE_THREAD, _dialect(path)) as reader:
            present = list(reader.schema.names)
        _require(str(path), present, wanted)
        return pacsv.read_csv(path, ONE_THREAD, _dialect(path), as_text)


def _from_frame(frame: Any) -> pa.Table:
    if not hasattr(frame, "columns"):
        raise TypeError(f"votes must be a path, an Arrow table or a data frame; got {type(frame).__name__}.")
    return pa.Table.from_pandas(frame, preserve_index=False)


def _require(name: str, present: list[str], wanted: list[str]) -> None:
    for column in wanted:
        if present.count(column) == 1:
            continue
        if column in present:
            raise ValueError(f"{name} must have one column {column!r}; it has {present.count(column)}. Rename them.")
        close = get_close_matches(column, present, 1)
        hint = f"Did you mean {close[0]!r}?" if close else "Say which column to read."
        raise ValueError(f"{name} must have the column {column!r}; it has {', '.join(present) or 'none'}. {hint}")


# ----------------------------------------------------------------------------------------------------------- its columns


def refuse_missing(table: Table, column: str) -> None:
    """Every row of the column must hold something."""
    missing = pc.is_null(table.columns[column], nan_is_null=True).to_numpy()
    if missing.any():
        raise ValueError(
            f"column {column!r} must hold a value in every row; {table.name} has none in {table.row(int(missing.argmax()))}"
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
