"""Tables of votes: CSV, TSV, Parquet, JSON records, Arrow or pandas, of which only the named columns are read."""

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from oneof.data.files.columns import open_table
from oneof.data.files.delimited import check_encoding
from oneof.data.files.source import Source, is_number, readable
from oneof.data.files.unpacked import UNPACK_FIRST, check_unpacked
from oneof.data.roles import check_column
from oneof.storage.printable import shortened
from oneof.storage.regular import check_regular

EXAMPLE = '{"item": 1, "annotator": "ann", "label": "cat"}'
ENDINGS = ("csv", "tsv", "parquet", "jsonl", "ndjson", "json")


class VoteTable(NamedTuple):
    """Columns, and what to call them in messages."""

    name: str
    columns: dict[str, Any]  # Arrow arrays [n]
    typed: bool  # does the source know types, or is all of it text?
    lines: Sequence[int] | None  # where each row stands in a file of JSON Lines

    def row(self, i: int) -> str:
        return f"row {i}" if self.lines is None else f"row {i} (line {self.lines[i]})"

    def texts(self, column: str) -> tuple[NDArray[np.intp], Any]:
        """The texts of a column without its nulls, and their rows; a list is as many texts."""
        array = self.columns[column]
        row = np.arange(len(array))
        if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
            row, array = pc.list_parent_indices(array).to_numpy(), pc.list_flatten(array)
        kept = pc.invert(pc.is_null(array, nan_is_null=True))
        return row[kept.to_numpy(zero_copy_only=False)].astype(np.intp), self.strings(column, array.filter(kept))

    def strings(self, column: str, values: Any = None) -> Any:
        """A column, or values of it, as an Arrow array of strings; nulls stay."""
        array = self.columns[column] if values is None else values
        try:
            return array.cast(pa.string())
        except pa.ArrowException as error:
            raise TypeError(f"column {column!r} must hold text or numbers; {self.name} has {array.type}.") from error

    def keys(self, column: str) -> Any:
        """The ids of the rows' items as an Arrow dictionary array, the distinct ones in order of first appearance."""
        # Ids of a text file that are whole numbers, plainly written, become numbers.
        array = self.columns[column]
        if pa.types.is_nested(array.type):
            raise TypeError(f"column {column!r} must hold text or numbers; {self.name} has {array.type}.")
        encoded = array.dictionary_encode()
        ids = encoded.dictionary
        if not self.typed:
            with suppress(pa.ArrowInvalid):
                numbers = ids.cast(pa.int64())
                ids = numbers if numbers.cast(pa.string()).equals(ids) else ids
        return pa.DictionaryArray.from_arrays(encoded.indices, ids)

    def confidences(self, column: str) -> NDArray[np.float64]:
        """A column of numbers in [0, 1]."""
        array = self.columns[column]
        try:
            values: NDArray[np.float64] = array.cast(pa.float64()).to_numpy(zero_copy_only=False)
        except pa.ArrowException as error:
            row = next((row for row, value in enumerate(array.to_pylist()) if not is_number(value)), 0)
            said = f"{self.name} has {array[row]} in {self.row(row)}"
            raise ValueError(f"column {column!r} must hold numbers; {said}.") from error
        wrong = ~((values >= 0) & (values <= 1))
        if wrong.any():
            row = int(wrong.argmax())
            raise ValueError(f"column {column!r} must lie in [0, 1]; {self.name} has {array[row]} in {self.row(row)}.")
        return values


def load(source: Any, full: Sequence[str], gappy: Sequence[str] = ()) -> VoteTable:
    """Read columns of a file, an Arrow table or a data frame, with a row at least; those that are `full` have no gaps."""
    wanted = list(dict.fromkeys([*full, *gappy]))
    is_file = isinstance(source, (str, Path))
    ending = Path(source).name.lower().removesuffix(".gz").rpartition(".")[2] if is_file else ""
    if is_file and ending not in ENDINGS:
        known = ", ".join(f".{ending}" for ending in ENDINGS)
        raise ValueError(f"a file of votes must end in one of {known}, or in such an ending and .gz; got {source}.")
    if is_file:
        check_unpacked(Path(source), remedy=UNPACK_FIRST)
    opened, lines = _records(Path(source), wanted) if "json" in ending else (open_table(source), None)
    for name in wanted:
        check_column(name, opened.names, opened.name)
    opened.check_distinct(wanted)
    pieces: dict[str, list[pa.Array]] = {name: [] for name in wanted}
    for name, _, values in opened.pieces([], wanted):
        pieces[name].append(values.dictionary_decode() if pa.types.is_dictionary(values.type) else values)
    if not any(map(len, pieces[wanted[0]])):
        raise ValueError(f"votes must have at least one row; {opened.name} has none.")
    columns = {name: pa.chunked_array(parts).combine_chunks() for name, parts in pieces.items()}
    typed = ending not in ("csv", "tsv")
    if not typed:  # all of it is text, since a guess would make 007 a 7 and the label NA a null
        columns = {name: pc.if_else(pc.equal(cells, ""), None, cells) for name, cells in columns.items()}
    table = VoteTable(opened.name, columns, typed, lines)
    for name in full:
        missing = pc.is_null(columns[name], nan_is_null=True).to_numpy(zero_copy_only=False)
        if missing.any():
            got = f"{table.name} has none in {table.row(int(missing.argmax()))} ({int(missing.sum())} such rows)"
            raise ValueError(f"column {name!r} must hold a value in every row; {got}. Fill or drop them.")
    return table


def _records(path: Path, wanted: list[str]) -> tuple[Source, Sequence[int] | None]:
    """The wanted keys of a file's objects as columns, null where an object lacks one, and the lines of the objects."""
    objects, lines = read_records(path)
    keys = list(dict.fromkeys(key for record in objects for key in record))
    for name in wanted:
        check_column(name, keys, str(path))
    columns = {key: _column([record.get(key) for record in objects], key, path, lines) for key in wanted}
    return replace(open_table(pa.table(columns)), name=str(path)), lines


def read_records(path: Path) -> tuple[list[dict[str, Any]], Sequence[int] | None]:
    """The objects of a file, at least one, and their lines; .json is one list of them, any other ending has one per line."""
    listed = path.name.lower().removesuffix(".gz").endswith(".json")
    objects, lines = (load_json(path), None) if listed else _json_lines(path)
    if not isinstance(objects, list):
        raise ValueError(f"votes in JSON must be a list of objects, as [{EXAMPLE}]; {path} is {_short(objects)}.")
    for i, value in enumerate(objects):
        if not isinstance(value, dict):
            hint = "Call a JSON list .json." if isinstance(value, list) and not listed else "Drop it."
            wrong = f"{_place(path, lines, i)} is {_short(value)}. {hint}"
            raise ValueError(f"votes in JSON must be objects, as {EXAMPLE}; {wrong}")
    if not objects:
        raise ValueError(f"votes must have at least one row; {path} has none.")
    return objects, lines


def _place(path: Path, lines: Sequence[int] | None, i: int) -> str:
    return f"{path}, " + (f"line {lines[i]}" if lines else f"row {i}")


def _column(values: list[Any], key: str, path: Path, lines: Sequence[int] | None) -> pa.Array:
    """Values as an Arrow array; those of several kinds become text, and where one is a list, all do."""
    for i, value in enumerate(values):
        if isinstance(value, str) and value.isascii():
            continue  # most are: a million records need not wait
        parts = value if isinstance(value, list) else [value]
        if any(isinstance(part, (dict, list)) for part in parts):
            got = f"{_place(path, lines, i)} has {_short(value)}. Flatten it."
            raise ValueError(f"{key!r} must hold text, numbers or a list of them; {got}")
        half = next((part for part in parts if isinstance(part, str) and re.search("[\ud800-\udfff]", part)), None)
        if half is not None:
            got = f"{_place(path, lines, i)} has half of one: {half[:60]!r}."
            raise ValueError(f"{key!r} must hold whole characters; {got}")
    if any(isinstance(value, list) for value in values):
        values = [value if value is None or isinstance(value, list) else [value] for value in values]
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError):  # numbers among texts, or too large
        return pa.array(map(_text, values))


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
    check_regular(path)
    check_unpacked(path, remedy=UNPACK_FIRST)
    packing = "gzip" if path.suffix.lower() == ".gz" else None
    with readable(str(path)), path.open("rb") as file:
        content: bytes = pa.input_stream(file, compression=packing).read()
    return content.removeprefix(b"\xef\xbb\xbf")


def _json_lines(path: Path) -> tuple[list[Any], Sequence[int]]:
    """What every line holds that is not blank, and the numbers of these lines from 1."""
    check_encoding(path)
    # Not splitlines, which would cut a text at the line breaks of Unicode.
    lines = {number: line for number, line in enumerate(_content(path).split(b"\n"), 1) if line.strip()}
    objects = []
    for number, line in lines.items():
        try:
            objects.append(json.loads(line.decode("utf-8")))
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} must be UTF-8; it has other bytes, line {number}. Save it as UTF-8.") from error
        except (ValueError, RecursionError) as error:
            why = str(error)
            if isinstance(error, json.JSONDecodeError):
                why = f"{error.msg.removesuffix(' at')} at character {error.pos}"
            alone = line.strip() in (b"[", b"{")
            hint = "Write each object in one line, or call one JSON list .json." if alone else "Mend or drop it."
            got = f"{path}, line {number} cannot be read ({why}). {hint}"
            raise ValueError(f"JSON Lines must have an object in every line, as {EXAMPLE}; {got}") from error
    return objects, list(lines)
