"""Locate the folder for state that belongs to a user and machine rather than to a run."""

import os
import sys
import traceback
from pathlib import Path

from oneof.storage.files import atomic_write


def user_state_folder() -> Path:
    """Return the folder for state of this user and machine; it need not exist.

    `$XDG_STATE_HOME/oneof` where that variable holds an absolute path; else the platform's place: `~/.local/state/oneof`,
    `~/Library/Application Support/oneof` on macOS, `%LOCALAPPDATA%/oneof` on Windows. Raises OSError where the user has no
    home folder.
    """
    configured = Path(os.environ.get("XDG_STATE_HOME", ""))
    if configured.is_absolute():
        return configured / "oneof"
    home = Path(os.path.expanduser("~"))
    if not home.is_absolute():
        raise FileNotFoundError("the user has no home folder")
    if sys.platform == "win32":
        parent = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        parent = home / "Library" / "Application Support"
    else:
        parent = home / ".local" / "state"
    return parent / "oneof"


def write_traceback(error: BaseException) -> Path:
    """Write the traceback of an error to the state folder, in place of the last one, and return where it is."""
    folder = user_state_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / "traceback.txt"
    with atomic_write(path, mode=0o600) as file:
        file.write("".join(traceback.format_exception(error)).encode(errors="backslashreplace"))
    return path
