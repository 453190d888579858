"""Store votes as integer arrays, build them from answers in text, and check that dense tables of them fit in memory."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from oneof.storage.memory import available_memory
from oneof.storage.printable import plural, shortened
from oneof.votes.free_text import Meaning
from oneof.votes.spelling import Spelling, parse_labels

Integers = NDArray[np.intp]
Floats = NDArray[np.float64]

ROUNDING = 1e-9  # sums of confidences that differ by less are a tie


@dataclass(frozen=True)
class Votes:
    """Hold m votes (item, annotator, label), sorted by item, annotator and label, without duplicates.

    An *answer* is everything that one annotator gave for one item. An answer of several labels is vague, and makes several votes.
    A vote of confidence 0.5 counts as half a vote wherever votes are counted.
    """

    items: Any  # Arrow array [n] of distinct ids, in order of first appearance
    annotators: list[str]
    labels: list[str]  # [c], sorted unless classes were given
    item: Integers  # [m]
    annotator: Integers  # [m]
    label: Integers  # [m]
    confidence: Floats | None = None  # [m], in [0, 1]
    frequency: Floats | None = None  # [m], how often each was cast, relative to the most frequent label of its answer
    unanswered: int = 0  # items left out because they have no label
    repeated: int = 0  # duplicate votes, same item, annotator and label, merged into one
    remarks: tuple[str, ...] = ()  # notes for the user on how answers were interpreted
    meanings: tuple[Meaning, ...] = ()  # answers in free text, and the labels that they were mapped to

    @property
    def weight(self) -> Floats:
        """Return the confidence of each vote [m], 1 where none is known."""
        if self.confidence is None:
            return np.ones(len(self.item))
        return self.confidence

    @property
    def share(self) -> Floats:
        """Return each vote's share of its answer [m], so that a vague answer counts as much as one of a single label.

        The shares of an answer add up to the confidence of its most probable label. Of an annotator who answered several times,
        the label that was named most often has the largest share.
        """
        if self.confidence is None and self.frequency is None:
            return self.weight / self.answer_size
        weight = self.weight
        if self.frequency is not None:
            weight = weight * self.frequency
        answer = self.answer
        total = np.bincount(answer, weights=weight)
        highest = np.zeros(len(total))
        np.maximum.at(highest, answer, weight)
        scale = np.divide(highest, total, out=np.zeros(len(total)), where=total > 0)
        shares: Floats = weight * scale[answer]
        return shares

    @property
    def answer(self) -> Integers:
        """Return the index of the answer that each vote belongs to [m], ascending."""
        is_first = np.ones(len(self.item), dtype=bool)
        is_first[1:] = (np.diff(self.item) != 0) | (np.diff(self.annotator) != 0)
        return np.cumsum(is_first) - 1

    @property
    def answer_size(self) -> Integers:
        """Return the number of labels in the answer of each vote [m]."""
        answer = self.answer
        return np.bincount(answer)[answer]

    @property
    def labels_per_annotator(self) -> Integers:
        """Return how many different labels each annotator gave [a]; a rule, for example, gives one."""
        c = len(self.labels)
        pairs = np.unique(self.annotator * c + self.label)
        return np.bincount(pairs // c, minlength=len(self.annotators))

    def only(self, selection: NDArray[Any]) -> Self:
        """Return a subset of the votes, selected by indices or by a boolean mask [m]."""
        confidence = self.confidence
        if confidence is not None:
            confidence = confidence[selection]
        frequency = self.frequency
        if frequency is not None:
            frequency = frequency[selection]
        return replace(
            self,
            item=self.item[selection],
            annotator=self.annotator[selection],
            label=self.label[selection],
            confidence=confidence,
            frequency=frequency,
        )

    def of_items(self, wanted: Integers) -> Self:
        """Return the votes on the wanted items only, renumbered in the order in which the items are given."""
        new_index = np.full(len(self.items), -1)
        new_index[wanted] = np.arange(len(wanted))
        selection = np.flatnonzero(new_index[self.item] >= 0)
        order = np.argsort(new_index[self.item[selection]], kind="stable")
        subset = self.only(selection[order])
        return replace(subset, items=self.items.take(wanted), item=new_index[subset.item])


class Answers(NamedTuple):
    """Answers as read from a source: r texts, each of which names any number of labels."""

    source: str  # its name in messages
    item: Any  # Arrow dictionary array [r]
    annotator: Any  # Arrow dictionary array [r]
    text: Any  # Arrow array of strings [r], no nulls
    place: Callable[[int], str]  # describes where in the source an answer is
    confidence: Floats | None = None  # [r]


def collect(answers: Answers, spelling: Spelling) -> Votes:
    """Parse the answers into votes and merge the duplicates."""
    source = answers.source
    items = answers.item.dictionary
    annotators = answers.annotator.dictionary.to_pylist()
    parsed = parse_labels(answers.text, spelling, lambda i: f"{source}, {answers.place(i)}")
    if len(parsed.row) == 0:
        raise ValueError(f"votes must hold at least one label; {source} has none.")
    for label in parsed.labels:
        if "\0" in label:  # NumPy drops it from the end of a text
            raise ValueError(f"labels must not contain the character NUL; {source} has {label!r}. Remove it.")
    item = answers.item.indices.to_numpy()[parsed.row].astype(np.intp)
    annotator = answers.annotator.indices.to_numpy()[parsed.row].astype(np.intp)

    merged = merge_duplicates(item, annotator, parsed.label)
    confidence = None
    if answers.confidence is not None:
        confidence = merged.highest(answers.confidence[parsed.row])
    first = merged.first
    item = item[first]
    annotator = annotator[first]

    remarks = list(parsed.remarks)
    frequency = frequency_in_answer(item, annotator, merged.counts)
    if frequency is not None:
        remarks.append(remark_on_uneven_answers(count_uneven_answers(item, annotator, frequency)))
    voted_items, item_index = np.unique(item, return_inverse=True)
    return Votes(
        items=items.take(voted_items),
        annotators=annotators,
        labels=parsed.labels,
        item=item_index,
        annotator=annotator,
        label=parsed.label[first],
        confidence=confidence,
        frequency=frequency,
        unanswered=len(items) - len(voted_items),
        repeated=merged.n_repeated,
        remarks=tuple(remarks),
        meanings=tuple(parsed.meanings),
    )


class MergedVotes(NamedTuple):
    """Votes in order of item, annotator and label, of which duplicates are one."""

    order: Integers  # [r] positions of all votes
    starts: Integers  # [m] where in this order the duplicates of each vote begin

    @property
    def first(self) -> Integers:
        """Return the position of the first duplicate of each vote [m]."""
        return self.order[self.starts]

    @property
    def counts(self) -> Integers:
        """Return the number of duplicates of each vote [m], itself among them."""
        return np.diff(self.starts, append=len(self.order))

    @property
    def n_repeated(self) -> int:
        """Return how many votes repeat another."""
        return len(self.order) - len(self.starts)

    def highest(self, confidence: Floats) -> Floats:
        """Return the confidence of each vote [m]: of duplicates, the highest counts."""
        if not len(self.starts):
            return confidence
        return np.maximum.reduceat(confidence[self.order], self.starts)


def merge_duplicates(item: Integers, annotator: Integers, label: Integers) -> MergedVotes:
    """Sort votes [r] by item, annotator and label, and merge those that are equal in all three."""
    sizes = []
    for column in (item, annotator, label):
        sizes.append(int(column.max(initial=0)) + 1)
    key = np.ravel_multi_index((item, annotator, label), sizes)
    order = np.argsort(key, kind="stable")
    return MergedVotes(order, np.flatnonzero(np.diff(key[order], prepend=-1)))


def count_uneven_answers(item: Integers, annotator: Integers, frequency: Floats) -> int:
    """Return how many answers name one label more often than another."""
    is_less_frequent = frequency < 1
    return len(np.unique(np.stack([item, annotator], axis=1)[is_less_frequent], axis=0))


def remark_on_uneven_answers(count: int) -> str:
    """Return a remark on the answers that name one label more often than another."""
    return (
        f"In {count:,} {plural('answer', count)} one label is named more often than another: it counts more in dawid-skene and in oneof fit, "
        "and once in the other policies."
    )


def frequency_in_answer(item: Integers, annotator: Integers, count: Integers) -> Floats | None:
    """Return how often each vote was cast [m], relative to the most frequent label of its answer; None if all are alike.

    The votes are sorted by item and annotator.
    """
    is_first = np.ones(len(item), dtype=bool)
    is_first[1:] = (np.diff(item) != 0) | (np.diff(annotator) != 0)
    highest = np.maximum.reduceat(count, np.flatnonzero(is_first))
    frequency: Floats = count / highest[np.cumsum(is_first) - 1]
    return frequency if (frequency < 1).any() else None


class Tally(NamedTuple):
    """Vote counts of the q pairs (item, label) that occur, sorted by item, then label."""

    item: Integers  # [q]
    label: Integers  # [q]
    votes: Floats  # [q]
    most: NDArray[np.bool_]  # [q] True where no other label of the item has more votes


def tally(votes: Votes) -> Tally:
    """Count the votes for every label of every item, weighted by confidence where it is known."""
    c = len(votes.labels)
    pair, pair_index = np.unique(votes.item * c + votes.label, return_inverse=True)
    count: Floats = np.bincount(pair_index, weights=votes.weight).astype(np.float64)
    item, label = np.divmod(pair, c)
    item_starts = np.flatnonzero(np.diff(item, prepend=-1))
    max_count = np.maximum.reduceat(count, item_starts)
    return Tally(item, label, count, count >= max_count[item] - ROUNDING)


def check_table_memory(votes: Votes, needed: int) -> None:
    """Raise ValueError if dense tables of `needed` bytes do not fit in memory, before they are allocated."""
    free = available_memory()
    if needed > free:
        examples = ", ".join(repr(shortened(label, 30)) for label in votes.labels[:3])
        size = f"{len(votes.labels):,} distinct labels ({examples}, ...) of {len(votes.items):,} items"
        memory = f"need {needed / 2**30:,.1f} GiB, {free / 2**30:,.1f} GiB are free"
        remedy = "Map the answers to a few labels (--map), or ignore case and surrounding space (--normalise)."
        raise ValueError(
            f"labels must be few enough for tables of items by labels in memory; {size} {memory}. {remedy}"
        )
