"""One self-contained HTML page about a run: what came in, how training went, what came out, and every row."""

import base64
import hashlib
import shlex
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import PurePath
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from oneof.metrics import in_words
from oneof.runs.accuracy import Claim
from oneof.runs.page.came_in import list_columns, look_at_sets
from oneof.runs.page.came_out import audit_classes, audit_groups, compare_gold, count_pairs
from oneof.runs.page.rows import embed_rows, line_up
from oneof.runs.page.training import draw_training, list_settings
from oneof.runs.purified import lost_labels, read_purified


def render_page(
    facts: Mapping[str, Any], purified: pa.Table, record: Mapping[str, Any], results: Sequence[Mapping[str, Any]]
) -> str:
    """The page of a run, as HTML: run.json, purified.parquet, training.json and rows.jsonl, and nothing else, decide it."""
    table = read_purified(purified, facts["classes"])
    script = _part("page.js")
    templates = PackageLoader("oneof.runs.page")
    made = Environment(loader=templates, autoescape=True, undefined=StrictUndefined, lstrip_blocks=True)
    made.filters |= {"count": lambda number: f"{number:,}", "percent": _percent}
    return made.get_template("page.html").render(
        facts=facts, chosen_by=in_words(facts["rule"]), new_rows=_accuracy_on_new_rows(facts),
        file=PurePath(facts["file"]).name, command=shlex.join(map(str, facts["command"])), people=facts.get("people"),
        table=table, columns=list_columns(facts.get("columns", {})), lost=lost_labels(table.cells),
        came_in=look_at_sets(table), rows=embed_rows(table), queue=line_up(table),
        training=draw_training(record), settings=list_settings(results, facts["chosen"]),
        balance=audit_classes(table), pairs=count_pairs(table), gold=compare_gold(table), groups=audit_groups(table),
        style=Markup(_part("page.css")), script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )  # fmt: skip


def _accuracy_on_new_rows(facts: Mapping[str, Any]) -> SimpleNamespace:
    """Return the figure, or that there is none, and the line below it."""
    claim = Claim(**facts["estimate"])
    title = "Accuracy on new rows"
    if not claim.is_known:
        figure = "not known"
    elif claim.value is None:
        title = "Accuracy on new rows, at most"
        figure = _percent(claim.bound)
    else:
        figure = _percent(claim.value)
    why = claim.in_words.removeprefix("not known: ")
    return SimpleNamespace(title=title, figure=figure, is_known=claim.is_known, why=why[:1].upper() + why[1:])


def _part(name: str) -> str:
    return (files("oneof.runs.page") / "templates" / name).read_text("utf-8")


def _percent(share: float, digits: int = 1) -> str:
    """A share in per cent, never rounded up to all or down to none."""
    step = 10.0 ** -(digits + 2)
    if 0 < share < step / 2:
        return f"< {100 * step:.{digits}f}\N{NO-BREAK SPACE}%"
    if 1 - step / 2 < share < 1:
        return f"> {100 * (1 - step):.{digits}f}\N{NO-BREAK SPACE}%"
    return f"{100 * share:.{digits}f}\N{NO-BREAK SPACE}%"
