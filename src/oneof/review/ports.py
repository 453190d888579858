"""The port of a run's review, remembered between starts.

A browser keeps answers that it could not send by the origin of the page, and the port is part of the origin: a server on another
port would never receive them. The port is remembered in the user's state folder, readable by the user alone, and not in the run
folder, which people share. The token is drawn anew at each start: while no server runs, another user of the machine may listen on the
port, and a page that is still open would send that user the token.
"""

import hashlib
import json
import random
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from oneof.runs.folder import METADATA, fingerprint
from oneof.storage.files import atomic_write
from oneof.storage.schema import find_schema_error
from oneof.storage.user_state import user_state_folder

ServerT = TypeVar("ServerT")
# Below the ports that Linux, macOS and Windows hand out to connections, which might take a remembered one in the meantime.
_PORTS = range(20_000, 32_768)
_ATTEMPTS = 20
_SHAPE = {"folder": str, "run": str, "port": int}


@dataclass(frozen=True)
class PortRecord:
    """The port on which a run was reviewed last."""

    folder: str  # resolved path of the run folder
    run: str  # id of the run, which a copy or a renamed folder shares
    port: int


def run_id(folder: Path) -> str:
    """Return the id of a run, by which the log and the browser tell runs apart."""
    return fingerprint(folder / METADATA)[:16]


def remembered_port(folder: Path) -> int | None:
    """Return the port on which the run was reviewed last, or None.

    A renamed folder keeps its port. A copy has none as long as the original is there, so that both can be reviewed at once.
    """
    path = folder.resolve()
    try:
        records = _records_folder()
    except OSError:
        return None
    record = _read(records / _record_name(path))
    if record is not None and record.folder == str(path):
        return record.port
    run = run_id(path)
    for other in sorted(records.glob("*.json")):
        record = _read(other)
        if record is not None and record.run == run and not (Path(record.folder) / METADATA).exists():
            return record.port
    return None


def remember_port(folder: Path, port: int) -> None:
    """Write down the port of a run for the next start. Raise OSError where the state folder cannot be written."""
    path = folder.resolve()
    record = PortRecord(str(path), run_id(path), port)
    records = _records_folder()
    records.mkdir(mode=0o700, parents=True, exist_ok=True)
    with atomic_write(records / _record_name(path), mode=0o600) as file:
        file.write(json.dumps(asdict(record)).encode())


def bind_free_port(make_server: Callable[[int], ServerT]) -> ServerT:
    """Return a server on a port that is free now and is likely to be free at the next start."""
    for port in random.sample(_PORTS, _ATTEMPTS):
        try:
            return make_server(port)
        except OSError:
            continue
    return make_server(0)


def _records_folder() -> Path:
    return user_state_folder() / "review"


def _record_name(folder: Path) -> str:
    digest = hashlib.sha256(str(folder).encode(errors="surrogateescape")).hexdigest()
    return f"{digest[:16]}.json"


def _read(path: Path) -> PortRecord | None:
    """Return the record in a file; None where there is none, or it is damaged."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    if find_schema_error(content, _SHAPE) is not None or not 0 < content["port"] < 1 << 16:
        return None
    return PortRecord(content["folder"], content["run"], content["port"])
