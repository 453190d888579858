"""Read the purified table of a run into arrays, for the report and the estimator."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.sparse import csr_array

UNKNOWN = -1  # the code of a missing label
_MAX_NAMED = 8  # lost labels listed by name


@dataclass(frozen=True)
class Purified:
    """Hold the purified table as arrays; labels are indices into `names` [c]."""

    cells: pa.Table  # the table as stored
    names: tuple[str, ...]
    label: NDArray[np.int64]  # [n] the label each row was resolved to
    gold: NDArray[np.int64] | None  # [n] UNKNOWN where a row has none; None if the run has no gold labels
    probability: NDArray[np.float64]  # [n] of `label`
    ask: NDArray[np.bool_]  # [n] whether a person should review the row
    original: Any  # [n, c] sparse 0/1 candidates before purification (scipy has no types)
    kept: Any  # [n, c] sparse 0/1 candidates after purification
    sizes: NDArray[np.int64]  # [n] candidates per row before purification
    kept_sizes: NDArray[np.int64]  # [n] candidates per row after purification
    label_counts: NDArray[np.int64]  # [c] rows with each label as a candidate, before purification
    resolved: NDArray[np.int64]  # [c] rows resolved to each label

    @property
    def n(self) -> int:
        """Return the number of rows."""
        return len(self.label)

    @property
    def distribution(self) -> Any:
        """Return the probabilities as a sparse matrix [n, c], stored on the original candidates only."""
        names = pa.array(self.names)
        probabilities = pc.list_flatten(self.cells["distribution"])
        return _sparse_matrix(self.cells["original"], names, probabilities)


def read_purified(cells: pa.Table, classes: Sequence[Any]) -> Purified:
    """Read the purified table into arrays.

    Labels that are not among the model's classes (a gold label may be one) come last in `names`.
    """
    has_gold = "gold" in cells.column_names
    label_columns = [pc.list_flatten(cells["original"]), cells["label"], cells["outside"]]
    if has_gold:
        label_columns.append(cells["gold"])
    all_names = [str(name) for name in classes]
    for column in label_columns:
        present = pc.unique(column).drop_null()
        all_names.extend(present.to_pylist())
    names = tuple(dict.fromkeys(all_names))
    name_array = pa.array(names, pa.string())

    label = _encode(cells["label"], name_array)
    gold = None
    if has_gold:
        gold = _encode(cells["gold"], name_array)
    original = _sparse_matrix(cells["original"], name_array)
    kept = _sparse_matrix(cells["kept"], name_array)
    return Purified(
        cells=cells,
        names=names,
        label=label,
        gold=gold,
        probability=cells["probability"].to_numpy().astype(np.float64),
        ask=cells["ask"].to_numpy(),
        original=original,
        kept=kept,
        sizes=np.asarray(np.diff(original.indptr)),
        kept_sizes=np.asarray(np.diff(kept.indptr)),
        label_counts=np.asarray(original.sum(0)).astype(np.int64),
        resolved=np.bincount(label, minlength=len(names)),
    )


def lost_labels(cells: pa.Table) -> str | None:
    """Return a warning that names the labels with votes but no resolved row, or None if there are none."""
    counts = VoteCounts()
    counts.add(cells)
    return counts.lost_labels(pc.unique(cells["label"]).to_pylist())


class VoteCounts:
    """Counts the votes for each label, over the batches of a purified table."""

    def __init__(self) -> None:
        self.votes: dict[str, float] = {}

    def add(self, cells: pa.Table) -> None:
        """Count the votes on a batch of rows; without votes there is nothing to count."""
        if "votes" not in cells.column_names:
            return
        votes = pc.list_flatten(cells["votes"])
        labels = pc.struct_field(votes, "label")
        counts = pc.struct_field(votes, "votes")
        total = pa.table({"label": labels, "votes": counts}).group_by("label").aggregate([("votes", "sum")])
        for row in total.to_pylist():
            self.votes[row["label"]] = self.votes.get(row["label"], 0) + row["votes_sum"]

    def lost_labels(self, resolved: Collection[str]) -> str | None:
        """Return a warning that names the labels with votes that are not among the resolved ones, or None."""
        lost = [label for label in self.votes if label not in resolved]
        if not lost:
            return None
        lost.sort(key=lambda label: -self.votes[label])
        shown = [f"'{label}' ({self.votes[label]:,.4g} votes)" for label in lost[:_MAX_NAMED]]
        if len(lost) > _MAX_NAMED:
            shown.append(f"{len(lost) - _MAX_NAMED} more")
        remedy = "Check some of the rows with these votes before you trust the labels."
        return f"some labels received votes, but no row was resolved to them: {', '.join(shown)}. {remedy}"


def _encode(column: pa.ChunkedArray, names: pa.Array) -> NDArray[np.int64]:
    """Return the index of each label in `names`, UNKNOWN for nulls and for labels that are not in it."""
    index = pc.index_in(column.cast(pa.string()), value_set=names, skip_nulls=True)
    return np.asarray(pc.fill_null(index, UNKNOWN).to_numpy()).astype(np.int64)


def _sparse_matrix(column: pa.ChunkedArray, names: pa.Array, values: pa.ChunkedArray | None = None) -> Any:
    """Return lists of labels as a sparse matrix [n, c] of the values that belong to them, or of ones."""
    row = pc.list_parent_indices(column).to_numpy()
    label = _encode(pc.list_flatten(column), names)
    entries: NDArray[Any] = np.ones(len(row), np.int64)
    if values is not None:
        entries = np.asarray(values.to_numpy(), dtype=np.float64)
    return csr_array((entries, (row, label)), shape=(len(column), len(names)))
