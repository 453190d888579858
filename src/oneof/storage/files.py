"""Write files and folders atomically: under a temporary name that cannot be guessed, then renamed."""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


def unused_name() -> str:
    """Return a hidden name for a file or folder that is still being written."""
    return f".{secrets.token_hex(8)}.part"


@contextmanager
def atomic_write(path: Path, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """Yield a file to write bytes to, which replaces `path` at the end; nothing is left if writing fails.

    `mode` has the permissions of the file, before the umask is applied.
    """
    temporary = path.with_name(unused_name())

    def open_with_mode(name: str, flags: int) -> int:
        return os.open(name, flags, mode)

    try:
        with open(temporary, "xb", opener=open_with_mode) as file:  # a new file: a link of that name is not followed
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        if error.filename in (None, str(temporary), temporary):  # None if the disk is full
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a folder to write into, which is renamed to `path`, new or empty, once everything is written."""
    if path.exists() and not _is_empty_folder(path):
        raise ValueError(f"folder must be new or empty; {path} holds something. Give another one.")
    temporary = path.with_name(unused_name())
    temporary.mkdir(parents=True)
    try:
        yield temporary
        if path.exists():
            path.rmdir()
        temporary.rename(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _is_empty_folder(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())
