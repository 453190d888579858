"""Confusions that the sets held: pairs of labels that often stood together, and which of them was taken."""

from typing import NamedTuple

import numpy as np
from scipy.sparse import triu

from oneof.runs.purified import Purified

_SHOWN = 12


class Pair(NamedTuple):
    """Two labels, and what became of the rows whose set held both."""

    one: str
    other: str
    together: int
    to_one: int  # resolved to `one`, and nobody need be asked
    to_other: int
    elsewhere: int  # resolved to a third label, likewise
    open: int  # to ask about


def count_pairs(table: Purified) -> list[Pair]:
    """The pairs that share most sets, most first."""
    together = triu(table.original.T @ table.original, k=1).tocoo()
    most = np.argsort(-together.data, kind="stable")[:_SHOWN]
    return [_pair(table, int(together.row[k]), int(together.col[k])) for k in most]


def _pair(table: Purified, one: int, other: int) -> Pair:
    columns = table.original[:, [one, other]].sum(1) == 2
    rows = np.flatnonzero(np.asarray(columns))
    settled = table.label[rows[~table.ask[rows]]]
    if (settled == other).sum() > (settled == one).sum():
        one, other = other, one  # the one that won more often comes first
    return Pair(
        one=table.names[one],
        other=table.names[other],
        together=len(rows),
        to_one=int((settled == one).sum()),
        to_other=int((settled == other).sum()),
        elsewhere=int((~np.isin(settled, (one, other))).sum()),
        open=len(rows) - len(settled),
    )
