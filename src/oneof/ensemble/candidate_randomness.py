r"""Test whether wrong labels enter the candidate sets at random.

*At random*: every set of s labels, of c, that holds the truth is equally likely, whatever the features. For any two labels j, k that are
picked without looking at the row's own set, with r = (s - 1) / (c - 1), r2 = r (s - 2) / (c - 2) and b = (r - r2) / (1 - r), the mean
over rows of

    1[j in S] 1[k in S] - r2 - b (1[j in S] + 1[k in S] - 2 r)

is then zero; the size of a set does not depend on the prediction; sets of all sizes show the same accuracy, (covering - r) / (1 - r);
and improbable labels are in no fewer sets than r says. A label that is in the set for the same reason for which a classifier errs breaks
the first by a wide margin, a set that misses the truth the third.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.floating[Any]]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.intp]

CRITICAL_VALUE = 3.0  # standard errors at which a consequence counts as refuted
MAX_LABELS = 200  # labels that are compared pair by pair


def random_membership(candidates: BoolArray) -> FloatArray:
    """Return r: the probability that a wrong label is in a set of each row's size, if it enters at random [n]."""
    return np.asarray((candidates.sum(1) - 1) / max(candidates.shape[1] - 1, 1))


def is_candidate(candidates: BoolArray, labels: IntArray) -> BoolArray:
    """Return whether each row's label [n] is in its set."""
    return np.asarray(candidates[np.arange(len(labels)), labels])


def failed_randomness_test(scores: FloatArray, candidates: BoolArray) -> str | None:
    """Return in words which consequence of *at random* the sets [n, c] contradict, or None.

    A row's own set must have had no influence on its scores [n, c].
    """
    sizes = candidates.sum(1)
    size_depends = abs(_spearman(scores.max(1), sizes)) > CRITICAL_VALUE
    if size_depends or _between_groups(scores.argmax(1), sizes) > CRITICAL_VALUE:
        return "the size of a set depends on the features"
    informative = np.logical_not(candidates.all(axis=1))
    sets = candidates[informative]
    ranking = np.argsort(-scores[informative], axis=1)
    rates = _pair_rates(sets)
    top_labels = [is_candidate(sets, ranking[:, k]).astype(float) for k in range(3)]
    for j, k in ((0, 1), (0, 2), (1, 2)):
        both = top_labels[j] * top_labels[k]
        either = top_labels[j] + top_labels[k]
        moment = both - rates.r2 - rates.b * (either - 2 * rates.r)
        if abs(_z_score(moment)) > CRITICAL_VALUE:
            return "which wrong labels are in a set depends on the features"
    excess = top_labels[0] - rates.r
    expected_excess = excess.sum() / (1 - rates.r).sum() * (1 - rates.r)
    if _between_groups(sets.sum(1), excess - expected_excess) > CRITICAL_VALUE:
        return "small and large sets show different accuracies"
    improbable = ranking[:, (ranking.shape[1] + 1) // 2 :]
    improbable_candidates = np.take_along_axis(sets, improbable, 1).sum(1)
    if _z_score(improbable_candidates - improbable.shape[1] * rates.r) < -CRITICAL_VALUE:
        return "improbable labels are in too few sets"
    if _label_pairs(sets) > CRITICAL_VALUE:
        return "some labels enter sets together"
    return None


class _PairRates(NamedTuple):
    """r, r2 and b of the module's docstring, for every row."""

    r: FloatArray
    r2: FloatArray
    b: FloatArray


def _pair_rates(sets: BoolArray) -> _PairRates:
    r = random_membership(sets)
    r2 = r * (sets.sum(1) - 2) / (sets.shape[1] - 2)
    b = (r - r2) / np.maximum(1 - r, 1e-9)
    return _PairRates(r, r2, b)


def _ranks(values: NDArray[Any]) -> FloatArray:
    """Return ranks from 1 on; equal values share the mean of theirs.

    >>> _ranks(np.array([3, 1, 1]))
    array([3. , 1.5, 1.5])
    """
    _, position, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((counts.cumsum() - (counts - 1) / 2)[position])


def _spearman(first: NDArray[Any], second: NDArray[Any]) -> float:
    """Return Spearman's rank correlation in standard errors."""
    n = len(first)
    first_ranks = _ranks(first) - (n + 1) / 2
    second_ranks = _ranks(second) - (n + 1) / 2
    scale = max(np.sqrt((first_ranks @ first_ranks) * (second_ranks @ second_ranks)), 1e-9)
    return float((first_ranks @ second_ranks) / scale * np.sqrt(n))


def _z_score(values: FloatArray) -> float:
    """Return the mean in standard errors."""
    deviation = float(values.std())
    if deviation <= 1e-9:
        return 0.0
    return float(values.mean() / (deviation / np.sqrt(len(values))))


def _between_groups(group: IntArray, values: NDArray[Any]) -> float:
    """Return how much the means of groups differ, in standard deviations of a chi-square variable."""
    rows = np.bincount(group)
    large = rows >= 5
    means = np.bincount(group, values)[large] / rows[large]
    chi_square = float((rows[large] * (means - values.mean()) ** 2).sum() / max(float(values.var()), 1e-9))
    degrees = max(int(large.sum()) - 1, 1)
    return float((chi_square - degrees) / np.sqrt(2 * degrees))


def _label_pairs(sets: BoolArray) -> float:
    """Return the summed squares of the pair moments of all labels, in standard deviations of a chi-square variable."""
    rates = _pair_rates(sets)
    frequent = np.argsort(-sets.sum(0), kind="stable")[:MAX_LABELS]
    member = sets[:, frequent].astype(float)
    # The moment of a pair where neither label is in the set, where one is, and where both are.
    if_neither = 2 * rates.b * rates.r - rates.r2
    if_one = if_neither - rates.b
    if_both = 1 + if_neither - 2 * rates.b
    single_sum = member.T @ rates.b
    moment = member.T @ member + if_neither.sum() - single_sum[:, None] - single_sum
    both_weight = if_both**2 - 2 * if_one**2 + if_neither**2
    square = member.T @ (both_weight[:, None] * member) + (if_neither**2).sum()
    single_square = member.T @ (if_one**2 - if_neither**2)
    square += single_square[:, None] + single_square
    pairs = np.triu(square > 5, 1)  # rarer pairs are far from normal
    if not pairs.any():
        return 0.0
    chi_square = float((moment[pairs] ** 2 / square[pairs]).sum())
    return float((chi_square - pairs.sum()) / np.sqrt(2 * pairs.sum()))
