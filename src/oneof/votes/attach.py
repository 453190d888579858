"""Join votes to a table of features, on the column of the item."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from oneof.data.files.source import Chunk, TableSource
from oneof.data.roles import Kind, check_column
from oneof.data.supervision import label_text
from oneof.storage.sheets import list_array
from oneof.votes.ballots import Votes, tally
from oneof.votes.match import match_ids

CANDIDATES = "candidates"  # the column that votes add to a table


def attach_votes(source: TableSource, votes: Votes, on: str | None) -> tuple[TableSource, NDArray[np.intp], list[str]]:
    """Add the labels with votes to a table, as a column of candidates.

    Parameters
    ----------
    source
        The table of features, with n rows.
    votes
        Votes on items, of which each may be in one row. Items without a row only help to estimate how accurate the annotators are.
    on
        The column of the table that holds the items' ids. None: the ids are the numbers of its rows.

    Returns
    -------
    source
        The table with the column of candidates. Rows without votes have an empty set.
    item
        The index of each row's item in the votes [n], -1 where it has none.
    remarks
        Notes for the user on rows without votes and items without rows.
    """
    if CANDIDATES in source.kinds:
        raise ValueError(
            f"{source.name} must have no column 'candidates' beside votes, which give them. Leave one out."
        )
    keys = _row_keys(source, on)
    if not keys:
        raise ValueError(f"{source.name} must have at least one row; it has none.")
    ids = [label_text(key) for key in votes.items.to_pylist()]
    item, remarks = match_ids(keys, ids)
    _check_matches(source, on, keys, ids, item)
    remarks += _unmatched_remarks(source, ids, item)
    counts = tally(votes)
    labels = pa.array(votes.labels, pa.string()).take(counts.label)
    candidates = _lists_by_row(votes, item, counts.item, labels)
    return _with_candidates(source, candidates), item, remarks


def _check_matches(
    source: TableSource, on: str | None, keys: list[str], ids: list[str], item: NDArray[np.intp]
) -> None:
    """Raise ValueError if an item is in several rows, or no item in any."""
    matched_items, n_rows = np.unique(item[item >= 0], return_counts=True)
    if (n_rows > 1).any():
        first, second = np.flatnonzero(item == matched_items[n_rows.argmax()])[:2]
        got = f"{source.name}, column {on!r} has {keys[first]!r} in rows {first} and {second}"
        raise ValueError(f"an item must be one row; {got}. Drop one.")
    if not len(matched_items):
        row_example = next((key for key in keys if key), "")
        got = f"no item of the votes (such as {ids[0]!r}) is in {source.name} (such as {row_example!r})"
        raise ValueError(f"votes and features must belong together by {on!r}; {got}. Name the column with --on.")


def _unmatched_remarks(source: TableSource, ids: list[str], item: NDArray[np.intp]) -> list[str]:
    """Return notes for the user on rows without votes and items without rows."""
    remarks = []
    has_votes = item >= 0
    n_without_votes = int((~has_votes).sum())
    if n_without_votes:
        remarks.append(f"{n_without_votes:,} of {len(item):,} rows have no votes: any label may be theirs.")
    n_without_row = len(ids) - int(has_votes.sum())  # an item is in one row at most
    if n_without_row:
        use = "they help to tell careful people from careless ones, and get no label"
        remarks.append(f"{n_without_row:,} items with votes are not in {source.name}: {use}.")
    return remarks


def _with_candidates(source: TableSource, candidates: pa.Array) -> TableSource:
    """Return the table with a column of candidates."""

    def chunks(numbers: list[str], others: list[str]) -> Iterator[Chunk]:
        in_file = [name for name in others if name != CANDIDATES]
        if numbers or in_file:
            yield from source.chunks(numbers, in_file)
        if CANDIDATES in others:
            yield CANDIDATES, 0, candidates

    kinds: dict[str, Kind] = {**source.kinds, CANDIDATES: "text"}
    return replace(source, names=[*source.names, CANDIDATES], kinds=kinds, chunks=chunks)


def _row_keys(source: TableSource, on: str | None) -> list[str]:
    """Return the ids of the rows: the texts of a column, or their numbers."""
    column = on
    if column is None:
        column = source.names[0]  # any column, to count the rows
    check_column(column, source.names, source.name, remedy="Name the column of the items' ids with --on.")
    keys: list[str] = []
    for _, _, chunk in source.chunks([], [column]):
        keys.extend(label_text(cell) for cell in chunk.to_pylist())
    if on is None:
        return [str(row) for row in range(len(keys))]
    return keys


def count_votes_by_row(votes: Votes, item: NDArray[np.intp]) -> pa.Array:
    """Return the vote counts of each row as a list of (label, votes), most votes first."""
    counts = tally(votes)
    order = np.lexsort((-counts.votes, counts.item))
    labels = pa.array(votes.labels, pa.string()).take(counts.label[order])
    n_votes = pa.array(counts.votes[order], pa.float32())
    values = pa.StructArray.from_arrays([labels, n_votes], names=["label", "votes"])
    return _lists_by_row(votes, item, counts.item[order], values)


def _lists_by_row(votes: Votes, item: NDArray[np.intp], owner: NDArray[np.intp], values: pa.Array) -> pa.Array:
    """Group values by the item that owns them, and return the list of each row's item."""
    n_items = len(votes.items)
    lists = list_array(owner, n_items + 1, values)  # the last list is empty, for rows without votes
    return lists.take(np.where(item < 0, n_items, item))
