"""Locks on files, which end with the process that holds them, however it ends."""

import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from oneof.storage.regular import open_to_append

_FAR = 2**40


@contextmanager
def locked(file: IO[bytes], shared: bool = False, wait: bool = True) -> Iterator[None]:
    """Wait until no other process writes to the file, or raise OSError if one does."""
    # Windows has no shared locks of this kind: there, others do not read it either.
    if find_spec("fcntl"):
        fcntl = import_module("fcntl")
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
        release = partial(fcntl.flock, file, fcntl.LOCK_UN)
    else:
        msvcrt = import_module("msvcrt")
        _lock_byte(msvcrt.locking, file, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK)
        release = partial(_lock_byte, msvcrt.locking, file, msvcrt.LK_UNLCK)
    try:
        yield
    finally:
        release()


def _lock_byte(locking: Callable[[int, int, int], None], file: IO[bytes], how: int) -> None:
    """Lock or release a byte far behind the end: Windows keeps others from bytes that are locked."""
    place = file.tell()
    file.seek(_FAR)
    locking(file.fileno(), how, 1)
    file.seek(place)


@contextmanager
def alone(path: Path, what: str) -> Iterator[None]:
    """Hold the lock file `path`, or say at once who does; a link in its place is refused."""
    with open_to_append(path) as file, ExitStack() as held:
        try:
            held.enter_context(locked(file, wait=False))
        except OSError as error:
            file.seek(0)
            who = file.read(200).decode(errors="replace") or "another process"
            raise ValueError(f"{what} must not be in use; {who}. Wait for it, or give another.") from error
        file.truncate(0)
        file.write(f"process {os.getpid()} on {platform.node()} is at work there since {time.ctime()}".encode())
        yield
