"""The groups of a run made with --group: is one of them treated worse than the others?"""

from types import SimpleNamespace

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from oneof.metrics import wilson
from oneof.runs.purified import NOBODY, Purified

_SHOWN = 20
_ROWS = 5  # even share of a class in a group above which it is missed


def audit_groups(table: Purified) -> SimpleNamespace | None:
    """The groups with the least mean probability, and the classes that groups lost; None for a run without groups."""
    if "group" not in table.cells.column_names:
        return None
    encoded = pc.fill_null(table.cells["group"], "(none)").combine_chunks().dictionary_encode()
    names, place = encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)
    mean = np.bincount(place, table.probability) / np.bincount(place)
    shown = [_group(table, names[g], place == g) for g in np.argsort(mean, kind="stable")[:_SHOWN]]
    return SimpleNamespace(shown=shown, total=len(names), lost=_lost(table, names, place))


def _group(table: Purified, name: str, own: NDArray[np.bool_]) -> SimpleNamespace:
    known = own & (table.gold != NOBODY) if table.gold is not None else np.zeros_like(own)
    right = int((known & (table.label == table.gold)).sum())
    low, high = wilson(right, int(known.sum())) if known.any() else (0.0, 1.0)
    return SimpleNamespace(
        name=name,
        rows=int(own.sum()),
        before=float(table.sizes[own].mean()),  # labels per set
        after=float(table.kept_sizes[own].mean()),
        probability=float(table.probability[own].mean()),
        asked=int((own & table.ask).sum()),
        gold=int(known.sum()),  # rows with a gold label
        right=right,
        low=low,  # of the share that is right, 95 %; 0 and 1 where nothing is known
        high=high,
    )


def _lost(table: Purified, names: list[str], place: NDArray[np.int64]) -> list[SimpleNamespace]:
    """Classes that had an even share of some rows in a group, and were given none of them, largest share first.

    Cells (group, class) are counted where they occur, since both may be many.
    """
    c = len(table.names)
    row, label = table.original.nonzero()
    cells, at = np.unique(place[row] * c + label, return_inverse=True)
    even = np.bincount(at, 1 / table.sizes[row])
    lost = np.flatnonzero((even >= _ROWS) & ~np.isin(cells, place * c + table.label))
    worst = lost[np.argsort(-even[lost], kind="stable")][:_SHOWN]
    return [
        SimpleNamespace(label=table.names[cells[k] % c], group=names[cells[k] // c], share=float(even[k]))
        for k in worst
    ]
