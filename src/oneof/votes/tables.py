"""Read columns of votes from CSV, TSV, Parquet, JSON records, Arrow tables or data frames."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from oneof.data.files.columns import open_table
from oneof.data.files.delimited import check_encoding
from oneof.data.files.source import TableSource, is_number, translate_arrow_errors
from oneof.data.files.unpacked import UNPACK_FIRST, check_unpacked
from oneof.data.roles import check_column
from oneof.storage.printable import shortened
from oneof.storage.regular import check_regular
from oneof.storage.strict_json import lone_surrogate

EXAMPLE = '{"item": 1, "annotator": "ann", "label": "cat"}'
_WHOLE_NUMBER = re.compile(r"(-?\d+)\.0+")
ENDINGS = ("csv", "tsv", "parquet", "jsonl", "ndjson", "json")


class VoteTable(NamedTuple):
    """Columns of a table of n rows, and how messages refer to them."""

    name: str
    columns: dict[str, Any]  # Arrow arrays [n]
    typed: bool  # False: all values are text, as in CSV
    lines: Sequence[int] | None  # line number of each row in a file of JSON Lines

    def row(self, i: int) -> str:
        """Describe a row for a message, with its line where it is known."""
        if self.lines is None:
            return f"row {i}"
        return f"row {i} (line {self.lines[i]})"

    def texts(self, column: str) -> tuple[NDArray[np.intp], Any]:
        """Return the rows and the values of a column as text, without nulls; a list gives a text for each element."""
        array = self.columns[column]
        if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
            row = pc.list_parent_indices(array).to_numpy()
            array = pc.list_flatten(array)
        else:
            row = np.arange(len(array))
        is_valid = pc.invert(pc.is_null(array, nan_is_null=True))
        valid_rows = row[is_valid.to_numpy(zero_copy_only=False)].astype(np.intp)
        return valid_rows, self._as_strings(column, array.filter(is_valid))

    def strings(self, column: str) -> Any:
        """Return a column as an Arrow array of strings, with its nulls."""
        return self._as_strings(column, self.columns[column])

    def _as_strings(self, column: str, array: Any) -> Any:
        try:
            return array.cast(pa.string())
        except pa.ArrowException as error:
            raise TypeError(f"column {column!r} must hold text or numbers; {self.name} has {array.type}.") from error

    def keys(self, column: str) -> Any:
        """Return the ids in a column as an Arrow dictionary array, distinct ids in order of first appearance.

        Ids of a text file become numbers if all of them are plainly written whole numbers.
        """
        array = self.columns[column]
        if pa.types.is_nested(array.type):
            raise TypeError(f"column {column!r} must hold text or numbers; {self.name} has {array.type}.")
        encoded = array.dictionary_encode()
        ids = encoded.dictionary
        if not self.typed:
            ids = _whole_numbers(ids)
        return pa.DictionaryArray.from_arrays(encoded.indices, ids)

    def confidences(self, column: str) -> NDArray[np.float64]:
        """Return a column of numbers in [0, 1]."""
        array = self.columns[column]
        try:
            values: NDArray[np.float64] = array.cast(pa.float64()).to_numpy(zero_copy_only=False)
        except pa.ArrowException as error:
            row = _first_non_number(array)
            got = f"{self.name} has {array[row]} in {self.row(row)}"
            raise ValueError(f"column {column!r} must hold numbers; {got}.") from error
        is_outside = ~((values >= 0) & (values <= 1))
        if is_outside.any():
            row = int(is_outside.argmax())
            raise ValueError(f"column {column!r} must lie in [0, 1]; {self.name} has {array[row]} in {self.row(row)}.")
        return values


def without_decimals(text: str) -> str:
    """Return a whole number without the decimals that programs write where other cells are empty: "1.0" becomes "1"."""
    number = _WHOLE_NUMBER.fullmatch(text)
    if number is None:
        return text
    return number[1]


def _whole_numbers(ids: Any) -> Any:
    """Return ids as integers if that loses nothing (007 would become 7), else as they are."""
    try:
        numbers = ids.cast(pa.int64())
        is_lossless = numbers.cast(pa.string()).equals(ids)
    except pa.ArrowInvalid:
        return ids
    if not is_lossless:
        return ids
    return numbers


def _first_non_number(array: Any) -> int:
    """Return the first row whose value is no number, 0 if all are."""
    for row, value in enumerate(array.to_pylist()):
        if not is_number(value):
            return row
    return 0


def load_columns(source: Any, required: Sequence[str], optional: Sequence[str] = ()) -> VoteTable:
    """Read columns of a file, an Arrow table or a data frame.

    Parameters
    ----------
    source
        A path, or the table itself. It must have at least one row.
    required
        Columns that must hold a value in every row.
    optional
        Columns that may hold nulls. They must be in the table, too.
    """
    wanted = list(dict.fromkeys([*required, *optional]))
    ending = ""
    if isinstance(source, (str, Path)):
        ending = check_ending(source)
        check_unpacked(Path(source), remedy=UNPACK_FIRST)
    lines: Sequence[int] | None = None
    if "json" in ending:
        opened, lines = _open_records(Path(source), wanted)
    else:
        opened = open_table(source)
    for name in wanted:
        check_column(name, opened.names, opened.name)
    opened.check_distinct(wanted)

    columns = _read_columns(opened, wanted)
    typed = ending not in ("csv", "tsv")
    if not typed:
        # Cells of a text file stay text, since guessed types would make 007 a 7 and the label NA a null.
        for name, cells in columns.items():
            columns[name] = pc.if_else(pc.equal(pc.utf8_trim_whitespace(cells), ""), None, cells)
    table = VoteTable(opened.name, columns, typed, lines)
    for name in required:
        _check_no_nulls(table, name)
    return table


def check_ending(source: str | Path) -> str:
    """Return the ending of a file without .gz; raise ValueError if it is not supported."""
    ending = Path(source).name.lower().removesuffix(".gz").rpartition(".")[2]
    if ending not in ENDINGS:
        supported = ", ".join(f".{name}" for name in ENDINGS)
        raise ValueError(f"a file of votes must end in one of {supported}, or in such an ending and .gz; got {source}.")
    return ending


def _read_columns(opened: TableSource, wanted: list[str]) -> dict[str, Any]:
    """Read columns into Arrow arrays [n], dictionaries decoded; raise ValueError if there are no rows."""
    chunks: dict[str, list[pa.Array]] = {name: [] for name in wanted}
    for name, _, values in opened.chunks([], wanted):
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        chunks[name].append(values)
    if not any(len(chunk) for chunk in chunks[wanted[0]]):
        raise ValueError(f"votes must have at least one row; {opened.name} has none.")
    return {name: pa.chunked_array(parts).combine_chunks() for name, parts in chunks.items()}


def _check_no_nulls(table: VoteTable, column: str) -> None:
    """Raise ValueError if a column has a null."""
    is_missing = pc.is_null(table.columns[column], nan_is_null=True).to_numpy(zero_copy_only=False)
    if is_missing.any():
        first = table.row(int(is_missing.argmax()))
        got = f"{table.name} has none in {first} ({int(is_missing.sum())} such rows)"
        raise ValueError(f"column {column!r} must hold a value in every row; {got}. Fill or drop them.")


def _open_records(path: Path, wanted: list[str]) -> tuple[TableSource, Sequence[int] | None]:
    """Open the wanted keys of a file's objects as columns, null where an object lacks a key; also return the objects' lines."""
    records, lines = read_records(path)
    keys: dict[str, None] = {}  # an ordered set
    for record in records:
        keys.update(dict.fromkeys(record))
    for name in wanted:
        check_column(name, list(keys), str(path))
    columns = {}
    for key in wanted:
        values = [record.get(key) for record in records]
        columns[key] = _to_column(values, key, path, lines)
    return replace(open_table(pa.table(columns)), name=str(path)), lines


def read_records(path: Path) -> tuple[list[dict[str, Any]], Sequence[int] | None]:
    """Read the objects of a JSON file, at least one, and their line numbers.

    A .json file holds one list of objects, for which the line numbers are None, or an object that `_unfold` turns into one. Any
    other file has one object per line.
    """
    is_list_file = path.name.lower().removesuffix(".gz").endswith(".json")
    lines: Sequence[int] | None = None
    if is_list_file:
        records = _unfold(load_json(path), path)
    else:
        records, lines = _load_json_lines(path)
    if not isinstance(records, list):
        raise ValueError(f"votes in JSON must be a list of objects, as [{EXAMPLE}]; {path} is {_preview(records)}.")
    for i, record in enumerate(records):
        if not isinstance(record, dict):
            hint = "Drop it."
            if isinstance(record, list) and not is_list_file:
                hint = "If the file is one JSON list, name it .json."
            got = f"{place_of_record(path, lines, i)} is {_preview(record)}"
            raise ValueError(f"votes in JSON must be objects, as {EXAMPLE}; {got}. {hint}")
    if not records:
        raise ValueError(f"votes must have at least one row; {path} has none.")
    return records, lines


def _unfold(content: Any, path: Path) -> Any:
    """Return the list of objects that one object stands for; what is none of these forms is returned as it is.

    {"data": [{...}, ...]}: the list. {"columns": [...], "data": [[...], ...]}: rows. {"item": [1, 2], "label": ["a", "b"]}, or the
    same with {"0": 1, "1": 2} as pandas writes it: columns. {"7": {"ann": "cat"}, "8": {...}}: objects by item, and
    {"7": ["cat", "dog"]} the votes on each.
    """
    if not isinstance(content, dict) or not content:
        return content
    if {"columns", "data"} <= content.keys() and isinstance(content["data"], list):
        return _from_split(content["columns"], content["data"], path)
    records = _only_list_of_objects(content)
    if records is not None:
        return records
    values = list(content.values())
    has_items = "item" in content or "id" in content
    if all(isinstance(value, dict) for value in values):
        if has_items:
            return _from_columns_by_key(content)
        return [{"item": item, **record} for item, record in content.items()]
    if all(isinstance(value, list) for value in values):
        if has_items and len({len(value) for value in values}) == 1:
            return [dict(zip(content, row, strict=True)) for row in zip(*values, strict=True)]
        return [{"item": item, "votes": votes} for item, votes in content.items()]
    return content


def _from_split(columns: Any, rows: list[Any], path: Path) -> list[dict[str, Any]]:
    """Return the rows of pandas' form "split" as objects; raise ValueError if names of columns or cells of a row are missing."""
    are_names = isinstance(columns, list) and all(isinstance(name, (str, int)) for name in columns)
    if not are_names or len(set(map(str, columns))) < len(columns):
        raise ValueError(
            f'"columns" of votes in JSON must be a list of distinct names; {path} has {_preview(columns)}. '
            "Name a column for each cell of a row."
        )
    names = [str(name) for name in columns]
    records = []
    for i, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != len(names):
            raise ValueError(
                f'"data" of votes in JSON must hold a list of {len(names)} cells for every row, one for each of "columns"; '
                f"{place_of_record(path, None, i)} is {_preview(row)}. Correct or drop it."
            )
        records.append(dict(zip(names, row, strict=True)))
    return records


def _only_list_of_objects(content: dict[str, Any]) -> list[Any] | None:
    """Return the list of objects in an object whose other values are texts or numbers; None for other objects."""
    records = None
    for value in content.values():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            if records is not None:
                return None
            records = value
        elif isinstance(value, (list, dict)):
            return None
    return records


def _from_columns_by_key(content: dict[str, dict[str, Any]]) -> Any:
    """Return the rows of {"item": {"0": 1, "1": 2}, ...}; what has other keys in one column is returned as it is."""
    first_column = next(iter(content.values()))
    keys = list(first_column)
    if any(list(column) != keys for column in content.values()):
        return content
    rows = []
    for key in keys:
        rows.append({name: column[key] for name, column in content.items()})
    return rows


def place_of_record(path: Path, lines: Sequence[int] | None, i: int) -> str:
    """Describe where a record is, for a message."""
    if lines:
        return f"{path}, line {lines[i]}"
    return f"{path}, row {i}"


def _to_column(values: list[Any], key: str, path: Path, lines: Sequence[int] | None) -> pa.Array:
    """Convert JSON values to an Arrow array; values of mixed types become text, and all become lists if one is a list."""
    values = [None if value != value else value for value in values]  # NaN, which pandas writes for a gap
    for i, value in enumerate(values):
        if isinstance(value, str) and value.isascii():
            continue  # the usual case, kept fast for files of a million records
        if _is_nested(value):
            got = f"{place_of_record(path, lines, i)} has {_preview(value)}"
            raise ValueError(f"{key!r} must hold text, numbers or a list of them; {got}. Flatten it.")
    if any(isinstance(value, list) for value in values):
        values = [_as_list(value) for value in values]
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError):  # numbers among texts, or numbers too large for Arrow
        return pa.array([_to_text(value) for value in values])


def _is_nested(value: Any) -> bool:
    """Return whether a JSON value is an object, or a list that holds an object or a list."""
    if isinstance(value, list):
        return any(isinstance(element, (dict, list)) for element in value)
    return isinstance(value, dict)


def _as_list(value: Any) -> Any:
    """Wrap a value in a list, unless it is null or a list already."""
    if value is None or isinstance(value, list):
        return value
    return [value]


def _to_text(value: Any) -> Any:
    """Convert a JSON value to text, or a list of them to a list of texts; null stays null."""
    if isinstance(value, list):
        return [_to_text(element) for element in value]
    if value is None or isinstance(value, str):
        return value
    return without_decimals(json.dumps(value))


def _preview(value: Any) -> str:
    """Return the beginning of a value as JSON, for a message."""
    return shortened(json.dumps(value, ensure_ascii=False))


def load_json(path: Path) -> Any:
    """Read a JSON file; raise ValueError with the reason in one line if it cannot be parsed."""
    content = _read_bytes(path)
    if not content.strip():
        raise ValueError(f"{path} cannot be read: it is empty.")
    try:
        text = content.decode(json.detect_encoding(content))
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError(f"{path} cannot be read: it is nested too deeply.") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be UTF-8; it has other bytes. Save it as UTF-8.") from error
    except ValueError as error:
        hint = ""
        if "Extra data" in str(error):
            hint = " If it has one object per line, name it .jsonl."
        raise ValueError(f"{path} cannot be read: it is not JSON ({error}).{hint}") from error
    _check_characters(value, text, str(path))
    return value


def _check_characters(value: Any, text: str, where: str) -> None:
    """Raise ValueError if a JSON value has half of a character, which JSON can write and UTF-8 cannot."""
    half = lone_surrogate(value, text)
    if half is not None:
        got = f"{where} has half of one (a lone surrogate): {half!r}"
        raise ValueError(f"texts must hold whole characters; {got}. Correct the text.")


def _read_bytes(path: Path) -> bytes:
    """Read a file, decompressed if it ends in .gz, without a byte order mark."""
    check_regular(path)
    check_unpacked(path, remedy=UNPACK_FIRST)
    compression = "gzip" if path.suffix.lower() == ".gz" else None
    with translate_arrow_errors(str(path)), path.open("rb") as file:
        content: bytes = pa.input_stream(file, compression=compression).read()
    return content.removeprefix(b"\xef\xbb\xbf")


def _load_json_lines(path: Path) -> tuple[list[Any], Sequence[int]]:
    """Return the values of all lines that are not blank, and their line numbers, counted from 1."""
    check_encoding(path)
    values = []
    line_numbers = []
    # Not splitlines, which would also cut a text at Unicode line breaks.
    for number, line in enumerate(_read_bytes(path).split(b"\n"), 1):
        if line.strip():
            values.append(_load_json_line(path, number, line))
            line_numbers.append(number)
    return values, line_numbers


def _load_json_line(path: Path, number: int, line: bytes) -> Any:
    """Parse one line; raise ValueError that names the line and what to do."""
    try:
        text = line.decode("utf-8")
        value = json.loads(text)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be UTF-8; it has other bytes, line {number}. Save it as UTF-8.") from error
    except (ValueError, RecursionError) as error:
        reason = str(error)
        if isinstance(error, json.JSONDecodeError):
            reason = f"{error.msg.removesuffix(' at')} at character {error.pos}"
        hint = "Correct or drop it."
        if line.strip() in (b"[", b"{"):
            hint = "Write each object on one line, or name the file .json if it is one JSON list."
        got = f"{path}, line {number} cannot be read ({reason})"
        raise ValueError(f"JSON Lines must have an object in every line, as {EXAMPLE}; {got}. {hint}") from error
    _check_characters(value, text, f"{path}, line {number}")
    return value
