"""Order rows for review by how many labels an answer is expected to correct, and find each row's nearest settled rows."""

from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from oneof.learners.kernel import influence
from oneof.storage.sheets import list_array
from oneof.training.parallel import Map, map_here

K = 5  # neighbours
_MAX_QUERIES = 20_000  # rows whose neighbours are computed
_MAX_SETTLED = 50_000  # rows among which neighbours are searched
_MAX_ORDERED = 2000  # rows put in order; nobody reviews more before the next fit
_MIN_EFFECT = 0.01  # smaller effects of an answer on the doubt about another row are set to zero
_MAX_EFFECT = 0.9
_BATCH_SIZE = 512  # rows whose neighbours are computed at a time
_JOB_SIZE = 4 * _BATCH_SIZE  # rows that a worker process is given
Floats = NDArray[np.floating[Any]]


def neighbours_and_gain(
    x: Floats, shares: Floats, ask: NDArray[np.bool_], device: Any = "cpu", map_queries: Map = map_here
) -> tuple[pa.ListArray, NDArray[np.float32]]:
    """Return the nearest settled rows of each row, nearest first, and the expected gain of reviewing it.

    Large tables are sampled: neighbours are searched among 50,000 settled rows, and for the 20,000 rows to review with the
    largest gain.

    Parameters
    ----------
    x : array [n, d]
        Features.
    shares : array [n, c]
        Probabilities of the labels.
    ask : array [n]
        Whether a row should be reviewed; the others are settled.
    device : str or torch.device
        Where distances are computed.
    map_queries
        Computes the neighbours of blocks of rows, perhaps in worker processes.
    """
    n = len(x)
    gain = expected_gain(x.astype(np.float64), shares.astype(np.float64), ask)
    settled = np.flatnonzero(~ask)
    if len(settled) > _MAX_SETTLED:
        sample = np.random.default_rng(0).choice(settled, _MAX_SETTLED, replace=False)
        settled = np.sort(sample)
    queries = np.arange(n)
    if n > _MAX_QUERIES:
        to_review = np.flatnonzero(ask)
        largest_gain_first = to_review[np.argsort(-gain[to_review], kind="stable")]
        queries = np.sort(largest_gain_first[:_MAX_QUERIES])
    blocks = [queries[start : start + _JOB_SIZE] for start in range(0, len(queries), _JOB_SIZE)]
    by_block = map_queries(partial(nearest, x, among=settled, device=device), blocks)
    neighbours = np.concatenate([nearest(x, queries[:0], settled, device), *by_block])
    exists = neighbours >= 0
    query_index = exists.nonzero()[0]
    return list_array(queries[query_index], n, pa.array(neighbours[exists])), gain


def expected_gain(x: Floats, shares: Floats, ask: NDArray[np.bool_]) -> NDArray[np.float32]:
    r"""Return how many labels an answer to each row is expected to correct, if rows are reviewed greedily by this gain.

        gain_i = u_i (1 + sum_{r != i} u_r t_ri),   then   u_r <- u_r (1 - t_ri)
        u = (1 - margin) / 2,      t_ri = min(influence_ri o_ri, 0.9),      o_ri = (sum_j sqrt(p_ij p_rj))^2

    u is the probability that a label is wrong, and so that the answer changes it. t is the part of the doubt about row r that
    an answer to row i removes: the influence of i on r in leave-one-out regression, times the overlap of their
    probabilities. A row in a cluster of similar doubtful rows therefore comes first, and the rest of its cluster later.
    The formula was chosen on four data sets, seeds 0-9: `benchmarks/accuracy/review_order.py`.
    """
    padded = np.pad(shares, ((0, 0), (1, 0)))  # so that a single class has a runner-up too
    ascending = np.sort(padded, axis=1)
    margin = ascending[:, -1] - ascending[:, -2]
    doubt = (1 - margin) / 2
    gain = doubt.astype(np.float32)
    n_ordered = min(_MAX_ORDERED, int((doubt > 0).sum()))
    rows = np.lexsort((-doubt, ~ask))[:n_ordered]
    if not len(rows):
        return gain
    effect = _effect_of_answers(x, shares, rows)
    remaining = doubt[rows]  # u
    effect_on_others = remaining @ effect
    for _ in rows:
        first = int((remaining * (1 + effect_on_others)).argmax())
        smallest_gain = remaining[first] * (1 + effect_on_others[first])
        gain[rows[first]] = smallest_gain
        affected = np.append(np.flatnonzero(effect[:, first]), first)
        part_removed = np.append(effect[affected[:-1], first], 1.0)
        removed = remaining[affected] * part_removed
        remaining[affected] -= removed
        effect_on_others -= removed @ effect[affected]
        remaining[first] = -1.0  # never chosen again
    others = np.setdiff1d(np.arange(len(x)), rows)
    gain[others] = np.minimum(gain[others], smallest_gain)
    return gain


def _effect_of_answers(x: Floats, shares: Floats, rows: NDArray[np.intp]) -> Floats:
    """Return t [k, k]: the part of the doubt about a row (first axis) that an answer to another (second axis) removes."""
    roots = np.sqrt(shares[rows])
    overlap = (roots @ roots.T) ** 2
    effect = np.clip(influence(x, rows) * overlap, 0.0, _MAX_EFFECT)
    effect[effect < _MIN_EFFECT] = 0.0
    np.fill_diagonal(effect, 0.0)
    return np.asarray(effect)


def nearest(x: Floats, rows: NDArray[np.intp], among: NDArray[np.intp], device: Any = "cpu") -> NDArray[np.intp]:
    """Return the K rows of `among` nearest to each of `rows`, nearest first, without the row itself.

    `among` must be sorted. The result is [len(rows), k], with -1 where there are fewer neighbours.
    """
    k = min(K, len(among))
    neighbours = np.full((len(rows), k), -1, dtype=np.intp)
    if k == 0:
        return neighbours
    others = torch.from_numpy(x[among].astype(np.float32)).to(device)
    squared_norms = (others**2).sum(1)
    for start in range(0, len(rows), _BATCH_SIZE):
        batch = rows[start : start + _BATCH_SIZE]
        features = torch.from_numpy(x[batch].astype(np.float32)).to(device)
        # squared distances, less the squared norm of the row, which does not change the order
        distance = squared_norms - 2 * features @ others.T
        position = np.searchsorted(among, batch).clip(max=len(among) - 1)
        itself = np.flatnonzero(among[position] == batch)
        distance[itself, position[itself]] = torch.inf
        smallest = distance.topk(k, largest=False)
        is_missing = np.isinf(smallest.values.cpu().numpy())
        nearest = among[smallest.indices.cpu().numpy()]
        neighbours[start : start + _BATCH_SIZE] = np.where(is_missing, -1, nearest)
    return neighbours


def queue_column(purified: pa.Table) -> pa.Array:
    """Return each row's place in the review queue, counted from 1; null for rows that need no review."""
    ask = purified["ask"].to_numpy()
    return pa.array(queue_places(ask, purified["gain"].to_numpy()), mask=~ask)


def queue_places(ask: NDArray[np.bool_], gain: Floats) -> NDArray[np.int64]:
    """Return the place of every row [n] if they are reviewed in `reviewing_order`, counted from 1."""
    place = np.empty(len(ask), dtype=np.int64)
    place[np.lexsort((-gain, ~ask))] = np.arange(1, len(ask) + 1)
    return place


def reviewing_order(purified: pa.Table) -> NDArray[np.intp]:
    """Return all rows: first those to review, by decreasing gain, then the others, likewise."""
    ask = purified["ask"].to_numpy()
    gain = purified["gain"].to_numpy()
    return np.lexsort((-gain, ~ask))
