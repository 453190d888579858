"""Prepare the rows of the report: the review queue, and the table that the page's script searches and sorts."""

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
from markupsafe import Markup

from oneof.ensemble.review_order import reviewing_order
from oneof.runs.labels_csv import ordered_candidates
from oneof.runs.purified import UNKNOWN, Purified

_MAX_QUEUE = 20  # rows of the queue that are listed
_MAX_ROWS = 20_000  # more than anybody reads, and still quick to sort in a browser
_MAX_BYTES = 3_000_000  # of rows; with label names and plots on top, the page stays below 5 MB

COLUMNS = (
    "row",
    "original",
    "kept",
    "label",
    "probability",
    "margin",
    "agreement",
    "ask",
    "gain",
    "trained",
    "outside",
    "removed",
    "gold",
    "group",
    "votes",
    "shares",
    "item",
    "decision",
    "picture",
)
"""What the page's script knows of a row, in the order of the values that `_encode_row` returns."""


def review_queue(table: Purified) -> SimpleNamespace:
    """Return the first rows of the review queue and figures about all of it."""
    length = int(table.ask.sum())
    first_rows = reviewing_order(table.cells)[: min(length, _MAX_QUEUE)]
    head = []
    for row in table.cells.take(pa.array(first_rows)).to_pylist():
        row.setdefault("item", "")
        row.setdefault("picture", None)
        row.setdefault("why", None)
        row["candidates"] = ordered_candidates(row)
        row["original"] = [label for label, _, _ in row["candidates"]]
        head.append(row)
    return SimpleNamespace(
        head=head,
        length=length,
        expected_errors=float((1 - table.probability[table.ask]).sum()),
        outside=table.n - table.cells["outside"].null_count,  # rows with a confident prediction outside their set
    )


def embed_rows(table: Purified) -> SimpleNamespace:
    """Return the rows as JSON, or as many as fit: first those to review, then others drawn at random with a fixed seed."""
    shuffled = np.random.default_rng(0).permutation(table.n)
    review_first = np.argsort(~table.ask[shuffled], kind="stable")
    order = shuffled[review_first][:_MAX_ROWS]
    code_of = {name: j for j, name in enumerate(table.names)}
    embedded = []
    size = 0
    for position, row in zip(order.tolist(), table.cells.take(pa.array(order)).to_pylist(), strict=True):
        line = _compact_json(_encode_row(row, code_of))
        size += len(line) + 1
        if size > _MAX_BYTES:
            break
        embedded.append((position, line))
    embedded.sort()
    lines = ",".join(line for _, line in embedded)
    has_votes = _compact_json("votes" in table.cells.column_names)
    text = f'{{"columns":{_compact_json(COLUMNS)},"voted":{has_votes},"names":{_compact_json(table.names)},"rows":[{lines}]}}'
    present = table.cells.column_names
    return SimpleNamespace(
        json=escape_for_script(text),
        shown=len(embedded),
        all=table.n,
        has_gold="gold" in present,
        has_group="group" in present,
        has_decision="decision" in present,
    )


def escape_for_script(text: str) -> Markup:
    """Escape JSON so that it can stand inside a script element: no character that HTML would read is left."""
    escaped = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return Markup(escaped)


def _compact_json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _short_of_one(probability: float) -> float:
    """Round a probability to three digits, but never up to 1."""
    if probability < 1:
        return min(round(probability, 3), 0.999)
    return 1.0


def _encode_row(row: dict[str, Any], code_of: dict[str, int]) -> list[Any]:
    """Return a row of the purified table in the order of COLUMNS, with labels as integer codes and `shares` in per cent."""
    candidates = ordered_candidates(row)
    removed = []
    for removal in row["removed"]:
        code = code_of[removal["label"]]
        removed.append([code, removal["round"], round(removal["margin"], 3), removal["trials"]])
    removed.sort(key=lambda removal: (removal[1], removal[0]))
    votes = []
    for vote in row.get("votes") or ():
        votes.append([vote["label"], round(vote["votes"], 2)])
    return [
        row["row"],
        [code_of[label] for label, _, _ in candidates],
        sorted(code_of[label] for label in row["kept"]),
        code_of[row["label"]],
        _short_of_one(row["probability"]),
        round(row["margin"], 3),
        round(row["agreement"], 3),
        int(row["ask"]),
        round(row["gain"], 4),
        row["trained"],
        code_of.get(row["outside"], UNKNOWN),
        removed,
        code_of.get(row.get("gold", ""), UNKNOWN),
        row.get("group"),
        votes,
        [round(100 * probability) for _, probability, _ in candidates],
        row.get("item"),
        row.get("decision"),
        row.get("picture"),
    ]
