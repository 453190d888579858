r"""Measure how well features predict which wrong labels are in the sets, or how probable they are, and lower the trust in labels accordingly.

Annotators' mistakes may depend on the features: three annotators who take a blurred 4 for a 9 name both labels wherever a 4 is blurred. A model
that repeats the mistake fits such sets as well as a correct one, so that it may be confident and wrong.

Let A_ik be the frequency of label k in the sets of other rows that have the label of row i, and B_ik the same plus the prediction of a regression of
the residuals on the features, fitted without row i. With the log-likelihood l of the other labels' presence in the sets,

    share = (l(B) - l(A)) / -l(A) = 1 - l(B) / l(A),

which is McFadden's pseudo R² of the features, given the labels. It is below 0.06 where wrong labels are in the sets by chance, by the class of the
row, or by the uncertainty of a weak classifier, and on three real data sets. Where annotators who learned from a few rows name one label each, it
is 0.1 to 0.5, and up to half of the labels in which models are confident are wrong.

Where the input is probabilities or counts, A and B are means of the numbers in place of frequencies, and the share is the R² of the features for the
numbers of the wrong labels. It is below 0 where people's votes or a language model err by chance, and 0.1 to 0.8 where the probabilities are those
of a classifier of the same features. Learners then agree with such a classifier whether it is right or not.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

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
PRIOR_SHARES = (0.0, 0.2)  # the same two for counts and probabilities
NOTICEABLE_INDEPENDENCE = 0.75  # up to which a warning is given
MIN_TRUST = 0.1  # above 0, so that the labels of a set keep their order
_KERNEL = KernelConfig(relative_gamma=1.0)
_RIDGE = 1.0
_MIN_VARIANCE = 1e-8  # of a prior's shares, below which there is nothing to explain
_MIN_RATE = 0.005  # rates are clipped to [_MIN_RATE, 1 - _MIN_RATE], so that no label has an infinite log-likelihood


class Trust(NamedTuple):
    """How far the learners' predictions for the rows of the table can be trusted."""

    in_labels: float = 1.0  # probability that the learners' choice within a set is not a repeated mistake
    independence: float = 1.0  # of the learners' mistakes from those in counts or probabilities
    warnings: Sequence[str] = ()


def estimate_trust(data: Dataset, labels: IntArray) -> Trust:
    """Estimate the trust from how well features predict which wrong labels are in the sets, or how probable, on a sample of the rows.

    It is full with single votes, which contain more information than sets, and where rows or sets of several labels are too few for an estimate.
    """
    rows = np.sort(sample_order(len(data))[:MAX_ROWS])
    mask = data.candidates.mask[rows]
    n_ambiguous = int((mask.sum(1) > 1).sum())
    if data.has_single_votes or len(rows) < MIN_HELD_OUT or n_ambiguous < MIN_AMBIGUOUS:
        return Trust()
    features = data.plain_features(rows)
    if data.has_prior:
        share = explained_share_of_prior(features, data.prior[rows], labels[rows])
        return Trust(independence=independence_of_prior(share), warnings=describe_share_of_prior(share))
    share = explained_share(features, mask, labels[rows])
    return Trust(in_labels=trust_in_labels(share), warnings=describe_share(share))


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
    by_features = by_label + _predict_residuals(features, candidates - by_label, is_label)
    by_features = np.clip(by_features, _MIN_RATE, 1 - _MIN_RATE)

    without_features = _log_likelihood(by_label, candidates, is_label)
    with_features = _log_likelihood(by_features, candidates, is_label)
    return (with_features - without_features) / -without_features


def explained_share_of_prior(features: FloatArray, prior: FloatArray, labels: IntArray) -> float:
    """Return the R² of features [n, d] for the prior [n, c] of labels other than each row's own, given the labels [n].

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> features = rng.normal(size=(600, 2))
    >>> labels = rng.integers(3, size=600)
    >>> is_label = np.arange(4) == labels[:, None]
    >>> by_chance = rng.dirichlet([1, 1, 1, 1], size=600) + is_label
    >>> by_features = np.exp(features @ rng.normal(size=(2, 4))) + is_label
    >>> explained_share_of_prior(features, by_chance, labels) < 0.06, explained_share_of_prior(features, by_features, labels) > 0.3
    (True, True)
    """
    is_label = np.arange(prior.shape[1]) == labels[:, None]
    shares = prior / np.maximum(prior.sum(1, keepdims=True), 1e-12)
    n_others = is_label.sum(0)[labels][:, None] - 1  # rows with the same label
    total_of_others = (is_label.T.astype(np.float64) @ shares)[labels] - shares
    residuals = np.where(n_others > 0, shares - total_of_others / np.maximum(n_others, 1), 0.0)
    unexplained = residuals - _predict_residuals(features, residuals, is_label)
    variance = float((residuals[~is_label] ** 2).mean())
    if variance < _MIN_VARIANCE:
        return 0.0
    return 1 - float((unexplained[~is_label] ** 2).mean()) / variance


def _predict_residuals(features: FloatArray, residuals: FloatArray, is_label: BoolArray) -> FloatArray:
    """Return residuals [n, c] as a kernel regression on the features predicts them, without the row itself."""
    ranked, _ = scale(fit_quantiles(features)(features), "ranks")
    regression = leave_one_out_regression(ranked, _KERNEL)
    return np.asarray(regression(_RIDGE, np.where(is_label, 0.0, residuals)))


def trust_in_labels(share: float) -> float:
    """Return how far resolved labels are trusted, from 1 down to MIN_TRUST, given the share that features explain.

    >>> [round(trust_in_labels(share), 2) for share in (-0.1, 0.06, 0.18, 0.4)]
    [1.0, 1.0, 0.55, 0.1]
    """
    doubt = float(np.clip((share - MIN_SHARE) / (MAX_SHARE - MIN_SHARE), 0, 1))
    return 1 - (1 - MIN_TRUST) * doubt


def independence_of_prior(share: float) -> float:
    """Return how independent learners are of a prior, from 1 down to 0, given the share of it that features explain.

    >>> [round(independence_of_prior(share), 2) for share in (-0.1, 0.1, 0.4)]
    [1.0, 0.5, 0.0]
    """
    low, high = PRIOR_SHARES
    return 1 - float(np.clip((share - low) / (high - low), 0, 1))


def trust_on_new_rows(predicted: FloatArray, label_probability: FloatArray) -> float:
    """Return how far predictions are believed on new rows, given those [m, c] for held-out rows, and the probabilities [m] of these rows' labels.

    A label that is chosen within a row's set is right at least as often as a prediction without the set. So predictions must not be more
    confident in the mean than labels are; the rest of the probability is spread evenly over all labels.

    >>> predicted = np.array([[0.9, 0.05, 0.05], [0.1, 0.8, 0.1]])
    >>> trust_on_new_rows(predicted, np.array([0.95, 0.9]))
    1.0
    >>> round(trust_on_new_rows(predicted, np.array([0.5, 0.5])), 2)
    0.32
    """
    by_chance = 1 / predicted.shape[1]
    confidence = float(predicted.max(1).mean())
    of_labels = float(label_probability.mean())
    if confidence <= max(of_labels, by_chance):
        return 1.0
    return float(max((of_labels - by_chance) / (confidence - by_chance), MIN_TRUST))


def describe_share(share: float) -> list[str]:
    """Return a warning where the share lowers the trust in labels, else nothing."""
    if trust_in_labels(share) == 1:
        return []
    return [
        f"the features explain {_percent(share)} of which wrong labels are in the sets: the mistakes in the sets seem to depend on the features, "
        "and the labels may repeat them. Their probabilities are lowered. To measure the accuracy of the labels, label a random sample, "
        "such as sample.csv of a run; single votes (--votes) would tell more than sets."
    ]


def describe_share_of_prior(share: float) -> list[str]:
    """Return a warning where the share lowers the weight of the learners beside counts or probabilities, else nothing."""
    if independence_of_prior(share) > NOTICEABLE_INDEPENDENCE:
        return []
    return [
        f"the features explain {_percent(share)} of the probabilities that the input gives to wrong labels. They seem to come from a model of "
        "the same features, so predictions from these are no second opinion: the labels stay close to the input, and their probabilities can be "
        "believed as far as the input can. "
        "To measure the accuracy of the labels, label a random sample, such as sample.csv of a run."
    ]


def _percent(share: float) -> str:
    return f"{share:.0%}".replace("%", " %")


def _log_likelihood(rates: FloatArray, candidates: BoolArray, is_label: BoolArray) -> float:
    """Return the log-likelihood of which labels other than each row's own are in the sets, from tables [n, c]."""
    logs = np.log(np.where(candidates, rates, 1 - rates))
    return float(logs[~is_label].sum())
