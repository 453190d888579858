"""Policies: which of the labels that were named stay candidates, and these sets as a Parquet or CSV file."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from oneof.storage.sheets import lists_of, write_sheet
from oneof.votes.ballots import ROUNDING, Floats, Integers, Votes, check_memory, tally
from oneof.votes.dawid_skene import dawid_skene

Mask = NDArray[np.bool_]
SEPARATOR = "|"  # what `oneof fit` expects


class Sets(NamedTuple):
    """Candidate sets of the items, none of them empty."""

    mask: Mask  # [n, c]
    fallback: int = 0  # items to which the policy itself gave no label
    note: str = ""  # what a reader of the summary should know


def union(votes: Votes) -> Sets:
    """Every label that anyone named."""
    return Sets(_marked(votes, votes.item, votes.label))


def at_least(votes: Votes, k: int = 2) -> Sets:
    """Labels with k votes or more; where there is none, those with the most votes.

    That fallback keeps all labels that share the lead, and the number of such items is in the summary.
    """
    if k < 1:
        raise ValueError(f"k must be at least 1; got {k}.")
    counted = tally(votes)
    kept = counted.votes >= k - ROUNDING
    reached = np.bincount(counted.item, weights=kept) > 0  # by some label of the item
    kept |= counted.most & ~reached[counted.item]
    short = int((~reached).sum())
    note = f"Items without a label of {k} votes: {short}; their labels with most votes were kept."
    return Sets(_marked(votes, counted.item[kept], counted.label[kept]), short, note if short else "")


def vaguest(votes: Votes) -> Sets:
    """The set of the annotator who named most labels; of several such annotators, the union of their sets.

    PLENCH's PLCIFAR10-Vaguest takes one largest set. To take one of several would be to choose by the order of the annotators.
    """
    size = votes.answer_size
    largest = np.maximum.reduceat(size, np.flatnonzero(np.diff(votes.item, prepend=-1)))
    kept = size == largest[votes.item]
    return Sets(_marked(votes, votes.item[kept], votes.label[kept]))


def top_p(votes: Votes, p: float = 0.9) -> Sets:
    """The fewest labels whose mass under a Dawid-Skene posterior reaches p, with those tied with the last of them."""
    if not 0 < p <= 1:
        raise ValueError(f"p must lie in (0, 1]; got {p}.")
    fitted = dawid_skene(votes)
    verb = "settled" if fitted.converged else "did not settle"
    return Sets(smallest_reaching(fitted.posterior, p), note=f"Dawid-Skene {verb} in {fitted.rounds} rounds.")


def smallest_reaching(posterior: Floats, p: float) -> Mask:
    """The smallest sets [n, c] of labels with mass p, from probabilities [n, c]."""
    falling = -np.sort(-posterior, axis=1)
    last = (np.cumsum(falling, axis=1) < p - ROUNDING).sum(1).clip(max=posterior.shape[1] - 1)
    least = np.take_along_axis(falling, last[:, None], axis=1)
    return posterior >= least - ROUNDING


def _marked(votes: Votes, item: Integers, label: Integers) -> Mask:
    check_memory(votes, len(votes.items) * len(votes.labels))
    mask = np.zeros((len(votes.items), len(votes.labels)), dtype=bool)
    mask[item, label] = True
    return mask


def to_table(votes: Votes, sets: Sets) -> Any:
    """An Arrow table of item, candidates (list of labels) and votes (list of label and its votes); join features on `item`.

    >>> from oneof.votes import read_long, union
    >>> votes = read_long(pa.table({"item": [7, 7], "annotator": ["ann", "bob"], "label": ["cat", "dog"]}))
    >>> to_table(votes, union(votes)).to_pylist()
    [{'item': 7, 'candidates': ['cat', 'dog'], 'votes': [{'label': 'cat', 'votes': 1.0}, {'label': 'dog', 'votes': 1.0}]}]
    """
    n, labels = len(votes.items), pa.array(votes.labels, pa.string())
    item, label = np.nonzero(sets.mask)
    counted = tally(votes)
    count = pa.StructArray.from_arrays([labels.take(counted.label), counted.votes], names=["label", "votes"])
    sets_of, votes_of = lists_of(item, n, labels.take(label)), lists_of(counted.item, n, count)
    return pa.table({"item": votes.items, "candidates": sets_of, "votes": votes_of})


def write(votes: Votes, sets: Sets, path: str | Path) -> None:
    """Write the table of `to_table` as .parquet, or as .csv with lists joined as `oneof fit` reads them.

    It is written beside `path` and renamed, so that no half-written file is ever there.
    """
    path = Path(path)
    wrong = [label for label in votes.labels if SEPARATOR in label or label != label.strip()]
    if wrong and path.suffix.lower() == ".csv":  # a reader would cut or strip them into others
        got = f"got {wrong[0]!r}"
        remedy = "Write .parquet, or say --normalise for blanks, --separator where an answer is several labels."
        raise ValueError(f"labels in a CSV must have no {SEPARATOR!r} and no blanks around them; {got}. {remedy}")
    write_sheet(to_table(votes, sets), path, SEPARATOR)
