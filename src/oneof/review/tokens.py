"""The token of a run's Label Studio backend, remembered between starts, because Label Studio stores it as a password.

It is kept in the user's state folder, readable by the user alone, and not in the run folder, which people share.
"""

import hashlib
import json
import secrets
from pathlib import Path

from oneof.storage.files import atomic_write
from oneof.storage.schema import find_schema_error
from oneof.storage.user_state import user_state_folder

_SHAPE = {"folder": str, "token": str}
_MIN_LENGTH = 16


def new_token() -> str:
    """Return a token that nobody can guess."""
    return secrets.token_urlsafe(16)


def remembered_token(folder: Path) -> str | None:
    """Return the token that a run's backend had last time, or None."""
    path = folder.resolve()
    try:
        content = json.loads((_records_folder() / _record_name(path)).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    if find_schema_error(content, _SHAPE) is not None or content["folder"] != str(path):
        return None
    token: str = content["token"]
    if len(token) < _MIN_LENGTH or not token.isascii():
        return None
    return token


def remember_token(folder: Path, token: str) -> None:
    """Write down the token of a run for the next start. Raise OSError where the state folder cannot be written."""
    path = folder.resolve()
    records = _records_folder()
    records.mkdir(mode=0o700, parents=True, exist_ok=True)
    with atomic_write(records / _record_name(path), mode=0o600) as file:
        file.write(json.dumps({"folder": str(path), "token": token}).encode())


def _records_folder() -> Path:
    return user_state_folder() / "label-studio"


def _record_name(folder: Path) -> str:
    digest = hashlib.sha256(str(folder).encode(errors="surrogateescape")).hexdigest()
    return f"{digest[:16]}.json"
