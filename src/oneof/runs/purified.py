"""The purified table of a run as arrays: what the sections of the page count in, and what an estimator shows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.sparse import csr_array

from oneof.runs.labels import Fallen

NOBODY = -1  # where a row has no such label


@dataclass(frozen=True)
class Purified:
    """What became of every row [n]; labels are positions in `names` [c]."""

    names: tuple[str, ...]
    row: NDArray[np.int64]  # data row of the file
    original: Any  # sparse 0/1 [n, c]: scipy has no types
    distribution: Any  # sparse [n, c], on the original sets
    kept: Any
    label: NDArray[np.int64]
    probability: NDArray[np.float64]
    margin: NDArray[np.float64]
    agreement: NDArray[np.float64]
    ask: NDArray[np.bool_]
    gain: NDArray[np.float64]  # labels that an answer about the row is expected to mend
    trained: NDArray[np.int64]  # networks that trained on the row
    outside: NDArray[np.int64]  # NOBODY where the model is not sure of a label outside the set
    falls: Fallen  # its rows are positions in the table, not row numbers of the file
    group: pa.ChunkedArray | None
    gold: NDArray[np.int64] | None  # NOBODY where a row has none; None when the run has no gold labels
    votes: pa.ChunkedArray | None  # who named what, as lists of (label, votes); None when the run has sets alone
    item: pa.ChunkedArray | None  # what a person knows the row by
    decision: pa.ChunkedArray | None  # what people decided, in words; null where they did not
    picture: pa.ChunkedArray | None  # as data URIs; null where there is none

    @property
    def n(self) -> int:
        """Rows."""
        return len(self.row)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Labels per original set [n]."""
        return np.asarray(np.diff(self.original.indptr))

    @property
    def kept_sizes(self) -> NDArray[np.int64]:
        """Labels per kept set [n]."""
        return np.asarray(np.diff(self.kept.indptr))

    @property
    def held(self) -> NDArray[np.int64]:
        """Sets that each label is in at first [c]."""
        return np.asarray(self.original.sum(0)).astype(np.int64)

    @property
    def resolved(self) -> NDArray[np.int64]:
        """Rows resolved to each label [c]."""
        return np.bincount(self.label, minlength=len(self.names))


def read_purified(purified: pa.Table, classes: Sequence[Any]) -> Purified:
    """Read the purified table; labels that it has beyond the model's classes (a gold label may be one) come last."""
    names = _names(purified, classes)
    known = pa.array(names, pa.string())
    has = purified.column_names
    shares = {name: _numbers(purified[name], np.float64) for name in ("probability", "margin", "agreement", "gain")}
    return Purified(
        names=tuple(names),
        row=_numbers(purified["row"], np.int64),
        original=_sets(purified["original"], known),
        distribution=_sets(purified["original"], known, pc.list_flatten(purified["distribution"])),
        kept=_sets(purified["kept"], known),
        label=_codes(purified["label"], known),
        **shares,
        ask=_numbers(purified["ask"], np.bool_),
        trained=_numbers(purified["trained"], np.int64),
        outside=_codes(purified["outside"], known),
        falls=_falls(purified["removed"], known),
        group=purified["group"].cast(pa.string()) if "group" in has else None,
        gold=_codes(purified["gold"], known) if "gold" in has else None,
        votes=purified["votes"] if "votes" in has else None,
        item=purified["item"] if "item" in has else None,
        decision=purified["decision"] if "decision" in has else None,
        picture=purified["picture"] if "picture" in has else None,
    )


def _names(purified: pa.Table, classes: Sequence[Any]) -> list[str]:
    columns = [pc.list_flatten(purified["original"]), purified["label"], purified["outside"]]
    columns += [purified["gold"]] if "gold" in purified.column_names else []
    names = dict.fromkeys(map(str, classes))
    for column in columns:
        names |= dict.fromkeys(name for name in pc.unique(column).to_pylist() if name is not None)
    return list(names)


def _numbers(column: pa.ChunkedArray, dtype: Any) -> NDArray[Any]:
    return np.asarray(column.to_numpy()).astype(dtype)


def _codes(column: pa.ChunkedArray, names: pa.Array) -> NDArray[np.int64]:
    found = pc.index_in(column.cast(pa.string()), value_set=names, skip_nulls=True)
    return _numbers(pc.fill_null(found, NOBODY), np.int64)


def _sets(column: pa.ChunkedArray, names: pa.Array, values: pa.ChunkedArray | None = None) -> Any:
    """Lists of labels as a sparse matrix, of ones or of the values that stand beside the labels."""
    row = _numbers(pc.list_parent_indices(column), np.int64)
    label = _codes(pc.list_flatten(column), names)
    cells = np.ones(len(row), np.int64) if values is None else _numbers(values, np.float64)
    return csr_array((cells, (row, label)), shape=(len(column), len(names)))


def _falls(column: pa.ChunkedArray, names: pa.Array) -> Fallen:
    flat = pc.list_flatten(column)
    fields = {name: pc.struct_field(flat, name) for name in Fallen._fields[1:]}
    return Fallen(
        row=_numbers(pc.list_parent_indices(column), np.int64),
        label=_codes(fields["label"], names),
        round=_numbers(fields["round"], np.int64),
        margin=_numbers(fields["margin"], np.float64),
        trials=_numbers(fields["trials"], np.int64),
    )
