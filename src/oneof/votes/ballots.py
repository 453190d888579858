"""Votes as integer arrays, and how answers in words become them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from oneof.votes.spelling import Spelling, spell

Integers = NDArray[np.intp]
Floats = NDArray[np.float64]

ROUNDING = 1e-9  # sums of confidences that differ by less are a tie


@dataclass(frozen=True)
class Votes:
    """Who named which label for which item: m votes, sorted by item, annotator and label, none twice.

    An *answer* is all that one annotator says of one item; an answer of several labels is vague, and is several votes.
    A vote of confidence 0.5 counts as half a vote wherever votes are counted.
    """

    items: Any  # Arrow array [n] of distinct ids, in order of first appearance
    annotators: list[str]
    labels: list[str]  # [c], sorted unless classes were given
    item: Integers  # [m]
    annotator: Integers  # [m]
    label: Integers  # [m]
    confidence: Floats | None = None  # [m], in [0, 1]
    unanswered: int = 0  # items left out, since nobody named a label for them
    repeated: int = 0  # votes that said again what the same annotator had said of the same item
    remarks: tuple[str, ...] = ()  # what a person should know of how answers were understood

    @property
    def weight(self) -> Floats:
        """What each vote counts, [m]."""
        return np.ones(len(self.item)) if self.confidence is None else self.confidence

    @property
    def answer(self) -> Integers:
        """The number of the answer that each vote belongs to, [m], ascending."""
        first = np.ones(len(self.item), dtype=bool)
        first[1:] = (np.diff(self.item) != 0) | (np.diff(self.annotator) != 0)
        return np.cumsum(first) - 1

    @property
    def answer_size(self) -> Integers:
        """How many labels the answer of each vote names, [m]."""
        answer = self.answer
        return np.bincount(answer)[answer]

    def only(self, some: NDArray[Any]) -> Self:
        """These votes alone, by their numbers or by a mask [m]."""
        confidence = None if self.confidence is None else self.confidence[some]
        item, annotator, label = self.item[some], self.annotator[some], self.label[some]
        return replace(self, item=item, annotator=annotator, label=label, confidence=confidence)

    def of_items(self, wanted: Integers) -> Self:
        """The votes for these items alone, which are numbered anew in this order."""
        place = np.full(len(self.items), -1)
        place[wanted] = np.arange(len(wanted))
        some = np.flatnonzero(place[self.item] >= 0)
        kept = self.only(some[np.argsort(place[self.item[some]], kind="stable")])
        return replace(kept, items=self.items.take(wanted), item=place[kept.item])


class Answers(NamedTuple):
    """Answers as they were read: r texts, each naming any number of labels."""

    source: str
    items: Any  # Arrow array of distinct ids
    annotators: list[str]
    item: Integers  # [r]
    annotator: Integers  # [r]
    text: Any  # Arrow array of strings [r], no nulls
    confidence: Floats | None  # [r]
    place: Callable[[int], str]  # where in the source an answer stands, for messages


def collect(answers: Answers, spelling: Spelling) -> Votes:
    """Turn texts into labels and merge what one annotator says twice of one item."""
    spelled = spell(answers.text, spelling, answers.place)
    if len(spelled.row) == 0:
        raise ValueError(f"votes must hold at least one label; {answers.source} has none.")
    item, annotator = answers.item[spelled.row], answers.annotator[spelled.row]
    sizes = (len(answers.items), len(answers.annotators), len(spelled.labels))
    key = np.ravel_multi_index((item, annotator, spelled.label), sizes)
    order = np.argsort(key, kind="stable")
    starts = np.flatnonzero(np.diff(key[order], prepend=-1))
    first = order[starts]
    present, item = np.unique(item[first], return_inverse=True)
    confidence = answers.confidence
    if confidence is not None:  # of a vote given twice, the surer one counts
        confidence = np.maximum.reduceat(confidence[spelled.row][order], starts)
    return Votes(
        items=answers.items.take(present),
        annotators=answers.annotators,
        labels=spelled.labels,
        item=item,
        annotator=annotator[first],
        label=spelled.label[first],
        confidence=confidence,
        unanswered=len(answers.items) - len(present),
        repeated=len(order) - len(first),
        remarks=tuple(spelled.remarks),
    )


class Tally(NamedTuple):
    """Votes counted per item and label that occur together, sorted by item, then label: q rows."""

    item: Integers  # [q]
    label: Integers  # [q]
    votes: Floats  # [q]
    most: NDArray[np.bool_]  # [q], is no label of the item ahead of this one?


def tally(votes: Votes) -> Tally:
    """Count the votes for every label of every item, by their confidence where it is known."""
    c = len(votes.labels)
    pair, where = np.unique(votes.item * c + votes.label, return_inverse=True)
    count: Floats = np.bincount(where, weights=votes.weight).astype(np.float64)
    item, label = np.divmod(pair, c)
    best = np.maximum.reduceat(count, np.flatnonzero(np.diff(item, prepend=-1)))
    return Tally(item, label, count, count >= best[item] - ROUNDING)
