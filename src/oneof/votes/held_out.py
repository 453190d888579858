"""How good an account of the votes is, told without truth: how probable it finds votes that it was not shown."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from oneof.votes.annotators import AnnotatorFit
from oneof.votes.ballots import Floats, Integers, Votes
from oneof.votes.dawid_skene import vote_weights

MANY = 10_000  # votes of which two fifths, held out in turn, say enough


class Fold(NamedTuple):
    """Votes without some of the answers, and the votes of these answers."""

    kept: Votes
    item: Integers  # [h]
    annotator: Integers  # [h]
    label: Integers  # [h]
    weight: Floats  # [h]

    def score(self, posterior: Floats, said: Floats) -> float:
        """Mean over the held-out votes of log sum_j T_ij pi_a(j -> l), weighted; `said` [h, c] is pi of these votes."""
        return _mean_log(np.einsum("hj,hj->h", posterior[self.item], said), self.weight)


def _mean_log(probable: Floats, weight: Floats) -> float:
    return float(np.average(np.log(np.maximum(probable, 1e-12)), weights=weight))


def folds(votes: Votes, *, seed: int = 0) -> Iterator[Fold]:
    """The votes in five parts, each held out once, or of many votes two of the parts.

    What one annotator says of one item is never divided. Of a single answer nothing can be held out: no fold.
    """
    answer, weight = votes.answer, vote_weights(votes)
    part = np.random.default_rng(seed).permutation(answer[-1] + 1) % 5
    for number in range(5 if len(answer) <= MANY else 2):
        out = part[answer] == number
        if weight[out].sum() > 0 and not out.all():
            yield Fold(votes.only(~out), votes.item[out], votes.annotator[out], votes.label[out], weight[out])


class LeftOut(NamedTuple):
    """Answers, each set against what the other votes on its item say: they judge opinions that never saw the item's votes."""

    row: Integers  # [h] of the opinion
    others: Floats  # [h, c] log-likelihood of the item's other votes, flattened as `power` says
    said: Floats  # [h, c] how probable the vote is under every true label
    weight: Floats  # [h]

    def score(self, logs: Floats) -> float:
        """Mean over the votes of log sum_j T_ij pi_a(j -> l), T in proportion to e^logs [n, c] and the other votes."""
        joined = self.others + logs[self.row]
        joined -= joined.max(1, keepdims=True)
        np.exp(joined, out=joined)
        return _mean_log(np.einsum("hj,hj->h", joined, self.said) / joined.sum(1), self.weight)


def leave_answers_out(votes: Votes, fitted: AnnotatorFit, power: float, row: Integers, seed: int = 0) -> LeftOut:
    """Every answer on items that have a row (`row` [items], -1: none), or MANY votes of them by chance."""
    answer, weight = votes.answer, vote_weights(votes)
    some = np.flatnonzero((row[votes.item] >= 0) & (weight > 0))
    some = np.sort(np.random.default_rng(seed).permutation(some)[:MANY])
    whole = np.flatnonzero(np.isin(answer, answer[some]))  # all labels of the answers that are left out
    own, place = np.unique(answer[whole], return_inverse=True)
    spoken = np.zeros((len(own), len(votes.labels)))
    logs = np.log(fitted.confusions.of(votes.annotator[whole], votes.label[whole]))
    np.add.at(spoken, place, weight[whole, None] * logs)
    others = power * (fitted.likelihood[votes.item[some]] - spoken[np.searchsorted(own, answer[some])])
    said = fitted.confusions.of(votes.annotator[some], votes.label[some])
    return LeftOut(row[votes.item[some]], others, said, weight[some])
