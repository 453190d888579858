"""`oneof inspect FILE`: look at a table's candidate sets before training."""

from __future__ import annotations

import json as json_format
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from oneof.data.formats import Table as FileTable
    from oneof.inspect import Inspection

_SHOWN = 12  # labels and pairs in the tables on the screen; --json has all
_BAR = 40  # cells of the longest bar
_STYLE = {"stop": "bold red", "warn": "yellow", "info": "cyan"}


def inspect(
    file: Annotated[Path, typer.Argument(help="A CSV, TSV, Parquet or npz table, or a named data set's .mat.")],
    features: Annotated[
        list[str] | None,
        typer.Option(help="A column, or a glob such as 'x*'; may be given again. All numbers by default."),
    ] = None,
    candidates: Annotated[str, typer.Option(help="The column of candidate sets.")] = "candidates",
    label: Annotated[
        str | None, typer.Option(help="A column of true labels: kept out of the features, used for nothing.")
    ] = None,
    separator: Annotated[str, typer.Option(help="What stands between the labels of a text cell.")] = "|",
    empty: Annotated[str, typer.Option(help="What an empty set means: 'error' or 'unlabelled'.")] = "error",
    complementary: Annotated[bool, typer.Option("--complementary", help="The sets say what a row is not.")] = False,
    seed: Annotated[int, typer.Option(help="Of the test of what the sets depend on.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    png: Annotated[Path | None, typer.Option(help="Draw set sizes and co-occurrence into this file.")] = None,
) -> None:
    """Say what the candidate sets are like, what cannot be told apart, and what to do about it."""
    if png is not None:
        _check_png(png)
    table = _read(file, features, candidates, label, separator, empty, complementary)
    found = _look(table, seed)
    if json:
        print(json_format.dumps(found.to_dict(), ensure_ascii=False))
    else:
        _show(found, file, empty)
    if png is not None:
        from oneof.inspect.picture import save_picture

        save_picture(found.counts, found.identity, png)


def _check_png(path: Path) -> None:
    """Before the work, not after it."""
    if path.suffix.lower() != ".png":
        raise ValueError(f"--png must end in .png; got {str(path)!r}.")
    if not path.parent.is_dir():
        raise ValueError(f"--png must lie in a folder that exists; got {str(path)!r}. Make {str(path.parent)!r} first.")


def _read(
    file: Path,
    features: list[str] | None,
    candidates: str,
    label: str | None,
    separator: str,
    empty: str,
    complementary: bool,
) -> FileTable:
    """The table with what features it has, gaps among them; what numbers the rows is none."""
    from oneof.data.files.columns import open_table
    from oneof.data.formats import read_table, suffix_of
    from oneof.data.row_numbers import numbers_rows

    chosen = features or ["*"]
    if not features and suffix_of(file) not in (".npz", ".mat"):
        numeric = open_table(file).numeric
        chosen = [name for name, is_number in numeric.items() if is_number and name not in (candidates, label)]
    table = read_table(file, features=chosen, candidates=candidates, label=label, separator=separator, empty=empty, complementary=complementary, missing=True)  # fmt: skip
    kept = [j for j, name in enumerate(table.features) if features or not numbers_rows(name, table.x[:, j])]
    return replace(table, x=table.x[:, kept], features=[table.features[j] for j in kept])


def _look(table: FileTable, seed: int) -> Inspection:
    from oneof.inspect import inspect_sets

    x = table.x if table.features else None
    return inspect_sets(x, table.candidates, features=table.features if table.features else None, seed=seed)


def _show(found: Inspection, file: Path, empty: str) -> None:
    console = Console()
    counts, faults = found.counts, found.faults
    unlabelled = " (rows read as unlabelled among them)" if empty == "unlabelled" else ""
    console.print(
        Text(f"{file}: {counts.rows:,} rows, {len(counts.classes)} classes, {counts.average:.2f} labels per set")
    )
    console.print(
        Text(f"{counts.singletons:,} singletons, {counts.full:,} full sets{unlabelled}, {counts.empty:,} empty")
    )
    if faults is not None:
        console.print(
            Text(f"{faults.duplicates:,} rows repeat an earlier row, {len(faults.constant)} features are constant")
        )
    if (worst := found.identity.ambiguity) is not None:
        share = f"{worst.degree:.1%} of the sets that hold {worst.label} hold {worst.other}"
        console.print(Text(f"ambiguity degree {worst.degree:.3f}: {share}, no pair has more"))
    for table in (_sizes(found), _labels(found), _findings(found)):
        console.print()
        console.print(table)


def _sizes(found: Inspection) -> Table:
    counts = found.counts
    table = Table("labels", "rows", "", title="set sizes", title_justify="left", box=None)
    for size, rows in enumerate(counts.sizes):
        if rows:
            table.add_row(str(size), f"{rows:,}", "█" * max(1, round(_BAR * rows / max(counts.sizes))))
    return table


def _labels(found: Inspection) -> Table:
    """The most frequent labels, each with the label that it occurs with most."""
    counts, together = found.counts, found.identity.together
    title = f"labels, the {_SHOWN} most frequent" if len(counts.classes) > _SHOWN else "labels"
    table = Table("label", "sets", "share", "most often with", title=title, title_justify="left", box=None)
    order = sorted(range(len(counts.classes)), key=lambda j: -counts.held[j])
    for j in order[:_SHOWN]:
        k = max((k for k in order if k != j), key=lambda k: together[j][k])
        partner = f"{counts.classes[k]} ({together[j][k] / counts.held[j]:.0%})" if together[j][k] else "none"
        table.add_row(Text(str(counts.classes[j])), f"{counts.held[j]:,}", f"{counts.share[j]:.1%}", Text(partner))
    return table


def _findings(found: Inspection) -> Table:
    table = Table.grid(padding=(0, 2))
    for finding in found.findings:
        table.add_row(Text(finding.severity, style=_STYLE[finding.severity]), Text(finding.text))
    return table
