"""Records of votes as columns: JSON Lines, or one JSON list of flat objects."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from oneof.data.files.columns import check_encoding, readable
from oneof.storage.printable import shortened

EXAMPLE = '{"item": 1, "annotator": "ann", "label": "cat"}'


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


# ------------------------------------------------------------------------------------------------------------- the files


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
