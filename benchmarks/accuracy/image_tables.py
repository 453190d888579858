"""Tables 3 and 5 on MNIST-like images: an MLP without augmentation on sets drawn beforehand; meant for a GPU, resumable.

    python benchmarks/accuracy/image_tables.py --table 5 --limit-seconds 120
    python benchmarks/accuracy/image_tables.py --table 3 --datasets fashion-mnist,kmnist

A cell, a system on a data set with all seeds and settings, trains as one stack. Its rows are appended as soon as it is done, and a
cell whose rows are there is skipped. `oneof table 3 --show` renders them.
"""

from __future__ import annotations

import argparse
import time
from functools import cache
from pathlib import Path

import numpy as np
import torch
from on_images.sets import sets_of, training_part

from oneof.data.named.catalogue import Dataset, load
from oneof.paper.experiments import TABLES
from oneof.paper.obtain import Cell, missing, train
from oneof.storage.rows import Row, append, read
from oneof.training.trials import Trial

EPOCHS_OF_SETS = 200  # of the classifier that drew them


@cache
def images(name: str, device: str) -> tuple[Dataset, torch.Tensor]:
    """A data set, and its pixels in [0, 1] as rows on the device."""
    data = load(name)
    return data, torch.as_tensor(data.x.reshape(len(data.x), -1), device=device).float() / 255


def trials(cell: Cell, data: Dataset) -> list[Trial]:
    """A tenth of the training part is held out; the publisher's test part reports."""
    made = []
    for seed in cell.seeds:
        order = np.random.default_rng(seed).permutation(training_part(data))
        held = int(len(order) * cell.protocol.held_out)
        made += [
            Trial(seed, order[held:], order[:held], data.test, lr, decay, cell.protocol.scaling)
            for lr, decay in cell.protocol.grid
        ]
    return made


def candidates(cell: Cell, data: Dataset, folder: Path, device: str) -> np.ndarray:
    """Sets of every trial [t, n, c]; test rows, whose sets nothing reads, have the full set."""
    masks = sets_of(folder, data, EPOCHS_OF_SETS, device).masks
    full = np.ones((len(data.x) - training_part(data), len(data.classes)), dtype=bool)
    by_seed = [np.concatenate([masks[seed], full]) for seed in cell.seeds]
    return np.repeat(np.stack(by_seed), len(cell.protocol.grid), axis=0)


def perform(cell: Cell, folder: Path, device: str) -> list[Row]:
    data, x = images(cell.dataset, device)
    return train(cell, x, candidates(cell, data, folder, device), data.labels, trials(cell, data), device=device)


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
    for cell in missing(cells, read(given.rows) if given.rows.exists() else []):
        begun = time.perf_counter()
        if begun - started + slowest > given.limit_seconds:
            print(f"stopped after {begun - started:.0f} s", flush=True)
            return
        rows = perform(cell, given.sets, device)
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
