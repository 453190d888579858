"""The folder that `oneof fit` writes: a model, what became of every row, how training went, and what was asked for."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from oneof.candidates.mask import Candidates
from oneof.data.files.unpacked import GIGABYTES, bytes_of, parquet_bytes
from oneof.data.images import list_folder
from oneof.ensemble.accuracy import SAMPLE, drawn_rows
from oneof.ensemble.model import Model
from oneof.runs.decisions import Log, decided_table, verdicts
from oneof.runs.stored_model import count_voices, load_model
from oneof.storage.files import written_beside
from oneof.storage.regular import check_regular
from oneof.storage.schema import NOTHING, NUMBER, first_misfit
from oneof.storage.sheets import write_sheet
from oneof.version import RUN_FORMAT

FACTS, PURIFIED, TRAINING, ROWS = "run.json", "purified.parquet", "training.json", "rows.jsonl"
SAMPLE_CSV = "sample.csv"  # rows to label, drawn at random: fifty labels show how often the model is right on all
_ESTIMATE = {"verdict": {"interval", "bound", "nothing learned"}, "value": (*NUMBER, NOTHING), "by": str, "reason": str}
_FACTS = {
    **dict.fromkeys(("format", "seed", "n", "d"), int),
    **dict.fromkeys(("oneof", "torch", "file", "fingerprint", "rule"), str),
    **{name: [str] for name in ("command", "classes", "features", "warnings")},
    "estimate": _ESTIMATE | dict.fromkeys(("low", "high", "bound", "covering"), NUMBER),
    "chosen": [dict], "learners": {str: NUMBER}, "asked": dict, "seconds": NUMBER,
}  # fmt: skip
_TRAINING = {"trials": int, "epochs": int, "columns": {str: [[(*NUMBER, NOTHING)]]}, "chosen": [int]}
_COLUMNS = "original kept label probability margin agreement ask outside removed trained neighbours gain distribution"


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
        facts = _read(folder / FACTS, _FACTS)
        if facts["format"] != RUN_FORMAT:
            got = f"it has {facts['format']}, of oneof {facts['oneof']}. Read it with that version"
            raise ValueError(f"{folder} must be a run of format {RUN_FORMAT}; {got}.")
        return cls(folder, facts)

    @cached_property
    def purified(self) -> pa.Table:
        """One row per training row, in the order of the file, as the networks resolved it."""
        path = self.folder / PURIFIED
        check_regular(path)
        try:
            with pq.ParquetFile(path) as file:
                self._check_purified(path, file)
                return file.read()
        except (pa.ArrowException, FileNotFoundError) as error:
            raise _refused(path) from error

    def _check_purified(self, path: Path, file: pq.ParquetFile) -> None:
        """Refuse a table by what it says of itself, before it is read: a small file may claim any number of rows."""
        absent = next((name for name in f"row {_COLUMNS}".split() if name not in file.schema_arrow.names), None)
        if absent is not None:
            raise _refused(path, f"column {absent!r} is missing")
        rows = file.metadata.num_rows
        if rows != self.facts["n"]:
            raise _refused(path, f"it has {rows} rows, but {FACTS} says {self.facts['n']}")
        if parquet_bytes(file.metadata) > bytes_of(GIGABYTES):
            raise _refused(path, f"it holds more than {GIGABYTES:g} GB")

    @property
    def decided(self) -> pa.Table:
        """`purified` as people left it: their decisions and gold labels are final; see `oneof.runs.decisions`."""
        return decided_table(self.purified, verdicts(Log(self.folder).standing))

    @cached_property
    def training(self) -> dict[str, Any]:
        """How training went, epoch by epoch."""
        path = self.folder / TRAINING
        found: dict[str, Any] = _read(path, _TRAINING)
        t, epochs = found["trials"], found["epochs"]
        for name, column in found["columns"].items():
            if len(column) != epochs or any(len(row) != t for row in column):
                raise _refused(path, f"columns.{name} must have {epochs} rows of {t} numbers")
        if len(found["chosen"]) != t or not all(1 <= epoch <= epochs for epoch in found["chosen"]):
            raise _refused(path, f"chosen must be epochs from 1 to {epochs}")
        return found

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """One row per tried setting and per network of the ensemble."""
        path = self.folder / ROWS
        return _read(path, [dict], lambda text: list(map(json.loads, text.splitlines())), "line")  # type: ignore[no-any-return]

    @cached_property
    def model(self) -> Model:
        """The ensemble."""
        return load_model(self.folder)

    @cached_property
    def voices(self) -> int:
        """How many models had a say in the label of a row; no weights are read for it."""
        return count_voices(self.folder)


def _read(path: Path, shape: Any, parse: Callable[[str], Any] = json.loads, name: str = "") -> Any:
    check_regular(path)
    try:
        found = parse(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError, RecursionError) as error:
        raise _refused(path) from error
    if misfit := first_misfit(found, shape, name):
        raise _refused(path, misfit)
    return found


def _refused(path: Path, misfit: str | None = None) -> ValueError:
    """A file that is missing or damaged, or one that oneof did not write."""
    must, got = f"a run must hold {path.name}", f"in {path.parent} it is missing or damaged"
    if misfit:
        must, got = f"{path} must be the file that oneof fit wrote", misfit
    return ValueError(f"{must}; {got}. Fit it again, in another folder.")


def write_json(value: Any, path: Path) -> None:
    """Write a value as JSON; a NaN, which JSON has not, is refused."""
    with written_beside(path) as file:
        file.write(json.dumps(value, ensure_ascii=False, indent=1, allow_nan=False).encode())


def fingerprint(path: Path) -> str:
    """SHA-256 of a file's content; of a folder of pictures, of their names."""
    if path.is_dir():
        return hashlib.sha256(json.dumps(list_folder(path).to_pydict()).encode()).hexdigest()
    if path.exists() and not path.is_file():
        raise ValueError(f"a table must be a file; {path} is a pipe or a device. Save it as a file.")
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_sample(purified: pa.Table, folder: Path) -> None:
    """Write the rows that are drawn, with their sets and an empty column for the right label; no guess, which would lead a person."""
    rows = drawn_rows(purified.num_rows)[:SAMPLE]
    sets, empty = purified["original"].take(pa.array(rows)), pa.nulls(len(rows), pa.string())
    write_sheet(pa.table({"row": rows, "candidates": sets, "gold": empty}), folder / SAMPLE_CSV)


def read_sample(path: Path, candidates: Candidates, gold: NDArray[np.intp] | None) -> NDArray[np.intp]:
    """Gold labels [n], -1 where there is none: those of the columns `row` and `gold` of a CSV file before those at hand."""
    place, n = {str(name): j for j, name in enumerate(candidates.classes.tolist())}, len(candidates.mask)
    found = np.full(n, -1) if gold is None else gold.copy()
    with path.open(newline="", encoding="utf-8-sig") as file:
        lines = csv.DictReader(file)
        if not {"row", "gold"} <= set(lines.fieldnames or ()):
            raise ValueError(f"{path} must have the columns row and gold; it has {', '.join(lines.fieldnames or ())}.")
        for number, line in enumerate(lines, 2):
            row, label = line["row"] or "", (line["gold"] or "").strip()
            if not row.isdecimal() or int(row) >= n:
                raise ValueError(f"{path} must name rows from 0 to {n - 1}; line {number} has {row!r}.")
            if label and label not in place:
                raise ValueError(f"{path} must hold labels that the sets have; line {number} has {label!r}.")
            if label:
                found[int(row)] = place[label]
    return found
