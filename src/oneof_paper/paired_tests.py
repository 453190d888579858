"""Test whether one system is better than another: paired tests over shared seeds, corrected for their number."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Numbers = NDArray[np.float64]


class Paired(NamedTuple):
    """The result of comparing two systems on the same seeds."""

    gain: float  # mean difference
    t_p: float  # of the paired t-test, two-sided
    wilcoxon_p: float  # of the signed-rank test, two-sided
    effect: float  # mean difference over its deviation (Cohen's d of the differences)
    n: int


def paired(ours: Sequence[float] | Numbers, other: Sequence[float] | Numbers) -> Paired:
    """Compare two systems seed by seed.

    >>> [round(number, 3) for number in paired([0.8, 0.9, 0.85, 0.7], [0.7, 0.8, 0.8, 0.65])]
    [0.075, 0.014, 0.125, 2.598, 4]
    """
    difference = np.subtract(ours, other)
    gain = float(difference.mean())
    if len(difference) < 2 or not difference.any():  # a single pair, or equal systems: there is nothing to test
        return Paired(gain, 1.0, 1.0, 0.0, len(difference))
    std = float(difference.std(ddof=1))
    if std:
        t_p = float(stats.ttest_rel(ours, other).pvalue)
        effect = gain / std
    else:
        t_p = 0.0
        effect = math.copysign(math.inf, gain)
    return Paired(gain, t_p, signed_rank_p(difference), effect, len(difference))


def signed_rank_p(difference: Numbers) -> float:
    """Return Wilcoxon's two-sided p, exact also with ties; zeros are ranked and count half for either side.

    SciPy enumerates all signs for the exact distribution with ties, which takes half a second.

    >>> signed_rank_p(np.array([3.0, 1.0, 1.0, -2.0]))
    0.625
    """
    ranks = (2 * stats.rankdata(np.abs(difference))).astype(int)  # doubled, so that ties have whole ranks
    distribution = np.ones(1)  # probability of each sum of positive ranks, if signs are random
    for rank in ranks[difference != 0]:
        distribution = 0.5 * (np.pad(distribution, (0, rank)) + np.pad(distribution, (rank, 0)))
    observed = int(ranks[difference > 0].sum())
    lower_tail = distribution[: observed + 1].sum()
    upper_tail = distribution[observed:].sum()
    return float(min(1.0, 2 * min(lower_tail, upper_tail)))


def holm(p: Sequence[float]) -> list[float]:
    """Return p-values with Holm's correction for their number, in their order.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p, kind="stable")
    factors = len(p) - np.arange(len(p))
    scaled = np.asarray(p, dtype=float)[order] * factors
    corrected = np.empty(len(p))
    corrected[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return corrected.tolist()
