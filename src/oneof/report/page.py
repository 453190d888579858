"""Render the report of a run as one self-contained HTML page."""

import base64
import hashlib
import shlex
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import PurePath
from types import SimpleNamespace
from typing import Any, Protocol

import pyarrow as pa
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from oneof.ensemble.accuracy import AccuracyEstimate, LabelAccuracy
from oneof.metrics import in_words
from oneof.report.input_section import list_columns, summarise_sets
from oneof.report.results_section import audit_classes, audit_groups, compare_gold, count_pairs
from oneof.report.rows_section import embed_rows, review_queue
from oneof.report.training_section import draw_training, list_settings
from oneof.report.votes_section import summarise_votes, vote_matrix
from oneof.runs.labels_csv import with_named_labels
from oneof.runs.purified import lost_labels, read_purified


class ReviewedSample(Protocol):
    """Hold what people answered about rows drawn at random: how many of their labels are right, with a 95 % interval."""

    @property
    def rows(self) -> int:
        """Return the number of rows."""

    @property
    def right(self) -> int:
        """Return how many labels are right."""

    @property
    def low(self) -> float:
        """Return the lower limit of the share that is right."""

    @property
    def high(self) -> float:
        """Return the upper limit."""


def render_page(
    metadata: Mapping[str, Any],
    purified: pa.Table,
    record: Mapping[str, Any],
    results: Sequence[Mapping[str, Any]],
    label_accuracy: LabelAccuracy | None = None,
    *,
    folder: str = "RUN",
    reviewed: ReviewedSample | None = None,
) -> str:
    """Render the report of a run as HTML.

    The page is a function of these arguments alone, so the same run gives the same page, byte for byte.

    Parameters
    ----------
    metadata : mapping
        What `run.json` holds.
    purified : pyarrow.Table
        The rows of `purified.parquet`, possibly with the columns that `oneof.review.cards.shown_table` adds.
    record : mapping
        What `training.json` holds.
    results : sequence of mappings
        The lines of `rows.jsonl`: the settings that were tried, with their scores.
    label_accuracy
        Where `purified` is a sample of the rows: the accuracy of all labels, if gold labels measure it.
    folder : str
        The run, for the commands that the page proposes.
    reviewed : ReviewedSample, optional
        What people answered in the review about rows drawn at random.
    """
    table = read_purified(with_named_labels(purified), metadata["classes"])
    votes = vote_matrix(table)
    gold = compare_gold(table)
    is_sample = table.n < metadata["n"]
    if gold is not None and is_sample:
        gold.measured = label_accuracy
    queue = review_queue(table)
    measured = _measured_labels(gold, reviewed, table.n)
    script = _read_template("page.js")
    script_digest = hashlib.sha256(script.encode()).digest()
    set_summary = None
    vote_summary = None
    if votes is None:
        set_summary = summarise_sets(table)
    else:
        vote_summary = summarise_votes(table, votes, metadata.get("people") or {})
    context = {
        "metadata": metadata,
        "file": PurePath(metadata["file"]).name,
        "command": shlex.join(map(str, metadata["command"])),
        "votes": vote_summary,
        "criterion": in_words(metadata["rule"]),
        "new_rows": _describe_estimate(metadata["estimate"]),
        "table": table,
        "is_sample": is_sample,
        "columns": list_columns(metadata.get("columns", {})),
        "lost": lost_labels(table.cells),
        "sets": set_summary,
        "training": draw_training(record),
        "settings": list_settings(results, metadata["chosen"]),
        "balance": audit_classes(table, votes),
        "groups": audit_groups(table),
        "pairs": count_pairs(table),
        "gold": gold,
        "queue": queue,
        "measured": measured,
        "next_step": _next_step(folder, queue.length, measured is not None),
        "rows": embed_rows(table),
        "style": Markup(_read_template("page.css")),
        "script": Markup(script),
        "script_hash": base64.b64encode(script_digest).decode(),
    }
    return _environment().get_template("page.html").render(context)


def _environment() -> Environment:
    """Return a Jinja environment with the page's templates and filters."""
    environment = Environment(
        loader=PackageLoader("oneof.report"), autoescape=True, undefined=StrictUndefined, lstrip_blocks=True
    )
    environment.filters["count"] = _format_count
    environment.filters["percent"] = _percent
    return environment


def _describe_estimate(estimate: Mapping[str, Any]) -> SimpleNamespace:
    """Return the title, figure and explanation of the estimated accuracy on new rows."""
    claim = AccuracyEstimate(**estimate)
    title = "Accuracy on new rows"
    if not claim.is_known:
        figure = "not known"
    elif claim.value is None:
        title = "Accuracy on new rows, at most"
        figure = _percent(claim.bound)
    else:
        figure = _percent(claim.value)
    explanation = claim.in_words.removeprefix("not known: ")
    explanation = explanation[:1].upper() + explanation[1:]
    return SimpleNamespace(title=title, figure=figure, is_known=claim.is_known, why=explanation)


def _measured_labels(
    gold: SimpleNamespace | None, reviewed: ReviewedSample | None, n_rows: int
) -> SimpleNamespace | None:
    """Return the share of right labels with its interval and where it is from; None if nobody has checked a random sample."""
    if gold is not None and gold.measured is not None:
        measured = gold.measured
        source = f"the gold labels (known true labels) of {measured.rows:,} rows drawn at random"
        if measured.rows == n_rows:
            source = "the gold labels (known true labels) of all rows"
        return SimpleNamespace(value=measured.value, low=measured.low, high=measured.high, source=source, by_gold=True)
    if reviewed is not None and reviewed.rows:
        value = reviewed.right / reviewed.rows
        source = f"what people answered in the review about {reviewed.rows:,} rows drawn at random"
        return SimpleNamespace(value=value, low=reviewed.low, high=reviewed.high, source=source, by_gold=False)
    return None


def _next_step(folder: str, n_to_review: int, is_measured: bool) -> SimpleNamespace:
    """Return what a person should do next, and the command for it."""
    run = shlex.quote(folder)
    if n_to_review:
        rows = "rows that are"
        if n_to_review == 1:
            rows = "row that is"
        text = (
            f"Review the {n_to_review:,} {rows} in doubt, by key, in your browser. Some rows are drawn at random: "
            "their answers measure how many labels are right."
        )
        return SimpleNamespace(text=text, command=f"oneof review {run}")
    if not is_measured:
        text = (
            "No row is in doubt, but nobody has checked the labels. Answer about fifty random rows in your browser to "
            "measure how many are right."
        )
        return SimpleNamespace(text=text, command=f"oneof review {run}")
    return SimpleNamespace(
        text="No row is in doubt. Write the labels to a file.", command=f"oneof clean {run} --out labels.csv"
    )


def _read_template(name: str) -> str:
    path = files("oneof.report") / "templates" / name
    return path.read_text("utf-8")


def _format_count(number: int) -> str:
    """Format a count with thousands separators."""
    return f"{number:,}"


def _percent(share: float, digits: int = 1) -> str:
    """Format a share as a percentage that is never rounded up to 100 % or down to 0 %."""
    step = 10.0 ** -(digits + 2)
    if 0 < share < step / 2:
        return f"< {100 * step:.{digits}f}\N{NO-BREAK SPACE}%"
    if 1 - step / 2 < share < 1:
        return f"> {100 * (1 - step):.{digits}f}\N{NO-BREAK SPACE}%"
    return f"{100 * share:.{digits}f}\N{NO-BREAK SPACE}%"
