"""Turn votes into candidate sets by a policy, and write the sets as a Parquet or CSV file."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from oneof.storage.sheets import list_array, write_sheet
from oneof.votes.ballots import ROUNDING, Floats, Integers, Votes, check_table_memory, tally
from oneof.votes.dawid_skene import dawid_skene

Mask = NDArray[np.bool_]
SEPARATOR = "|"  # what `oneof fit` expects


class Sets(NamedTuple):
    """Candidate sets of the items, none of them empty."""

    mask: Mask  # [n, c]
    fallback: int = 0  # items without a label by the policy itself, which got the fallback
    note: str = ""  # what a reader of the summary should know


def union(votes: Votes) -> Sets:
    """Keep every label that has a vote."""
    return Sets(_to_mask(votes, votes.item, votes.label))


def at_least(votes: Votes, k: int = 2) -> Sets:
    """Keep the labels with k votes or more, or those with the most votes where no label has k.

    The fallback keeps all labels that are tied for the most votes. The summary shows the number of such items.
    """
    if k < 1:
        raise ValueError(f"k must be at least 1; got {k}.")
    counts = tally(votes)
    is_candidate = counts.votes >= k - ROUNDING
    has_candidates = np.bincount(counts.item, weights=is_candidate) > 0  # [n]
    is_candidate |= counts.most & ~has_candidates[counts.item]
    n_fallback = int((~has_candidates).sum())
    note = ""
    if n_fallback:
        note = f"Items without a label of {k} votes: {n_fallback}; their labels with most votes were kept."
    mask = _to_mask(votes, counts.item[is_candidate], counts.label[is_candidate])
    return Sets(mask, n_fallback, note)


def vaguest(votes: Votes) -> Sets:
    """Keep the largest answer on each item, or the union of the largest ones in a tie.

    PLENCH's PLCIFAR10-Vaguest takes a single largest set. In a tie that choice would depend on the order of the annotators.
    """
    size = votes.answer_size
    item_starts = np.flatnonzero(np.diff(votes.item, prepend=-1))
    largest_size = np.maximum.reduceat(size, item_starts)
    is_candidate = size == largest_size[votes.item]
    return Sets(_to_mask(votes, votes.item[is_candidate], votes.label[is_candidate]))


def top_p(votes: Votes, p: float = 0.9) -> Sets:
    """Keep the fewest labels whose total probability under a Dawid-Skene posterior reaches p, and those tied with the last."""
    if not 0 < p <= 1:
        raise ValueError(f"p must lie in (0, 1]; got {p}.")
    fitted = dawid_skene(votes)
    outcome = "converged" if fitted.converged else "did not converge"
    note = f"Dawid-Skene {outcome} in {fitted.rounds} rounds."
    return Sets(top_p_set(fitted.posterior, p), note=note)


def top_p_set(posterior: Floats, p: float) -> Mask:
    """Return the smallest sets [n, c] of labels with total probability p or more, from probabilities [n, c]."""
    c = posterior.shape[1]
    descending = -np.sort(-posterior, axis=1)
    last = (np.cumsum(descending, axis=1) < p - ROUNDING).sum(1).clip(max=c - 1)
    threshold = np.take_along_axis(descending, last[:, None], axis=1)
    return posterior >= threshold - ROUNDING


def _to_mask(votes: Votes, item: Integers, label: Integers) -> Mask:
    """Return a mask [n, c] that is True at the pairs (item, label)."""
    check_table_memory(votes, len(votes.items) * len(votes.labels))
    mask = np.zeros((len(votes.items), len(votes.labels)), dtype=bool)
    mask[item, label] = True
    return mask


def to_table(votes: Votes, sets: Sets) -> Any:
    """Return an Arrow table with the columns item, candidates (list of labels) and votes (list of labels and their votes).

    Features are joined on `item`.

    Examples
    --------
    >>> from oneof.votes import read_long, union
    >>> votes = read_long(pa.table({"item": [7, 7], "annotator": ["ann", "bob"], "label": ["cat", "dog"]}))
    >>> to_table(votes, union(votes)).to_pylist()
    [{'item': 7, 'candidates': ['cat', 'dog'], 'votes': [{'label': 'cat', 'votes': 1.0}, {'label': 'dog', 'votes': 1.0}]}]
    """
    n = len(votes.items)
    labels = pa.array(votes.labels, pa.string())
    item, label = np.nonzero(sets.mask)
    counts = tally(votes)
    label_votes = pa.StructArray.from_arrays([labels.take(counts.label), counts.votes], names=["label", "votes"])
    columns = {
        "item": votes.items,
        "candidates": list_array(item, n, labels.take(label)),
        "votes": list_array(counts.item, n, label_votes),
    }
    return pa.table(columns)


def write(votes: Votes, sets: Sets, path: str | Path) -> None:
    """Write the table of `to_table` as .parquet, or as .csv with lists joined as `oneof fit` reads them.

    The file is written under a temporary name and renamed, so that it is never half-written.
    """
    path = Path(path)
    wrong = [label for label in votes.labels if SEPARATOR in label or label != label.strip()]
    if wrong and path.suffix.lower() == ".csv":  # a reader would split or strip them into other labels
        got = f"got {wrong[0]!r}"
        remedy = "Write .parquet, or use --normalise to strip blanks, --separator where an answer holds several labels."
        raise ValueError(f"labels in a CSV must have no {SEPARATOR!r} and no blanks around them; {got}. {remedy}")
    write_sheet(to_table(votes, sets), path, SEPARATOR)
