r"""Estimate from the votes whether annotators err independently.

Annotators who err together agree on more items than a model of independent annotators explains, although it takes most of their agreement for
accuracy. Let A be the share of pairs of votes on an item that agree, and A_0 and s the mean and the standard deviation of this share in votes that
are drawn from the fitted model. With equal prior probabilities of independent and of dependent errors,

    x = (A - A_0) / (1 - A_0),      x ~ N(0, s^2) if errors are independent,      x ~ N(d, s^2) with d uniform in [0, 0.05] if not
    rho = 0.4 min(1, 2 P(dependent | x))

Where the votes are no evidence of either, rho is 0.4, as in real votes; the clearer the evidence of independence, the smaller it is. It is never
larger, since the absence of that evidence proves little: mistakes that all annotators make on the same items leave no trace if there are few votes
on an item.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from oneof.votes.annotators import CORRELATION, AnnotatorFit, Confusions
from oneof.votes.ballots import Floats, Integers, Votes

MAX_COMPARED_ITEMS = 5000  # items on which agreement is compared with that of drawn votes
N_DRAWS = 20  # sets of votes that are drawn from the model
# Excess of agreement over the model, by annotators who err together: in simulations, two votes of three on an item that repeat a common
# impression leave 0.02 to 0.09.
MAX_EXCESS = 0.05


def correlation_of_errors(votes: Votes, fitted: AnnotatorFit) -> float:
    """Return rho for votes to which this model was fitted.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from oneof.votes import Annotators, fit_annotators, read_long
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.integers(3, size=(400, 1))
    >>> looks_like = np.where(rng.random((400, 1)) < 0.3, rng.integers(3, size=(400, 1)), truth)
    >>> for repeated in (truth, looks_like):
    ...     repeats = rng.random((400, 5)) < 0.5  # the others are right in 60 % of the cases
    ...     alone = np.where(rng.random((400, 5)) < 0.6, truth, rng.integers(3, size=(400, 5)))
    ...     named = np.where(repeats & (repeated is looks_like), repeated, alone).ravel().astype(str)
    ...     item = np.repeat(np.arange(400), 5)
    ...     votes = read_long(pa.table({"item": item, "annotator": list("vwxyz") * 400, "label": named}))
    ...     print(round(correlation_of_errors(votes, fit_annotators(votes, Annotators(one_coin=True))), 1))
    0.2
    0.4
    """
    n_items = len(votes.items)
    if n_items > MAX_COMPARED_ITEMS:
        votes = votes.of_items(np.sort(np.random.default_rng(0).permutation(n_items)[:MAX_COMPARED_ITEMS]))
    votes = votes.only(_is_comparable(votes))
    if not (np.bincount(votes.item) > 1).any():
        return CORRELATION
    agreement = _agreement(votes, votes.label)
    drawn = np.array([_agreement(votes, labels) for labels in _draw_labels(votes, fitted)])
    largest_excess = max(1 - drawn.mean(), 1e-6)
    excess = (agreement - drawn.mean()) / largest_excess
    deviation = max(drawn.std() / largest_excess, 1e-6)
    return CORRELATION * min(1.0, 2 * _probability_of_dependence(float(excess), float(deviation)))


def _probability_of_dependence(excess: float, deviation: float) -> float:
    """Return P(dependent | x) from x and s; an excess above the largest is certain."""
    if excess >= MAX_EXCESS:
        return 1.0
    of_independent = norm.pdf(excess / deviation) / deviation
    of_dependent = (norm.cdf(excess / deviation) - norm.cdf((excess - MAX_EXCESS) / deviation)) / MAX_EXCESS
    return float(of_dependent / max(of_independent + of_dependent, 1e-300))


def _is_comparable(votes: Votes) -> NDArray[np.bool_]:
    """Return which votes [m] can be compared: single labels by annotators who give several labels, since rules do not choose between labels."""
    gives_several = votes.labels_per_annotator > 1
    return np.asarray(gives_several[votes.annotator] & (votes.answer_size == 1))


def _agreement(votes: Votes, labels: Integers) -> float:
    """Return the share of pairs of votes on an item that agree, if the votes were for these labels."""
    c = len(votes.labels)
    of_label = np.bincount(votes.item * c + labels)
    of_item = np.bincount(votes.item)
    return float((of_label * (of_label - 1)).sum() / (of_item * (of_item - 1)).sum())


def _draw_labels(votes: Votes, fitted: AnnotatorFit) -> Integers:
    """Return labels of all votes [draws, m] by annotators who err independently, on items whose true labels are drawn too."""
    rng = np.random.default_rng(0)
    frequencies = fitted.frequencies / fitted.frequencies.sum()
    truth = rng.choice(len(frequencies), size=(N_DRAWS, len(votes.items)), p=frequencies)[:, votes.item]
    uniform = rng.random(truth.shape)
    labels = np.zeros_like(truth)
    order = np.argsort(votes.annotator, kind="stable")
    ends = np.cumsum(np.bincount(votes.annotator))
    for annotator in np.unique(votes.annotator):
        start = ends[annotator - 1] if annotator > 0 else 0
        own_votes = order[start : ends[annotator]]
        labels[:, own_votes] = _draw_answers(
            fitted.confusions, int(annotator), truth[:, own_votes], uniform[:, own_votes]
        )
    return labels


def _draw_answers(confusions: Confusions, annotator: int, truth: Integers, uniform: Floats) -> Integers:
    """Return answers of an annotator to items of these true labels, by numbers from [0, 1); all three have one shape."""
    cumulative = confusions.table(annotator).cumsum(1)
    c = len(cumulative)
    cumulative /= cumulative[:, -1:]
    thresholds = (cumulative + np.arange(c)[:, None]).ravel()  # of true label j, those within [j, j + 1]
    position = np.searchsorted(thresholds, truth + uniform, side="right")
    return np.asarray(np.minimum(position - c * truth, c - 1))
