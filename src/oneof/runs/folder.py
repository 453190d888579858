"""Open the folder that `oneof fit` writes: a model, what became of every row, how training went, and the settings."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from oneof.candidates.mask import Candidates
from oneof.data.files.arrays import array_suffixes
from oneof.data.files.unpacked import GIGABYTES, bytes_of, most_values, parquet_bytes
from oneof.data.images import list_folder
from oneof.ensemble.accuracy import GOLD_SAMPLE_ROWS, sample_order
from oneof.ensemble.model import Model
from oneof.runs.decisions import Log, decided_table, resolve_decisions
from oneof.runs.purified_columns import COLUMNS, schema_misfit, values_misfit
from oneof.runs.stored_model import count_models, load_model
from oneof.storage.files import atomic_write
from oneof.storage.regular import check_regular, read_regular
from oneof.storage.schema import NOTHING, NUMBER, find_schema_error
from oneof.storage.sheets import write_sheet
from oneof.storage.strict_json import parse_json
from oneof.version import RUN_FORMAT

METADATA = "run.json"
PURIFIED = "purified.parquet"
TRAINING = "training.json"
ROWS = "rows.jsonl"
SAMPLE_CSV = "sample.csv"  # rows drawn at random for people to label; fifty labels measure the accuracy of all
_LARGEST = float(np.finfo(np.float32).max)
_MAX_LIST = 64  # elements of a list that does not name classes, such as the neighbours of a row, in the mean
_BUFFER_BYTES = 1 << 16  # of each column of a table that is read in batches
_ESTIMATE = {
    "verdict": {"interval", "bound", "nothing learned"},
    "value": (*NUMBER, NOTHING),
    "by": str,
    "reason": str,
    "low": NUMBER,
    "high": NUMBER,
    "bound": NUMBER,
    "covering": NUMBER,
}
_METADATA = {
    "format": int,
    "seed": int,
    "n": int,
    "d": int,
    "oneof": str,
    "torch": str,
    "file": str,
    "fingerprint": str,
    "rule": str,
    "command": [str],
    "classes": [str],
    "features": [str],
    "warnings": [str],
    "estimate": _ESTIMATE,
    "chosen": [dict],
    "learners": {str: NUMBER},
    "asked": dict,
    "seconds": NUMBER,
}
_OPTIONAL_METADATA = {"taught": [int], "columns": {str: {"use": str, "reason": str}}}  # not in every run
_TRAINING = {"trials": int, "epochs": int, "columns": {str: [[(*NUMBER, NOTHING)]]}, "chosen": [int]}


@dataclass(frozen=True)
class Run:
    """A finished run; its files are read on first access."""

    folder: Path
    metadata: dict[str, Any]  # the content of run.json

    @classmethod
    def open(cls, folder: str | Path) -> Run:
        """Open a folder that `oneof fit` finished.

        run.json is written last, so a folder that has it is complete.
        """
        folder = Path(folder)
        if not folder.is_dir():
            raise ValueError(f"a run must be a folder that oneof fit wrote; there is no {str(folder)!r}.")
        if (folder / "checkpoint").is_dir() and not (folder / METADATA).exists():
            raise ValueError(f"the run in {folder} must be finished; it was stopped. Repeat its command to resume it.")
        metadata = _read(folder / METADATA, _METADATA)
        for name, shape in _OPTIONAL_METADATA.items():
            if name not in metadata:
                continue
            misfit = find_schema_error(metadata[name], shape, name)
            if misfit is not None:
                raise _damaged(folder / METADATA, misfit)
        if metadata["format"] != RUN_FORMAT:
            raise ValueError(
                f"{folder} must be a run of format {RUN_FORMAT}; it has format {metadata['format']}, of oneof "
                f"{metadata['oneof']}. Read it with that version."
            )
        return cls(folder, metadata)

    @cached_property
    def purified(self) -> pa.Table:
        """Return one row per training row, in the order of the file, as the models resolved it."""
        path = self.folder / PURIFIED
        check_regular(path)
        try:
            with pq.ParquetFile(path) as file:
                self._check_purified(path, file)
                table = file.read(columns=_known_columns(file))
            misfit = values_misfit(table, self.metadata["classes"])
        except (pa.ArrowException, FileNotFoundError) as error:
            raise _incomplete(path) from error
        if misfit is not None:
            raise _damaged(path, misfit)
        return table

    def purified_batches(self, n_rows: int) -> Iterator[pa.Table]:
        """Yield `purified` in tables of so many rows, or fewer; only one of them is in memory."""
        path = self.folder / PURIFIED
        check_regular(path)
        try:
            # Without buffers of their own, columns would be read a row group, often a million rows, at a time.
            with pq.ParquetFile(path, buffer_size=_BUFFER_BYTES, pre_buffer=False) as file:
                self._check_purified(path, file, in_memory=False)
                first_row = 0
                for batch in file.iter_batches(n_rows, columns=_known_columns(file), use_threads=False):
                    table = pa.Table.from_batches([batch])
                    misfit = values_misfit(table, self.metadata["classes"], first_row, self.metadata["n"])
                    if misfit is not None:
                        raise _damaged(path, misfit)
                    yield table
                    first_row += table.num_rows
        except (pa.ArrowException, FileNotFoundError) as error:
            raise _incomplete(path) from error

    def _check_purified(self, path: Path, file: pq.ParquetFile, in_memory: bool = True) -> None:
        """Check a table by its schema and metadata before it is read: a small file may claim any number of rows."""
        misfit = schema_misfit(file.schema_arrow)
        if misfit is not None:
            raise _damaged(path, misfit)
        n_rows = file.metadata.num_rows
        if n_rows != self.metadata["n"]:
            raise _damaged(path, f"it has {n_rows} rows, but {METADATA} says {self.metadata['n']}")
        n_classes = len(self.metadata["classes"])
        max_values = n_rows * max(n_classes, _MAX_LIST)
        if most_values(file.metadata) > max_values:  # a long run of one value takes next to no bytes
            raise _damaged(path, f"its lists are longer than those of {n_rows} rows and {n_classes} classes can be")
        if in_memory and parquet_bytes(file.metadata) > bytes_of(GIGABYTES):
            raise _damaged(path, f"it holds more than {GIGABYTES:g} GB")

    @cached_property
    def original(self) -> pa.ChunkedArray:
        """Return the candidates of every row, without the other columns of `purified`."""
        path = self.folder / PURIFIED
        check_regular(path)
        try:
            with pq.ParquetFile(path, read_dictionary=["original.list.element"]) as file:
                self._check_purified(path, file, in_memory=False)
                return file.read(columns=["original"])["original"]
        except (pa.ArrowException, FileNotFoundError) as error:
            raise _incomplete(path) from error

    @cached_property
    def log(self) -> Log:
        """Return the log of what people decided about this run."""
        return Log(self.folder, self.purified["original"])

    @property
    def decided(self) -> pa.Table:
        """Return `purified` with the decisions of people and the gold labels applied, which are final."""
        self.log.refresh()
        return decided_table(self.purified, resolve_decisions(self.log.active_decisions))

    @cached_property
    def training(self) -> dict[str, Any]:
        """Return the history of training: columns of [epochs, trials], and the epoch chosen for each trial."""
        path = self.folder / TRAINING
        training: dict[str, Any] = _read(path, _TRAINING)
        n_trials = training["trials"]
        n_epochs = training["epochs"]
        for name, column in training["columns"].items():
            if len(column) != n_epochs or any(len(row) != n_trials for row in column):
                raise _damaged(path, f"columns.{name} must have {n_epochs} rows of {n_trials} numbers")
            if np.abs(np.nan_to_num(np.array(column, dtype=float))).max(initial=0.0) > _LARGEST:
                raise _damaged(path, f"columns.{name} must have numbers within float32")
        chosen = training["chosen"]
        if len(chosen) != n_trials or not all(1 <= epoch <= n_epochs for epoch in chosen):
            raise _damaged(path, f"chosen must be epochs from 1 to {n_epochs}")
        return training

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """Return one row per scaling that was tried, with its scores, and one per learner, with its weight."""
        rows: list[dict[str, Any]] = _read(self.folder / ROWS, [dict], _parse_lines, "line")
        return rows

    @cached_property
    def model(self) -> Model:
        """Return the ensemble."""
        return load_model(self.folder)

    @cached_property
    def n_models(self) -> int:
        """Return the number of models in the ensemble, without reading their weights."""
        return count_models(self.folder)


def _known_columns(file: pq.ParquetFile) -> list[str]:
    """Return the names of the columns to read; further ones might have the names of those that commands add."""
    return [name for name in file.schema_arrow.names if name in COLUMNS]


def _parse_lines(text: str) -> list[Any]:
    """Parse JSON lines; a score in them may be NaN."""
    return [json.loads(line) for line in text.splitlines()]


def _read(path: Path, shape: Any, parse: Callable[[str], Any] = parse_json, name: str = "") -> Any:
    """Return the content of a JSON file after validation; `name` is what messages call a part of it."""
    try:
        stored = read_regular(path)
    except FileNotFoundError as error:
        raise _incomplete(path) from error
    try:
        content = parse(stored.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise _incomplete(path) from error
    misfit = find_schema_error(content, shape, name)
    if misfit is not None:
        raise _damaged(path, misfit)
    return content


def _incomplete(path: Path) -> ValueError:
    return ValueError(
        f"a run must hold {path.name}; in {path.parent} it is missing or damaged. Fit it again, in another folder."
    )


def _damaged(path: Path, misfit: str) -> ValueError:
    return ValueError(f"{path} must be the file that oneof fit wrote; {misfit}. Fit it again, in another folder.")


def is_unchanged(path: Path, run: Run) -> bool:
    """Return whether the training file is a table whose cells can be shown, and the same as at the time of the fit."""
    return path.exists() and fingerprint(path) == run.metadata["fingerprint"] and path.suffix not in array_suffixes()


def check_unchanged(path: Path, run: Run) -> None:
    """Raise if cells of the training file cannot be copied, since it is missing or has changed since the fit."""
    if not is_unchanged(path, run):
        raise ValueError(
            f"--column requires the training file; {path} is missing, or has changed since the fit. "
            "Restore it, or omit --column."
        )


def write_json(value: Any, path: Path) -> None:
    """Write a value as JSON; raise ValueError for NaN, which JSON does not have."""
    with atomic_write(path) as file:
        file.write(json.dumps(value, ensure_ascii=False, indent=1, allow_nan=False).encode())


def fingerprint(path: Path) -> str:
    """Return the SHA-256 of a file's content, or of the names of the pictures in a folder."""
    if path.is_dir():
        names = json.dumps(list_folder(path).to_pydict())
        return hashlib.sha256(names.encode()).hexdigest()
    if path.exists() and not path.is_file():
        raise ValueError(f"a table must be a file; {path} is a pipe or a device. Save it as a file.")
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_sample(purified: pa.Table, folder: Path) -> None:
    """Write a random sample of rows with their sets and an empty column for the true label.

    The resolved labels are left out, since they would influence the people who label the sample.
    """
    rows = sample_order(purified.num_rows)[:GOLD_SAMPLE_ROWS]
    sample = {
        "row": rows,
        "candidates": purified["original"].take(pa.array(rows)),
        "gold": pa.nulls(len(rows), pa.string()),
    }
    write_sheet(pa.table(sample), folder / SAMPLE_CSV)


def read_sample(path: Path, candidates: Candidates, gold: NDArray[np.intp] | None) -> NDArray[np.intp]:
    """Return gold labels [n], -1 where unknown: those in the columns `row` and `gold` of a CSV file, else those in `gold`."""
    n = len(candidates.mask)
    class_index = {str(name): j for j, name in enumerate(candidates.classes.tolist())}
    if gold is None:
        labels = np.full(n, -1)
    else:
        labels = gold.copy()
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        names = reader.fieldnames or ()
        if not {"row", "gold"} <= set(names):
            raise ValueError(f"{path} must have the columns row and gold; it has {', '.join(names)}.")
        for number, line in enumerate(reader, 2):
            row = line["row"] or ""
            label = (line["gold"] or "").strip()
            if not row.isdecimal() or int(row) >= n:
                raise ValueError(f"{path} must name rows from 0 to {n - 1}; line {number} has {row!r}.")
            if not label:
                continue
            if label not in class_index:
                raise ValueError(f"{path} must hold labels that the sets have; line {number} has {label!r}.")
            labels[int(row)] = class_index[label]
    return labels
