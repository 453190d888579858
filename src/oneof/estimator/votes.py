"""Check votes that are passed in place of y, and find those on each row of X."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oneof.candidates.mask import Candidates
from oneof.data.supervision import label_text
from oneof.estimator.arguments import check_length, is_frame
from oneof.votes.ballots import Votes
from oneof.votes.match import match_ids
from oneof.votes.read import read_votes

_log = logging.getLogger(__name__)

ITEM = "item"  # the column of a frame that holds the items' ids, unless another is named


def read_and_log(votes: Any, *, rows_are_numbered: bool = False, **settings: Any) -> Votes:
    """Return votes as they are, or read them and log how they were read.

    Where rows of X are known by their numbers, so are those of a pandas frame of votes whose index has no name.
    """
    if isinstance(votes, Votes):
        return votes
    if rows_are_numbered and hasattr(votes, "reset_index") and votes.index.name is None:
        votes = votes.reset_index(drop=True)
    read = read_votes(votes, **settings)
    for remark in read.remarks:
        _log.warning(remark)
    return read


def check_alone_with_votes(y: Any, prior: Any) -> None:
    """Raise an error if y or a prior is passed together with votes."""
    for name, value in (("y", y), ("prior", prior)):
        if value is not None:
            raise ValueError(f"{name} must be left out with votes, which give the candidates; got both. Drop one.")


def split_items(X: Any, items: Any) -> tuple[Any, list[Any] | None]:
    """Return X without the column of the items' ids, and the ids of its rows; None if rows are identified by their numbers."""
    names = []
    if hasattr(X, "column_names"):  # an Arrow table
        names = list(X.column_names)
    elif is_frame(X) and hasattr(X, "dtypes"):
        names = [str(name) for name in X.columns]
    if isinstance(items, str):
        if items not in names:
            listed = ", ".join(names[:8]) or "no named columns"
            raise ValueError(f"items must be a column of X, or an id for each row; got {items!r}, X has {listed}.")
        return _without_column(X, items)
    if items is not None:
        return X, list(items)
    if ITEM in names:
        return _without_column(X, ITEM)
    index = getattr(X, "index", None)
    if is_frame(X) and index is not None:
        return X, list(index)
    return X, None


def _without_column(X: Any, name: str) -> tuple[Any, list[Any]]:
    """Return a frame or an Arrow table without a column, and the values of the column."""
    if hasattr(X, "drop_columns"):  # an Arrow table
        return X.drop_columns([name]), X[name].to_pylist()
    others = [other for other in X.columns if other != name]
    return X[others], X[name].to_list()


def match_items(votes: Votes, ids: list[Any] | None, n: int) -> NDArray[np.intp]:
    """Return the index of each row's item among those of the votes [n], -1 where nobody voted on it."""
    keys = [str(row) for row in range(n)]
    if ids is not None:
        check_length(ids, n, "items")
        keys = [label_text(key) for key in ids]
    first_row: dict[str, int] = {}
    for row, key in enumerate(keys):
        if key in first_row:
            raise ValueError(f"items must be distinct; {key!r} is in rows {first_row[key]} and {row}. Drop one.")
        first_row[key] = row
    voted_ids = [label_text(key) for key in votes.items.to_pylist()]
    item, remarks = match_ids(keys, voted_ids)
    for remark in remarks:
        _log.warning(remark)
    if not (item >= 0).any():
        voted = voted_ids[0]
        row_key = next(iter(keys), "")
        raise ValueError(
            f"votes and X must belong together; no item of the votes (such as {voted!r}) is an item of X (such as {row_key!r}). "
            "Pass items=, the id of each row or the column that holds it."
        )
    return item


def sets_of_votes(votes: Votes, item: NDArray[np.intp], classes: Any) -> Candidates:
    """Return the labels with votes on each row as a set [n, c], all labels where there are no votes.

    The classes are those given, else the labels of the votes.
    """
    names = np.array(votes.labels)
    columns = np.arange(len(names))
    if classes is not None:
        names = np.asarray(classes)
        index_of = {label_text(name): j for j, name in enumerate(names.tolist())}
        for label in votes.labels:
            if label not in index_of:
                shown = ", ".join(list(index_of)[:8])
                raise ValueError(f"classes must hold every label of the votes; {label!r} is not among {shown}. Add it.")
        columns = np.array([index_of[label] for label in votes.labels])
    is_named = np.zeros((len(votes.items), len(names)), dtype=bool)
    is_named[votes.item, columns[votes.label]] = True
    mask = is_named[item]
    mask[item < 0] = True
    return Candidates(mask, names)
