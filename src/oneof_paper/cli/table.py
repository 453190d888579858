"""`oneof paper table`: run what a table of the paper still lacks, and show it beside the paper's numbers."""

from __future__ import annotations

import time
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oneof.cli.columns import DataFolder

if TYPE_CHECKING:
    from oneof_paper.compute_rows import Place
    from oneof_paper.experiments import Table

FORMS = ("text", "markdown", "latex")
PLACES = ("processes", "ray")


def table(
    number: Annotated[int, typer.Argument(help="Which table of the paper: 1 to 5, or 6 and 7 for the data sets.")],
    datasets: Annotated[str, typer.Option(help="Data sets, separated by commas. Default: all whose files are there.")] = "",
    methods: Annotated[str, typer.Option(help="Systems of that table, separated by commas: pop,proden,cc in 1 and 2, proden+pop,cc+pop in 3 and 4, warm-up-5 in 5. Default: all.")] = "",
    seeds: Annotated[str, typer.Option(help="How many seeds, from 100 on; or a range such as 0-9. Images have sets for 0 and 100-104.")] = "10",
    show: Annotated[bool, typer.Option("--show", help="Run nothing; show the rows that there are.")] = False,
    form: Annotated[str, typer.Option("--format", help="How to print it: text, markdown or latex.")] = "text",
    rows: Annotated[Path | None, typer.Option(help="The file that rows are read from and appended to. Default: results/tables.jsonl here, or else where oneof's source lies.")] = None,
    data_dir: DataFolder = None,
    processes: Annotated[int, typer.Option(help="Processes to run in. 0: one for each core.")] = 0,
    device: Annotated[str, typer.Option(help="Where to train: cpu or cuda.")] = "cpu",
    on: Annotated[str, typer.Option(help="What runs the trials: processes, or ray (install the extra 'sweep').")] = "processes",
    tiny: Annotated[bool, typer.Option("--tiny", help="See that it runs: five epochs, sixty images of a set of images, rows in the folder 'tiny' beside the others.")] = False,
    deterministic: Annotated[bool, typer.Option("--deterministic", help="Give the same rows to the bit whenever they are run on one machine. Without it they may differ by rounding.")] = False,
) -> None:  # fmt: skip
    """Reproduce a table of the paper: run what is missing, and show ours beside the paper's. Stop it at any time; it resumes."""
    from oneof.storage.rows import read
    from oneof_paper import tables
    from oneof_paper.compute_image_rows import lacking, work_of
    from oneof_paper.data_sets import data_sets
    from oneof_paper.experiments import CHARACTERISTICS, TABLES

    for what, given, known in (("format", form, FORMS), ("on", on, PLACES)):
        if given not in known:
            raise ValueError(f"{what} must be one of {', '.join(known)}; got {given!r}.")
    here = Path("results/tables.jsonl")
    beside_source = Path(__file__).parents[3] / here
    file = rows or (beside_source if beside_source.exists() and not here.exists() else here)
    if number in CHARACTERISTICS:
        typer.echo(data_sets(number, data_dir, file.with_name("sets"), form))
        return
    if number not in TABLES:
        numbers = ", ".join(map(str, [*TABLES, *CHARACTERISTICS]))
        raise ValueError(f"table must be one of {numbers}; got {number}.")
    wanted = TABLES[number]
    names, systems = _names(datasets, wanted.datasets, "data set"), _names(methods, tuple(wanted.systems), "method")
    some = _seeds(seeds)
    file = file.parent / "tiny" / file.name if tiny else file
    if not show:
        there = _there(wanted, names if datasets else None, data_dir)
        todo = lacking(work_of(number, there, systems, some, tiny), file)
        _run(todo, number, file, data_dir, processes, device, on, deterministic)
    if tiny:
        typer.echo(f"It runs. These rows are in no table: {file.parent}.")
        return
    files = [one for one in (file, file.with_name("images.jsonl")) if one.exists()]
    scores = tables.scores_of(number, wanted, [row for one in files for row in read(one)], some)
    typer.echo(tables.whole(number, wanted, tables.lines(number, wanted, scores, names, systems), form))
    for rule in tables.HEADS:
        if gains := tables.gains(wanted, scores, rule):
            typer.echo(f"\n{tables.gains_text(gains, rule, form)}")


def _names(given: str, known: tuple[str, ...], what: str) -> tuple[str, ...]:
    from oneof.storage.did_you_mean import did_you_mean

    if not given:
        return known
    names = tuple(name.strip() for name in given.lower().split(","))
    for name in names:
        if name not in known:
            raise ValueError(f"{what} must be one of {', '.join(known)}; got {name!r}.{did_you_mean(name, known)}")
    return names


def _seeds(given: str) -> tuple[int, ...]:
    """Seeds to report are 100, 101, ...; a range says others."""
    first, dash, last = given.partition("-")
    try:
        found = range(int(first), int(last) + 1) if dash else range(100, 100 + int(given))
    except ValueError:
        found = range(0)
    if not found:
        raise ValueError(f"seeds must be a number such as 10 or a range such as 0-9; got {given!r}.")
    return tuple(found)


def _run(
    todo: list[Any], number: int, file: Path, data_dir: Path | None, processes: int, device: str, on: str, deterministic: bool
) -> None:  # fmt: skip
    from oneof.storage.progress import bar
    from oneof_paper.compute_image_rows import obtain_images
    from oneof_paper.compute_rows import Cell, obtain_all
    from oneof_paper.experiments import REAL

    if not todo:
        typer.echo("Nothing to run: all rows are there.", err=True)
        return
    place: Place | None = None
    if on == "ray":
        from oneof_paper.ray_executor import load_ray, on_ray

        load_ray()  # so that one who has none hears of it before anything begins
        place = on_ray
    tables = [one for one in todo if isinstance(one, Cell) and one.dataset in REAL]
    started, trials = time.perf_counter(), sum(one.trials for one in todo)
    here = obtain_all(tables, file, data_dir, processes, device, place=place, deterministic=deterministic)
    images = obtain_images([one for one in todo if one not in tables], number, file, data_dir, device)
    with bar(f"{trials} trials", trials, True) as advance:
        for one in chain((cell for cell, _ in here), images):
            advance(one.dataset, one.trials)
    seconds = time.perf_counter() - started
    typer.echo(f"{trials} trials in {seconds / 60:.1f} minutes, {seconds / trials:.3f} s each.", err=True)


def _there(wanted: Table, names: tuple[str, ...] | None, data_dir: Path | None) -> list[str]:
    """The data sets to run on: those asked for, which must be there, or all that are."""
    from oneof_paper.data.catalogue import data_folder, load, missing

    if names is not None:
        for name in names:
            load(name, data_dir)
        return list(names)
    folder = data_folder(data_dir)
    found = [name for name in wanted.datasets if folder and not missing(name, folder)]
    if not found:
        fix = "Give --data-dir or set ONEOF_DATA ('oneof paper data' says what is needed), or use --show."
        raise ValueError(f"no data set of this table is there. {fix}")
    return found
