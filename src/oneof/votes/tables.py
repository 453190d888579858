"""Tables of votes: CSV, TSV, Parquet, JSON records, Arrow or pandas, of which only the named columns are read."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from oneof.data.files.columns import check_encoding, is_number, open_table, readable
from oneof.data.roles import check_column
from oneof.storage.printable import shortened

EXAMPLE = '{"item": 1, "annotator": "ann", "label": "cat"}'
ENDINGS = ("csv", "tsv", "parquet", "jsonl", "ndjson", "json")


class VoteTable(NamedTuple):
    """Columns, and what to call them in messages."""

    name: str
    columns: dict[str, Any]  # Arrow arrays [n]
    typed: bool  # does the source know types, or is all of it text?
    lines: Sequence[int] | None = None  # where each row stands in a file of JSON Lines

    def row(self, i: int) -> str:
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
    """Read columns of a file, an Arrow table or a data frame, with a row at least; those that are `full` have no gaps.

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


# --------------------------------------------------------------------------------------------------------- JSON records


class Records(NamedTuple):
    """Objects, in the order of the file."""

    path: Path
    objects: Any  # a list [n] of dicts, once they are checked
    lines: Sequence[int] | None  # [n], of JSON Lines, counted from 1

    def place(self, i: int) -> str:
        return f"{self.path}, " + (f"line {self.lines[i]}" if self.lines else f"row {i}")


def read_records(path: Path) -> Records:
    """Read the objects of a file, at least one; .json is one list of them, any other ending has one per line."""
    listed = path.name.lower().removesuffix(".gz").endswith(".json")
    records = Records(path, load_json(path), None) if listed else _lines(path)
    if not isinstance(records.objects, list):
        got = f"{path} is {_short(records.objects)}"
        raise ValueError(f"votes in JSON must be a list of objects, as [{EXAMPLE}]; {got}.")
    for i, value in enumerate(records.objects):
        if not isinstance(value, dict):
            hint = "Call a JSON list .json." if isinstance(value, list) and not listed else "Drop it."
            wrong = f"{records.place(i)} is {_short(value)}. {hint}"
            raise ValueError(f"votes in JSON must be objects, as {EXAMPLE}; {wrong}")
    if not records.objects:
        raise ValueError(f"votes must have at least one row; {path} has none.")
    return records


def as_array(records: Records, key: str) -> Any:
    """The values of a key as an Arrow array, null where an object lacks it.

    Values of several kinds become text; where one is a list, all do.

    >>> as_array(Records(Path("v.jsonl"), [{"label": "cat"}, {"label": ["cat", "dog"]}, {}], None), "label").to_pylist()
    [['cat'], ['cat', 'dog'], None]
    """
    values = [record.get(key) for record in records.objects]
    for i, value in enumerate(values):
        if isinstance(value, (dict, list, str)):
            _check_value(records, i, key, value)
    if any(isinstance(value, list) for value in values):
        values = [value if value is None or isinstance(value, list) else [value] for value in values]
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError):  # numbers among texts, or too large
        return pa.array(map(_text, values))


def _check_value(records: Records, i: int, key: str, value: Any) -> None:
    if isinstance(value, str) and value.isascii():
        return  # most are: a million records need not wait
    parts = value if isinstance(value, list) else [value]
    if any(isinstance(part, (dict, list)) for part in parts):
        got = f"{records.place(i)} has {_short(value)}. Flatten it."
        raise ValueError(f"{key!r} must hold text, numbers or a list of them; {got}")
    for part in parts:
        if isinstance(part, str) and any("\ud800" <= sign <= "\udfff" for sign in part):
            raise ValueError(f"{key!r} must hold whole characters; {records.place(i)} has half of one: {part[:60]!r}.")


def _text(value: Any) -> Any:
    if isinstance(value, list):
        return [_text(part) for part in value]
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _short(value: Any) -> str:
    return shortened(json.dumps(value, ensure_ascii=False))


def load_json(path: Path) -> Any:
    """Read a JSON file, or say in one line where it breaks."""
    content = _content(path)
    if not content.strip():
        raise ValueError(f"{path} cannot be read: it is empty.")
    try:
        return json.loads(content)
    except RecursionError as error:
        raise ValueError(f"{path} cannot be read: it is nested too deeply.") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be UTF-8; it has other bytes. Save it as UTF-8.") from error
    except ValueError as error:
        hint = " If it has one object per line, call it .jsonl." if "Extra data" in str(error) else ""
        raise ValueError(f"{path} cannot be read: it is not JSON ({error}).{hint}") from error


def _content(path: Path) -> bytes:
    packing = "gzip" if path.suffix.lower() == ".gz" else None
    with readable(str(path)), path.open("rb") as file:
        content: bytes = pa.input_stream(file, compression=packing).read()
    return content


def _lines(path: Path) -> Records:
    check_encoding(path)
    content = _content(path).removeprefix(b"\xef\xbb\xbf")
    # Not splitlines, which would cut a text at the line breaks of Unicode.
    lines = {number: line for number, line in enumerate(content.split(b"\n"), 1) if line.strip()}
    return Records(path, [_parsed(path, number, line) for number, line in lines.items()], list(lines))


def _parsed(path: Path, number: int, line: bytes) -> Any:
    try:
        return json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be UTF-8; it has other bytes, line {number}. Save it as UTF-8.") from error
    except (ValueError, RecursionError) as error:
        why = str(error)
        if isinstance(error, json.JSONDecodeError):
            why = f"{error.msg.removesuffix(' at')} at character {error.pos}"
        hint = "Mend or drop it."
        if line.strip() in (b"[", b"{"):
            hint = "Write each object in one line, or call one JSON list .json."
        got = f"{path}, line {number} cannot be read ({why}). {hint}"
        raise ValueError(f"JSON Lines must have an object in every line, as {EXAMPLE}; {got}") from error
