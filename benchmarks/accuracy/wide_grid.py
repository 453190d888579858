"""Compute rows of Tables 2, 4 and 5 on the real sets with the wide grid: 60 settings, LW in four forms.

    python benchmarks/accuracy/wide_grid.py lost msrcv2 --processes 14 --seeds 400-409
    python benchmarks/accuracy/wide_grid.py malagasy-rebuilt birdsong --device cuda --systems RC CAVL LWS
    python benchmarks/accuracy/wide_grid.py lost birdsong --claims /tmp/taken --limit-seconds 500 --rows /tmp/1.jsonl
    python benchmarks/accuracy/wide_grid.py msrcv2 --systems RC+POP --above-the-edge
    python benchmarks/accuracy/wide_grid.py --merge new.jsonl

On a GPU all trials of a system are one stack; on a CPU every seed is a job of its own. Rows are written when a job ends: those of a data
set to `results/wide_grid_NAME.jsonl`, or all to the file that --rows names. Seeds whose rows are there, or in a file of --known, are not
computed again. Programs that are given the same folder of --claims share the jobs; each writes rows to a file of its own.
`benchmarks/reproduced.py` shows these rows.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import torch

from oneof.storage.files import atomic_write
from oneof.storage.rows import Row, append, read
from oneof_paper.compute_rows import Cell, Job, compute_rows, missing_cells, run_in_processes, split_by_seed
from oneof_paper.data.catalogue import data_folder, load
from oneof_paper.experiments import ABOVE_WIDE, WIDE, Protocol, wide_systems

KEY = ("kind", "setting", "rule", "seed")  # tells two rows apart


def wanted_cells(
    datasets: Sequence[str], titles: Sequence[str] | None, seeds: tuple[int, ...], protocol: Protocol = WIDE
) -> list[Cell]:
    """Return the cells of these data sets and systems (None: all), system by system."""
    cells = []
    for system in wide_systems():
        if titles is not None and system.title not in titles:
            continue
        cells += [Cell(dataset, system, protocol, seeds) for dataset in datasets]
    return cells


def compute_in_processes(
    cells: Sequence[Cell], processes: int, data_dir: str | None
) -> Iterator[tuple[Cell, list[Row]]]:
    """Compute cells seed by seed in several processes on a CPU; yield each seed with its rows when it is done."""
    with tempfile.TemporaryDirectory() as folder:
        jobs = []
        for number, cell in enumerate(split_by_seed(cells)):
            jobs.append(Job(cell, data_folder(data_dir), "cpu", Path(folder) / str(number), deterministic=False))
        for job, rows in run_in_processes(jobs, processes):
            yield job.cell, rows


def compute_in_turn(
    cells: Sequence[Cell], device: str, data_dir: str | None, claims: Path | None, limit: float
) -> Iterator[tuple[Cell, list[Row]]]:
    """Compute cells one after the other, and yield each with its rows; stop when the next one would not end within the limit.

    A cell is expected to take as long per form of its loss as the slowest one so far on the same data set. With a folder of claims,
    seeds that another program took are left out.
    """
    start = time.perf_counter()
    slowest: dict[str, float] = {}  # seconds per form of a loss, by data set
    for wanted in cells:
        n_forms = len(wanted.system.methods)
        spent = time.perf_counter() - start
        expected = n_forms * slowest.get(wanted.dataset, 0.0)
        if spent + expected > limit:
            print(f"stopped after {spent:.0f} s: the next cell would take about {expected:.0f} s", flush=True)
            return
        seeds = wanted.seeds if claims is None else claim_seeds(wanted, claims)
        if not seeds:
            continue
        cell = wanted._replace(seeds=seeds)
        cell_start = time.perf_counter()
        rows = compute_rows(cell, load(cell.dataset, data_dir), device=device)
        seconds = time.perf_counter() - cell_start
        slowest[cell.dataset] = max(slowest.get(cell.dataset, 0.0), seconds / n_forms)
        yield cell, rows


def claim_seeds(cell: Cell, folder: Path) -> tuple[int, ...]:
    """Mark the seeds of a cell as taken by this program; return those that no other program took before."""
    folder.mkdir(parents=True, exist_ok=True)
    seeds = []
    for seed in cell.seeds:
        try:
            (folder / f"{cell.setting}-{seed}").touch(exist_ok=False)
        except FileExistsError:
            continue
        seeds.append(seed)
    return tuple(seeds)


def file_of(dataset: str) -> Path:
    """Return the file in which rows of a data set are kept."""
    return Path(f"results/wide_grid_{dataset}.jsonl")


def read_all(paths: Iterable[Path]) -> list[Row]:
    """Return the rows of those of these files that exist."""
    rows = []
    for path in paths:
        if path.exists():
            rows += read(path)
    return rows


def merge(path: Path, new: Sequence[Row]) -> None:
    """Put rows that a file lacks into it."""
    old = read_all([path])
    rows = merged(old, new)
    with atomic_write(path) as file:
        for row in rows:
            line = json.dumps(row, separators=(",", ":"))  # a cell has the figures of 60 settings
            file.write(f"{line}\n".encode())
    print(f"{path} had {len(old)} rows and has {len(rows)}")


def merged(old: Sequence[Row], new: Sequence[Row]) -> list[Row]:
    """Return the old rows, and of the new ones those that the old lack."""
    known = {_key(row) for row in old}
    return [*old, *(row for row in new if _key(row) not in known)]


def _key(row: Row) -> tuple[object, ...]:
    return tuple(row.get(name) for name in KEY)


def with_facts(rows: Sequence[Row], facts: Row) -> list[Row]:
    """Return rows with further facts about where they come from; rows of a whole grid name no origin, and stay as they are."""
    result = []
    for row in rows:
        result.append({**row, **facts} if "commit" in row else row)
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    """Compute the rows that are missing, or merge those of another machine."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="*", help="of the real sets, or malagasy-rebuilt")
    parser.add_argument(
        "--rows", type=Path, help="a file for all rows; default: results/wide_grid_NAME.jsonl for each set"
    )
    parser.add_argument("--known", type=Path, nargs="+", default=[], help="further files whose rows are done")
    parser.add_argument("--seeds", default="400-409", help="first and last, such as 400-409")
    parser.add_argument("--systems", nargs="+", help="titles; default: all")
    parser.add_argument(
        "--above-the-edge",
        action="store_true",
        help="the two learning rates above the grid's largest, in place of the grid",
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--processes", type=int, help="on a CPU; 0: one for each core; default: this one alone")
    parser.add_argument("--claims", type=Path, help="folder where programs that share the jobs mark what they took")
    parser.add_argument("--limit-seconds", type=float, default=float("inf"), help="not with --processes")
    parser.add_argument("--programs", type=int, help="how many programs share the machine, for the rows")
    parser.add_argument("--commit", help="of the source, where git cannot say")
    parser.add_argument("--data-dir", help="default: ONEOF_DATA")
    parser.add_argument(
        "--merge", type=Path, help="rows of another machine, to put those that are missing to the others"
    )
    options = parser.parse_args(arguments)
    if options.processes is not None and (options.claims or options.device != "cpu"):
        parser.error("--processes is for a CPU and without --claims; start several programs instead.")
    torch.set_num_threads(1)
    first, last = map(int, options.seeds.split("-"))
    protocol = ABOVE_WIDE if options.above_the_edge else WIDE
    wanted = wanted_cells(options.datasets, options.systems, tuple(range(first, last + 1)), protocol)
    paths = {dataset: options.rows or file_of(dataset) for dataset in options.datasets}
    cells = missing_cells(wanted, read_all([*dict.fromkeys(paths.values()), *options.known]))
    if options.processes is not None:
        computed = compute_in_processes(cells, options.processes, options.data_dir)
    else:
        if options.device == "cpu":
            cells = split_by_seed(cells)
        computed = compute_in_turn(cells, options.device, options.data_dir, options.claims, options.limit_seconds)
    facts: Row = {}
    if options.commit:
        facts["commit"] = options.commit
    if options.programs:
        facts["programs"] = options.programs
    start = time.perf_counter()
    for cell, rows in computed:
        append(paths[cell.dataset], with_facts(rows, facts))
        seeds = f"{cell.seeds[0]}-{cell.seeds[-1]}"
        print(f"{time.perf_counter() - start:6.0f} s  {cell.dataset} {cell.system.title} {seeds}", flush=True)
    if options.merge:
        new: dict[Path, list[Row]] = {}
        for row in read(options.merge):
            new.setdefault(options.rows or file_of(row["dataset"]), []).append(row)
        for path, rows in new.items():
            merge(path, rows)


if __name__ == "__main__":
    main()
