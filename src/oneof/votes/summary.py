"""A summary of votes and of the sets made from them."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from oneof.candidates.mask import Statistics, statistics
from oneof.votes.agreement import AnnotatorAgreement, alpha, annotator_agreement
from oneof.votes.ballots import Votes, tally
from oneof.votes.policies import Sets


@dataclass(frozen=True)
class Summary:
    """What was read, how far the annotators agree, and what became of it."""

    items: int
    annotators: int
    labels: int
    answers: int  # an annotator on an item
    votes: int  # labels in all answers
    vague: int  # answers of more than one label
    repeated: int  # votes given twice by one annotator, counted once
    unanswered: int  # items that nobody labelled, left out
    answers_per_item: dict[int, int]  # number of answers -> number of items
    alpha: float | None  # Krippendorff's, over answers of one label
    ties: int  # items on which two labels or more share the most votes
    agreement: list[AnnotatorAgreement]  # most distant first
    lookalikes: list[list[str]]  # labels that differ only in case or surrounding space
    sets: Statistics
    fallback: int  # items to which the policy itself gave no label
    note: str
    remarks: tuple[str, ...]  # how answers that are no plain label were understood

    @property
    def far(self) -> list[AnnotatorAgreement]:
        """Annotators far from the rest."""
        return [who for who in self.agreement if who.far]


def summarise(votes: Votes, sets: Sets) -> Summary:
    """Count and compare; nothing is changed."""
    answer = votes.answer
    first = np.flatnonzero(np.diff(answer, prepend=-1))
    size = np.bincount(answer)
    per_item, items = np.unique(np.bincount(votes.item[first]), return_counts=True)
    counted = tally(votes)
    return Summary(
        items=len(votes.items),
        annotators=len(votes.annotators),
        labels=len(votes.labels),
        answers=len(size),
        votes=len(votes.item),
        vague=int((size > 1).sum()),
        repeated=votes.repeated,
        unanswered=votes.unanswered,
        answers_per_item=dict(zip(per_item.tolist(), items.tolist(), strict=True)),
        alpha=alpha(votes),
        ties=int((np.bincount(counted.item[counted.most]) > 1).sum()),
        agreement=sorted(annotator_agreement(votes), key=_distance),
        lookalikes=_lookalikes(votes.labels),
        sets=statistics(sets.mask),
        fallback=sets.fallback,
        note=sets.note,
        remarks=votes.remarks,
    )


def _distance(who: AnnotatorAgreement) -> tuple[bool, float]:
    return (not who.far, 2.0 if who.rate is None else who.rate)


def _lookalikes(labels: list[str]) -> list[list[str]]:
    alike: dict[str, list[str]] = defaultdict(list)
    for label in labels:
        alike[label.strip().casefold()].append(label)
    return [names for names in alike.values() if len(names) > 1]
