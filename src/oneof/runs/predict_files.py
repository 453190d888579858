"""Predict the rows of files, a batch at a time, as `oneof predict` does: one file, or many with an output file for each."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from oneof.data.encode import MAX_UNSEEN, Unseen, describe_unseen
from oneof.data.files.batches import PARQUET, count_rows, read_batches
from oneof.data.files.source import TableSource
from oneof.data.files.unpacked import check_unpacked
from oneof.data.images import folder_of
from oneof.data.roles import ColumnRoles
from oneof.data.table import check_has_columns
from oneof.runs.folder import fingerprint
from oneof.runs.predictor import Predictor, append_columns
from oneof.storage.printable import plural
from oneof.storage.progress import progress_bar
from oneof.storage.sheets import SheetWriter, check_out

ORIGIN = b"oneof.predict"  # key of the metadata of an output file: what it was made from
_MAX_FAULTS = 20  # messages on pictures that cannot be read
Step = Callable[..., None]


@dataclass
class PredictionSummary:
    """Count what was predicted, over batches and files."""

    n_files: int = 0
    n_rows: int = 0
    n_abstained: int = 0
    n_set_labels: int = 0
    unseen: Unseen = field(default_factory=dict)  # categories not seen in training, as many as are shown
    faults: list[str] = field(default_factory=list)  # about pictures that cannot be read

    def add_batch(self, table: pa.Table, unseen: Unseen, fault: str) -> None:
        """Count the predictions for a batch."""
        self.n_rows += table.num_rows
        if "abstained" in table.column_names:
            self.n_abstained += pc.sum(table["abstained"]).as_py() or 0
        if "set" in table.column_names:
            self.n_set_labels += pc.sum(pc.list_value_length(table["set"])).as_py() or 0
        faults = []
        if fault:
            faults.append(fault)
        self._add_warnings(unseen, faults)

    def add(self, other: "PredictionSummary") -> None:
        """Count what another summary has counted."""
        self.n_files += other.n_files
        self.n_rows += other.n_rows
        self.n_abstained += other.n_abstained
        self.n_set_labels += other.n_set_labels
        self._add_warnings(other.unseen, other.faults)

    def _add_warnings(self, unseen: Unseen, faults: Sequence[str]) -> None:
        for column, values in unseen.items():
            in_order = sorted(self.unseen.get(column, set()) | values)
            self.unseen[column] = set(in_order[: MAX_UNSEEN + 1])  # one more than is shown: that there are more
        self.faults = [*self.faults, *faults][:_MAX_FAULTS]

    @property
    def warnings(self) -> list[str]:
        """Return what to warn about, a line each."""
        return [*describe_unseen(self.unseen), *self.faults]

    def describe(self, predictor: Predictor) -> str:
        """Return in words how many rows were predicted, how many were abstained on, and how large the prediction sets are."""
        calibration = predictor.model.calibration
        parts = [f"{self.n_rows:,} rows"]
        grounds = f"by {calibration['by']}"
        if calibration["by"] != "gold labels":
            grounds += f", {calibration['reason']}"
        if predictor.accuracy is not None:
            abstained = f"abstained on {self.n_abstained:,} {plural('row', self.n_abstained)}"
            parts.append(f"{abstained} to reach {predictor.accuracy:.0%} accuracy on the rest ({grounds})")
        if predictor.sets is not None:
            mean_size = self.n_set_labels / max(1, self.n_rows)
            contain = f"contain the right one in {predictor.sets:.0%} of rows"
            parts.append(f"sets of {mean_size:.2f} labels that {contain} ({grounds})")
        return "; ".join(parts)


@dataclass(frozen=True)
class PredictJob:
    """A file to predict, and the file to write."""

    file: Path
    out: Path
    origin: str  # what the output is made from, as JSON

    @property
    def is_done(self) -> bool:
        """Return whether the output was made from the same file by the same model and options."""
        if not self.out.exists():
            return False
        try:
            metadata = pq.read_metadata(self.out).metadata or {}
        except (pa.ArrowException, OSError):
            return False
        return bool(metadata.get(ORIGIN) == self.origin.encode())


def plan_jobs(predictor: Predictor, files: Sequence[Path], out: Path) -> list[PredictJob]:
    """Return a job for each file that a predictor predicts."""
    options: dict[str, Any] = {
        "columns": list(predictor.columns),
        "distribution": predictor.distribution,
        "accuracy": predictor.accuracy,
        "sets": predictor.sets,
    }
    return jobs_for_files(Path(predictor.run), files, out, options)


def jobs_for_files(run: Path, files: Sequence[Path], out: Path, options: Mapping[str, Any]) -> list[PredictJob]:
    """Return a job for each file: its output has the file's path below the folder that all files have in common.

    The output is made again if the model, the options or the file has changed since.
    """
    resolved = [file.resolve() for file in files]
    common = Path(os.path.commonpath([file.parent for file in resolved]))
    model_digest = fingerprint(run / "model.json")  # it holds the checksum of the weights
    jobs = []
    for file in resolved:
        name = file.relative_to(common)
        if name.suffix.lower() != ".parquet":
            name = name.with_name(f"{name.name}.parquet")
        target = out.resolve() / name
        if target == file:
            raise ValueError(f"out must be another folder than that of the files that are read; got {str(out)!r}.")
        status = file.stat()
        origin = {
            "model": model_digest,
            **options,
            "file": file.name,
            "bytes": status.st_size,
            "changed": status.st_mtime_ns,
        }
        jobs.append(PredictJob(file, target, json.dumps(origin)))
    return jobs


def predict_to_folder(
    predictor: Predictor, jobs: Sequence[PredictJob], *, unpacked: float = ColumnRoles.unpacked, show: bool = True
) -> PredictionSummary:
    """Predict files one after the other; those whose output is complete are left as they are."""
    summary = PredictionSummary()
    open_jobs = [job for job in jobs if not job.is_done]
    counts = [count_rows(job.file) for job in open_jobs]
    known_counts = [count for count in counts if count is not None]
    if len(known_counts) == len(open_jobs):
        with progress_bar("predict", sum(known_counts), show, unit="rows") as step:
            for job in open_jobs:
                summary.add(run_job(predictor, job, unpacked, step))
        return summary
    with progress_bar("predict", len(open_jobs), show, unit="files") as step:
        for job in open_jobs:
            summary.add(run_job(predictor, job, unpacked))
            step(f"{summary.n_rows:,} rows")
    return summary


def run_job(predictor: Predictor, job: PredictJob, unpacked: float, step: Step | None = None) -> PredictionSummary:
    """Predict a file; its output appears under its name when it is complete."""
    job.out.parent.mkdir(parents=True, exist_ok=True)
    summary = predict_file(predictor, job.file, job.out, unpacked=unpacked, step=step, origin=job.origin)
    summary.n_files = 1
    return summary


def predict_file(
    predictor: Predictor,
    file: Path,
    out: Path,
    *,
    folder: Path | None = None,
    unpacked: float = ColumnRoles.unpacked,
    step: Step | None = None,
    origin: str = "",
) -> PredictionSummary:
    """Predict the rows of a file, a batch at a time, and write them to another.

    Parameters
    ----------
    predictor
        The run and what to predict.
    file
        A table with the columns of the training table, or a folder of pictures.
    out
        The Parquet or CSV file to write. Rows whose picture cannot be read have no values.
    folder
        Where the names of pictures are looked up. None: beside the file.
    unpacked
        Gigabytes that a compressed file may unpack to.
    step
        Called after each batch with `steps`, its number of rows.
    origin
        Stored in the metadata of a Parquet file.
    """
    check_out(out)
    check_has_columns(file)
    check_unpacked(file, unpacked)
    if folder is None:
        folder = folder_of(file)
    metadata = {}
    if origin:
        metadata[ORIGIN] = origin.encode()
    summary = PredictionSummary()
    with SheetWriter(out, metadata) as writer:
        for batch, copied in _batches(predictor, file):
            predicted = predictor.predict_source(batch, folder)
            summary.add_batch(*predicted)
            writer.write(append_columns(predicted.table, copied, predictor.columns))
            if step is not None:
                step(steps=predicted.table.num_rows)
    return summary


def _batches(predictor: Predictor, file: Path) -> Iterator[tuple[TableSource, TableSource]]:
    """Yield batches of a file twice: with the columns to predict from, and with those to copy.

    The cells of a CSV are copied as they are written, such as 007, also those of a column that is read as numbers: such columns are
    read a second time, in the same batches. Other files are read once.
    """
    roles = predictor.model.encoding.roles
    numbers = roles.read_as_numbers
    others = [*roles.read_as_cells, *predictor.columns]
    size = predictor.batch_size
    is_parquet = file.suffix.lower() in PARQUET
    if is_parquet or not set(predictor.columns) & set(numbers):
        for batch in read_batches(file, numbers, others, size):
            yield batch, batch
        return
    batches = read_batches(file, numbers, roles.read_as_cells, size)
    copies = read_batches(file, [], predictor.columns, size)
    yield from zip(batches, copies, strict=True)
