"""Write the label of every row of many files, of which a run was fitted to a sample: one output per file, a batch of rows at a time.

A row of the sample keeps the label and the probability that the fit gave it, by models that were not trained on it. For every other row the
model chooses the most probable label of the row's own set.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from oneof.candidates.read import read
from oneof.data.dataset import BoolArray, Dataset
from oneof.data.files.batches import read_batches
from oneof.data.files.columns import read_numbers
from oneof.data.files.source import TableSource
from oneof.data.roles import ColumnRoles
from oneof.data.table import read_columns
from oneof.ensemble.model import Model
from oneof.ensemble.resolve import resolve_labels
from oneof.learners.base import Predictions
from oneof.runs.clean import CleanSummary
from oneof.runs.decisions import DECISIONS
from oneof.runs.file_sets import known_sets, supervision_columns
from oneof.runs.fit_spec import FILE_COLUMN, ROW_COLUMN, TABLE
from oneof.runs.folder import Run, fingerprint
from oneof.runs.predict_files import ORIGIN, PredictJob, Step, jobs_for_files
from oneof.runs.predictor import append_columns, batch_size
from oneof.storage.progress import progress_bar
from oneof.storage.settings import from_serializable, stored_kind
from oneof.storage.sheets import SheetWriter

WRITTEN = ("label", "probability", "margin", "outside", "ask")


@dataclass(frozen=True)
class SampledRows:
    """Rows of the sample, with the labels that the fit or a person gave them."""

    file: NDArray[np.int32]  # [m]
    row: NDArray[np.int64]  # [m] within its file
    resolved: pa.Table  # [m]

    @classmethod
    def of_run(cls, run: Run) -> "SampledRows":
        """Return the rows of a run's sample."""
        positions = pq.read_table(run.folder / TABLE, columns=[FILE_COLUMN, ROW_COLUMN])
        resolved = run.decided.select([*WRITTEN, "decided"])
        return cls(positions[FILE_COLUMN].to_numpy(), positions[ROW_COLUMN].to_numpy(), resolved)

    def replace_in(self, table: pa.Table, file: int, first_row: int) -> pa.Table:
        """Return the rows of a file from `first_row` on, with the stored results for those in the sample."""
        is_here = (self.file == file) & (self.row >= first_row) & (self.row < first_row + table.num_rows)
        if not is_here.any():
            return table
        source = np.arange(table.num_rows)
        source[self.row[is_here] - first_row] = table.num_rows + np.arange(is_here.sum())
        resolved = self.resolved.select(WRITTEN).filter(pa.array(is_here)).cast(table.schema)
        return pa.concat_tables([table, resolved]).take(pa.array(source))


def write_file_labels(run: Run, out: Path, columns: Sequence[str] = ()) -> CleanSummary:
    """Write the label of every row of the run's files to a folder; complete files are not written again.

    Parameters
    ----------
    run
        A run of many files (`oneof.runs.fit_files`).
    out
        Folder to write. Each file in it has the rows of the input file of the same name, in the same order.
    columns
        Columns of the files to copy.
    """
    files = [Path(path) for path in run.metadata["files"]["paths"]]
    missing = [str(file) for file in files if not file.exists()]
    if missing:
        raise ValueError(f"clean reads the files that the run was fitted to; {missing[0]} is missing. Restore it.")
    if out.is_file():
        raise ValueError(f"--out must be a folder for a run of {len(files):,} files; {out} is a file.")
    options = {"columns": list(columns), "decisions": ""}
    decisions = run.folder / DECISIONS
    if decisions.exists():
        options["decisions"] = fingerprint(decisions)
    jobs = jobs_for_files(run.folder, files, out, options)
    labeler = _Labeler(run, SampledRows.of_run(run), tuple(columns))
    n_remaining = 0
    for job in jobs:
        if not job.is_done:
            n_remaining += pq.read_metadata(job.file).num_rows
    with progress_bar("clean", n_remaining, show=True, unit="rows") as step:
        for number, job in enumerate(jobs):
            if not job.is_done:
                labeler.write(number, job, step)
    return _count(jobs, labeler)


class _Labeler:
    """Writes the labels of files."""

    def __init__(self, run: Run, sampled: SampledRows, columns: tuple[str, ...]) -> None:
        self.model = run.model
        stored_roles = run.metadata["asked"]["roles"]
        self.roles: ColumnRoles = from_serializable(stored_roles, {stored_kind(ColumnRoles): ColumnRoles})
        self.sampled = sampled
        self.columns = columns
        self.n_without_known_label = 0

    def write(self, number: int, job: PredictJob, step: Step) -> None:
        """Label the rows of a file; the output appears under its name when it is complete."""
        job.out.parent.mkdir(parents=True, exist_ok=True)
        with SheetWriter(job.out, {ORIGIN: job.origin.encode()}) as writer:
            for batch in self._batches(job.file):
                labels = self.sampled.replace_in(self._resolve(batch), number, batch.first_row)
                writer.write(append_columns(labels, batch, self.columns))
                step(steps=labels.num_rows)

    def _batches(self, file: Path) -> Iterator[TableSource]:
        roles = self.model.encoding.roles
        others = [*roles.read_as_cells, *supervision_columns(self.roles), *self.columns]
        return read_batches(file, roles.read_as_numbers, others, batch_size(self.model))

    def _resolve(self, batch: TableSource) -> pa.Table:
        """Return the most probable label of each row within its set, and the evidence for it."""
        model = self.model
        columns = read_columns(batch, model.encoding.roles)
        features = model.encoding.transform(columns)
        _, cells = read_numbers(batch, [], supervision_columns(self.roles))
        where = f"{batch.name}, rows from {batch.first_row:,} on"
        sets = known_sets(where, cells, self.roles, len(columns), model.classes)
        has_known_label: BoolArray = np.asarray(sets.any(axis=1))
        self.n_without_known_label += int((~has_known_label).sum())
        sets |= ~has_known_label[:, None]
        return _resolved_table(model.probabilities(features), sets, has_known_label, model, features)


def _resolved_table(
    probabilities: NDArray[np.float32],
    sets: BoolArray,
    has_known_label: BoolArray,
    model: Model,
    features: NDArray[Any],
) -> pa.Table:
    """Return the columns of the result; a row without a candidate known to the model gets no label, and `ask`."""
    data = Dataset.build(features, read(sets, classes=model.classes), model.encoding)
    resolved = resolve_labels(data, Predictions.from_single_model(probabilities, sets), sets)
    names = pa.array(model.classes, pa.string())
    is_unknown = ~has_known_label
    outside = np.where(has_known_label, resolved.outside, -1)
    return pa.table(
        {
            "label": names.take(pa.array(resolved.label, mask=is_unknown)),
            "probability": pa.array(resolved.probability, pa.float32(), mask=is_unknown),
            "margin": pa.array(resolved.margin, pa.float32(), mask=is_unknown),
            "outside": names.take(pa.array(outside, mask=outside < 0)),
            "ask": pa.array(resolved.ask | is_unknown),
        }
    )


def _count(jobs: Sequence[PredictJob], labeler: _Labeler) -> CleanSummary:
    """Count the rows of all outputs."""
    n_rows = 0
    n_to_ask = 0
    n_outside = 0
    for job in jobs:
        table = pq.read_table(job.out, columns=["ask", "outside"])
        n_rows += table.num_rows
        n_to_ask += pc.sum(table["ask"]).as_py() or 0
        n_outside += table.num_rows - table["outside"].null_count
    n_decided = pc.sum(labeler.sampled.resolved["decided"]).as_py() or 0
    warning = None
    if labeler.n_without_known_label:
        warning = (
            f"{labeler.n_without_known_label:,} rows have no label: none of their candidates occurs in the sample that the run was fitted to. "
            "Fit again with a larger --sample."
        )
    return CleanSummary(n_rows, n_to_ask, n_outside, n_decided, warning)
