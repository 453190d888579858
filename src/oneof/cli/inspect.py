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
from oneof.data.roles import Roles
from oneof.storage.printable import bounded

if TYPE_CHECKING:
    from oneof.inspect import Inspection

_SHOWN = 12  # labels and pairs in the tables on the screen; --json has all
_BAR = 40  # cells of the longest bar
_STYLE = {"stop": "bold red", "warn": "yellow", "info": "cyan"}


@with_column_options
def inspect(
    file: TableFile,
    roles: Roles,
    seed: Annotated[int, typer.Option(help="Seed of the test of what the sets depend on.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON instead of tables.")] = False,
    png: Annotated[Path | None, typer.Option(help="Also draw set sizes, and which labels occur together, into this .png file.")] = None,
) -> None:  # fmt: skip
    """Say what the candidate sets are like, what cannot be told apart, and what to do about it."""
    from oneof.storage.sheets import check_out

    if png is not None:
        check_out(png, (".png",), "--png")  # before the imports, which take seconds
    from oneof.data.table import read_table
    from oneof.inspect import inspect_table

    found = inspect_table(read_table(file, roles, bare=True), seed=seed)
    if json:
        print(json_format.dumps(found.to_dict(), ensure_ascii=False))
    else:
        _show(found, file, roles.empty)
    if png is not None:
        from oneof.inspect.picture import save_picture

        save_picture(found.counts, found.identity, png)


def _show(found: Inspection, file: Path, empty: str) -> None:
    from oneof.data.column_uses import summary_lines

    console = Terminal()
    counts, faults = found.counts, found.faults
    unlabelled = " (rows read as unlabelled among them)" if empty == "unlabelled" else ""
    lines = [
        f"{file}: {counts.rows:,} rows, {len(counts.classes)} classes, {counts.average:.2f} labels per set",
        f"{counts.singletons:,} singletons, {counts.full:,} full sets{unlabelled}, {counts.empty:,} empty",
    ]
    columns = {name: asdict(use) for name, use in found.columns.items()}
    lines += [f"columns: {bounded(line)}" for line in summary_lines(columns)]
    if faults is not None:
        lines.append(f"{faults.duplicates:,} rows repeat an earlier row, {len(faults.constant)} features are constant")
    if (worst := found.identity.ambiguity) is not None:
        share = f"{worst.degree:.1%} of the sets that hold {worst.label} hold {worst.other}"
        lines.append(f"ambiguity degree {worst.degree:.3f}: {share}, no pair has more")
    console.print(Text("\n".join(lines)))
    sizes = Table("labels", "rows", "", title="set sizes", title_justify="left", box=None)
    for size, rows in enumerate(counts.sizes):
        if rows:
            sizes.add_row(str(size), f"{rows:,}", "█" * max(1, round(_BAR * rows / max(counts.sizes))))
    findings = Table.grid(padding=(0, 2))
    for finding in found.findings:
        findings.add_row(Text(finding.severity, style=_STYLE[finding.severity]), Text(finding.text))
    for table in (sizes, _labels(found), findings):
        console.print()
        console.print(table)


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
