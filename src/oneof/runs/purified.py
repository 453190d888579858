"""The purified table of a run as arrays: what the sections of the page count in, and what an estimator shows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.sparse import csr_array

NOBODY = -1  # where a row has no such label
_SHOWN = 8  # lost labels that are named


@dataclass(frozen=True)
class Purified:
    """What became of every row [n]; labels are positions in `names` [c]."""

    cells: pa.Table  # as it is stored
    names: tuple[str, ...]
    label: NDArray[np.int64]
    gold: NDArray[np.int64] | None  # NOBODY where a row has none; None when the run has no gold labels
    probability: NDArray[np.float64]
    ask: NDArray[np.bool_]
    original: Any  # sparse 0/1 [n, c]: scipy has no types
    kept: Any
    sizes: NDArray[np.int64]  # labels per original set [n]
    kept_sizes: NDArray[np.int64]  # labels per kept set [n]
    held: NDArray[np.int64]  # sets that each label is in at first [c]
    resolved: NDArray[np.int64]  # rows resolved to each label [c]

    @property
    def n(self) -> int:
        return len(self.label)

    @property
    def distribution(self) -> Any:
        """Sparse probabilities [n, c], on the original sets."""
        return _sets(self.cells["original"], pa.array(self.names), pc.list_flatten(self.cells["distribution"]))


def read_purified(cells: pa.Table, classes: Sequence[Any]) -> Purified:
    """Read the purified table; labels that it has beyond the model's classes (a gold label may be one) come last."""
    has_gold = "gold" in cells.column_names
    labels = (cells[name] for name in ("label", "outside", *["gold"] * has_gold))
    named = [pc.list_flatten(cells["original"]), *labels]
    more = (name for column in named for name in pc.unique(column).to_pylist() if name is not None)
    names = tuple(dict.fromkeys([*map(str, classes), *more]))
    known = pa.array(names, pa.string())
    label, gold = _codes(cells["label"], known), _codes(cells["gold"], known) if has_gold else None
    probability, ask = cells["probability"].to_numpy().astype(np.float64), cells["ask"].to_numpy()
    original, kept = (_sets(cells[name], known) for name in ("original", "kept"))
    sizes, kept_sizes = (np.asarray(np.diff(sets.indptr)) for sets in (original, kept))
    held, resolved = np.asarray(original.sum(0)).astype(np.int64), np.bincount(label, minlength=len(names))
    return Purified(cells, names, label, gold, probability, ask, original, kept, sizes, kept_sizes, held, resolved)


def lost_labels(cells: pa.Table) -> str | None:
    """Say which labels votes name and no row has in the end; None where there is none, or no votes."""
    if "votes" not in cells.column_names:
        return None
    votes = pc.list_flatten(cells["votes"])
    labels = pc.struct_field(votes, "label")
    counts = pc.struct_field(votes, "votes")
    total = pa.table({"label": labels, "votes": counts}).group_by("label").aggregate([("votes", "sum")])
    is_lost = pc.invert(pc.is_in(total["label"], value_set=pc.unique(cells["label"])))
    lost = total.filter(is_lost).sort_by([("votes_sum", "descending")])
    if not lost.num_rows:
        return None
    shown = []
    for row in lost.slice(0, _SHOWN).to_pylist():
        shown.append(f"'{row['label']}' ({row['votes_sum']:,.4g} votes)")
    if lost.num_rows > _SHOWN:
        shown.append(f"{lost.num_rows - _SHOWN} more")
    remedy = "Look at some of the rows that they were given to before you trust the labels."
    return f"votes name labels that no row has in the end: {', '.join(shown)}. {remedy}"


def _codes(column: pa.ChunkedArray, names: pa.Array) -> NDArray[np.int64]:
    found = pc.index_in(column.cast(pa.string()), value_set=names, skip_nulls=True)
    return np.asarray(pc.fill_null(found, NOBODY).to_numpy()).astype(np.int64)


def _sets(column: pa.ChunkedArray, names: pa.Array, values: pa.ChunkedArray | None = None) -> Any:
    """Lists of labels as a sparse matrix, of ones or of the values that stand beside the labels."""
    row, label = pc.list_parent_indices(column).to_numpy(), _codes(pc.list_flatten(column), names)
    cells = np.ones(len(row), np.int64) if values is None else np.asarray(values.to_numpy(), dtype=np.float64)
    return csr_array((cells, (row, label)), shape=(len(column), len(names)))
