"""`oneof table`: run what a table of the paper still lacks, and show it beside the paper's numbers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oneof.cli.columns import DataFolder

if TYPE_CHECKING:
    from oneof.paper.experiments import Table
    from oneof.paper.obtain import Cell

FORMS, PLACES = ("rich", "markdown", "latex"), ("processes", "ray")


def table(
    number: Annotated[int, typer.Argument(help="Which table of the paper: 1 to 5, or 6 and 7 for the data sets.")],
    datasets: Annotated[str, typer.Option(help="Data sets, separated by commas. Default: all whose files are there.")] = "",
    methods: Annotated[str, typer.Option(help="Systems of that table, separated by commas: pop,proden,cc in 1 and 2, proden+pop,cc+pop in 3 and 4, warm-up-5 in 5. Default: all.")] = "",
    seeds: Annotated[str, typer.Option(help="How many seeds, from 100 on; or a range such as 0-9.")] = "10",
    show: Annotated[bool, typer.Option("--show", help="Run nothing; show the rows that there are.")] = False,
    form: Annotated[str, typer.Option("--format", help="How to print it: rich, markdown or latex.")] = "rich",
    rows: Annotated[Path | None, typer.Option(help="The file that rows are read from and appended to. Default: results/tables.jsonl here, or else where oneof's source lies.")] = None,
    data_dir: DataFolder = None,
    processes: Annotated[int, typer.Option(help="Processes to run in. 0: one for each core.")] = 0,
    device: Annotated[str, typer.Option(help="Where to train: cpu or cuda.")] = "cpu",
    on: Annotated[str, typer.Option(help="What runs the trials: processes, or ray (install the extra 'sweep').")] = "processes",
    deterministic: Annotated[bool, typer.Option("--deterministic", help="Give the same rows to the bit whenever they are run on one machine. Without it they may differ by rounding.")] = False,
) -> None:  # fmt: skip
    """Reproduce a table of the paper: run what is missing, and show ours beside the paper's. Stop it at any time; it resumes."""
    from oneof.paper.experiments import CHARACTERISTICS, TABLES
    from oneof.paper.obtain import Cell

    for what, given, known in (("format", form, FORMS), ("on", on, PLACES)):
        if given not in known:
            raise ValueError(f"{what} must be one of {', '.join(known)}; got {given!r}.")
    if number in CHARACTERISTICS:
        return _characteristics(number)
    if number not in TABLES:
        raise ValueError(f"table must be one of {', '.join(map(str, [*TABLES, *CHARACTERISTICS]))}; got {number}.")
    wanted = TABLES[number]
    names, systems = _names(datasets, wanted.datasets, "data set"), _names(methods, tuple(wanted.systems), "method")
    numbers, file = _seeds(seeds), rows or _rows_file()
    if not show:
        there = _there(wanted, names if datasets else None, data_dir)
        protocols = {name: protocol for name in there if (protocol := wanted.protocol(name))}
        pairs = [(name, system) for name in protocols for system in systems]
        cells = [Cell(name, wanted.system(system, name), protocols[name], numbers) for name, system in pairs]
        _run(cells, file, on, data_dir, processes, device, deterministic)
    return _show(number, names, systems, numbers, file, form)


def _names(given: str, known: tuple[str, ...], what: str) -> tuple[str, ...]:
    from oneof.storage.did_you_mean import did_you_mean

    names = tuple(name.strip() for name in given.lower().split(",")) if given else known
    for name in names:
        if name not in known:
            raise ValueError(f"{what} must be one of {', '.join(known)}; got {name!r}.{did_you_mean(name, known)}")
    return names


def _rows_file() -> Path:
    here = Path("results/tables.jsonl")
    beside_source = Path(__file__).parents[3] / here
    return beside_source if beside_source.exists() and not here.exists() else here


def _seeds(given: str) -> tuple[int, ...]:
    """Seeds to report are 100, 101, ...; a range says others.

    >>> _seeds("2"), _seeds("0-2")
    ((100, 101), (0, 1, 2))
    """
    first, dash, last = given.partition("-")
    try:
        found = range(int(first), int(last) + 1) if dash else range(100, 100 + int(given))
    except ValueError:
        found = range(0)
    if not found:
        raise ValueError(f"seeds must be a number such as 10 or a range such as 0-9; got {given!r}.")
    return tuple(found)


def _run(
    cells: Sequence[Cell], file: Path, on: str, data_dir: Path | None, processes: int, device: str, deterministic: bool
) -> None:
    from oneof.paper.obtain import missing, obtain_all
    from oneof.paper.on_ray import load_ray, on_ray
    from oneof.storage.progress import bar
    from oneof.storage.rows import read

    todo = missing(cells, read(file) if file.exists() else [])
    if not todo:
        typer.echo("Nothing to run: all rows are there.", err=True)
        return
    if on == "ray":
        load_ray()  # so that one who has none hears of it before anything begins
    started, trials = time.perf_counter(), sum(len(cell.seeds) * len(cell.protocol.grid) for cell in todo)
    with bar(f"{trials} trials", trials, True) as advance:
        place = on_ray if on == "ray" else None
        for cell, _ in obtain_all(todo, file, data_dir, processes, device, place=place, deterministic=deterministic):
            advance(f"{cell.dataset}, {cell.system.title}", len(cell.seeds) * len(cell.protocol.grid))
    seconds = time.perf_counter() - started
    typer.echo(f"{trials} trials in {seconds / 60:.1f} minutes, {seconds / trials:.3f} s each.", err=True)


def _there(wanted: Table, names: tuple[str, ...] | None, data_dir: Path | None) -> list[str]:
    """The data sets to run on: those asked for, which must be there, or all that are. Images have a script of their own."""
    from oneof.data.named.catalogue import data_folder, load, missing
    from oneof.paper.experiments import REAL

    if names is not None:
        for name in names:
            if name not in REAL:
                raise ValueError(
                    f"{name} is not run by this command: its rows come from {wanted.images and wanted.images.how}. Use --show."
                )
            load(name, data_dir)
        return list(names)
    folder = data_folder(data_dir)
    found = [name for name in wanted.datasets if name in REAL and folder and not missing(name, folder)]
    if not found:
        raise ValueError(
            "no data set of this table is there; give --data-dir or set ONEOF_DATA ('oneof data' says what is needed), or use --show."
        )
    return found


def _show(
    number: int, names: tuple[str, ...], systems: tuple[str, ...], seeds: tuple[int, ...], rows: Path, form: str
) -> None:
    from rich.console import Console

    from oneof.paper import tables
    from oneof.paper.experiments import TABLES
    from oneof.storage.rows import read

    wanted, files = TABLES[number], [file for file in (rows, rows.with_name("images.jsonl")) if file.exists()]
    scores = tables.scores_of(number, wanted, [row for file in files for row in read(file)], seeds)
    some = tables.lines(number, wanted, scores, names, systems)
    if form == "rich":
        Console().print(tables.grid(number, wanted, some))
    else:
        typer.echo(tables.markdown(number, wanted, some) if form == "markdown" else tables.latex(number, wanted, some))
    for rule in tables.HEADS:
        gains = tables.gains(wanted, scores, rule)
        if gains:
            typer.echo(f"\n{tables.gains_text(gains, rule, form)}")


def _characteristics(number: int) -> None:
    """Tables 6 and 7: the data sets themselves."""
    from oneof.data.named.catalogue import NAMED
    from oneof.paper.experiments import CHARACTERISTICS
    from oneof.paper.printed import errata

    typer.echo("| data set | train | test | features | classes | labels per set |\n|---|---|---|---|---|---|")
    for name in CHARACTERISTICS[number]:
        if figures := NAMED[name].paper:
            typer.echo(f"| {NAMED[name].title} | {' | '.join(map(str, figures))} |")
    typer.echo("\n" + "\n".join(f"- Paper: {note}" for note in errata(number)))
    typer.echo("- 'oneof data --verify' compares these figures with the files.")
