"""The groups of a run made with --group: is one of them treated worse than the others?"""

from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from oneof.metrics import wilson
from oneof.runs.purified import NOBODY, Purified

_SHOWN = 20
_ROWS = 5  # even share of a class in a group above which it is missed


class Group(NamedTuple):
    """One group's rows."""

    name: str
    rows: int
    before: float  # labels per set
    after: float
    probability: float  # mean, of the resolved label
    asked: int
    gold: int  # rows with a gold label
    right: int
    low: float  # of the share that is right, 95 %; 0 and 1 where nothing is known
    high: float


class Lost(NamedTuple):
    """A class that had an even share of some rows in a group, and was given none of them."""

    label: str
    group: str
    share: float


class Groups(NamedTuple):
    """The groups with the least mean probability, at most _SHOWN of them."""

    shown: list[Group]
    total: int
    lost: list[Lost]  # largest share first, at most _SHOWN


def audit_groups(table: Purified) -> Groups | None:
    """Sum up every group; None for a run without groups."""
    if table.group is None:
        return None
    encoded = pc.fill_null(table.group, "(none)").combine_chunks().dictionary_encode()
    names, place = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
    rows = np.bincount(place)
    mean = np.bincount(place, table.probability) / rows
    shown = np.argsort(mean, kind="stable")[:_SHOWN]
    return Groups([_group(table, names[g], place == g) for g in shown], len(names), _lost(table, names, place))


def _group(table: Purified, name: str, own: NDArray[np.bool_]) -> Group:
    known = own & (table.gold != NOBODY) if table.gold is not None else np.zeros_like(own)
    right = int((known & (table.label == table.gold)).sum())
    low, high = wilson(right, int(known.sum())) if known.any() else (0.0, 1.0)
    return Group(
        name=name,
        rows=int(own.sum()),
        before=float(table.sizes[own].mean()),
        after=float(table.kept_sizes[own].mean()),
        probability=float(table.probability[own].mean()),
        asked=int((own & table.ask).sum()),
        gold=int(known.sum()),
        right=right,
        low=low,
        high=high,
    )


def _lost(table: Purified, names: list[str], place: NDArray[np.int64]) -> list[Lost]:
    """Cells (group, class) are counted where they occur, since both may be many."""
    c = len(table.names)
    row, label = table.original.nonzero()
    cells, at = np.unique(place[row].astype(np.int64) * c + label, return_inverse=True)
    even = np.bincount(at, 1 / table.sizes[row])
    taken = np.isin(cells, place.astype(np.int64) * c + table.label)
    lost = np.flatnonzero((even >= _ROWS) & ~taken)
    worst = lost[np.argsort(-even[lost], kind="stable")][:_SHOWN]
    return [Lost(table.names[cells[k] % c], names[cells[k] // c], float(even[k])) for k in worst]
