"""Votes beside a table of features: every row finds the votes on its item."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from oneof.data.files.source import Piece, Source
from oneof.data.roles import Kind, check_column
from oneof.data.supervision import label_text
from oneof.storage.sheets import lists_of
from oneof.votes.ballots import Votes, tally

CANDIDATES = "candidates"  # the column that votes add to a table


def attach_votes(source: Source, votes: Votes, on: str) -> tuple[Source, NDArray[np.intp], list[str]]:
    """The table with a column of candidates, what somebody named; each row's item among those of the votes [n]; remarks."""
    # The column `on` names the item. Rows without votes have an empty set and the item -1. Items without a row tell careful
    # people from careless ones, and nothing else.
    if CANDIDATES in source.kinds:
        given = "beside votes, which give them. Leave one out."
        raise ValueError(f"{source.name} must have no column 'candidates' {given}")
    check_column(on, source.names, source.name)
    keys = [label_text(cell) for _, _, piece in source.pieces([], [on]) for cell in piece.to_pylist()]
    number = {label_text(key): i for i, key in enumerate(votes.items.to_pylist())}
    item = np.array([number.get(key, -1) for key in keys], dtype=np.intp)
    voted, count = np.unique(item[item >= 0], return_counts=True)
    if (count > 1).any():
        first, second = np.flatnonzero(item == voted[count.argmax()])[:2]
        twice = f"{source.name}, column {on!r} has {keys[first]!r} in rows {first} and {second}"
        raise ValueError(f"an item must be one row; {twice}. Drop one.")
    if not len(voted):
        got = f"no item of the votes (such as {next(iter(number), '')!r}) is in {source.name}"
        such = f"(such as {keys[0] if keys else ''!r}). Name the column with --on."
        raise ValueError(f"votes and features must belong together by {on!r}; {got} {such}")
    silent, lost = int((item < 0).sum()), len(number) - len(voted)
    remarks = [f"{silent:,} of {len(item):,} rows have no votes: any label may be theirs."] if silent else []
    if lost:
        help_only = "they help to tell careful people from careless ones, and get no label"
        remarks.append(f"{lost:,} items with votes are not in {source.name}: {help_only}.")
    found = tally(votes)
    named = _by_row(votes, item, found.item, pa.array(votes.labels, pa.string()).take(found.label))

    def pieces(numbers: list[str], others: list[str]) -> Iterator[Piece]:
        in_file = [name for name in others if name != CANDIDATES]
        if numbers or in_file:
            yield from source.pieces(numbers, in_file)
        if CANDIDATES in others:
            yield CANDIDATES, 0, named

    kinds: dict[str, Kind] = {**source.kinds, CANDIDATES: "text"}
    return replace(source, names=[*source.names, CANDIDATES], kinds=kinds, pieces=pieces), item, remarks


def counted(votes: Votes, item: NDArray[np.intp]) -> pa.Array:
    """The votes on each row for a person to read: a list of (label, votes), the most first."""
    found = tally(votes)
    order = np.lexsort((-found.votes, found.item))
    labels = pa.array(votes.labels, pa.string()).take(found.label[order])
    values = pa.StructArray.from_arrays([labels, pa.array(found.votes[order], pa.float32())], names=["label", "votes"])
    return _by_row(votes, item, found.item[order], values)


def _by_row(votes: Votes, item: NDArray[np.intp], owner: NDArray[np.intp], values: pa.Array) -> pa.Array:
    """Lists of values, which belong to items, for every row."""
    n = len(votes.items)  # the list behind the last is empty: that of rows without votes
    return lists_of(owner, n + 1, values).take(np.where(item < 0, n, item))
