"""Is one system better than another? Paired tests over shared seeds, corrected for their number."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Numbers = NDArray[np.float64]


class Paired(NamedTuple):
    """How a system does against another on the same seeds."""

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
    if len(difference) < 2 or not difference.any():  # no test can tell: the same, or a single pair
        return Paired(float(difference.mean()), 1.0, 1.0, 0.0, len(difference))
    spread = float(difference.std(ddof=1))
    gain = float(difference.mean())
    t_p = float(stats.ttest_rel(ours, other).pvalue) if spread else 0.0
    effect = gain / spread if spread else math.copysign(math.inf, gain)
    return Paired(gain, t_p, signed_rank_p(difference), effect, len(difference))


def signed_rank_p(difference: Numbers) -> float:
    """Wilcoxon's two-sided p, exact with ties too: SciPy's, which draws up every sign for each, takes half a second.

    Zeros are ranked and count half for either side.

    >>> signed_rank_p(np.array([3.0, 1.0, 1.0, -2.0]))
    0.625
    """
    rank = (2 * stats.rankdata(np.abs(difference))).astype(int)  # doubled, so that ties have whole ranks
    signed = rank[difference != 0]
    ways = np.ones(1)  # share of all signs that give each sum of positive ranks
    for step in signed:
        ways = 0.5 * (np.pad(ways, (0, step)) + np.pad(ways, (step, 0)))
    seen = int(rank[difference > 0].sum())
    return float(min(1.0, 2 * min(ways[: seen + 1].sum(), ways[seen:].sum())))


def holm(p: Sequence[float]) -> list[float]:
    """Holm's correction of several p-values, in their order.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p, kind="stable")
    factors = len(p) - np.arange(len(p))
    corrected = np.minimum(np.maximum.accumulate(np.asarray(p, dtype=float)[order] * factors), 1.0)
    back = np.empty(len(p))
    back[order] = corrected
    return back.tolist()
