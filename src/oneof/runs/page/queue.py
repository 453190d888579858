"""The queue: rows to ask a person about, in the order in which answers pay."""

from typing import NamedTuple

import numpy as np

from oneof.runs.purified import NOBODY, Purified

_SHOWN = 20


class Asked(NamedTuple):
    """One row of the queue."""

    row: int
    original: list[str]
    kept: set[str]
    label: str
    probability: float
    agreement: float
    outside: str | None
    item: str
    picture: str | None


class Queue(NamedTuple):
    """The head of the queue, and how long it is."""

    head: list[Asked]
    length: int
    doubt: float  # labels expected to be wrong among those asked about: the sum of 1 - probability
    outside: int  # rows whose model is sure of a label outside their set


def line_up(table: Purified) -> Queue:
    """Order the rows to ask about by the gain that is expected of an answer."""
    asked = np.flatnonzero(table.ask)
    order = asked[np.argsort(-table.gain[asked], kind="stable")]
    return Queue(
        head=[_asked(table, int(i)) for i in order[:_SHOWN]],
        length=len(asked),
        doubt=float((1 - table.probability[asked]).sum()),
        outside=int((table.outside != NOBODY).sum()),
    )


def _asked(table: Purified, i: int) -> Asked:
    original, kept = (
        [table.names[j] for j in sets.indices[sets.indptr[i] : sets.indptr[i + 1]]]
        for sets in (table.original, table.kept)
    )
    outside = None if table.outside[i] == NOBODY else table.names[table.outside[i]]
    return Asked(
        row=int(table.row[i]),
        original=original,
        kept=set(kept),
        label=table.names[table.label[i]],
        probability=float(table.probability[i]),
        agreement=float(table.agreement[i]),
        outside=outside,
        item="" if table.item is None else table.item[i].as_py(),
        picture=None if table.picture is None else table.picture[i].as_py(),
    )
