"""`oneof paper data`: which data sets are here, whether they are right, and how to get them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.table import Table

from oneof.cli.columns import DataFolder
from oneof.cli.terminal import Terminal

_MARKS = {"equal": "[green]equal[/]", "explained": "[yellow]explained[/]", "differs": "[red]differs[/]"}


def data(
    names: Annotated[list[str] | None, typer.Argument(help="Data sets to look at. Default: all.")] = None,
    data_dir: DataFolder = None,
    verify: Annotated[bool, typer.Option("--verify", help="Check files against checksums, and what they hold against the paper's figures.")] = False,
    get: Annotated[str | None, typer.Option(help="Download this data set into the folder; a download that was stopped goes on.", metavar="NAME")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:  # fmt: skip
    """List the data sets, verify them, or get one."""
    from oneof_paper.data.catalogue import NAMED, data_folder, find

    folder = data_folder(data_dir)
    chosen = names or list(NAMED)
    for name in (*chosen, *filter(None, [get])):
        find(name)
    if not get and not verify:
        _list(chosen, folder, as_json)
    elif folder is None:
        raise ValueError("data_dir or ONEOF_DATA must name the folder of data sets; neither does.")
    elif get:
        _get(get, folder)
    else:
        _verify(chosen, folder, as_json)


def _list(names: list[str], folder: Path | None, as_json: bool) -> None:
    from oneof_paper.data.catalogue import NAMED, missing

    table, rows = Table("name", "rows", "features", "classes", "labels per set", "where"), []
    for name in names:
        named, paper = NAMED[name], NAMED[name].paper
        row = {"name": name, "title": named.title, "address": named.address, "licence": named.licence, "where": ""}
        if not named.files:
            row["where"] = "with the package"
        elif folder is None or missing(name, folder):
            row["needs"] = ", ".join(named.files)
        elif named.folder and (folder / named.folder).is_dir():
            row["where"] = str(folder / named.folder)
        else:
            row["where"] = str(folder / named.files[0] if len(named.files) == 1 else (folder / named.files[0]).parent)
        rows.append(row)
        figures: tuple[int | float | str, ...] = ("-", "-", "-", "-")  # the paper does not use the set
        if paper:
            figures = (paper.train + paper.test, *paper[2:])
        elif name == "digits":
            figures = (1797, 64, 10, "-")
        table.add_row(name, *map(str, figures), row["where"] or f"[dim]absent: {named.address}[/]")
    if as_json:
        return typer.echo(json.dumps(rows, indent=1))
    _print(table)
    return typer.echo(f"Figures are the paper's. Folder: {folder or 'none; give --data-dir or set ONEOF_DATA'}.")


def _verify(names: list[str], folder: Path, as_json: bool) -> None:
    from oneof_paper.data.catalogue import NAMED, missing
    from oneof_paper.data.verify import verify

    if not folder.is_dir():
        raise ValueError(f"data_dir must be a folder; {folder} is not.")
    absent = [name for name in names if NAMED[name].files and missing(name, folder)]
    findings = [finding for name in names if name not in absent for finding in verify(name, folder)]
    count = {verdict: sum(finding.verdict == verdict for finding in findings) for verdict in _MARKS}
    if as_json:
        typer.echo(json.dumps([finding._asdict() for finding in findings], indent=1))
    else:
        table = Table("set", "what", "expected", "found", "verdict", "note")
        for finding in findings:
            table.add_row(*finding._replace(verdict=_MARKS[finding.verdict]))
        _print(table)
        typer.echo(", ".join(f"{number} {verdict}" for verdict, number in count.items()) + ".")
        if absent:
            typer.echo(f"Not here: {', '.join(absent)}.")
    if count["differs"]:
        raise typer.Exit(1)


def _get(name: str, folder: Path) -> None:
    from oneof_paper.data.fetch import get

    console = Terminal(stderr=True)
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(TextColumn("{task.description}"), *columns, console=console, disable=not console.is_terminal) as bars:

        def bar(file: str) -> Callable[[int, int | None], None]:
            task = bars.add_task(file, total=None)
            return lambda done, whole: bars.update(task, completed=done, total=whole)

        came = get(name, folder, bar)
    typer.echo(f"{name} is in {folder}; {len(came)} files came.")


def _print(table: Table) -> None:
    """A table as wide as it needs where nobody watches: a pipe has no width to wrap at."""
    (Terminal() if Terminal().is_terminal else Terminal(width=220)).print(table)
