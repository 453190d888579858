"""People differ: the true labels and what each annotator makes of them at once, by EM with shrinkage.

Dawid-Skene gives every annotator a free table of c x c numbers, which a few dozen votes cannot fill. Here an annotator has a
*shape* of few numbers (how often right, which labels are said when wrong), and the free table only departs from it where votes say so.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import softmax

from oneof.votes.ballots import ROUNDING, Floats, Integers, Votes, refuse_without_room
from oneof.votes.dawid_skene import ballots, shares, vote_counts

OWN = 5.0  # votes that the accuracy of all annotators weighs in the accuracy of one
SHARE = 0.1  # of a vote that every label has before the first round
BLOCK = 1 << 16  # numbers worked on at a time, so that they stay in the cache
EDGE = 1e-3  # accuracies lie between this and one minus this: nobody is certain


@dataclass(frozen=True)
class Annotators:
    r"""Confusions of annotators, shrunk to a shape of few numbers; T [n, c] is the posterior of the true labels.

        T_ij     proportional to   m_j^(1-b) prod_{a, l} pi_a(j -> l) ^ w_ial            m_j: mean of T_ij over items
        pi_a(j -> l) = (N_ajl + k B_ajl) / (N_aj + k)                                    N_ajl = sum_i w_ial T_ij
        B_ajj = r_aj,      B_ajl = (1 - r_aj) u_al / (1 - u_aj)   for l != j

    u_a are the labels that a says when wrong, whatever the truth, which finds people with a favourite answer; the odds of r_aj are those of
    being right of label j in the pool, times those of a against the pool. Both are shrunk to the pool, so that an annotator of few
    votes is the pool's mean. The balance b takes back a part of the class frequencies: without it a label that people use for
    everything swallows its neighbours, and each round makes it more frequent. Where classes are truly rare it does harm (half of
    the labels, where one class has 90 %), so `oneof.votes.joint` chooses it.

    An annotator who only ever names one label l, such as a rule or a detector, has no table: "says l, whatever the truth" explains
    such votes perfectly, and the truth could be anything. Such an annotator has an accuracy alone, s_a, which no round moves: the mean
    share of l among all votes on the items that a names, shrunk to the pool's.

        pi_a(j -> l)  proportional to   s_a   for j = l,      (1 - s_a) / (c - 1)   else,               s_a at least 1 / c

    And where votes of such annotators make up a share f_i of an item's votes, class frequencies count (1 - f_i) as much: a detector is
    heard on the items of its class, so a vote for a rare class is not to be held against it.
    """

    strength: float = 30.0  # k: votes per true label by which the shape outweighs the annotator's own table
    balance: float = 0.0  # b; 0: class frequencies as estimated, 1: all classes equal
    pooled: bool = False  # no annotator has a table, and all have the pool's accuracy: the majority wins
    tolerance: float = 1e-5
    rounds: int = 200

    def __post_init__(self) -> None:
        if not self.strength > 0:
            raise ValueError(f"strength must be positive; got {self.strength}.")
        if not 0 <= self.balance <= 1:
            raise ValueError(f"balance must lie in [0, 1]; got {self.balance}.")


class Confusions(NamedTuple):
    """What annotators say, given the truth; only pairs (annotator, label) that occur have counts of their own."""

    strength: float
    pair: Integers  # [q] annotator * c + label, ascending
    counts: Floats  # [q, c] N_ajl of the pair (a, l) for every true label j
    seen: Floats  # [a, c] N_aj
    right: Floats  # [a, c] r_aj
    errors: Floats  # [a, c] u_al
    has_table: NDArray[np.bool_]  # [a] False: an annotator of one label
    accuracy: Floats  # [a] s_a, for annotators without a table
    log_frequencies: Floats  # [c] (1-b) log m_j: what their votes take back

    def of(self, annotator: Integers, label: Integers) -> Floats:
        """Return the probability [k, c] that these annotators say these labels, for every true label."""
        c = self.seen.shape[1]
        pair = annotator * c + label
        place = np.minimum(np.searchsorted(self.pair, pair), len(self.pair) - 1)
        known = (self.pair[place] == pair)[:, None]
        return _shrunk(self, annotator, label, np.where(known, self.counts[place], 0.0))

    def table(self, annotator: int) -> Floats:
        """Return the confusion matrix [true, said] of one annotator."""
        c = self.seen.shape[1]
        return self.of(np.full(c, annotator), np.arange(c)).T


class AnnotatorFit(NamedTuple):
    """Where EM ended."""

    posterior: Floats  # [n, c]
    likelihood: Floats  # [n, c] log-likelihood of an item's votes under each true label, its largest 0
    frequencies: Floats  # [c] m_j
    confusions: Confusions
    rounds: int
    settled: bool  # did the last round move less than `tolerance` of an item's mass, on average?


def fit_annotators(votes: Votes, model: Annotators = Annotators()) -> AnnotatorFit:  # noqa: B008 - frozen
    """Estimate the true labels of all items and the confusions of all annotators; nothing is random.

    Time grows with votes times classes per round, memory with (items + pairs of annotator and label that occur) times classes.

    >>> import pyarrow as pa
    >>> from oneof.votes import read_long
    >>> rows = {"item": [0, 0, 0, 1, 1, 1], "annotator": ["x", "y", "z"] * 2, "label": ["a", "a", "b", "b", "b", "b"]}
    >>> fit_annotators(read_long(pa.table(rows))).posterior.argmax(1)
    array([0, 1])
    """
    n, a, c = len(votes.items), len(votes.annotators), len(votes.labels)
    by_pair, by_annotator, pair = ballots(votes)
    refuse_without_room(votes, 8 * c * (3 * n + 2 * len(pair) + 5 * a))
    given = np.zeros((a, c))  # weight of all votes of an annotator for a label
    np.add.at(given, (votes.annotator, votes.label), votes.share)
    has_table = np.logical_and((given > 0).sum(1) > 1, not model.pooled)
    without_table = by_annotator @ (~has_table).astype(np.float64)  # weight of their votes on each item
    without_table /= np.maximum(by_annotator.sum(1), 1e-12)
    posterior, done, settled = shares(votes, SHARE), 0, False
    accuracy = _agreement(votes, model.pooled)
    while done < model.rounds and not settled:
        counts, seen = by_pair.T @ posterior, by_annotator.T @ posterior
        frequencies = (posterior.sum(0) + 1) / (n + c)
        taken_back = (1 - model.balance) * np.log(frequencies)
        shape = _shape(pair, given, counts, seen)
        confusions = Confusions(model.strength, pair, counts, seen, *shape, has_table, accuracy, taken_back)
        likelihood = _likelihood(by_pair, confusions)
        likelihood -= without_table[:, None] * taken_back
        likelihood -= likelihood.max(1, keepdims=True)
        before, posterior = posterior, softmax(likelihood + (1 - model.balance) * np.log(frequencies), axis=1)
        settled = bool(np.abs(before - posterior).sum() / (2 * n) <= model.tolerance)
        done += 1
    return AnnotatorFit(posterior, likelihood, frequencies, confusions, done, settled)


class Mistake(NamedTuple):
    truth: str
    said: str
    votes: float  # how many, by the posterior
    share: float  # of all votes on items of this truth


def mistakes(votes: Votes, posterior: Floats, most: int = 5) -> list[Mistake]:
    """What is taken for what, most votes first, if the true labels are as a posterior [n, c] has them."""
    cast = csr_array((votes.share, (votes.label, votes.item)), shape=(len(votes.labels), len(votes.items)))
    table = np.asarray(cast @ posterior).T  # [true, said]
    share = table / np.maximum(table.sum(1, keepdims=True), 1e-12)
    wrong = table.copy()
    np.fill_diagonal(wrong, 0.0)
    best = np.argsort(-wrong, axis=None, kind="stable")[:most]
    cells = [np.unravel_index(one, wrong.shape) for one in best if wrong.flat[one] >= 0.5]
    return [Mistake(votes.labels[j], votes.labels[k], float(wrong[j, k]), float(share[j, k])) for j, k in cells]


def _agreement(votes: Votes, pooled: bool) -> Floats:
    """Return how far each annotator's votes agree with the other votes on their items, [a]: shrunk to the pool, or the pool's own.

    A vote without company agrees as a single vote does with its own smoothed share: else of two detectors, which meet only where one
    errs, nothing but their errors would be counted.
    """
    a, c = len(votes.annotators), len(votes.labels)
    counts = vote_counts(votes)
    answer_weight = np.bincount(votes.answer, weights=votes.share)[votes.answer]
    others = counts.sum(1)[votes.item] - answer_weight
    alike = counts[votes.item, votes.label] - votes.share
    alone = (1 + SHARE) / (1 + c * SHARE)
    agreement = np.where(others > ROUNDING, alike / np.maximum(others, ROUNDING), alone)
    agreed = np.bincount(votes.annotator, weights=votes.share * agreement, minlength=a)
    total = np.bincount(votes.annotator, weights=votes.share, minlength=a)
    of_pool = agreed.sum() / total.sum()
    accuracy = np.full(a, of_pool) if pooled else (agreed + OWN * of_pool) / (total + OWN)
    bounded: Floats = np.clip(accuracy, 1 / c, 1 - EDGE)
    return bounded


def _shape(pair: Integers, given: Floats, counts: Floats, seen: Floats) -> tuple[Floats, Floats]:
    """Return r_aj and u_al, [a, c] each."""
    c = seen.shape[1]
    annotator, label = np.divmod(pair, c)
    agreed = counts[np.arange(len(label)), label]  # [q] votes for the label that is true
    wrong = given.copy()  # [a, c] votes for a label that is not true
    wrong[annotator, label] -= agreed
    of_label = np.bincount(label, weights=agreed, minlength=c)  # [c]
    pooled = _inside(of_label.sum() / seen.sum())
    label_right = _odds(_inside((of_label + c * pooled) / (seen.sum(0) + c)))
    hits = np.bincount(annotator, weights=agreed, minlength=len(seen))
    own_right = _odds(_inside((hits + OWN * pooled) / (seen.sum(1) + OWN)))
    odds = label_right * (own_right / _odds(pooled))[:, None]
    often = (wrong.sum(0) + 1) / (wrong.sum() + c)  # [c] what is said in error, by all
    errors = (wrong + c * often) / (wrong.sum(1, keepdims=True) + c)
    return odds / (1 + odds), errors


def _shrunk(confusions: Confusions, annotator: Integers, label: Integers, counts: Floats) -> Floats:
    """pi_a(j -> l) of k pairs for every j, [k, c]."""
    right, errors = confusions.right[annotator], confusions.errors[annotator]
    rows = np.arange(len(label))
    shape = (1 - right) * errors[rows, label][:, None] / np.maximum(1 - errors, 1e-12)
    shape[rows, label] = right[rows, label]
    shrunk: Floats = (counts + confusions.strength * shape) / (confusions.seen[annotator] + confusions.strength)
    bare = np.flatnonzero(~confusions.has_table[annotator])
    accuracy = confusions.accuracy[annotator[bare]]
    shrunk[bare] = ((1 - accuracy) / max(shrunk.shape[1] - 1, 1))[:, None]
    shrunk[bare, label[bare]] = accuracy
    return shrunk


def _likelihood(by_pair: Any, confusions: Confusions) -> Floats:
    said = np.empty_like(confusions.counts)  # [q, c]
    step = max(1, BLOCK // said.shape[1])
    for start in range(0, len(said), step):
        some = slice(start, start + step)
        annotator, label = np.divmod(confusions.pair[some], said.shape[1])
        np.log(_shrunk(confusions, annotator, label, confusions.counts[some]), out=said[some])
    logs: Floats = by_pair @ said
    return logs


def _inside(rate: Any) -> Any:
    return np.clip(rate, EDGE, 1 - EDGE)


def _odds(rate: Any) -> Any:
    return rate / (1 - rate)
