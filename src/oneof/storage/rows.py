"""Rows: files of JSON lines that only ever grow; several processes may append at once."""

import json
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

from oneof.storage.locks import locked
from oneof.storage.regular import check_regular, open_to_append

_log = logging.getLogger(__name__)
Row = dict[str, Any]


def append(path: Path, rows: Iterable[Row]) -> None:
    """Append rows to a file of JSON lines; several processes may do so at once. Links are not followed."""
    # What a writer that was killed left of its last line is moved to a file beside, whose name ends in `.damaged`.
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    with open_to_append(path) as file, locked(file):
        _mend(path, file)
        _write_all(file, text)
        os.fsync(file.fileno())


def read(path: Path) -> list[Row]:
    """All rows of a file of JSON lines, without a last line that was cut short when its writer was killed."""
    check_regular(path)
    with path.open("rb") as file, locked(file, shared=True):
        content = file.read()
    whole, tail = _parted(content)
    if tail:
        _log.warning(f"{path} ends in a damaged line of {len(tail)} bytes, which is left out.", stacklevel=2)
    rows = []
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            rows.append(json.loads(line))
            if not isinstance(rows[-1], dict):
                raise ValueError("it holds another value")
        except ValueError as error:
            got = f"line {number} does not ({error}). Delete the line."
            raise ValueError(f"{path} must hold one JSON object per line; {got}") from error
    return rows


def _mend(path: Path, file: IO[bytes]) -> None:
    """See that the file ends in a whole line."""
    file.seek(max(file.seek(0, os.SEEK_END) - 1, 0))
    if file.read() in (b"", b"\n"):
        return
    file.seek(0)
    whole, tail = _parted(file.read())
    if not tail:
        file.write(b"\n")
        return
    aside = path.with_name(f"{path.name}.damaged")
    with open_to_append(aside) as damaged:
        _write_all(damaged, tail + b"\n")
    _log.warning(f"{path} ended in a damaged line; it was moved to {aside}.", stacklevel=3)
    file.truncate(len(whole))


def _write_all(file: IO[bytes], content: bytes) -> None:
    """Write bytes to an unbuffered file: a write may be short when the disk is nearly full; the next one then fails."""
    left = memoryview(content)
    while left:
        left = left[file.write(left) :]


def _parted(content: bytes) -> tuple[bytes, bytes]:
    """Whole lines, and what a killed writer left of one: a last line without an end that is no JSON."""
    end = content.rfind(b"\n") + 1
    try:
        if content[end:]:
            json.loads(content[end:])
    except ValueError:
        return content[:end], content[end:]
    return content, b""
