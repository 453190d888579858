"""`oneof inspect FILE`: look at a table's candidate sets before training."""

from __future__ import annotations

import json as json_format
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from oneof.cli.columns import TableFile, with_column_options
from oneof.cli.terminal import Terminal
from oneof.data.roles import ColumnRoles
from oneof.storage.printable import one_line

if TYPE_CHECKING:
    from oneof.inspect import Inspection

MAX_LABELS = 12  # in the table on the screen; --json has all
BAR_WIDTH = 40  # characters of the longest bar
STYLES = {"stop": "bold red", "warn": "yellow", "info": "cyan"}


@with_column_options
def inspect(
    file: TableFile,
    roles: ColumnRoles,
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON instead of tables.")] = False,
    png: Annotated[Path | None, typer.Option(metavar="FILE", help="Also draw set sizes, and which labels occur together, into this .png file.")] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the test of what the sets depend on.")] = 0,
) -> None:  # fmt: skip
    """Show what the candidate sets are like, which labels cannot be told apart, and what to do about it."""
    from oneof.storage.sheets import check_out

    if png is not None:
        check_out(png, (".png",), "--png")  # before the imports, which take seconds
    from oneof.data.table import read_table
    from oneof.inspect import inspect_table

    inspection = inspect_table(read_table(file, roles, bare=True), seed=seed)
    if json:
        print(json_format.dumps(inspection.to_dict(), ensure_ascii=False))
    else:
        _print_inspection(inspection, file, roles.empty)
    if png is not None:
        from oneof.inspect.picture import save_picture

        save_picture(inspection.counts, inspection.identity, png)


def _print_inspection(inspection: Inspection, file: Path, empty: str) -> None:
    """Print counts, set sizes, labels and findings."""
    console = Terminal()
    console.print(Text("\n".join(_count_lines(inspection, file, empty))))
    for table in (_size_table(inspection), _label_table(inspection), _findings_table(inspection)):
        console.print()
        console.print(table)


def _count_lines(inspection: Inspection, file: Path, empty: str) -> list[str]:
    """Return lines on rows, sets, columns and the pair of labels that is hardest to tell apart."""
    from oneof.data.column_uses import summary_lines

    counts = inspection.counts
    unlabelled = ""
    if empty == "unlabelled":
        unlabelled = " (rows read as unlabelled among them)"
    lines = [
        f"{file}: {counts.rows:,} rows, {len(counts.classes)} classes, {counts.average:.2f} labels per set",
        f"{counts.singletons:,} singletons, {counts.full:,} full sets{unlabelled}, {counts.empty:,} empty",
    ]
    columns = {name: asdict(use) for name, use in inspection.columns.items()}
    for line in summary_lines(columns):
        lines.append(f"columns: {one_line(line)}")
    faults = inspection.faults
    if faults is not None:
        lines.append(f"{faults.duplicates:,} rows repeat an earlier row, {len(faults.constant)} features are constant")
    worst = inspection.identity.ambiguity
    if worst is not None:
        lines.append(
            f"ambiguity degree {worst.degree:.3f}: {worst.degree:.1%} of the sets that hold {worst.label} hold {worst.other}, "
            "no pair has more"
        )
    return lines


def _size_table(inspection: Inspection) -> Table:
    """Return how many sets have how many labels, with bars."""
    sizes = inspection.counts.sizes
    table = Table("labels", "rows", "", title="set sizes", title_justify="left", box=None)
    for size, n_rows in enumerate(sizes):
        if n_rows:
            bar_length = max(1, round(BAR_WIDTH * n_rows / max(sizes)))
            table.add_row(str(size), f"{n_rows:,}", "█" * bar_length)
    return table


def _label_table(inspection: Inspection) -> Table:
    """Return the most frequent labels, each with the label that it occurs with most often."""
    counts = inspection.counts
    together = inspection.identity.together
    n_classes = len(counts.classes)
    title = "labels"
    if n_classes > MAX_LABELS:
        title = f"labels, the {MAX_LABELS} most frequent"
    table = Table("label", "sets", "share", "most often with", title=title, title_justify="left", box=None)
    by_frequency = sorted(range(n_classes), key=lambda label: -counts.held[label])
    for label in by_frequency[:MAX_LABELS]:
        cooccurrences = together[label]
        others = [other for other in by_frequency if other != label]
        partner = max(others, key=cooccurrences.__getitem__)
        partner_text = "none"
        if cooccurrences[partner]:
            share = cooccurrences[partner] / counts.held[label]
            partner_text = f"{counts.classes[partner]} ({share:.0%})"
        table.add_row(
            Text(str(counts.classes[label])),
            f"{counts.held[label]:,}",
            f"{counts.share[label]:.1%}",
            Text(partner_text),
        )
    return table


def _findings_table(inspection: Inspection) -> Table:
    """Return the findings, the most severe first."""
    table = Table.grid(padding=(0, 2))
    for finding in inspection.findings:
        table.add_row(Text(finding.severity, style=STYLES[finding.severity]), Text(finding.text))
    return table
