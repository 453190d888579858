"""Lock files; a lock ends with the process that holds it, even if that process is killed."""

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

_LOCKED_BYTE = 2**40  # position of the byte to lock on Windows, far beyond the end of any file


@contextmanager
def locked(file: IO[bytes], shared: bool = False, wait: bool = True) -> Iterator[None]:
    """Hold a lock on an open file.

    Waits until no other process holds the lock or, without `wait`, raises OSError if one does. Several processes can hold a
    shared lock, except on Windows, which has none of this kind: there readers exclude each other too.
    """
    if find_spec("fcntl"):
        fcntl = import_module("fcntl")
        operation = fcntl.LOCK_EX
        if shared:
            operation = fcntl.LOCK_SH
        if not wait:
            operation |= fcntl.LOCK_NB
        fcntl.flock(file, operation)
        release = partial(fcntl.flock, file, fcntl.LOCK_UN)
    else:
        msvcrt = import_module("msvcrt")
        if wait:
            operation = msvcrt.LK_LOCK
        else:
            operation = msvcrt.LK_NBLCK
        _lock_byte(msvcrt.locking, file, operation)
        release = partial(_lock_byte, msvcrt.locking, file, msvcrt.LK_UNLCK)
    try:
        yield
    finally:
        release()


def _lock_byte(locking: Callable[[int, int, int], None], file: IO[bytes], operation: int) -> None:
    """Lock or release a byte far beyond the end, because Windows denies other processes access to locked bytes."""
    position = file.tell()
    file.seek(_LOCKED_BYTE)
    locking(file.fileno(), operation, 1)
    file.seek(position)


@contextmanager
def exclusive_lock(path: Path, what: str) -> Iterator[None]:
    """Hold the lock file `path`, or raise ValueError at once that names the holder; links are not followed."""
    with open_to_append(path) as file, ExitStack() as stack:
        try:
            stack.enter_context(locked(file, wait=False))
        except OSError as error:
            file.seek(0)
            holder = file.read(200).decode(errors="replace") or "another process"
            raise ValueError(f"{what} must not be in use; {holder}. Wait for it, or give another.") from error
        holder = f"process {os.getpid()} on {platform.node()} is at work there since {time.ctime()}"
        file.truncate(0)
        file.write(holder.encode())
        yield
