"""How good an account of the votes is, told without truth: how probable it finds votes that it was not shown."""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from oneof.votes.annotators import Confusions
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
        probable = np.einsum("hj,hj->h", posterior[self.item], said)
        return float(np.average(np.log(np.maximum(probable, 1e-12)), weights=self.weight))

    def said(self, confusions: Confusions) -> Floats:
        """How probable each held-out vote is under every true label, [h, c]."""
        return confusions.of(self.annotator, self.label)


def folds(votes: Votes, *, seed: int = 0) -> Iterator[Fold]:
    """The votes in five parts, each held out once, or of many votes two of the parts.

    What one annotator says of one item is never divided. Of a single answer nothing can be held out: no fold.
    """
    answer, weight = votes.answer, vote_weights(votes)
    part = np.random.default_rng(seed).permutation(answer[-1] + 1) % 5
    for number in range(5 if len(answer) <= MANY else 2):
        out = part[answer] == number
        if weight[out].sum() > 0 and not out.all():
            confidence = None if votes.confidence is None else votes.confidence[~out]
            item, annotator, label = votes.item[~out], votes.annotator[~out], votes.label[~out]
            kept = replace(votes, item=item, annotator=annotator, label=label, confidence=confidence)
            yield Fold(kept, votes.item[out], votes.annotator[out], votes.label[out], weight[out])
