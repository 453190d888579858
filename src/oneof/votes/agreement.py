"""Agreement of annotators, counted over the answers that name one label, and a summary of votes and of their sets.

A vague answer neither agrees nor disagrees with a plain one, so it is left out there. Confidence is not used.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oneof.candidates.cells import lookalikes
from oneof.candidates.mask import Statistics, statistics
from oneof.metrics import wilson
from oneof.votes.annotators import Mistake, fit_annotators, mistakes
from oneof.votes.ballots import Integers, Votes, tally
from oneof.votes.policies import Sets

FAR = 0.1  # below the median annotator by this much, beyond doubt, is far from the rest
ENOUGH = 10  # answers compared; of one or two, Wilson's interval already ends below a good median


class AnnotatorAgreement(NamedTuple):
    """How often an annotator names what most of the others name."""

    annotator: str
    compared: int  # answers about items on which the others have one favourite
    rate: float | None  # None where nothing can be compared
    low: float | None  # Wilson's 95 % interval
    high: float | None
    far: bool  # of ten answers or more, is even `high` more than 0.1 below the median rate of all annotators?


def alpha(votes: Votes) -> float | None:
    """Krippendorff's alpha for labels without order; None where it is not defined.

        alpha = 1 - (N - 1) sum_c (n_c - o_cc) / (N^2 - sum_c n_c^2)

    over items with at least two answers: N answers, n_c of them for label c, and o_cc = sum_items n_ic (n_ic - 1) / (n_i - 1).
    It is not defined where no item has two answers, or where all answers are the same label.
    """
    plain, same = _plain(votes)
    answers = np.bincount(plain.item)[plain.item]
    paired = answers > 1
    per_label = np.bincount(plain.label[paired]).astype(float)
    total = per_label.sum()
    expected = total**2 - (per_label**2).sum()
    if expected == 0:
        return None
    agreeing = ((same[paired] - 1) / (answers[paired] - 1)).sum()  # every answer's share of o_cc, over labels
    return float(1 - (total - 1) * (total - agreeing) / expected)


def annotator_agreement(votes: Votes) -> list[AnnotatorAgreement]:
    """Each annotator against the favourite label of the others, item by item; items without a sole favourite are passed over."""
    plain, same = _plain(votes)
    agrees, differs = _against_others(plain.item, same)
    a = len(votes.annotators)
    hits = np.bincount(plain.annotator[agrees], minlength=a)
    compared = hits + np.bincount(plain.annotator[differs], minlength=a)
    some = compared > 0
    rate, low, high = np.full((3, a), np.nan)
    rate[some] = hits[some] / compared[some]
    low[some], high[some] = wilson(hits[some], compared[some])
    far = (compared >= ENOUGH) & (high < np.median(rate[some]) - FAR) if some.any() else some
    spans: list[Any] = [
        [None if np.isnan(one) else float(one) for one in span] for span in np.stack([rate, low, high], 1)
    ]
    rows = zip(votes.annotators, compared.tolist(), spans, far.tolist(), strict=True)
    return [AnnotatorAgreement._make((name, count, *span, beyond)) for name, count, span, beyond in rows]


def _plain(votes: Votes) -> tuple[Votes, Integers]:
    """The answers of one label each, r of them, and how many say this label of this item, [r]."""
    plain = votes.only(votes.answer_size == 1)
    _, pair, count = np.unique(plain.item * len(votes.labels) + plain.label, return_inverse=True, return_counts=True)
    return plain, count[pair]


def _against_others(item: Integers, same: Integers) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which answers [r] name the sole favourite of the item's other answers, and which something else than it."""
    best, second = np.zeros((2, item.max(initial=-1) + 1), dtype=np.intp)
    np.maximum.at(best, item, same)
    leads = same == best[item]
    np.maximum.at(second, item[~leads], same[~leads])
    leaders = np.bincount(item[leads])[item] // best[item]  # labels that share the lead
    return leads & (leaders == 1) & (same - 1 > second[item]), leaders - leads == 1


MANY_ITEMS = 10_000  # of more, some say what is taken for what
MANY_LABELS = 100  # of more, each is too rare for it


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
        return [who for who in self.agreement if who.far]


def summarise(votes: Votes, sets: Sets) -> Summary:
    """Count and compare; nothing is changed."""
    answer = votes.answer
    first, size = np.flatnonzero(np.diff(answer, prepend=-1)), np.bincount(answer)
    per_item, items = np.unique(np.bincount(votes.item[first]), return_counts=True)
    agreement = annotator_agreement(votes)
    counted = tally(votes)
    some = votes.of_items(np.sort(np.random.default_rng(0).permutation(len(votes.items))[:MANY_ITEMS]))
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
        agreement=sorted(agreement, key=lambda who: (not who.far, 2.0 if who.rate is None else who.rate)),
        lookalikes=lookalikes(votes.labels),
        sets=statistics(sets.mask),
        fallback=sets.fallback,
        note=sets.note,
        mistakes=mistakes(some, fit_annotators(some).posterior) if len(votes.labels) <= MANY_LABELS else [],
        remarks=(*votes.remarks, *_lost_labels(votes, sets)),
    )


def _lost_labels(votes: Votes, sets: Sets) -> list[str]:
    """Say which labels votes name and no set holds."""
    is_named = np.zeros(len(votes.labels), dtype=bool)
    is_named[votes.label] = True
    lost = [repr(votes.labels[j]) for j in np.flatnonzero(is_named & ~sets.mask.any(0))]
    more = f" and {len(lost) - 8} more" if len(lost) > 8 else ""
    return [f"votes name labels that no set holds: {', '.join(lost[:8])}{more}."] if lost else []
