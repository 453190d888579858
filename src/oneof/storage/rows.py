"""Append rows to files of JSON lines, and read them; several processes may append at once."""

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
    """Append rows to a file of JSON lines; links are not followed.

    An incomplete last line, left by a writer that was killed, is moved to a file of the same name that ends in `.damaged`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    with open_to_append(path) as file, locked(file):
        _repair_tail(path, file)
        _write_all(file, lines.encode())
        os.fsync(file.fileno())


def read(path: Path) -> list[Row]:
    """Return the rows of a file of JSON lines, without an incomplete last line, left by a writer that was killed."""
    check_regular(path)
    with path.open("rb") as file, locked(file, shared=True):
        content = file.read()
    complete, tail = _split_tail(content)
    if tail:
        _log.warning(f"{path} ends in a damaged line of {len(tail)} bytes, which is left out.", stacklevel=2)
    rows = []
    for number, line in enumerate(complete.splitlines(), 1):
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError("it holds another value")
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"{path} must hold one JSON object per line; line {number} does not ({error}). Delete the line."
            ) from error
        rows.append(row)
    return rows


def _repair_tail(path: Path, file: IO[bytes]) -> None:
    """Make the file end in a complete line."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - 1, 0))
    last_byte = file.read()
    if last_byte in (b"", b"\n"):
        return
    file.seek(0)
    complete, tail = _split_tail(file.read())
    if not tail:
        file.write(b"\n")
        return
    damaged_path = path.with_name(f"{path.name}.damaged")
    with open_to_append(damaged_path) as damaged:
        _write_all(damaged, tail + b"\n")
    _log.warning(f"{path} ended in a damaged line; it was moved to {damaged_path}.", stacklevel=3)
    file.truncate(len(complete))


def _write_all(file: IO[bytes], content: bytes) -> None:
    """Write bytes to an unbuffered file, whose writes may be short when the disk is nearly full; the next one then fails."""
    remaining = memoryview(content)
    while remaining:
        n_written = file.write(remaining)
        remaining = remaining[n_written:]


def _split_tail(content: bytes) -> tuple[bytes, bytes]:
    """Return the complete lines, and the incomplete last one: without a line end, and not JSON."""
    end = content.rfind(b"\n") + 1
    tail = content[end:]
    if not tail:
        return content, b""
    try:
        json.loads(tail)
    except (ValueError, RecursionError):
        return content[:end], tail
    return content, b""
