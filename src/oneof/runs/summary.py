"""Summarise a run in a few lines, as `oneof fit` prints them at its end."""

import shlex

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from oneof.data.column_uses import summary_lines
from oneof.ensemble.accuracy import AccuracyEstimate, measure_labels
from oneof.metrics import in_words
from oneof.runs.folder import SAMPLE_CSV, Run
from oneof.runs.purified import lost_labels
from oneof.storage.printable import one_line, plural


def summary_rows(run: Run) -> list[tuple[str, str]]:
    """Return names and values of what was learned, the most important first."""
    metadata = run.metadata
    purified = run.decided
    n_to_review = pc.sum(purified["ask"]).as_py() or 0
    column_lines = [one_line(line) for line in summary_lines(metadata.get("columns", {}))]
    sampled_rows = metadata.get("sampled_rows", {})
    learners = []
    for name, weight in metadata["learners"].items():
        learner = f"{name} {weight:.0%}"
        if name in sampled_rows:
            learner += f" (from {sampled_rows[name]:,} rows)"
        learners.append(learner)
    rows = [
        ("labels of this table", label_accuracy_in_words(run)),
        ("rows, features, classes", f"{metadata['n']:,}, {metadata['d']:,}, {len(metadata['classes']):,}"),
        ("columns", "\n".join(column_lines)),
        _describe_candidates(purified),
        ("learners", ", ".join(learners) or "votes alone"),
        ("chosen by", in_words(metadata["rule"])),
        ("accuracy on new rows", AccuracyEstimate(**metadata["estimate"]).in_words),
        ("rows to ask a person about", f"{n_to_review:,} ({n_to_review / metadata['n']:.1%})"),
        ("seconds", f"{metadata['seconds']:,}"),
    ]
    return [(name, value) for name, value in rows if value]


def _describe_candidates(purified: pa.Table) -> tuple[str, str]:
    """Return the mean size of the sets before and after purification, or the votes per row."""
    if "votes" in purified.column_names:
        n = max(purified.num_rows, 1)
        n_votes = pc.sum(pc.struct_field(pc.list_flatten(purified["votes"]), "votes")).as_py() or 0
        n_labels = pc.sum(pc.list_value_length(purified["votes"])).as_py() or 0
        return "votes per row", f"{n_votes / n:.1f}, for {n_labels / n:.2f} different labels"
    size_before = pc.mean(pc.list_value_length(purified["original"])).as_py()
    size_after = pc.mean(pc.list_value_length(purified["kept"])).as_py()
    return "labels per set", f"{size_before:.2f} given, {size_after:.2f} kept"


def label_accuracy_in_words(run: Run) -> str:
    """Return how many labels of the table are right, where gold labels of a random sample show it."""
    table = run.purified
    measured = None
    if "gold" in table.column_names:
        is_known = np.asarray(pc.is_valid(table["gold"]))
        is_right = np.asarray(pc.fill_null(pc.equal(table["label"], table["gold"]), False))
        measured = measure_labels(is_right, is_known)
    if measured is None:
        return "not known how many are right: no random sample of them has gold labels"
    return measured.in_words


def warning_about_lost_labels(run: Run) -> str | None:
    """Return a warning if a class that the sets name is the label of no row."""
    return lost_labels(run.decided)


def next_steps(run: Run) -> list[str]:
    """Return what to do next, a line each: to know the accuracy unless it is measured, and to get the labels."""
    steps = []
    if run.metadata["estimate"]["by"] != "gold labels":
        steps.append(f"To know the accuracy: fill in {run.folder / SAMPLE_CSV} and fit again with --gold-file.")
    folder = shlex.quote(str(run.folder))
    n_to_review = pc.sum(run.decided["ask"]).as_py() or 0
    if n_to_review:
        rows = plural("row", n_to_review)
        steps.append(f"To decide the {n_to_review:,} doubtful {rows} in a browser: oneof review {folder}")
    steps.append(f"To get the labels: oneof clean {folder} --out labels.csv")
    return steps
