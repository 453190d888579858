"""Evidence for a resolved label: the nearest rows whose label is settled; and what an answer to a row would be worth."""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from oneof.storage.sheets import lists_of

K = 5
_MOST_ASKING, _MOST_SETTLED = 20_000, 50_000  # rows to find neighbours for, and among which
_BLOCK = 512


class Evidence(NamedTuple):
    """For each of n rows, its neighbours and the expected gain of asking."""

    neighbours: NDArray[np.intp]  # [n, k] settled rows, nearest first; -1 where not looked for
    gain: NDArray[np.float32]  # [n]

    def column(self) -> pa.ListArray:
        """The neighbours as lists, without the gaps."""
        found = self.neighbours >= 0
        return lists_of(found.nonzero()[0], len(found), pa.array(self.neighbours[found]))


def find_evidence(
    x: NDArray[np.floating[Any]], doubt: NDArray[np.floating[Any]], ask: NDArray[np.bool_], seed: int = 0
) -> Evidence:
    r"""Neighbours among settled rows, and the gain of asking: how many labels an answer is expected to mend.

        gain_i = u_i + sum over rows r that are to be asked and have i among their k nearest such rows, of u_r / (k + 1)

    u: the chance that a label is wrong. So a doubtful row in a crowd of doubtful rows comes first. Large tables are
    sampled: neighbours are looked for among 50,000 settled rows, and for the 20,000 most doubtful rows to be asked about.

    >>> x = np.array([[0.0], [0.1], [0.2], [5.0], [5.1]])
    >>> found = find_evidence(x, np.array([0.0, 0.4, 0.4, 0.0, 0.4]), np.array([False, True, True, False, True]))
    >>> found.neighbours[:, 0].tolist(), found.gain.astype(float).round(2).tolist()
    ([3, 0, 0, 0, 3], [0.0, 0.53, 0.53, 0.0, 0.53])
    """
    n = len(x)
    settled = _sample(np.flatnonzero(~ask), _MOST_SETTLED, seed)
    asked = np.flatnonzero(ask)
    asked = np.sort(asked[np.argsort(-doubt[asked], kind="stable")[:_MOST_ASKING]])
    looked = np.arange(n) if n <= _MOST_ASKING else asked
    neighbours = np.full((n, K), -1, dtype=np.intp)
    found = nearest(x, looked, settled)
    neighbours[looked, : found.shape[1]] = found
    gain = doubt.astype(np.float32).copy()
    crowd = nearest(x, asked, asked)
    np.add.at(gain, crowd[crowd >= 0], np.repeat(doubt[asked], (crowd >= 0).sum(1)).astype(np.float32) / (K + 1))
    return Evidence(neighbours, gain)


def nearest(x: NDArray[np.floating[Any]], rows: NDArray[np.intp], among: NDArray[np.intp]) -> NDArray[np.intp]:
    """The k rows of `among` nearest to each of `rows`, nearest first, itself left out: [len(rows), k], -1 where there are fewer."""
    k = min(K, len(among))
    found = np.full((len(rows), k), -1, dtype=np.intp)
    others = x[among].astype(np.float32)
    lengths = (others**2).sum(1)
    for start in range(0, len(rows) if k else 0, _BLOCK):
        part = rows[start : start + _BLOCK]
        distance = lengths - 2 * x[part].astype(np.float32) @ others.T
        distance[part[:, None] == among] = np.inf
        best = np.argpartition(distance, k - 1, axis=1)[:, :k]
        length = np.take_along_axis(distance, best, axis=1)
        order = np.argsort(length, axis=1, kind="stable")
        chosen = among[np.take_along_axis(best, order, axis=1)]
        found[start : start + _BLOCK] = np.where(np.isinf(np.sort(length, axis=1)), -1, chosen)
    return found


def _sample(rows: NDArray[np.intp], most: int, seed: int) -> NDArray[np.intp]:
    if len(rows) <= most:
        return rows
    return np.sort(np.random.default_rng(seed).choice(rows, most, replace=False))
