"""Candidate sets out: a Parquet or CSV file with a row per item."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from oneof.storage.sheets import check_out, lists_of, write_sheet
from oneof.votes.ballots import Votes, tally
from oneof.votes.policies import Sets

SEPARATOR = "|"  # what `oneof fit` expects


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
    return pa.table(
        {
            "item": votes.items,
            "candidates": lists_of(item, n, labels.take(label)),
            "votes": lists_of(counted.item, n, count),
        }
    )


def write(votes: Votes, sets: Sets, path: str | Path) -> None:
    """Write the table of `to_table` as .parquet, or as .csv with lists joined as `oneof fit` reads them.

    It is written beside `path` and renamed, so that no half-written file is ever there.
    """
    path = Path(path)
    check_out(path)
    if path.suffix.lower() == ".csv":
        _check_joinable(votes.labels)
    write_sheet(to_table(votes, sets), path, SEPARATOR)


def _check_joinable(labels: list[str]) -> None:
    """Refuse labels that a reader of the CSV would cut or strip into others."""
    wrong = next((label for label in labels if SEPARATOR in label or label != label.strip()), None)
    if wrong is not None:
        raise ValueError(
            f"labels in a CSV must have no {SEPARATOR!r} and no blanks around them; got {wrong!r}. "
            "Write .parquet, or say --normalise for blanks, --separator where an answer is several labels."
        )
