"""A summary of votes and of the sets made from them."""

from dataclasses import dataclass

import numpy as np

from oneof.candidates.cells import lookalikes
from oneof.candidates.mask import Statistics, statistics
from oneof.votes.agreement import AnnotatorAgreement, alpha, annotator_agreement
from oneof.votes.annotators import Mistake, fit_annotators, mistakes
from oneof.votes.ballots import Votes, tally
from oneof.votes.policies import Sets

MANY_ITEMS, MANY_LABELS = 10_000, 100


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
    lookalikes: list[list[str]]  # labels that look alike, such as those that differ in case or space
    sets: Statistics
    fallback: int  # items to which the policy itself gave no label
    note: str
    mistakes: list[Mistake]  # what is taken for what, by careful and careless people together
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
        lookalikes=lookalikes(votes.labels),
        sets=statistics(sets.mask),
        fallback=sets.fallback,
        note=sets.note,
        mistakes=_mistakes(votes),
        remarks=votes.remarks,
    )


def _mistakes(votes: Votes) -> list[Mistake]:
    """By the votes of some items, if these are many; none where labels are so many that each is rare."""
    if len(votes.labels) > MANY_LABELS:
        return []
    drawn = np.random.default_rng(0).permutation(len(votes.items))[:MANY_ITEMS]
    some = votes.of_items(np.sort(drawn))
    return mistakes(some, fit_annotators(some).posterior)


def _distance(who: AnnotatorAgreement) -> tuple[bool, float]:
    return (not who.far, 2.0 if who.rate is None else who.rate)
