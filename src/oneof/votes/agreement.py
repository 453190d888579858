"""Measure the agreement of annotators, and summarise votes and the candidate sets made of them.

Agreement is computed over answers of a single label, since a vague answer neither agrees nor disagrees with one. Confidence is not used.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from oneof.candidates.cells import near_duplicate_labels
from oneof.candidates.mask import Statistics, statistics
from oneof.metrics import wilson
from oneof.votes.annotators import Mistake, fit_annotators, mistakes
from oneof.votes.ballots import Integers, Votes, tally
from oneof.votes.policies import Sets

_OUTLIER_MARGIN = 0.1  # an outlier's interval ends at least this far below the median rate
_MIN_COMPARED = 10  # answers of an outlier; of one or two, Wilson's interval may already end below a good median
_MAX_ITEMS = 10_000  # of more, a sample is enough to find the most frequent confusions
_MAX_LABELS = 100  # of more, each label is too rare to find confusions
_MAX_LISTED = 8  # labels in a remark


class AnnotatorAgreement(NamedTuple):
    """How often an annotator agrees with the most frequent label of the others."""

    annotator: str
    compared: int  # answers on items for which the others have a single most frequent label
    rate: float | None  # None where nothing can be compared
    low: float | None  # Wilson's 95 % interval
    high: float | None
    far: bool  # of ten answers or more, is even `high` more than 0.1 below the median rate of all annotators?


def alpha(votes: Votes) -> float | None:
    """Compute Krippendorff's alpha for nominal labels; return None where it is not defined.

        alpha = 1 - (N - 1) sum_c (n_c - o_cc) / (N^2 - sum_c n_c^2)

    over items with at least two answers: N answers, n_c of them for label c, and o_cc = sum_items n_ic (n_ic - 1) / (n_i - 1).
    It is not defined where no item has two answers, or where all answers are the same label.
    """
    single, same_label_count = single_label_answers(votes)
    n_answers = np.bincount(single.item)[single.item]
    paired = n_answers > 1
    label_counts = np.bincount(single.label[paired]).astype(float)
    total = label_counts.sum()
    expected = total**2 - (label_counts**2).sum()
    if expected == 0:
        return None
    # Summed over answers, which gives the sum of o_cc over labels.
    agreeing = ((same_label_count[paired] - 1) / (n_answers[paired] - 1)).sum()
    return float(1 - (total - 1) * (total - agreeing) / expected)


def annotator_agreement(votes: Votes) -> list[AnnotatorAgreement]:
    """Compare each annotator with the most frequent label of the others, on items where there is a single such label."""
    single, same_label_count = single_label_answers(votes)
    agrees, differs = compare_with_others(single.item, same_label_count)
    a = len(votes.annotators)
    n_agreeing = np.bincount(single.annotator[agrees], minlength=a)
    n_compared = n_agreeing + np.bincount(single.annotator[differs], minlength=a)
    return agreement_of_counts(votes.annotators, n_agreeing, n_compared)


def agreement_of_counts(names: list[str], n_agreeing: Integers, n_compared: Integers) -> list[AnnotatorAgreement]:
    """Return the agreement of every annotator, from how many answers [a] agree and how many can be compared."""
    comparable = n_compared > 0
    rate = n_agreeing[comparable] / n_compared[comparable]
    low, high = wilson(n_agreeing[comparable], n_compared[comparable])
    outlier_limit = np.median(rate) - _OUTLIER_MARGIN if len(rate) else np.nan

    agreement = [AnnotatorAgreement(name, 0, None, None, None, False) for name in names]
    for k, annotator in enumerate(np.flatnonzero(comparable)):
        compared = int(n_compared[annotator])
        agreement[annotator] = AnnotatorAgreement(
            annotator=names[annotator],
            compared=compared,
            rate=float(rate[k]),
            low=float(low[k]),
            high=float(high[k]),
            far=bool(compared >= _MIN_COMPARED and high[k] < outlier_limit),
        )
    return agreement


def single_label_answers(votes: Votes) -> tuple[Votes, Integers]:
    """Return the r answers of a single label, and how many of them give the same label to the same item [r]."""
    single = votes.only(votes.answer_size == 1)
    pairs = single.item * len(votes.labels) + single.label
    _, pair_index, count = np.unique(pairs, return_inverse=True, return_counts=True)
    return single, count[pair_index]


def compare_with_others(item: Integers, same_label_count: Integers) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which answers [r] agree with the single most frequent label of the item's other answers, and which differ."""
    n_items = item.max(initial=-1) + 1
    best = np.zeros(n_items, dtype=np.intp)
    np.maximum.at(best, item, same_label_count)
    is_best = same_label_count == best[item]
    second = np.zeros(n_items, dtype=np.intp)
    np.maximum.at(second, item[~is_best], same_label_count[~is_best])
    n_tied = np.bincount(item[is_best])[item] // best[item]  # labels tied for the most answers
    # Without the answer itself, its label must still be ahead of the second.
    agrees = is_best & (n_tied == 1) & (same_label_count - 1 > second[item])
    differs = n_tied - is_best == 1
    return agrees, differs


@dataclass(frozen=True)
class Summary:
    """Counts of the votes that were read, the agreement of the annotators, and statistics of the candidate sets."""

    items: int
    annotators: int
    labels: int
    answers: int  # an annotator on an item
    votes: int  # labels in all answers
    vague: int  # answers of more than one label
    repeated: int  # votes given twice by one annotator, merged into one
    unanswered: int  # items that nobody labelled, left out
    answers_per_item: dict[int, int]  # number of answers -> number of items
    alpha: float | None  # Krippendorff's, over answers of one label
    ties: int  # items on which two labels or more share the most votes
    agreement: list[AnnotatorAgreement]  # most distant first
    near_duplicate_labels: list[list[str]]  # labels that look alike, such as those that differ in case or space
    sets: Statistics
    fallback: int  # items to which the policy itself gave no label
    note: str
    mistakes: list[Mistake]  # what is taken for what, by careful and careless people together
    remarks: tuple[str, ...]  # how answers that are no plain label were understood

    @property
    def far(self) -> list[AnnotatorAgreement]:
        """Return the annotators who agree far less with the others than the median annotator."""
        return [annotator for annotator in self.agreement if annotator.far]


def summarise(votes: Votes, sets: Sets) -> Summary:
    """Summarise votes and the candidate sets made of them."""
    answer = votes.answer
    answer_starts = np.flatnonzero(np.diff(answer, prepend=-1))
    answer_sizes = np.bincount(answer)
    answers_per_item, n_items = np.unique(np.bincount(votes.item[answer_starts]), return_counts=True)
    counts = tally(votes)
    n_tied_labels = np.bincount(counts.item[counts.most])
    return Summary(
        items=len(votes.items),
        annotators=len(votes.annotators),
        labels=len(votes.labels),
        answers=len(answer_sizes),
        votes=len(votes.item),
        vague=int((answer_sizes > 1).sum()),
        repeated=votes.repeated,
        unanswered=votes.unanswered,
        answers_per_item=dict(zip(answers_per_item.tolist(), n_items.tolist(), strict=True)),
        alpha=alpha(votes),
        ties=int((n_tied_labels > 1).sum()),
        agreement=sorted(annotator_agreement(votes), key=_by_distance),
        near_duplicate_labels=near_duplicate_labels(votes.labels),
        sets=statistics(sets.mask),
        fallback=sets.fallback,
        note=sets.note,
        mistakes=_most_frequent_mistakes(votes),
        remarks=(*votes.remarks, *_lost_labels(votes, sets)),
    )


def _by_distance(annotator: AnnotatorAgreement) -> tuple[bool, float]:
    """Return a sort key: outliers first, then by rate, and those without a rate last."""
    rate = 2.0 if annotator.rate is None else annotator.rate
    return not annotator.far, rate


def _most_frequent_mistakes(votes: Votes) -> list[Mistake]:
    """Return the most frequent confusions, estimated on a sample of items; none where labels are many."""
    if len(votes.labels) > _MAX_LABELS:
        return []
    sample = np.sort(np.random.default_rng(0).permutation(len(votes.items))[:_MAX_ITEMS])
    sample_votes = votes.of_items(sample)
    return mistakes(sample_votes, fit_annotators(sample_votes).posterior)


def _lost_labels(votes: Votes, sets: Sets) -> list[str]:
    """Return a remark on labels that have votes but are in no candidate set, if there are any."""
    is_named = np.zeros(len(votes.labels), dtype=bool)
    is_named[votes.label] = True
    lost = [repr(votes.labels[j]) for j in np.flatnonzero(is_named & ~sets.mask.any(0))]
    if not lost:
        return []
    listed = ", ".join(lost[:_MAX_LISTED])
    if len(lost) > _MAX_LISTED:
        listed += f" and {len(lost) - _MAX_LISTED} more"
    return [f"votes name labels that no set holds: {listed}."]
