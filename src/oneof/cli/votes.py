"""`oneof votes FILE`: turn annotators' votes into candidate sets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from oneof.cli.columns import path_text, split_classes
from oneof.cli.terminal import Terminal

if TYPE_CHECKING:
    from oneof.votes import Summary

MAX_ANNOTATORS = 10  # far from the rest: so many are shown
MAX_EXAMPLES = 3
MAX_COUNTS = 8  # different numbers of answers per item that are listed one by one

SETS = "Sets"
COLUMNS = "Where the votes are"
LABELS = "Labels"
_STREAM_ROWS = {
    "items": "items",
    "annotators": "annotators",
    "labels": "labels",
    "answers": "answers",
    "votes": "labels in all answers",
    "vague": "answers that name several labels",
    "repeated": "repeated votes, merged into one",
    "alpha": "Krippendorff's alpha",
    "ties": "items tied for most votes",
    "far": "annotators far from the rest",
    "average": "labels per set",
    "largest": "labels in the largest set",
    "singletons": "sets of one label",
    "fallback": "items without a label by the policy",
}


class Kind(StrEnum):
    """Form of a file of votes."""

    LONG = "long"
    WIDE = "wide"
    LABEL_STUDIO = "label-studio"


class Policy(StrEnum):
    """Rule by which labels become candidates."""

    UNION = "union"
    AT_LEAST = "at-least"
    VAGUEST = "vaguest"
    DAWID_SKENE = "dawid-skene"


def votes(
    file: Annotated[Path, typer.Argument(metavar="FILE", show_default=False, help="Votes: .csv, .tsv, .parquet, .jsonl or .json; also exports of Label Studio, Argilla, Prodigy and distilabel.")],
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="File to write item, candidates and votes to: .parquet or .csv. Default: only the summary is shown.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
    stream: Annotated[bool, typer.Option("--stream", help="Read more votes than fit in memory: long files, in batches. FILE may be a pattern such as 'votes/*.parquet'. Labels are taken as they are written.")] = False,
    policy: Annotated[Policy, typer.Option(rich_help_panel=SETS, help="Which labels become candidates. union: all that were named; at-least: those with --k votes; vaguest: the answer with the most labels; dawid-skene: the most probable, with annotators weighted by skill.")] = Policy.UNION,
    k: Annotated[int, typer.Option(metavar="N", rich_help_panel=SETS, help="With at-least: votes that a label needs.")] = 2,
    p: Annotated[float, typer.Option(metavar="SHARE", rich_help_panel=SETS, help="With dawid-skene: total probability that the labels of a set must reach. Larger values give larger sets.")] = 0.9,
    kind: Annotated[Kind | None, typer.Option(rich_help_panel=COLUMNS, help="long: a row per vote; wide: a column per annotator. Default: guessed from the file.")] = None,
    item: Annotated[str, typer.Option(metavar="COLUMN", rich_help_panel=COLUMNS, help="long and wide: column of the item's id.")] = "item",
    annotator: Annotated[str, typer.Option(metavar="COLUMN", rich_help_panel=COLUMNS, help="long: column of the annotator.")] = "annotator",
    label: Annotated[str, typer.Option(metavar="COLUMN", rich_help_panel=COLUMNS, help="long: column of the label.")] = "label",
    confidence: Annotated[str | None, typer.Option(metavar="COLUMN", rich_help_panel=COLUMNS, help="Column of the weight of a vote, 0 to 1; label-studio: a field of predictions. Default: every vote counts 1.")] = None,
    columns: Annotated[list[str] | None, typer.Option(metavar="COLUMN", rich_help_panel=COLUMNS, help="wide: column of an annotator, or a pattern such as 'llm_*'. Repeatable. Default: guessed.")] = None,
    from_name: Annotated[str | None, typer.Option(metavar="NAME", rich_help_panel=COLUMNS, help="label-studio: the control whose choices are votes. Needed where there are several.")] = None,
    ranked: Annotated[bool, typer.Option("--ranked", rich_help_panel=LABELS, help="The first label of a list counts most. Default: the labels of a list are equally plausible.")] = False,
    separator: Annotated[str, typer.Option(metavar="TEXT", rich_help_panel=LABELS, help="Separator of the labels of one answer.")] = "|",
    map_file: Annotated[Path | None, typer.Option("--map", metavar="FILE", rich_help_panel=LABELS, help="What answers mean: a CSV with the columns answer and label (or from and to), or a JSON object. An empty label is no vote; 'cat|dog' names two.")] = None,
    map_out: Annotated[Path | None, typer.Option("--map-out", metavar="FILE", rich_help_panel=LABELS, help="CSV to write what answers in free text were mapped to: answer, label, count. Correct it and give it to --map.")] = None,
    taxonomy: Annotated[Path | None, typer.Option(metavar="FILE", rich_help_panel=LABELS, help="Table of child and parent labels, or a JSON object: a vote for a parent is one for all labels below it.")] = None,
    normalise: Annotated[bool, typer.Option("--normalise", rich_help_panel=LABELS, help="Ignore case and surrounding space of labels.")] = False,
    classes: Annotated[str | None, typer.Option(metavar="LABELS", rich_help_panel=LABELS, help="All labels, separated by commas; answers are mapped to them, and it is an error if many answers name none of them. Default: the labels that occur.")] = None,
) -> None:  # fmt: skip
    """Turn annotators' votes into candidate sets, and show how far the annotators agree.

    Rows in messages are counted from 0 below the header. The output's key is its column item: join features on it.
    """
    from oneof import votes as voting
    from oneof.storage.sheets import check_out
    from oneof.votes.forms import make_sets
    from oneof.votes.layout import Form
    from oneof.votes.read import VotesFile
    from oneof.votes.spelling import write_map

    if out is not None:
        check_out(out)
    if stream:
        _check_no_stream(
            {
                "--kind": kind not in (None, Kind.LONG),
                "--columns": columns,
                "--from-name": from_name,
                "--ranked": ranked,
                "--separator": separator != "|",
                "--map": map_file,
                "--map-out": map_out,
                "--taxonomy": taxonomy,
                "--normalise": normalise,
                "--classes": classes,
            }
        )
        _stream(str(file), (item, annotator, label, confidence), policy, k, p, out, as_json)
        return
    _check_not_overwritten((file, map_file, taxonomy), {"out": out, "--map-out": map_out})
    described = VotesFile(
        str(file),
        item,
        annotator,
        label,
        columns=tuple(columns or ()),
        separator=separator,
        taxonomy=path_text(taxonomy),
        confidence=confidence,
        map=path_text(map_file),
        normalise=normalise,
        classes=split_classes(classes),
        from_name=from_name,
        ranked=ranked,
    )
    form: Form | None = None
    if kind is not None:
        form = kind.value
    cast_votes = voting.read_votes(described, form=form)
    sets = make_sets(cast_votes, policy.value, k, p)
    if out is not None:
        voting.write(cast_votes, sets, out)
    if map_out is not None:
        write_map(cast_votes.meanings, map_out)
    summary = voting.summarise(cast_votes, sets)
    if as_json:
        typer.echo(json.dumps(_to_json(summary), indent=2))
    else:
        _print_summary(summary, policy, out)


def _check_no_stream(options: dict[str, object]) -> None:
    """Raise ValueError if an option is set that --stream does not support."""
    for option, value in options.items():
        if value:
            raise ValueError(f"--stream takes labels as they are written; got {option}. Leave out one of the two.")


def _check_not_overwritten(sources: Sequence[Path | None], targets: dict[str, Path | None]) -> None:
    """Raise ValueError if a file to write, by its option, is one of those that are read."""
    for name, target in targets.items():
        for source in sources:
            if target is not None and source is not None and _is_same_file(target, source):
                raise ValueError(f"{name} must be another file than those that are read; got {str(target)!r} for both.")


def _stream(
    pattern: str,
    columns: tuple[str, str, str, str | None],
    policy: Policy,
    k: int,
    p: float,
    out: Path | None,
    as_json: bool,
) -> None:
    """Make candidate sets of files in batches, and print the summary."""
    from oneof.data.files.batches import find_files
    from oneof.votes.streaming import partition_votes, stream_votes

    item, annotator, label, confidence = columns
    files = find_files([pattern])
    parent = None  # the system's folder for temporary files
    if out is not None:
        parent = out.resolve().parent
    with TemporaryDirectory(dir=parent) as folder:
        parts = partition_votes(
            files,
            Path(folder, "parts"),
            item=item,
            annotator=annotator,
            label=label,
            confidence=confidence,
            show=True,
        )
        summary = stream_votes(parts, policy.value, k=k, p=p, out=out, show=True)
    fields = asdict(summary)
    fields["far"] = [far._asdict() for far in summary.far]
    if as_json:
        typer.echo(json.dumps(fields, indent=2))
        return
    fields["far"] = len(summary.far)
    console = Terminal()
    table = Table(title="votes", show_header=False, title_justify="left")
    notes = [fields.pop("note"), *fields.pop("remarks")]
    for name, value in fields.items():
        table.add_row(_STREAM_ROWS[name], escape(_format_value(value)))
    for note in notes:
        if note:
            table.add_row("note", escape(note))
    console.print(table)
    if out is not None:
        console.print(f"wrote {escape(str(out))}: one row per item; join your features on its column item.")


def _format_value(value: object) -> str:
    """Return a figure of a summary as the table shows it."""
    if value is None:
        return "not defined"
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)


def _is_same_file(first: Path, second: Path) -> bool:
    """Return whether two paths name one file that exists."""
    return first.exists() and second.exists() and first.samefile(second)


def _to_json(summary: Summary) -> dict[str, object]:
    """Return the summary as JSON holds it."""
    fields = asdict(summary)
    fields["agreement"] = [annotator._asdict() for annotator in summary.agreement]
    fields["mistakes"] = [mistake._asdict() for mistake in summary.mistakes]
    return fields


def _print_summary(summary: Summary, policy: Policy, out: Path | None) -> None:
    """Print the summary, and the annotators who are far from the rest."""
    console = Terminal()
    table = Table(title="votes", show_header=False, title_justify="left")
    for name, value in _summary_rows(summary, policy):
        table.add_row(name, escape(value))
    console.print(table)
    if summary.far:
        shown = summary.far[:MAX_ANNOTATORS]
        far = Table("annotator", "answers compared", "agree with the others", "95 % interval", title_justify="left")
        far.title = f"annotators far from the rest ({len(shown)} of {len(summary.far)})"
        for annotator in shown:
            interval = f"{annotator.low:.1%} - {annotator.high:.1%}"
            far.add_row(escape(annotator.annotator), f"{annotator.compared:,}", f"{annotator.rate:.1%}", interval)
        console.print(far)
    if out is not None:
        console.print(f"wrote {escape(str(out))}: one row per item; join your features on its column item.")


def _summary_rows(summary: Summary, policy: Policy) -> list[tuple[str, str]]:
    """Return names and values of what is known about the votes and the sets."""
    items = f"{summary.items:,}"
    if summary.unanswered:
        items += f" ({summary.unanswered:,} more have no answer)"
    counts = summary.answers_per_item
    answers_per_item = ", ".join(f"{n_items:,} x {n_answers}" for n_answers, n_items in counts.items())
    if len(counts) > MAX_COUNTS:
        answers_per_item = f"from {min(counts):,} to {max(counts):,} answers per item"
    rows = [
        ("items", items),
        ("annotators", f"{summary.annotators:,}"),
        ("labels", f"{summary.labels:,}"),
        ("answers", f"{summary.answers:,}, {summary.vague:,} of them name several labels"),
        ("items x answers", answers_per_item),
        ("Krippendorff's alpha", _format_value(summary.alpha)),
        ("items tied for most votes", f"{summary.ties:,}"),
        ("annotators far from the rest", f"{len(summary.far):,}"),
        (f"sets ({policy})", f"{summary.sets.average:.2f} labels on average, {summary.sets.largest:,} at most"),
        ("sets of one label", f"{summary.sets.singletons:,}"),
    ]
    if summary.repeated:
        rows.append(("repeated votes", f"{summary.repeated:,}, merged into one"))
    if summary.mistakes:
        examples = []
        for mistake in summary.mistakes[:MAX_EXAMPLES]:
            examples.append(f"{mistake.truth!r} for {mistake.said!r} ({mistake.share:.0%})")
        rows.append(("most often taken for another", "; ".join(examples)))
    for note in (summary.note, *summary.remarks):
        if note:
            rows.append(("note", note))
    if summary.near_duplicate_labels:
        examples = [" = ".join(map(repr, names)) for names in summary.near_duplicate_labels[:MAX_EXAMPLES]]
        total = f"{len(summary.near_duplicate_labels):,} in all; see --normalise"
        rows.append(("labels that look alike", f"{'; '.join(examples)} ... {total}"))
    return rows
