"""The rows: those to ask a person about, in the order in which answers pay, and the table that the page's script searches and sorts."""

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
from markupsafe import Markup

from oneof.ensemble.review_order import asking_order
from oneof.runs.purified import NOBODY, Purified

_SHOWN = 20  # of the queue
_MOST_ROWS = 20_000  # more than anybody reads, and still quick to sort in a browser
_MOST_BYTES = 3_000_000  # of rows; names of labels and plots come on top, and the page stays below 5 MB
COLUMNS = ("row", "original", "kept", "label", "probability", "margin", "agreement", "ask", "gain", "trained", "outside", "removed", "gold", "group", "votes", "item", "decision", "picture")  # fmt: skip


def line_up(table: Purified) -> SimpleNamespace:
    """The head of the queue, and how long it is."""
    length = int(table.ask.sum())
    first = table.cells.take(pa.array(asking_order(table.cells)[: min(length, _SHOWN)]))
    return SimpleNamespace(
        head=[{"item": "", "picture": None} | row for row in first.to_pylist()],
        length=length,
        doubt=float((1 - table.probability[table.ask]).sum()),  # labels expected to be wrong among those asked about
        outside=table.n - table.cells["outside"].null_count,  # rows whose model is sure of a label outside their set
    )


def embed_rows(table: Purified) -> SimpleNamespace:
    """Every row as JSON, or a sample: the rows to ask about first, then rows drawn with a fixed seed."""
    drawn = np.random.default_rng(0).permutation(table.n)
    order = drawn[np.argsort(~table.ask[drawn], kind="stable")][:_MOST_ROWS]
    place = {name: j for j, name in enumerate(table.names)}
    kept, size = [], 0
    for position, row in zip(order.tolist(), table.cells.take(pa.array(order)).to_pylist(), strict=True):
        line = _compact(_row(row, place))
        size += len(line) + 1
        if size > _MOST_BYTES:
            break
        kept.append((position, line))
    lines = ",".join(line for _, line in sorted(kept))
    text = f'{{"columns":{_compact(COLUMNS)},"names":{_compact(table.names)},"rows":[{lines}]}}'
    has = {f"has_{name}": name in table.cells.column_names for name in ("gold", "group", "decision")}
    return SimpleNamespace(json=inert(text), shown=len(kept), all=table.n, **has)


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def inert(text: str) -> Markup:
    """JSON that can stand inside a script element: every character that HTML reads is escaped the way JSON allows."""
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _row(row: dict[str, Any], place: dict[str, int]) -> list[Any]:
    """A row of the purified table as COLUMNS say, labels as their places."""
    removed = [[place[x["label"]], x["round"], round(x["margin"], 3), x["trials"]] for x in row["removed"]]
    votes = [[vote["label"], round(vote["votes"], 2)] for vote in row.get("votes") or ()]
    return [
        row["row"], *(sorted(place[label] for label in row[name]) for name in ("original", "kept")),
        place[row["label"]], *(round(row[name], 3) for name in ("probability", "margin", "agreement")), int(row["ask"]),
        round(row["gain"], 4), row["trained"], place.get(row["outside"], NOBODY),
        sorted(removed, key=lambda fall: (fall[1], fall[0])), place.get(row.get("gold", ""), NOBODY),
        row.get("group"), votes, *map(row.get, ("item", "decision", "picture")),
    ]  # fmt: skip
