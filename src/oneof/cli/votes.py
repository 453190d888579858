"""oneof votes: annotators' votes to candidate sets."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from oneof.cli.terminal import Terminal

if TYPE_CHECKING:
    from oneof.votes import Summary

_FAR = 10  # annotators far from the rest that are shown


Kind = StrEnum("Kind", {"long": "long", "wide": "wide", "label_studio": "label-studio"})
Policy = StrEnum(
    "Policy", {"union": "union", "at_least": "at-least", "vaguest": "vaguest", "dawid_skene": "dawid-skene"}
)


def votes(
    file: Annotated[Path, typer.Argument(help="Votes: .csv, .tsv, .parquet, .jsonl, or .json: a list of objects or a Label Studio export.")],
    kind: Annotated[Kind | None, typer.Option(help="long: a row per vote; wide: a column per annotator. Default: guessed from the file.")] = None,
    policy: Annotated[Policy, typer.Option(help="Which labels become candidates. union: all that were named; at-least: those with --k votes; vaguest: the set of the annotator who named most; dawid-skene: the likeliest, as annotators are weighed by skill.")] = Policy.union,
    k: Annotated[int, typer.Option(help="With at-least: how many votes a label needs.")] = 2,
    p: Annotated[float, typer.Option(help="With dawid-skene: the probability that the labels of a set must reach together. Larger gives larger sets.")] = 0.9,
    out: Annotated[Path | None, typer.Option(help="Where to write item, candidates and votes: .parquet or .csv. Default: only the summary is shown.")] = None,
    item: Annotated[str, typer.Option(help="long and wide: the column of the item's id.")] = "item",
    annotator: Annotated[str, typer.Option(help="long: the column of the annotator.")] = "annotator",
    label: Annotated[str, typer.Option(help="long: the column of the label.")] = "label",
    confidence: Annotated[str | None, typer.Option(help="A column in [0, 1] that says what a vote counts; label-studio: a field of predictions. Default: every vote counts 1.")] = None,
    columns: Annotated[list[str] | None, typer.Option(help="wide: the column of an annotator. Give it once for each.")] = None,
    from_name: Annotated[str | None, typer.Option(help="label-studio: the control whose choices are votes. Needed where there are several.")] = None,
    separator: Annotated[str | None, typer.Option(help='What separates the labels of one answer, such as "|". Default: an answer is one label.')] = None,
    map_file: Annotated[Path | None, typer.Option("--map", help="Synonyms: a CSV with the columns from and to, or a JSON object. An empty 'to' drops the answer.")] = None,
    taxonomy: Annotated[Path | None, typer.Option(help="A table of child and parent, or a JSON object: a vote for a parent is one for all labels below it. Default: none.")] = None,
    normalise: Annotated[bool, typer.Option("--normalise", help="Ignore case and surrounding space of labels.")] = False,
    classes: Annotated[str | None, typer.Option(help="All labels there are, separated by commas; any other is an error. Default: the labels that occur.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:  # fmt: skip
    """Turn annotators' votes into candidate sets, and say how far the annotators agree.

    Rows in messages are counted from 0 below the header. The output's key is its column item: join features on it.
    """
    from oneof import votes as voting
    from oneof.storage.sheets import check_out

    if out is not None:
        check_out(out)
    for source in filter(None, (file, map_file, taxonomy)):
        if out is not None and out.exists() and source.exists() and out.samefile(source):
            raise ValueError(f"out must be another file than those that are read; got {str(out)!r} for both.")
    synonyms, tree = voting.read_map(map_file) if map_file else {}, voting.read_taxonomy(taxonomy) if taxonomy else None
    known = None if classes is None else [name.strip() for name in classes.split(",")]
    spelling = voting.Spelling(separator, synonyms, normalise, known, tree)
    if kind is None:
        is_json = file.name.lower().removesuffix(".gz").endswith(".json")
        exported = is_json and (from_name is not None or voting.is_label_studio(file))
        kind = Kind.label_studio if exported else Kind.wide if columns else Kind.long
    if kind is Kind.wide and confidence is not None:
        raise ValueError(f"confidence must be left out for a wide table; got {confidence!r}. Use the long form.")
    if kind is Kind.long:
        columns_of: dict[str, Any] = {"item": item, "annotator": annotator, "label": label, "confidence": confidence}
        ballots = voting.read_long(file, spelling=spelling, **columns_of)
    elif kind is Kind.label_studio:
        ballots = voting.read_label_studio(file, from_name=from_name, confidence=confidence, spelling=spelling)
    else:
        ballots = voting.read_wide(file, columns=columns or [], item=item, spelling=spelling)
    made: dict[str, Any] = {"union": voting.union, "vaguest": voting.vaguest}
    made |= {"at-least": partial(voting.at_least, k=k), "dawid-skene": partial(voting.top_p, p=p)}
    sets = made[policy](ballots)
    if out is not None:
        voting.write(ballots, sets, out)
    summary = voting.summarise(ballots, sets)
    if as_json:
        rows = {name: [one._asdict() for one in getattr(summary, name)] for name in ("agreement", "mistakes")}
        typer.echo(json.dumps(asdict(summary) | rows, indent=2))
    else:
        _show(summary, policy, out)


def _show(summary: Summary, policy: Policy, out: Path | None) -> None:
    console = Terminal()
    table = Table(title="votes", show_header=False, title_justify="left")
    for name, value in _lines(summary, policy):
        table.add_row(name, escape(value))
    console.print(table)
    if summary.far:
        far = Table("annotator", "answers compared", "agree with the others", "95 % interval", title_justify="left")
        far.title = f"annotators far from the rest ({min(_FAR, len(summary.far))} of {len(summary.far)})"
        for who in summary.far[:_FAR]:
            shares = f"{who.rate:.1%}", f"{who.low:.1%} - {who.high:.1%}"
            far.add_row(escape(who.annotator), f"{who.compared:,}", *shares)
        console.print(far)
    if out is not None:
        console.print(f"wrote {escape(str(out))}: one row per item; join your features on its column item.")


def _lines(summary: Summary, policy: Policy) -> list[tuple[str, str]]:
    per_item = ", ".join(f"{count:,} x {answers}" for answers, count in summary.answers_per_item.items())
    if len(summary.answers_per_item) > 8:
        per_item = f"from {min(summary.answers_per_item):,} to {max(summary.answers_per_item):,} answers per item"
    lines = [
        ("items", f"{summary.items:,}" + (f" ({summary.unanswered:,} more have no answer)" * (summary.unanswered > 0))),
        ("annotators", f"{summary.annotators:,}"),
        ("labels", f"{summary.labels:,}"),
        ("answers", f"{summary.answers:,}, {summary.vague:,} of them name several labels"),
        ("items x answers", per_item),
        ("Krippendorff's alpha", "not defined" if summary.alpha is None else f"{summary.alpha:.3f}"),
        ("items tied for most votes", f"{summary.ties:,}"),
        ("annotators far from the rest", f"{len(summary.far):,}"),
        (f"sets ({policy})", f"{summary.sets.average:.2f} labels on average, {summary.sets.largest:,} at most"),
        ("sets of one label", f"{summary.sets.singletons:,}"),
    ]
    if summary.repeated:
        lines.append(("repeated votes", f"{summary.repeated:,}, counted once"))
    if summary.mistakes:
        taken = "; ".join(f"{one.truth!r} for {one.said!r} ({one.share:.0%})" for one in summary.mistakes[:3])
        lines.append(("most often taken for another", taken))
    lines += [("note", note) for note in (summary.note, *summary.remarks) if note]
    if summary.lookalikes:
        alike = "; ".join(" = ".join(map(repr, names)) for names in summary.lookalikes[:3])
        lines.append(("labels that look alike", f"{alike} ... {len(summary.lookalikes):,} in all; see --normalise"))
    return lines
