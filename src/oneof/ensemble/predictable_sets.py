r"""Measure how far features predict which wrong labels are in the sets, and trust labels less the further they do.

Whoever made the sets may have erred by what the features show: three annotators who take a blurred 4 for a 9 name both, wherever a 4 is blurred. Such sets
fit a model that repeats the mistake as well as one that is right, so a model may be sure of the wrong label.

Let A_ik be how often label k is in the sets of other rows with the label of row i, and B_ik the same plus what a regression on the features adds, fitted
without row i. With the log-likelihood l of the labels that are in a row's set beside its own,

    share = (l(B) - l(A)) / -l(A),

the share of what is open about the sets, given the labels, that the features explain. It is below 0.06 where wrong labels come in by chance, by their
class, or by a weak classifier's doubts, also on three real sets; where annotators who learned from a few rows name one label each, it is 0.1 to 0.5, and
up to half of the labels are wrong that models are sure of.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from oneof.data.with_ranks import fit_quantiles
from oneof.learners.kernel import KernelConfig, leave_one_out_regression
from oneof.learners.scaling import scale

FloatArray = NDArray[np.floating[Any]]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.intp]

MAX_ROWS = 1500  # by which the share is estimated
MIN_SHARE = 0.06  # up to which labels are trusted fully
MAX_SHARE = 0.30  # from which on they are trusted least
MIN_TRUST = 0.1  # so that the labels of a set keep their order
_KERNEL = KernelConfig(relative_gamma=1.0)
_RIDGE = 1.0
_MIN_RATE = 0.005


def explained_share(features: FloatArray, candidates: BoolArray, labels: IntArray) -> float:
    """Return the share of the other labels' presence in sets [n, c], given the labels [n], that features [n, d] explain.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> features = rng.normal(size=(600, 2))
    >>> labels = rng.integers(3, size=600)
    >>> is_label = np.arange(4) == labels[:, None]
    >>> by_chance = is_label | (rng.random((600, 4)) < 0.3)
    >>> by_features = is_label | (np.arange(4) == np.where(features[:, 0] > 0, 3, labels)[:, None])
    >>> explained_share(features, by_chance, labels) < 0.06, explained_share(features, by_features, labels) > 0.3
    (True, True)
    """
    c = candidates.shape[1]
    if c == 1:
        return 0.0
    is_label = np.arange(c) == labels[:, None]
    n_with_label = is_label.sum(0)[labels][:, None]
    n_present = (is_label.T.astype(np.float64) @ candidates)[labels]
    # Of the rows with this label, without the row itself, and one with the rates of all rows.
    by_label = (n_present - candidates + candidates.mean(0)) / n_with_label
    by_label = np.clip(by_label, _MIN_RATE, 1 - _MIN_RATE)

    ranked, _ = scale(fit_quantiles(features)(features), "ranks")
    regression = leave_one_out_regression(ranked, _KERNEL)
    residuals = np.where(is_label, 0.0, candidates - by_label)
    by_features = np.clip(by_label + regression(_RIDGE, residuals), _MIN_RATE, 1 - _MIN_RATE)

    without_features = _log_likelihood(by_label, candidates, is_label)
    with_features = _log_likelihood(by_features, candidates, is_label)
    return (with_features - without_features) / -without_features


def trust_in_labels(share: float) -> float:
    """Return how far the labels that models resolve are trusted, from 1 down to MIN_TRUST, given the share that features explain.

    >>> [round(trust_in_labels(share), 2) for share in (-0.1, 0.06, 0.18, 0.4)]
    [1.0, 1.0, 0.55, 0.1]
    """
    doubt = float(np.clip((share - MIN_SHARE) / (MAX_SHARE - MIN_SHARE), 0, 1))
    return 1 - (1 - MIN_TRUST) * doubt


def describe_share(share: float) -> list[str]:
    """Return a warning where the share lowers the trust in labels, else nothing."""
    if trust_in_labels(share) == 1:
        return []
    percent = f"{share:.0%}".replace("%", " %")
    return [
        f"the features explain {percent} of which wrong labels are in the sets: whoever made the sets seems to err by what the features show, "
        "and the labels may repeat these errors. Their probabilities are lowered. To measure the labels, fill in sample.csv; single votes "
        "(--votes) would tell more than sets."
    ]


def _log_likelihood(rates: FloatArray, candidates: BoolArray, is_label: BoolArray) -> float:
    """Return the log-likelihood of the labels that are in the sets beside each row's own, [n, c] each."""
    logs = np.log(np.where(candidates, rates, 1 - rates))
    return float(logs[~is_label].sum())
