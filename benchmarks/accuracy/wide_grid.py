"""Rows of Tables 2, 4 and 5 on the real sets with the wide grid: 60 settings, LW in four forms; resumable.

    python benchmarks/accuracy/wide_grid.py lost msrcv2 --processes 14 --rows results/wide_grid.jsonl --seeds 400-409
    python benchmarks/accuracy/wide_grid.py malagasy-rebuilt birdsong --device cuda --systems RC CAVL LWS
    python benchmarks/accuracy/wide_grid.py --merge new.jsonl --rows results/wide_grid.jsonl

On a GPU all trials of a system are one stack; on a CPU every seed is a job of its own. Rows are written as jobs end, and seeds whose rows
are in the file, or in one of --known, are not computed again. `benchmarks/reproduced.py` shows these rows.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from oneof.storage.files import atomic_write
from oneof.storage.rows import Row, append, read
from oneof_paper.compute_rows import Cell, Job, compute_rows, missing_cells, run_in_processes, split_by_seed
from oneof_paper.data.catalogue import data_folder, load
from oneof_paper.experiments import WIDE, wide_systems

KEY = ("kind", "setting", "rule", "seed")  # tells two rows apart


def wanted_cells(datasets: Sequence[str], titles: Sequence[str] | None, seeds: tuple[int, ...]) -> list[Cell]:
    """Return the cells of these data sets and systems (None: all), system by system."""
    cells = []
    for system in wide_systems():
        if titles is not None and system.title not in titles:
            continue
        cells += [Cell(dataset, system, WIDE, seeds) for dataset in datasets]
    return cells


def computed(
    cells: Sequence[Cell], processes: int, device: str, data_dir: str | None
) -> Iterator[tuple[Cell, list[Row]]]:
    """Compute cells in their order, on a CPU seed by seed in several processes; yield each with its rows when it is done."""
    if device != "cpu":
        for cell in cells:
            yield cell, compute_rows(cell, load(cell.dataset, data_dir), device=device)
        return
    with tempfile.TemporaryDirectory() as folder:
        jobs = []
        for number, cell in enumerate(split_by_seed(cells)):
            jobs.append(Job(cell, data_folder(data_dir), device, Path(folder) / str(number), deterministic=False))
        for job, rows in run_in_processes(jobs, processes):
            yield job.cell, rows


def merged(old: Sequence[Row], new: Sequence[Row]) -> list[Row]:
    """Return the old rows, and of the new ones those that the old lack."""
    known = {_key(row) for row in old}
    return [*old, *(row for row in new if _key(row) not in known)]


def _key(row: Row) -> tuple[object, ...]:
    return tuple(row.get(name) for name in KEY)


def main(arguments: Sequence[str] | None = None) -> None:
    """Compute the rows that are missing, or merge those of another machine."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="*", help="of the real sets, or malagasy-rebuilt")
    parser.add_argument("--rows", type=Path, default=Path("results/wide_grid.jsonl"))
    parser.add_argument("--known", type=Path, nargs="+", default=[], help="further files whose rows are done")
    parser.add_argument("--seeds", default="400-409", help="first and last, such as 400-409")
    parser.add_argument("--systems", nargs="+", help="titles; default: all")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--processes", type=int, default=1, help="on a CPU; 0: one for each core")
    parser.add_argument("--commit", help="of the source, where git cannot say")
    parser.add_argument("--data-dir", help="default: ONEOF_DATA")
    parser.add_argument("--merge", type=Path, help="rows of another machine, to put those that --rows lacks into it")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    first, last = map(int, options.seeds.split("-"))
    cells = wanted_cells(options.datasets, options.systems, tuple(range(first, last + 1)))
    known = [row for path in [options.rows, *options.known] if path.exists() for row in read(path)]
    facts = {"commit": options.commit} if options.commit else {}
    start = time.perf_counter()
    for cell, rows in computed(missing_cells(cells, known), options.processes, options.device, options.data_dir):
        append(options.rows, [{**row, **facts} if "commit" in row else row for row in rows])
        seeds = f"{cell.seeds[0]}-{cell.seeds[-1]}"
        print(f"{time.perf_counter() - start:6.0f} s  {cell.dataset} {cell.system.title} {seeds}", flush=True)
    if options.merge:
        rows = merged(known, read(options.merge))
        with atomic_write(options.rows) as file:
            file.write("".join(json.dumps(row) + "\n" for row in rows).encode())
        print(f"{options.rows} had {len(known)} rows and has {len(rows)}")


if __name__ == "__main__":
    main()
