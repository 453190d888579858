r"""Measure how well features predict which wrong labels are in the sets, and lower the trust in labels accordingly.

Annotators' mistakes may depend on the features: three annotators who take a blurred 4 for a 9 name both labels wherever a 4 is blurred. A model that
repeats the mistake fits such sets as well as a correct one, so that it may be confident and wrong.

Let A_ik be the frequency of label k in the sets of other rows that have the label of row i, and B_ik the same plus the prediction of a regression of the
residuals on the features, fitted without row i. With the log-likelihood l of the other labels' presence in the sets,

    share = (l(B) - l(A)) / -l(A) = 1 - l(B) / l(A),

which is McFadden's pseudo R² of the features, given the labels. It is below 0.06 where wrong labels are in the sets by chance, by the class of the row,
or by the uncertainty of a weak classifier, and on three real data sets. Where annotators who learned from a few rows name one label each, it is 0.1 to
0.5, and up to half of the labels in which models are confident are wrong.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from oneof.data.dataset import Dataset
from oneof.data.with_ranks import fit_quantiles
from oneof.ensemble.accuracy import MIN_AMBIGUOUS, MIN_HELD_OUT, sample_order
from oneof.learners.kernel import KernelConfig, leave_one_out_regression
from oneof.learners.scaling import scale

FloatArray = NDArray[np.floating[Any]]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.intp]

MAX_ROWS = 1500  # on which the share is estimated
MIN_SHARE = 0.06  # up to which labels are trusted fully
MAX_SHARE = 0.30  # from which on they are trusted least
MIN_TRUST = 0.1  # above 0, so that the labels of a set keep their order
_KERNEL = KernelConfig(relative_gamma=1.0)
_RIDGE = 1.0
_MIN_RATE = 0.005  # rates are clipped to [_MIN_RATE, 1 - _MIN_RATE], so that no label has an infinite log-likelihood


def estimate_explained_share(data: Dataset, labels: IntArray) -> float:
    """Estimate how well features predict which wrong labels are in the sets, on a sample of the rows.

    It is 0 with votes, counts or probabilities, which tell more than sets do, and for too few rows or sets of several labels.
    """
    rows = np.sort(sample_order(len(data))[:MAX_ROWS])
    n_ambiguous = int((data.candidates.mask[rows].sum(1) > 1).sum())
    if data.has_prior or len(rows) < MIN_HELD_OUT or n_ambiguous < MIN_AMBIGUOUS:
        return 0.0
    return explained_share(data.plain_features(rows), data.candidates.mask[rows], labels[rows])


def explained_share(features: FloatArray, candidates: BoolArray, labels: IntArray) -> float:
    """Return McFadden's pseudo R² of features [n, d] for which other labels are in the sets [n, c], given the labels [n].

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
    # Over the rows with this label, with the row itself replaced by the mean over all rows.
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
    """Return how far resolved labels are trusted, from 1 down to MIN_TRUST, given the share that features explain.

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
        f"the features explain {percent} of which wrong labels are in the sets: the mistakes in the sets seem to depend on the features, "
        "and the labels may repeat them. Their probabilities are lowered. To measure the accuracy of the labels, fill in sample.csv; "
        "single votes (--votes) would tell more than sets."
    ]


def _log_likelihood(rates: FloatArray, candidates: BoolArray, is_label: BoolArray) -> float:
    """Return the log-likelihood of which labels other than each row's own are in the sets, from tables [n, c]."""
    logs = np.log(np.where(candidates, rates, 1 - rates))
    return float(logs[~is_label].sum())
