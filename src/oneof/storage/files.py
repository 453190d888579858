"""Files that are whole or not there: written beside under a name that nobody can guess, then renamed."""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


def unused_name() -> str:
    """A hidden name for what is not whole yet."""
    return f".{secrets.token_hex(8)}.part"


@contextmanager
def written_beside(path: Path, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """Yield a file to write bytes to, which takes the place of `path` at the end; nothing is left if writing fails.

    `mode` has the permissions of the file, from which the umask is taken away.
    """
    beside = path.with_name(unused_name())

    def open_with_mode(name: str, flags: int) -> int:
        return os.open(name, flags, mode)

    try:
        with open(beside, "xb", opener=open_with_mode) as file:  # a new file: a link of that name is not followed
            yield file
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        if error.filename in (None, str(beside), beside):  # a full disk names no file, others the one beside
            error.filename = str(path)
        raise
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def folder_beside(path: Path) -> Iterator[Path]:
    """A folder to write into, which takes the name of `path`, new or empty, only when all is written."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ValueError(f"folder must be new or empty; {path} holds something. Give another one.")
    beside = path.with_name(unused_name())
    beside.mkdir(parents=True)
    try:
        yield beside
        if path.exists():
            path.rmdir()
        beside.rename(path)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
