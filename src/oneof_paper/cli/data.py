"""`oneof paper data`: list the data sets, verify them, or download one."""

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
    """List the data sets, verify them, or download one."""
    from oneof_paper.data.catalogue import NAMED, data_folder, find

    folder = data_folder(data_dir)
    chosen = names or list(NAMED)
    for name in chosen:
        find(name)
    if get:
        find(get)
    if not get and not verify:
        _list(chosen, folder, as_json)
        return
    if folder is None:
        raise ValueError("data_dir or ONEOF_DATA must name the folder of data sets; neither does.")
    if get:
        _get(get, folder)
    else:
        _verify(chosen, folder, as_json)


def _list(names: list[str], folder: Path | None, as_json: bool) -> None:
    """Print the data sets: their figures in the paper, and where they are."""
    from oneof_paper.data.catalogue import NAMED

    table = Table("name", "rows", "features", "classes", "labels per set", "where")
    rows = []
    for name in names:
        named = NAMED[name]
        where = _location(name, folder)
        row = {"name": name, "title": named.title, "address": named.address, "licence": named.licence, "where": where}
        if not where:
            row["needs"] = ", ".join(named.files)
        rows.append(row)
        table.add_row(name, *_figures(name), where or f"[dim]absent: {named.address}[/]")
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    _print(table)
    typer.echo(f"Figures are the paper's. Folder: {folder or 'none; give --data-dir or set ONEOF_DATA'}.")


def _location(name: str, folder: Path | None) -> str:
    """Return where the files of a data set are; an empty string if some are missing."""
    from oneof_paper.data.catalogue import NAMED, missing

    named = NAMED[name]
    if not named.files:
        return "with the package"
    if folder is None or missing(name, folder):
        return ""
    if named.folder and (folder / named.folder).is_dir():
        return str(folder / named.folder)
    first_file = folder / named.files[0]
    if len(named.files) == 1:
        return str(first_file)
    return str(first_file.parent)


def _figures(name: str) -> list[str]:
    """Return rows, features, classes and labels per set, as the paper has them; a dash where it does not use the data set."""
    from oneof_paper.data.catalogue import NAMED

    paper = NAMED[name].paper
    if paper is not None:
        return [str(paper.train + paper.test), str(paper.features), str(paper.classes), str(paper.average)]
    if name == "digits":
        return ["1797", "64", "10", "-"]
    return ["-"] * 4


def _verify(names: list[str], folder: Path, as_json: bool) -> None:
    """Print how the data sets that are present compare with checksums and the paper; exit with 1 if one differs."""
    from oneof_paper.data.catalogue import NAMED, missing
    from oneof_paper.data.verify import verify

    if not folder.is_dir():
        raise ValueError(f"data_dir must be a folder; {folder} is not.")
    absent = []
    comparisons = []
    for name in names:
        if NAMED[name].files and missing(name, folder):
            absent.append(name)
        else:
            comparisons += verify(name, folder)
    counts = {}
    for verdict in _MARKS:
        counts[verdict] = sum(comparison.verdict == verdict for comparison in comparisons)
    if as_json:
        typer.echo(json.dumps([comparison._asdict() for comparison in comparisons], indent=1))
    else:
        table = Table("set", "what", "expected", "found", "verdict", "note")
        for comparison in comparisons:
            table.add_row(*comparison._replace(verdict=_MARKS[comparison.verdict]))
        _print(table)
        typer.echo(", ".join(f"{count} {verdict}" for verdict, count in counts.items()) + ".")
        if absent:
            typer.echo(f"Not here: {', '.join(absent)}.")
    if counts["differs"]:
        raise typer.Exit(1)


def _get(name: str, folder: Path) -> None:
    """Download the files of a data set, with a progress bar for each."""
    from oneof_paper.data.fetch import get

    console = Terminal(stderr=True)
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(TextColumn("{task.description}"), *columns, console=console, disable=not console.is_terminal) as bars:

        def progress_of(file: str) -> Callable[[int, int | None], None]:
            task = bars.add_task(file, total=None)
            return lambda size, total: bars.update(task, completed=size, total=total)

        paths = get(name, folder, progress_of)
    typer.echo(f"{name} is in {folder}; {len(paths)} files came.")


def _print(table: Table) -> None:
    """Print a table, in full width if the output is not a terminal: a pipe has no width to wrap at."""
    terminal = Terminal()
    if not terminal.is_terminal:
        terminal = Terminal(width=220)
    terminal.print(table)
