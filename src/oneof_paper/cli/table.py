"""`oneof paper table`: compute the rows that a table of the paper needs, and show it beside the paper's numbers."""

from __future__ import annotations

import time
from itertools import chain, product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oneof.cli.columns import DataFolder

if TYPE_CHECKING:
    from oneof_paper.compute_image_rows import Work
    from oneof_paper.compute_rows import Executor
    from oneof_paper.experiments import PaperTable

FORMS = ("text", "markdown", "latex")
EXECUTORS = ("processes", "ray")


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
    from oneof_paper.compute_image_rows import missing_runs, work_of_table
    from oneof_paper.data_sets import data_sets, measure, read_figures
    from oneof_paper.experiments import CHARACTERISTICS, TABLES

    _check_choice("format", form, FORMS)
    _check_choice("on", on, EXECUTORS)
    path = rows or _default_rows()
    if number in CHARACTERISTICS:
        figures_path = path.with_name("data_sets.jsonl")
        if not show:
            measure(number, data_dir, path.with_name("sets"), figures_path)
        typer.echo(data_sets(number, read_figures(figures_path), form))
        return
    if number not in TABLES:
        numbers = ", ".join(map(str, [*TABLES, *CHARACTERISTICS]))
        raise ValueError(f"table must be one of {numbers}; got {number}.")
    wanted = TABLES[number]
    names = _parse_names(datasets, wanted.datasets, "data set")
    systems = _parse_names(methods, tuple(wanted.systems), "method")
    seed_range = _parse_seeds(seeds)
    if tiny:
        path = path.parent / "tiny" / path.name
    if not show:
        present = _present_datasets(wanted, names if datasets else None, data_dir)
        work = missing_runs(work_of_table(number, present, systems, seed_range, tiny), path)
        _run(work, number, path, data_dir, processes, device, on, deterministic)
    if tiny:
        typer.echo(f"It runs. These rows are in no table: {path.parent}.")
        return
    _show(number, wanted, path, names, systems, seed_range, form)


def _default_rows() -> Path:
    """Return results/tables.jsonl of the current folder, or that beside the source if only it exists."""
    here = Path("results/tables.jsonl")
    beside_source = Path(__file__).parents[3] / here
    if beside_source.exists() and not here.exists():
        return beside_source
    return here


def _check_choice(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}; got {value!r}.")


def _parse_names(text: str, known: tuple[str, ...], what: str) -> tuple[str, ...]:
    """Return the names in a text with commas; all that are known if it is empty."""
    from oneof.storage.did_you_mean import did_you_mean

    if not text:
        return known
    names = tuple(name.strip() for name in text.lower().split(","))
    for name in names:
        if name not in known:
            raise ValueError(f"{what} must be one of {', '.join(known)}; got {name!r}.{did_you_mean(name, known)}")
    return names


def _parse_seeds(text: str) -> tuple[int, ...]:
    """Return the seeds of a count, which are 100, 101, ..., or of a range such as 0-9."""
    first, dash, last = text.partition("-")
    try:
        seeds = range(int(first), int(last) + 1) if dash else range(100, 100 + int(text))
    except ValueError:
        seeds = range(0)
    if not seeds:
        raise ValueError(f"seeds must be a number such as 10 or a range such as 0-9; got {text!r}.")
    return tuple(seeds)


def _present_datasets(wanted: PaperTable, names: tuple[str, ...] | None, data_dir: Path | None) -> list[str]:
    """Return the data sets to run on: those that were named, which must be present, or all that are."""
    from oneof_paper.data.catalogue import data_folder, load, missing

    if names is not None:
        for name in names:
            load(name, data_dir)
        return list(names)
    folder = data_folder(data_dir)
    present = []
    if folder is not None:
        present = [name for name in wanted.datasets if not missing(name, folder)]
    if not present:
        remedy = "Give --data-dir or set ONEOF_DATA ('oneof paper data' says what is needed), or use --show."
        raise ValueError(f"no data set of this table is there. {remedy}")
    return present


def _run(
    work: list[Work],
    number: int,
    path: Path,
    data_dir: Path | None,
    processes: int,
    device: str,
    on: str,
    deterministic: bool,
) -> None:
    """Compute the rows of the work with a progress bar: tables in several processes, then images one after the other."""
    from oneof.storage.progress import progress_bar
    from oneof_paper.compute_image_rows import compute_image_rows
    from oneof_paper.compute_rows import Cell, compute_cells
    from oneof_paper.experiments import REAL

    if not work:
        typer.echo("Nothing to run: all rows are there.", err=True)
        return
    executor: Executor | None = None
    if on == "ray":
        from oneof_paper.ray_executor import load_ray, run_on_ray

        load_ray()  # so that a missing package is reported before anything begins
        executor = run_on_ray
    cells = [item for item in work if isinstance(item, Cell) and item.dataset in REAL]
    on_images = [item for item in work if item not in cells]
    trials = sum(item.trials for item in work)
    start = time.perf_counter()
    finished_cells = compute_cells(
        cells, path, data_dir, processes, device, executor=executor, deterministic=deterministic
    )
    finished_images = compute_image_rows(on_images, number, path, data_dir, device)
    with progress_bar(f"{trials} trials", trials, True) as advance:
        for item in chain((cell for cell, _ in finished_cells), finished_images):
            advance(item.dataset, item.trials)
    seconds = time.perf_counter() - start
    typer.echo(f"{trials} trials in {seconds / 60:.1f} minutes, {seconds / trials:.3f} s each.", err=True)


def _show(
    number: int,
    wanted: PaperTable,
    path: Path,
    names: tuple[str, ...],
    systems: tuple[str, ...],
    seeds: tuple[int, ...],
    form: str,
) -> None:
    """Print the table from its rows, and below it what POP adds to each loss."""
    from oneof.storage.rows import read
    from oneof_paper import tables

    rows = []
    for file in (path, path.with_name("images.jsonl"), *sorted(path.parent.glob("wide_grid_*.jsonl"))):
        if file.exists():
            rows += read(file)
    scores = tables.scores_of(number, wanted, rows, seeds)
    lines = tables.lines(number, wanted, scores, names, systems)
    typer.echo(tables.render(number, wanted, lines, form))
    for search, rule in product(("", tables.WIDE_GRID), tables.HEADS):
        gains = tables.gains(wanted, scores, rule, search)
        if gains:
            typer.echo(f"\n{tables.gains_text(gains, rule, form, search)}")
