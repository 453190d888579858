"""Accept regular files only: opening a pipe or a device may block forever, and writing through a link changes another file."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

MAX_JSON_BYTES = 1 << 27  # of a JSON file that describes a run; reading takes up to fifty times as much memory
_KINDS = {
    stat.S_IFLNK: "a link",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def check_regular(path: str | Path, *, links: bool = True) -> None:
    """Raise ValueError if `path` exists and is not a regular file.

    Links to regular files are accepted unless `links` is False.
    """
    kind = irregular_kind(path, links=links)
    if kind is not None:
        raise _not_regular(path, kind)


def irregular_kind(path: str | Path, *, links: bool = True) -> str | None:
    """Return what `path` is, in words, if it exists and is not a regular file; None otherwise."""
    try:
        mode = os.stat(path, follow_symlinks=links).st_mode
    except OSError:  # it is missing, or a broken link: opening it raises the proper error
        return None
    if stat.S_ISREG(mode):
        return None
    return _kind(mode)


def check_plain_tree(folder: Path) -> None:
    """Raise ValueError if a folder is a link, or contains anything but regular files and folders at any depth."""
    if not os.path.lexists(folder):
        return
    entries = [folder]
    for parent, folders, files in os.walk(folder):
        entries += [Path(parent, name) for name in (*folders, *files)]
    for path in entries:
        mode = path.lstat().st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise _not_regular(path, _kind(mode))


def read_regular(path: Path, max_bytes: int = MAX_JSON_BYTES) -> bytes:
    """Return the content of a regular file; raise ValueError if it has more bytes.

    An archive of some bytes may contain a file of any size that consists of zeros.
    """
    check_regular(path)
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > max_bytes:
            raise ValueError(
                f"{path} must have at most {max_bytes:,} bytes; it has {size:,}. It is damaged, or not ours."
            )
        return file.read()


@contextmanager
def open_to_append(path: Path) -> Iterator[IO[bytes]]:
    """Open a regular file to read and append bytes, unbuffered; create it if it is missing. Links are not followed."""
    check_regular(path, links=False)
    with open(path, "ab+", buffering=0, opener=_open_without_links) as file:
        mode = os.fstat(file.fileno()).st_mode
        if not stat.S_ISREG(mode):
            raise _not_regular(path, _kind(mode))
        yield file


def _open_without_links(path: str, flags: int) -> int:
    """Open like `os.open`, but neither follow a link nor wait for the other end of a pipe."""
    no_follow = getattr(os, "O_NOFOLLOW", 0)  # Windows has neither flag
    no_block = getattr(os, "O_NONBLOCK", 0)
    return os.open(path, flags | no_follow | no_block, 0o666)


def _kind(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), "something else")


def _not_regular(path: str | Path, kind: str) -> ValueError:
    return ValueError(
        f"{path} must be a regular file; it is {kind}. Put a copy of the file in its place, or delete it."
    )
