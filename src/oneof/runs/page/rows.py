"""The table of rows: what the page's script searches and sorts, as JSON that no label can break out of."""

import json
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from oneof.runs.purified import NOBODY, Purified

_MOST_ROWS = 20_000  # more than anybody reads, and still quick to sort in a browser
_MOST_BYTES = 3_000_000  # of rows; names of labels and plots come on top, and the page stays below 5 MB

Row = list[Any]  # see COLUMNS
COLUMNS = ("row", "original", "kept", "label", "probability", "margin", "agreement", "ask", "gain", "trained", "outside", "removed", "gold", "group", "votes", "item", "decision", "picture")  # fmt: skip


class Rows(NamedTuple):
    """The rows that the page holds."""

    json: Markup
    shown: int
    all: int
    has_gold: bool
    has_group: bool


def embed_rows(table: Purified) -> Rows:
    """Every row, or a sample: the rows to ask about first, then rows drawn with a fixed seed."""
    kept, size = [], 0
    for position in _order(table)[:_MOST_ROWS]:
        line = json.dumps(_row(table, int(position)), separators=(",", ":"))
        size += len(line) + 1
        if size > _MOST_BYTES:
            break
        kept.append((int(position), line))
    lines = ",".join(line for _, line in sorted(kept))
    names = json.dumps(table.names, separators=(",", ":"))
    columns = json.dumps(COLUMNS, separators=(",", ":"))
    text = f'{{"columns":{columns},"names":{names},"rows":[{lines}]}}'
    return Rows(inert(text), len(kept), table.n, table.gold is not None, table.group is not None)


def inert(text: str) -> Markup:
    r"""JSON that can stand inside a script element: every character that HTML reads is escaped the way JSON allows.

    >>> inert('["</script>&"]')
    Markup('["\\u003c/script\\u003e\\u0026"]')
    """
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _order(table: Purified) -> NDArray[np.int64]:
    drawn = np.random.default_rng(0).permutation(table.n)
    return drawn[np.argsort(~table.ask[drawn], kind="stable")]


def _row(table: Purified, i: int) -> Row:
    return [
        int(table.row[i]),
        _labels(table.original, i),
        _labels(table.kept, i),
        int(table.label[i]),
        *(round(float(column[i]), 3) for column in (table.probability, table.margin, table.agreement)),
        int(table.ask[i]),
        round(float(table.gain[i]), 4),
        int(table.trained[i]),
        int(table.outside[i]),
        falls(table, i),
        NOBODY if table.gold is None else int(table.gold[i]),
        None if table.group is None else table.group[i].as_py(),
        [] if table.votes is None else [[vote["label"], round(vote["votes"], 2)] for vote in table.votes[i].as_py()],
        *(None if column is None else column[i].as_py() for column in (table.item, table.decision, table.picture)),
    ]


def _labels(sets: Any, i: int) -> list[int]:
    return sorted(sets.indices[sets.indptr[i] : sets.indptr[i + 1]].tolist())


def falls(table: Purified, i: int) -> list[list[float]]:
    """The labels that fell from row i, each with round, margin and how many networks removed it."""
    first, last = np.searchsorted(table.falls.row, [i, i + 1])
    label, round_, margin, trials = (column[first:last].tolist() for column in table.falls[1:])
    return [
        [j, r, round(m, 3), t] for j, r, m, t in sorted(zip(label, round_, margin, trials, strict=True), key=_by_round)
    ]


def _by_round(fall: tuple[int, int, float, int]) -> tuple[int, int]:
    return fall[1], fall[0]
