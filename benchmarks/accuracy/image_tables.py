"""Tables 3 and 5 on MNIST-like images: an MLP without augmentation on sets drawn beforehand; meant for a GPU, resumable.

    python benchmarks/accuracy/image_tables.py --table 5 --limit-seconds 120
    python benchmarks/accuracy/image_tables.py --table 3 --datasets fashion-mnist,kmnist

A cell, a system on a data set with all seeds and settings, trains as one stack. Its rows are appended as soon as it is done, and a
cell whose rows are there is skipped. `oneof paper table 3 --device cuda` does the same without a limit. `oneof paper table 3 --show` renders them.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch

from oneof.storage.rows import append, read
from oneof_paper.compute_image_rows import stack_rows
from oneof_paper.compute_rows import Cell, missing_cells
from oneof_paper.data.catalogue import load
from oneof_paper.experiments import TABLES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=int, choices=(3, 5), required=True)
    parser.add_argument("--datasets", default="fashion-mnist,kmnist")
    parser.add_argument("--seeds", default="100-102", help="first-last")
    parser.add_argument("--rows", type=Path, default=Path("results/tables.jsonl"))
    parser.add_argument("--sets", type=Path, default=Path("results/sets"))
    parser.add_argument("--limit-seconds", type=float, default=float("inf"))
    parser.add_argument("--commit", help="of the source, where git cannot say")
    given = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    table = TABLES[given.table]
    first, last = map(int, given.seeds.split("-"))
    seeds = tuple(range(first, last + 1))
    cells = [
        Cell(name, table.system(system, name), table.protocol(name), seeds)
        for system in table.systems
        for name in given.datasets.split(",")
    ]
    started, slowest = time.perf_counter(), 0.0
    for cell in missing_cells(cells, read(given.rows) if given.rows.exists() else []):
        begun = time.perf_counter()
        if begun - started + slowest > given.limit_seconds:
            print(f"stopped after {begun - started:.0f} s", flush=True)
            return
        rows = stack_rows(cell, load(cell.dataset), given.sets, device)
        append(
            given.rows, [row | ({"commit": given.commit} if given.commit and "commit" in row else {}) for row in rows]
        )
        slowest = max(slowest, time.perf_counter() - begun)
        mean = np.mean([row["accuracy"] for row in rows if row.get("rule") == "covering"])
        print(
            f"{cell.dataset} {cell.system.title}: {100 * mean:.2f} %, {time.perf_counter() - begun:.1f} s", flush=True
        )


if __name__ == "__main__":
    main()
