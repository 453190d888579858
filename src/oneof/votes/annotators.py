"""Estimate true labels and annotators' confusion matrices jointly, by EM with shrinkage.

Dawid-Skene fits a free matrix of c x c probabilities to every annotator, which a few dozen votes cannot determine. Here an annotator
has a *shape* of few parameters (accuracy, and which labels are given in error); the free matrix departs from it only where there are
votes enough.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import softmax

from oneof.votes.ballots import ROUNDING, Floats, Integers, Votes, check_memory
from oneof.votes.dawid_skene import shares, vote_counts, vote_matrices

SHARE = 0.1  # smoothing of the vote shares that EM starts from: pseudo-votes for every label
_ANNOTATOR_PRIOR = 5.0  # pseudo-votes by which an annotator's accuracy is shrunk to the pooled one
_EPS = 1e-3  # accuracies are clipped to [eps, 1 - eps]: nobody is certain
_BLOCK_SIZE = 1 << 16  # numbers computed at a time, so that they stay in the cache


@dataclass(frozen=True)
class Annotators:
    r"""Configure a model of annotators whose confusion matrices are shrunk to a shape of few parameters.

    T [n, c] is the posterior of the true labels:

        T_ij     proportional to   m_j^(1-b) prod_{a, l} pi_a(j -> l) ^ w_ial            m_j: mean of T_ij over items
        pi_a(j -> l) = (N_ajl + k B_ajl) / (N_aj + k)                                    N_ajl = sum_i w_ial T_ij
        B_ajj = r_aj,      B_ajl = (1 - r_aj) u_al / (1 - u_aj)   for l != j

    u_a is the distribution of a's wrong labels, whatever the truth, which models annotators with a favourite answer. The odds of r_aj
    are the pooled odds of a correct vote for label j, times the odds ratio of a to the pool. Both are shrunk to the pool, so that an
    annotator of few votes equals the pooled mean.

    The balance b removes a part of the class frequencies. Without it a label that annotators overuse absorbs its neighbours, and each
    round makes it more frequent. Where classes are truly rare it does harm (half of the labels are wrong where one class has 90 %),
    so `oneof.votes.joint` selects it by held-out votes.

    An annotator who only ever gives one label l, such as a rule or a detector, has no confusion matrix: "gives l, whatever the truth"
    would explain such votes perfectly and carry no information. Such an annotator has only an accuracy s_a, which EM does not update:
    the mean share of l among the other votes on the same items, shrunk to the pooled one.

        pi_a(j -> l)  proportional to   s_a   for j = l,      (1 - s_a) / (c - 1)   else,               s_a at least 1 / c

    Where such annotators cast a share f_i of an item's votes, class frequencies enter with the exponent (1 - f_i): a detector votes
    only on items of its class, so the rarity of the class is no evidence against its vote.

    Parameters
    ----------
    strength
        k, the pseudo-votes per true label by which the shape outweighs an annotator's own counts.
    balance
        b in [0, 1]. 0: class frequencies as estimated; 1: all classes equally frequent.
    pooled
        Give all annotators the pooled accuracy and no confusion matrix, so that the majority wins.
    tolerance
        Stop when a round moves at most this much of an item's mass, on average.
    rounds
        Maximum number of EM rounds.
    """

    strength: float = 30.0
    balance: float = 0.0
    pooled: bool = False
    tolerance: float = 1e-5
    rounds: int = 200

    def __post_init__(self) -> None:
        if not self.strength > 0:
            raise ValueError(f"strength must be positive; got {self.strength}.")
        if not 0 <= self.balance <= 1:
            raise ValueError(f"balance must lie in [0, 1]; got {self.balance}.")


class Confusions(NamedTuple):
    """Confusion matrices of a annotators; only the q pairs (annotator, label) that occur have counts."""

    strength: float
    pair: Integers  # [q] annotator * c + label, ascending
    pair_counts: Floats  # [q, c] N_ajl of the pair (a, l) for every true label j
    true_counts: Floats  # [a, c] N_aj
    accuracy_by_label: Floats  # [a, c] r_aj
    error_labels: Floats  # [a, c] u_al
    has_table: NDArray[np.bool_]  # [a] False: the annotator only ever gives one label
    accuracy: Floats  # [a] s_a, for annotators without a table
    log_frequencies: Floats  # [c] (1-b) log m_j, removed in proportion to the votes of annotators without a table

    def of(self, annotator: Integers, label: Integers) -> Floats:
        """Return the probability [k, c] that annotators [k] give labels [k], for every true label."""
        c = self.true_counts.shape[1]
        pair = annotator * c + label
        index = np.minimum(np.searchsorted(self.pair, pair), len(self.pair) - 1)
        occurs = (self.pair[index] == pair)[:, None]
        counts = np.where(occurs, self.pair_counts[index], 0.0)
        return _shrunk_probabilities(self, annotator, label, counts)

    def table(self, annotator: int) -> Floats:
        """Return the confusion matrix [true, given] of one annotator."""
        c = self.true_counts.shape[1]
        return self.of(np.full(c, annotator), np.arange(c)).T


class AnnotatorFit(NamedTuple):
    """Result of `fit_annotators`."""

    posterior: Floats  # [n, c]
    likelihood: (
        Floats  # [n, c] log-likelihood of an item's votes under each true label, shifted so that the largest is 0
    )
    frequencies: Floats  # [c] m_j
    confusions: Confusions
    rounds: int
    converged: bool  # the last round moved at most `tolerance` of an item's mass, on average


def fit_annotators(votes: Votes, model: Annotators = Annotators()) -> AnnotatorFit:  # noqa: B008 - frozen
    """Estimate the true labels of all items and the confusion matrices of all annotators.

    The result is deterministic. A round takes time in proportion to votes times classes; memory grows with
    (items + pairs of annotator and label that occur) times classes.

    Parameters
    ----------
    votes
        m votes of a annotators on n items with c labels.
    model
        Settings of the model and of EM.

    Returns
    -------
    AnnotatorFit
        The posterior [n, c], the log-likelihood of each item's votes [n, c], class frequencies [c] and the confusions.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from oneof.votes import read_long
    >>> rows = {"item": [0, 0, 0, 1, 1, 1], "annotator": ["x", "y", "z"] * 2, "label": ["a", "a", "b", "b", "b", "b"]}
    >>> fit_annotators(read_long(pa.table(rows))).posterior.argmax(1)
    array([0, 1])
    """
    n = len(votes.items)
    a = len(votes.annotators)
    c = len(votes.labels)
    by_pair, by_annotator, pair = vote_matrices(votes)
    check_memory(votes, 8 * c * (3 * n + 2 * len(pair) + 5 * a))

    label_counts = np.zeros((a, c))  # weight of an annotator's votes for each label
    np.add.at(label_counts, (votes.annotator, votes.label), votes.share)
    has_table = np.logical_and((label_counts > 0).sum(1) > 1, not model.pooled)
    # Share of each item's votes [n] that annotators without a table cast.
    tableless_share = by_annotator @ (~has_table).astype(np.float64)
    tableless_share /= np.maximum(by_annotator.sum(1), 1e-12)
    accuracy = _agreement_with_others(votes, model.pooled)

    posterior = shares(votes, SHARE)
    n_rounds = 0
    converged = False
    while n_rounds < model.rounds and not converged:
        pair_counts = by_pair.T @ posterior
        true_counts = by_annotator.T @ posterior
        frequencies = (posterior.sum(0) + 1) / (n + c)
        log_frequencies = (1 - model.balance) * np.log(frequencies)
        accuracy_by_label, error_labels = _fit_shape(pair, label_counts, pair_counts, true_counts)
        confusions = Confusions(
            strength=model.strength,
            pair=pair,
            pair_counts=pair_counts,
            true_counts=true_counts,
            accuracy_by_label=accuracy_by_label,
            error_labels=error_labels,
            has_table=has_table,
            accuracy=accuracy,
            log_frequencies=log_frequencies,
        )
        likelihood = _log_likelihood(by_pair, confusions)
        likelihood -= tableless_share[:, None] * log_frequencies
        likelihood -= likelihood.max(1, keepdims=True)

        previous = posterior
        posterior = softmax(likelihood + log_frequencies, axis=1)
        converged = bool(np.abs(previous - posterior).sum() / (2 * n) <= model.tolerance)
        n_rounds += 1
    return AnnotatorFit(posterior, likelihood, frequencies, confusions, n_rounds, converged)


class Mistake(NamedTuple):
    """A true label that annotators take for another."""

    truth: str
    said: str
    votes: float  # expected number under the posterior
    share: float  # of all votes on items of this true label


def mistakes(votes: Votes, posterior: Floats, most: int = 5) -> list[Mistake]:
    """Return the most frequent confusions of one label with another, most votes first.

    Parameters
    ----------
    votes
        m votes on n items with c labels.
    posterior
        Probabilities [n, c] of the true labels.
    most
        Maximum number of confusions. Those with less than half a vote are left out.
    """
    by_label = csr_array((votes.share, (votes.label, votes.item)), shape=(len(votes.labels), len(votes.items)))
    counts = np.asarray(by_label @ posterior).T  # [true, given]
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1e-12)
    wrong_counts = counts.copy()
    np.fill_diagonal(wrong_counts, 0.0)
    top_confusions = []
    for cell in np.argsort(-wrong_counts, axis=None, kind="stable")[:most]:
        true, answered = np.unravel_index(cell, wrong_counts.shape)
        if wrong_counts[true, answered] < 0.5:
            break  # the rest have still fewer votes
        n_votes = float(wrong_counts[true, answered])
        top_confusions.append(
            Mistake(votes.labels[true], votes.labels[answered], n_votes, float(share[true, answered]))
        )
    return top_confusions


def _agreement_with_others(votes: Votes, pooled: bool) -> Floats:
    """Return how often each annotator agrees with the other votes on the same items [a], shrunk to the pooled rate or equal to it.

    A vote on an item without other votes agrees as much as a single vote does with its own smoothed share. Otherwise, of two
    detectors which meet only where one of them is wrong, nothing but errors would be counted.
    """
    a = len(votes.annotators)
    c = len(votes.labels)
    counts = vote_counts(votes)
    answer_weight = np.bincount(votes.answer, weights=votes.share)[votes.answer]
    other_weight = counts.sum(1)[votes.item] - answer_weight
    agreeing_weight = counts[votes.item, votes.label] - votes.share
    single_vote_agreement = (1 + SHARE) / (1 + c * SHARE)
    agreement = np.where(
        other_weight > ROUNDING, agreeing_weight / np.maximum(other_weight, ROUNDING), single_vote_agreement
    )
    agreed = np.bincount(votes.annotator, weights=votes.share * agreement, minlength=a)
    total = np.bincount(votes.annotator, weights=votes.share, minlength=a)
    pooled_rate = agreed.sum() / total.sum()
    if pooled:
        accuracy = np.full(a, pooled_rate)
    else:
        accuracy = (agreed + _ANNOTATOR_PRIOR * pooled_rate) / (total + _ANNOTATOR_PRIOR)
    clipped: Floats = np.clip(accuracy, 1 / c, 1 - _EPS)
    return clipped


def _fit_shape(pair: Integers, label_counts: Floats, pair_counts: Floats, true_counts: Floats) -> tuple[Floats, Floats]:
    """Return the accuracies r_aj and the distributions of wrong labels u_al, [a, c] each."""
    a, c = true_counts.shape
    annotator, label = np.divmod(pair, c)
    correct = pair_counts[np.arange(len(label)), label]  # [q] expected votes for the true label
    wrong = label_counts.copy()  # [a, c] expected votes for another than the true label
    wrong[annotator, label] -= correct

    correct_by_label = np.bincount(label, weights=correct, minlength=c)
    correct_by_annotator = np.bincount(annotator, weights=correct, minlength=a)
    pooled = _clip(correct_by_label.sum() / true_counts.sum())
    label_accuracy = (correct_by_label + c * pooled) / (true_counts.sum(0) + c)
    annotator_accuracy = (correct_by_annotator + _ANNOTATOR_PRIOR * pooled) / (true_counts.sum(1) + _ANNOTATOR_PRIOR)
    label_odds = _odds(_clip(label_accuracy))
    odds_ratio = _odds(_clip(annotator_accuracy)) / _odds(pooled)
    odds = label_odds * odds_ratio[:, None]

    pooled_error_labels = (wrong.sum(0) + 1) / (wrong.sum() + c)  # [c]
    error_labels = (wrong + c * pooled_error_labels) / (wrong.sum(1, keepdims=True) + c)
    return odds / (1 + odds), error_labels


def _shrunk_probabilities(confusions: Confusions, annotator: Integers, label: Integers, counts: Floats) -> Floats:
    """Return pi_a(j -> l) of k pairs (a, l) with their counts [k, c], for every true label j, [k, c]."""
    accuracy = confusions.accuracy_by_label[annotator]
    error_labels = confusions.error_labels[annotator]
    rows = np.arange(len(label))
    shape = (1 - accuracy) * error_labels[rows, label][:, None] / np.maximum(1 - error_labels, 1e-12)
    shape[rows, label] = accuracy[rows, label]
    strength = confusions.strength
    shrunk: Floats = (counts + strength * shape) / (confusions.true_counts[annotator] + strength)

    tableless = np.flatnonzero(~confusions.has_table[annotator])
    tableless_accuracy = confusions.accuracy[annotator[tableless]]
    n_other_labels = max(shrunk.shape[1] - 1, 1)
    shrunk[tableless] = ((1 - tableless_accuracy) / n_other_labels)[:, None]
    shrunk[tableless, label[tableless]] = tableless_accuracy
    return shrunk


def _log_likelihood(by_pair: Any, confusions: Confusions) -> Floats:
    """Return the log-likelihood of every item's votes under each true label, [n, c]."""
    log_probabilities = np.empty_like(confusions.pair_counts)  # [q, c]
    n_pairs, c = log_probabilities.shape
    step = max(1, _BLOCK_SIZE // c)
    for start in range(0, n_pairs, step):
        block = slice(start, start + step)
        annotator, label = np.divmod(confusions.pair[block], c)
        probabilities = _shrunk_probabilities(confusions, annotator, label, confusions.pair_counts[block])
        np.log(probabilities, out=log_probabilities[block])
    log_likelihood: Floats = by_pair @ log_probabilities
    return log_likelihood


def _clip(rate: Any) -> Any:
    return np.clip(rate, _EPS, 1 - _EPS)


def _odds(rate: Any) -> Any:
    return rate / (1 - rate)
