"""The folder that `oneof fit` writes: a model, what became of every row, how training went, and what was asked for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from oneof.files import written_beside
from oneof.model import Model, load_model

FACTS, PURIFIED, TRAINING, ROWS = "run.json", "purified.parquet", "training.json", "rows.jsonl"


@dataclass(frozen=True)
class Run:
    """A finished run; its parts are read when they are first asked for."""

    folder: Path
    facts: dict[str, Any]  # run.json

    @classmethod
    def open(cls, folder: str | Path) -> Run:
        """Open a folder that `oneof fit` finished; run.json is written last, so with it everything is there."""
        folder = Path(folder)
        if not folder.is_dir():
            raise ValueError(f"a run must be a folder that oneof fit wrote; there is no {str(folder)!r}.")
        if (folder / "checkpoint").is_dir() and not (folder / FACTS).exists():
            raise ValueError(f"the run in {folder} must be finished; it was stopped. Repeat its command to go on.")
        return cls(folder, _object(folder / FACTS))

    @cached_property
    def purified(self) -> pa.Table:
        """One row per training row, in the order of the file."""
        path = self.folder / PURIFIED
        try:
            return pq.read_table(path)
        except (pa.ArrowException, FileNotFoundError) as error:
            raise _damaged(path) from error

    @cached_property
    def training(self) -> dict[str, Any]:
        """How training went, epoch by epoch."""
        return _object(self.folder / TRAINING)

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """One row per tried setting and per network of the ensemble."""
        path = self.folder / ROWS
        try:
            return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        except (FileNotFoundError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise _damaged(path) from error

    @cached_property
    def model(self) -> Model:
        """The ensemble."""
        return load_model(self.folder)


def _object(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise _damaged(path) from error
    if not isinstance(found, dict):
        raise _damaged(path)
    return found


def _damaged(path: Path) -> ValueError:
    return ValueError(f"a run must hold {path.name}; in {path.parent} it is missing or damaged. Fit it again.")


# -------------------------------------------------------------------------------------------------------------- writing


def write_json(value: Any, path: Path) -> None:
    """Write a value as JSON; a NaN, which JSON has not, is refused."""
    with written_beside(path) as file:
        file.write(json.dumps(value, ensure_ascii=False, indent=1, allow_nan=False).encode())


def write_rows(rows: Iterable[dict[str, Any]], path: Path) -> None:
    """Write one JSON object per line."""
    with written_beside(path) as file:
        file.writelines(f"{json.dumps(row, ensure_ascii=False)}\n".encode() for row in rows)


def write_table(table: pa.Table, path: Path) -> None:
    """Write Parquet."""
    with written_beside(path) as file:
        pq.write_table(table, file, compression="zstd")


def fingerprint(path: Path) -> str:
    """SHA-256 of a file's content.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "empty"
    >>> path.touch()
    >>> fingerprint(path)[:8]
    'e3b0c442'
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
