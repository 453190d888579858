"""Compute Tables 3 and 5 on MNIST-like images: an MLP without augmentation on sets drawn beforehand; meant for a GPU, resumable.

    python benchmarks/accuracy/image_tables.py --table 5 --limit-seconds 120
    python benchmarks/accuracy/image_tables.py --table 3 --datasets fashion-mnist,kmnist

A cell, a system on a data set with all seeds and settings, trains as one stack. Its rows are appended as soon as it is done, and a
cell whose rows are there is skipped. `oneof paper table 3 --device cuda` does the same without a limit. `oneof paper table 3 --show` renders them.
"""

from __future__ import annotations

import argparse
import time
from itertools import product
from pathlib import Path

import numpy as np
import torch

from oneof.storage.rows import append, read
from oneof_paper.compute_image_rows import stack_rows
from oneof_paper.compute_rows import Cell, missing_cells
from oneof_paper.data.catalogue import load
from oneof_paper.experiments import TABLES


def main() -> None:
    """Compute the cells that have no rows yet, until the time is up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=int, choices=(3, 5), required=True)
    parser.add_argument("--datasets", default="fashion-mnist,kmnist")
    parser.add_argument("--seeds", default="100-102", help="first-last")
    parser.add_argument("--rows", type=Path, default=Path("results/tables.jsonl"))
    parser.add_argument("--sets", type=Path, default=Path("results/sets"))
    parser.add_argument("--limit-seconds", type=float, default=float("inf"))
    parser.add_argument("--commit", help="of the source, where git cannot say")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    table = TABLES[options.table]
    first, last = map(int, options.seeds.split("-"))
    seeds = tuple(range(first, last + 1))
    cells = []
    for system, name in product(table.systems, options.datasets.split(",")):
        cells.append(Cell(name, table.system(system, name), table.protocol(name), seeds))
    known = read(options.rows) if options.rows.exists() else []
    start = time.perf_counter()
    slowest = 0.0
    for cell in missing_cells(cells, known):
        cell_start = time.perf_counter()
        if cell_start - start + slowest > options.limit_seconds:
            print(f"stopped after {cell_start - start:.0f} s", flush=True)
            return
        rows = stack_rows(cell, load(cell.dataset), options.sets, device)
        if options.commit:
            rows = [{**row, "commit": options.commit} if "commit" in row else row for row in rows]
        append(options.rows, rows)
        seconds = time.perf_counter() - cell_start
        slowest = max(slowest, seconds)
        mean = np.mean([row["accuracy"] for row in rows if row.get("rule") == "covering"])
        print(f"{cell.dataset} {cell.system.title}: {100 * mean:.2f} %, {seconds:.1f} s", flush=True)


if __name__ == "__main__":
    main()
