"""Votes as integer arrays, how answers in words become them, and whether tables of them fit in memory."""

import math
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from oneof.storage.printable import shortened
from oneof.votes.spelling import Spelling, spell

Integers = NDArray[np.intp]
Floats = NDArray[np.float64]

_MEMINFO = Path("/proc/meminfo")
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
    def share(self) -> Floats:
        """The vote's share of its answer, [m]: an answer of several labels counts as much as one of a single label."""
        return self.weight / self.answer_size

    @property
    def answer(self) -> Integers:
        """The number of the answer that each vote belongs to, [m], ascending."""
        first = np.ones(len(self.item), dtype=bool)
        first[1:] = (np.diff(self.item) != 0) | (np.diff(self.annotator) != 0)
        return np.cumsum(first) - 1

    @property
    def answer_size(self) -> Integers:
        """How many labels the answer of each vote names, [m]."""
        return np.bincount(self.answer)[self.answer]

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

    source: str  # what messages call it
    item: Any  # Arrow dictionary array [r]
    annotator: Any  # Arrow dictionary array [r]
    text: Any  # Arrow array of strings [r], no nulls
    place: Callable[[int], str]  # where in the source an answer stands
    confidence: Floats | None = None  # [r]


def collect(answers: Answers, spelling: Spelling) -> Votes:
    """Turn texts into labels and merge what one annotator says twice of one item."""
    source, items, people = answers.source, answers.item.dictionary, answers.annotator.dictionary.to_pylist()
    labels, row, label, remarks = spell(answers.text, spelling, lambda i: f"{source}, {answers.place(i)}")
    if len(row) == 0:
        raise ValueError(f"votes must hold at least one label; {source} has none.")
    item, annotator = (part.indices.to_numpy()[row].astype(np.intp) for part in (answers.item, answers.annotator))
    key = np.ravel_multi_index((item, annotator, label), (len(items), len(people), len(labels)))
    order = np.argsort(key, kind="stable")
    starts = np.flatnonzero(np.diff(key[order], prepend=-1))
    first = order[starts]
    present, item = np.unique(item[first], return_inverse=True)
    # of a vote given twice, the surer one counts
    sure = None if answers.confidence is None else np.maximum.reduceat(answers.confidence[row][order], starts)
    voted = items.take(present), people, labels, item, annotator[first], label[first]
    unanswered, repeated = len(items) - len(present), len(order) - len(first)
    return Votes(*voted, confidence=sure, unanswered=unanswered, repeated=repeated, remarks=tuple(remarks))


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


def available_memory() -> float:
    """Bytes that a program may have now, with what the system would give up of its file cache; no limit where it does not say."""
    found = re.search(r"MemAvailable:\s+(\d+) kB", _MEMINFO.read_text()) if _MEMINFO.is_file() else None
    if found is not None:
        return int(found[1]) * 1024
    known = getattr(os, "sysconf_names", {})
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if "SC_PHYS_PAGES" in known else math.inf


def refuse_without_room(votes: Votes, needed: int) -> None:
    """Refuse tables of so many bytes, before they are made."""
    free = available_memory()
    if needed > free:
        shown = ", ".join(repr(shortened(label, 30)) for label in votes.labels[:3])
        got = f"{len(votes.labels):,} distinct labels ({shown}, ...) of {len(votes.items):,} items"
        room = f"need {needed / 2**30:,.1f} GiB, {free / 2**30:,.1f} GiB are free"
        remedy = "Map the answers to a few labels (--map), or make their spelling one (--normalise)."
        raise ValueError(f"labels must be few enough for tables of items by labels in memory; {got} {room}. {remedy}")
