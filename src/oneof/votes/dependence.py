r"""Count annotators who agree with each other more than with the rest as fewer.

Versions of one language model, or people who copy, agree although they are no more often right. Where annotators err independently, the agreement
of a and b beyond chance is a product of two qualities:

    q_ab = (agreement of a and b - e) / (1 - e),       q_ab = b_a b_b,      e = sum_l (share of label l)^2

The qualities are fitted to all pairs. The agreement of a pair beyond them is a correlation of their errors, r_ab, and each vote of a counts as one
over the design effect of a's votes:

    r_ab = max(q_ab - b_a b_b - 2 standard errors, 0) / sqrt((1 - b_a^2) (1 - b_b^2))
    weight of a = 1 / (1 + sum_b r_ab n_ab / n_a)               n_ab: items of both, n_a: items of a

If most annotators copy one of them, the others are the exception, and votes alone cannot distinguish that from three poor annotators and six good
ones.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from oneof.votes.ballots import Floats, Integers, Votes

MAX_PAIRED_ITEMS = 20_000  # items on which the agreement of pairs of annotators is counted
MIN_SHARED = 10.0  # items of both annotators of a pair; with fewer, no agreement is significant
SIGNIFICANT = 2.0  # standard errors by which a pair must agree more than its qualities explain
MIN_CORRELATION = 0.2  # of errors; a smaller one may be a few poor annotators beside many who copy each other
_EXCESS_WEIGHT = 0.3  # of pairs that agree more than expected, in the fit of the qualities: annotators copy, but do not avoid, each other
_QUALITY = (0.02, 0.98)  # smallest and largest
_MAX_EXPECTED = 0.95
_ROUNDS = 300
_TOLERANCE = 1e-5


def discount_dependent(votes: Votes) -> Votes:
    """Return the votes with the confidence of each multiplied by the weight of its annotator.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from oneof.votes import read_long
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.integers(3, size=(400, 1))
    >>> named = np.where(rng.random((400, 5)) < 0.6, truth, rng.integers(3, size=(400, 5)))
    >>> named[:, 4] = named[:, 3]  # a copy
    >>> item = np.repeat(np.arange(400), 5)
    >>> votes = read_long(pa.table({"item": item, "annotator": list("vwxyz") * 400, "label": named.ravel().astype(str)}))
    >>> discount_dependent(votes).weight[:5].round(1)
    array([1. , 1. , 1. , 0.6, 0.6])
    """
    weights = annotator_weights(votes)
    if (weights == 1).all():
        return votes
    return replace(votes, confidence=votes.weight * weights[votes.annotator])


def annotator_weights(votes: Votes) -> Floats:
    """Return the weight of the votes of each annotator [a], in (0, 1]; 1 for annotators who only ever give one label."""
    pairs = _agreement(votes)
    n_annotators = len(votes.annotators)
    if not len(pairs.first):
        return np.ones(n_annotators)
    quality = _fit_quality(pairs, n_annotators)
    expected = quality[pairs.first] * quality[pairs.second]
    standard_error = np.sqrt((1 - np.minimum(expected, _MAX_EXPECTED) ** 2) / pairs.shared)
    excess = pairs.agreement - expected - SIGNIFICANT * standard_error
    scale = np.sqrt((1 - quality[pairs.first] ** 2) * (1 - quality[pairs.second] ** 2))
    correlation = np.clip(excess / scale, 0.0, 1.0)
    correlation[correlation < MIN_CORRELATION] = 0.0
    others = np.bincount(pairs.first, weights=correlation * pairs.shared, minlength=n_annotators)
    return np.asarray(1 / (1 + others / np.maximum(pairs.n_items, 1.0)))


class _Pairs(NamedTuple):
    """Ordered pairs of annotators with enough items in common."""

    first: Integers  # [p]
    second: Integers  # [p]
    shared: Floats  # [p] items of both
    agreement: Floats  # [p] beyond chance: 1 always, 0 as often as by chance
    n_items: Floats  # [a] items of each annotator


def _agreement(votes: Votes) -> _Pairs:
    """Return the agreement of all pairs of annotators who give several labels, on a sample of the items where they are many."""
    n = len(votes.items)
    c = len(votes.labels)
    gives_several = votes.labels_per_annotator > 1
    is_used = gives_several[votes.annotator]
    if n > MAX_PAIRED_ITEMS:
        is_sampled = np.zeros(n, dtype=bool)
        is_sampled[np.random.default_rng(0).permutation(n)[:MAX_PAIRED_ITEMS]] = True
        is_used &= is_sampled[votes.item]
    item = votes.item[is_used]
    annotator = votes.annotator[is_used]
    label = votes.label[is_used]
    share = votes.share[is_used]
    by_item = csr_array((share, (item, annotator)), shape=(n, len(votes.annotators)))
    by_item_and_label = csr_array((share, (item * c + label, annotator)), shape=(n * c, len(votes.annotators)))
    shared: Any = (by_item.T @ by_item).tocoo()
    agreeing: Any = (by_item_and_label.T @ by_item_and_label).tocsr()
    is_pair = (shared.row != shared.col) & (shared.data >= MIN_SHARED)
    first = shared.row[is_pair].astype(np.intp)
    second = shared.col[is_pair].astype(np.intp)
    label_shares = np.bincount(label, weights=share, minlength=c) / max(share.sum(), 1e-12)
    by_chance = min(float((label_shares**2).sum()), 1 - 1e-6)
    rate = np.asarray(agreeing[first, second]).ravel() / shared.data[is_pair]
    n_items = np.asarray(by_item.sum(0), dtype=np.float64).ravel()
    return _Pairs(first, second, shared.data[is_pair], (rate - by_chance) / (1 - by_chance), n_items)


def _fit_quality(pairs: _Pairs, n_annotators: int) -> Floats:
    """Return b [a], by least squares over pairs, in which those that agree more than expected count less."""
    mean_agreement = float(np.average(pairs.agreement, weights=pairs.shared))
    quality = np.full(n_annotators, np.sqrt(max(mean_agreement, 1e-3)))
    for _ in range(_ROUNDS):
        of_second = quality[pairs.second]
        is_excess = pairs.agreement > quality[pairs.first] * of_second
        weight = pairs.shared * np.where(is_excess, _EXCESS_WEIGHT, 1.0)
        products = np.bincount(pairs.first, weights=weight * pairs.agreement * of_second, minlength=n_annotators)
        squares = np.bincount(pairs.first, weights=weight * of_second**2, minlength=n_annotators)
        fitted = np.clip(products / np.maximum(squares, 1e-3), *_QUALITY)
        change = (fitted - quality) / 2
        quality = quality + change
        if np.abs(change).max() < _TOLERANCE:
            break
    return quality
