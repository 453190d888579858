"""Let a server of a run know of another one that is running."""

import os
import platform
import time
from contextlib import ExitStack
from pathlib import Path

from oneof.storage.locks import locked
from oneof.storage.regular import open_to_append

LOCK = "review.lock"
_MAX_BYTES = 500


class Presence:
    """Announce a server in the folders of its runs, by locks that end with the process.

    Parameters
    ----------
    address : str
        Where the server answers, without its token: other people may read the folder.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._locks = ExitStack()

    def announce(self, folder: Path) -> str | None:
        """Announce the server in a run's folder; return a description of the server that is there already, or None.

        Nothing is announced in a folder that cannot be written.
        """
        lock = ExitStack()
        try:
            file = lock.enter_context(open_to_append(folder / LOCK))
        except OSError:
            return None
        try:
            lock.enter_context(locked(file, wait=False))
        except OSError:
            file.seek(0)
            description = file.read(_MAX_BYTES).decode(errors="replace")
            lock.close()
            return description or "another process"
        file.truncate(0)
        since = time.strftime("%Y-%m-%d %H:%M")
        file.write(f"process {os.getpid()} on {platform.node()} at {self._address} since {since}".encode())
        self._locks.push(lock)
        self._locks.callback((folder / LOCK).unlink, missing_ok=True)  # before the lock is released
        return None

    def close(self) -> None:
        """Remove the announcements."""
        self._locks.close()
