"""The order in which to ask a person: how many labels each answer is expected to mend; and the settled rows next to each row."""

from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from oneof.learners.kernel import influence
from oneof.storage.sheets import lists_of

K = 5  # neighbours
_MOST_ASKING, _MOST_SETTLED = 20_000, 50_000  # rows to find neighbours for, and among which
_MOST_ORDERED = 2000  # rows that are put in order; nobody answers more before learning again
_LEAST_MOVE = 0.01  # of the doubt about a row: less is nothing
_NEAR = 512  # rows whose neighbours are looked for at a time
Floats = NDArray[np.floating[Any]]


def find_evidence(
    x: Floats, shares: Floats, ask: NDArray[np.bool_], device: Any = "cpu"
) -> tuple[pa.ListArray, NDArray[np.float32]]:
    """For each row the settled rows next to it, nearest first, and the gain of asking, where labels have these probabilities [n, c].

    Large tables are sampled: 50,000 settled rows, and the 20,000 most doubtful rows to be asked about.
    """
    n, gain = len(x), expected_gain(x.astype(np.float64), shares.astype(np.float64), ask)
    settled = np.flatnonzero(~ask)
    if len(settled) > _MOST_SETTLED:
        settled = np.sort(np.random.default_rng(0).choice(settled, _MOST_SETTLED, replace=False))
    asked = np.flatnonzero(ask)
    asked = np.sort(asked[np.argsort(-gain[asked], kind="stable")[:_MOST_ASKING]])
    looked = np.arange(n) if n <= _MOST_ASKING else asked
    found = nearest(x, looked, settled, device)
    there = found >= 0
    return lists_of(looked[there.nonzero()[0]], n, pa.array(found[there])), gain


def expected_gain(x: Floats, shares: Floats, ask: NDArray[np.bool_]) -> NDArray[np.float32]:
    r"""How many labels an answer to each row is expected to mend, when each time the row that is worth most is asked about.

        gain_i = u_i (1 + sum_{r != i} u_r t_ri),   then   u_r <- u_r (1 - t_ri)
        u = (1 - margin) / 2,      t_ri = min(influence_ri o_ri, 0.9),      o_ri = (sum_j sqrt(p_ij p_rj))^2

    u: the chance that a label is wrong, and so that the answer is news; t: the part of the doubt about r that news about i takes
    away: how far leave-one-out regression moves, where the same labels are in doubt. So a row in a crowd of rows with one doubt
    comes first, and its crowd later. Chosen on four sets, seeds 0-9: `benchmarks/accuracy/review_order.py`.
    """
    best = np.sort(np.pad(shares, ((0, 0), (1, 0))), axis=1)  # a single class has a second beside it
    doubt = (1 - (best[:, -1] - best[:, -2])) / 2
    gain = doubt.astype(np.float32)
    rows = np.lexsort((-doubt, ~ask))[: min(_MOST_ORDERED, int((doubt > 0).sum()))]
    if not len(rows):
        return gain
    roots = np.sqrt(shares[rows])
    moved = np.clip(influence(x, rows) * (roots @ roots.T) ** 2, 0.0, 0.9)
    moved[moved < _LEAST_MOVE] = 0.0
    np.fill_diagonal(moved, 0.0)
    left = doubt[rows]
    crowd = left @ moved
    for _ in rows:
        first = int((left * (1 + crowd)).argmax())
        gain[rows[first]] = last = left[first] * (1 + crowd[first])
        near = np.append(np.flatnonzero(moved[:, first]), first)
        lost = left[near] * np.append(moved[near[:-1], first], 1.0)
        left[near] -= lost
        crowd -= lost @ moved[near]
        left[first] = -1.0
    others = np.setdiff1d(np.arange(len(x)), rows)
    gain[others] = np.minimum(gain[others], last)
    return gain


def nearest(x: Floats, rows: NDArray[np.intp], among: NDArray[np.intp], device: Any = "cpu") -> NDArray[np.intp]:
    """The k rows of `among`, which rises, nearest to each of `rows`, nearest first, itself left out: [len(rows), k], -1 where there are fewer."""
    k = min(K, len(among))
    found = np.full((len(rows), k), -1, dtype=np.intp)
    others = torch.from_numpy(x[among].astype(np.float32)).to(device)
    lengths = (others**2).sum(1)
    for start in range(0, len(rows) if k else 0, _NEAR):
        part = rows[start : start + _NEAR]
        distance = lengths - 2 * torch.from_numpy(x[part].astype(np.float32)).to(device) @ others.T
        place = np.searchsorted(among, part).clip(max=len(among) - 1)
        own = np.flatnonzero(among[place] == part)
        distance[own, place[own]] = torch.inf
        length, best = (one.cpu().numpy() for one in distance.topk(k, largest=False))
        found[start : start + _NEAR] = np.where(np.isinf(length), -1, among[best])
    return found


def queue(purified: pa.Table) -> pa.Array:
    """The place of each row in the queue, from 1; null for rows that nobody need be asked about."""
    ask = purified["ask"].to_numpy()
    place = np.empty(len(ask), dtype=np.int64)
    place[asking_order(purified)] = np.arange(1, len(ask) + 1)
    return pa.array(place, mask=~ask)


def asking_order(purified: pa.Table) -> NDArray[np.intp]:
    """All rows: those to ask about first, in the order in which answers pay; the others likewise."""
    ask, gain = (purified[name].to_numpy() for name in ("ask", "gain"))
    return np.lexsort((-gain, ~ask))
