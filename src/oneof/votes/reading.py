"""Votes from tables: one row per vote (long), or one row per item and a column per annotator (wide)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from oneof.votes import tables
from oneof.votes.ballots import Answers, Votes, collect
from oneof.votes.spelling import Spelling

AS_WRITTEN = Spelling()


def read_long(
    source: Any,
    *,
    item: str = "item",
    annotator: str = "annotator",
    label: str = "label",
    confidence: str | None = None,
    spelling: Spelling = AS_WRITTEN,
) -> Votes:
    """Read a table with a row per vote: CSV, TSV, Parquet, JSON Lines or a JSON list of objects, an Arrow table or a data frame.

    Parameters
    ----------
    source
        A path, or the table itself.
    item, annotator, label
        The columns to read. An annotator may have several rows for an item, or several labels in one cell (a list, or
        text that `spelling.separator` divides): that is one vague answer.
    confidence
        The column, if any, that says in [0, 1] what each vote counts.
    spelling
        How the text of a label is read.

    >>> table = pa.table({"item": [7, 7, 8], "annotator": ["ann", "bob", "ann"], "label": ["cat", "dog", "cat"]})
    >>> votes = read_long(table)
    >>> votes.items.to_pylist(), votes.labels, votes.label.tolist()
    ([7, 8], ['cat', 'dog'], [0, 1, 0])
    """
    table = tables.load(source, [item, annotator, label] + ([] if confidence is None else [confidence]))
    row, text = table.texts(label)
    item_of, items = table.keys(item)
    people = table.strings(annotator).dictionary_encode()

    def place(answer: int) -> str:
        return f"{table.name}, column {label!r}, {table.row(int(row[answer]))}"

    return collect(
        Answers(
            source=table.name,
            items=items,
            annotators=people.dictionary.to_pylist(),
            item=item_of[row],
            annotator=people.indices.to_numpy()[row],
            text=text,
            confidence=None if confidence is None else table.confidences(confidence)[row],
            place=place,
        ),
        spelling,
    )


def read_wide(source: Any, *, columns: Sequence[str], item: str = "item", spelling: Spelling = AS_WRITTEN) -> Votes:
    """Read a table with a row per item and a column per annotator or language model; an empty cell is no answer.

    >>> table = pa.table({"item": ["x", "y"], "gpt": ["cat|dog", "dog"], "claude": ["cat", None]})
    >>> votes = read_wide(table, columns=["gpt", "claude"], spelling=Spelling(separator="|"))
    >>> [votes.annotators[j] for j in votes.annotator]
    ['gpt', 'gpt', 'claude', 'gpt']
    """
    if not columns:
        raise ValueError("columns must name at least one annotator's column of a wide table; got none.")
    table = tables.load(source, [item], columns)
    item_of, items = table.keys(item)
    if len(items) < len(item_of):
        twice = item_of[np.argmax(np.bincount(item_of)[item_of] > 1)]
        first, second = map(table.row, np.flatnonzero(item_of == twice)[:2].tolist())
        got = f"{table.name} has {items[int(twice)]} in {first} and {second}. Drop one, or use the long form."
        raise ValueError(f"column {item!r} of a wide table must hold each item once; {got}")
    people = list(dict.fromkeys(columns))
    cells = [table.texts(column) for column in people]
    row = np.concatenate([rows for rows, _ in cells])
    annotator = np.repeat(np.arange(len(cells)), [len(rows) for rows, _ in cells])

    def place(answer: int) -> str:
        return f"{table.name}, column {people[annotator[answer]]!r}, {table.row(int(row[answer]))}"

    text = pa.concat_arrays([values for _, values in cells])
    return collect(Answers(table.name, items, people, item_of[row], annotator, text, None, place), spelling)
