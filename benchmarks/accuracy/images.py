"""Compute rows on images: PRODEN, POP and the supervised ceiling on the same sets, views and seeds; meant for a GPU, resumable.

    python benchmarks/accuracy/images.py --plan fair --rows results/images.jsonl --limit-seconds 300
    python benchmarks/accuracy/images.py --plan mnist-like --limit-seconds 500
    python benchmarks/accuracy/images.py --plan saturated --part 1/2 --commit 0123abc --data-dir /tmp/data
    python benchmarks/accuracy/images.py --plan cifar100 --tiny --rows /tmp/rows.jsonl --sets /tmp/sets
    python benchmarks/accuracy/images.py --plan cifar100-rest --claims /tmp/taken --known results/images.jsonl --rows /tmp/1.jsonl
    python benchmarks/accuracy/images.py --merge new.jsonl --rows results/images.jsonl
    python benchmarks/accuracy/images.py --report

Every row is written as soon as its trial ends; a run whose row is in the file is skipped. The last epoch is what a row reports: no
label chooses. Beside it stand the epochs that held-out sets (`by_covering`, `by_approximated`) and held-out labels (`by_oracle`)
would have chosen. Runs that differ only in how they purify share their beginning (`on_images/branches.py`). Seed 0 is for choosing numbers, seeds from 100 on are for reporting. Sets: `oneof_paper.image_sets`.
`oneof paper table 1` and `3` run the tables' own runs, one by one.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from on_images import branches
from on_images.branches import Branch
from on_images.plans import PLANS, Run
from on_images.report import merged, table
from on_images.sets import sets_of

from oneof.networks import Network
from oneof.storage.files import atomic_write
from oneof.storage.rows import Row, append, read
from oneof.training.state import Fit
from oneof.training.training_data import TrainingData, make_training_data
from oneof_paper.compute_image_rows import first_images, row_of, trial_of, views_of, with_test_rows
from oneof_paper.data.catalogue import LabelledData, load
from oneof_paper.image_sets import DIFFICULTIES, path_of
from oneof_paper.images import SMALL, key_of
from oneof_paper.teacher import channels_first

GUESS = {
    "cifar10": (60.0, 1.4),
    "cifar100": (60.0, 1.4),
}  # seconds to compile and per epoch, before a first run has been timed
SLOWER = {"RCR": 1.5, "PiCO": 2.5, "VALEN": 3.0, "RC": 1.3, "LWS": 1.3, "CAVL": 1.3}  # than PRODEN, by the loss


# ----------------------------------------------------------------------------------------------------------------- a run


@cache
def images(name: str, count: int | None) -> LabelledData:
    """Load a data set, with the first `count` of its training images alone (None: all)."""
    return first_images(load(name), count)


@cache
def pixels(name: str, count: int | None, device: str) -> torch.Tensor:
    """Return the images [n, ch, h, w], copied to the device once for all runs."""
    return torch.as_tensor(channels_first(images(name, count).x).copy(), device=device)


def candidates(run: Run, data: LabelledData, folder: Path, device: str) -> np.ndarray:
    """Return the candidate sets of a run as a mask [n, c]."""
    if run.difficulty == "clean":
        return np.eye(len(data.classes), dtype=bool)[data.labels]
    return with_test_rows(sets_of(folder, data, run.difficulty, device).masks[run.seed], data)


def perform(runs: Sequence[Run], plan: str, folder: Path, device: str) -> Iterator[tuple[Run, Row]]:
    """Train runs that begin as one, and yield the row of each as soon as it ends."""
    first_run = runs[0]
    data = images(first_run.dataset, first_run.images)
    x = pixels(first_run.dataset, first_run.images, device)
    problem = make_training_data(
        x,
        candidates(first_run, data, folder, device),
        [trial_of(first_run, data)],
        first_run.method,
        None,
        first_run.training,
        views_of(first_run, device),
        data.labels,
        torch.device(device),
    )
    for run, fitted, seconds, shared in fits_of(runs, first_run.network, problem):
        yield run, row_of(run, plan, fitted, x, data.labels, seconds, shared)


def fits_of(runs: Sequence[Run], network: Network, problem: TrainingData) -> Iterator[tuple[Run, Fit, float, int]]:
    """Yield each run with its fit, its seconds, and how many epochs it shared with others; a fit is valid until the next is computed."""
    if any(run.purify for run in runs):
        by_name = {run.variant: run for run in runs}
        parts = {name: Branch(run.method, run.purify) for name, run in by_name.items()}
        for name, fitted, seconds, shared in branches.run(problem, network, runs[0].seed, parts):
            yield by_name[name], fitted, seconds, shared
        return
    (run,) = runs
    start = time.perf_counter()
    fitted = branches.alone(problem, network, run.seed)
    yield run, fitted, time.perf_counter() - start, 0


# -------------------------------------------------------------------------------------------------------------- all runs


def estimate(runs: Sequence[Run], pace: dict[str, float], folder: Path) -> float:
    """Estimate the seconds of runs that begin as one: by the pace of the last runs on their data set, or by a guess.

    A classifier that must be trained to draw their sets comes on top.
    """
    first_run = runs[0]
    compile_seconds, epoch_seconds = GUESS.get(first_run.dataset, (20.0, 0.3))
    forks = [branches.fork(Branch(run.method, run.purify), run.epochs) for run in runs]
    n_epochs = max(forks)
    for run, fork in zip(runs, forks, strict=True):
        n_epochs += run.epochs - fork
    seconds = compile_seconds + epoch_seconds * n_epochs
    if first_run.dataset in pace:
        seconds = pace[first_run.dataset] * n_epochs
    seconds *= SLOWER.get(first_run.loss, 1.0)
    has_sets = first_run.difficulty == "clean" or path_of(folder, first_run.dataset, first_run.difficulty).exists()
    if not has_sets:
        seconds += compile_seconds + 0.5 * epoch_seconds * DIFFICULTIES[first_run.difficulty]
    return seconds


def claim(runs: Sequence[Run], folder: Path) -> bool:
    """Mark runs as taken by this program; return False if another program took them first."""
    folder.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(repr([run.key for run in runs]).encode()).hexdigest()[:16]
    try:
        (folder / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def finished(paths: Sequence[Path]) -> set[tuple[Any, ...]]:
    """Return the keys of the runs that have rows in these files."""
    keys = set()
    for path in paths:
        if path.exists():
            keys.update(key_of(row) for row in read(path))
    return keys


def compute(
    runs: Sequence[Run],
    plan: str,
    path: Path,
    folder: Path,
    limit: float,
    facts: Row,
    known: Sequence[Path] = (),
    claims: Path | None = None,
) -> None:
    """Work through runs in their order, but for those that would not end within the limit; `facts` go into every row.

    Runs with a row in `path` or in a file of `known` are skipped, and with `claims` those that another program took.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cudnn.benchmark = True
    start = time.perf_counter()
    pace: dict[str, float] = {}  # seconds per epoch of PRODEN, by data set
    skipped = 0
    known_keys = finished(known)
    for _, group in groupby(runs, key=lambda run: run.trunk):
        done = known_keys | finished([path])  # read again: other programs may write to it
        left = [run for run in group if run.key not in done]
        if not left:
            continue
        spent = time.perf_counter() - start
        expected = estimate(left, pace, folder)
        if spent + expected > limit:
            print(f"{spent:6.0f} s  skipped: {left} would take about {expected:.0f} s", flush=True)
            skipped += len(left)
            continue
        if claims is not None and not claim(left, claims):
            continue
        for run, row in perform(left, plan, folder, device):
            append(path, [{**row, **facts}])
            pace[run.dataset] = row["seconds"] / run.epochs / SLOWER.get(run.loss, 1.0)
            shown = ("covering", "approximated", "set_size")  # no figure that needs true labels
            figures = ", ".join(f"{name} {row[name]:.4f}" for name in shown)
            print(f"{time.perf_counter() - start:6.0f} s  {' '.join(map(str, run.key))}: {figures}", flush=True)
    print(f"plan {plan} is done, but for {skipped} runs that did not fit into the time", flush=True)


def part_of(runs: Sequence[Run], part: str) -> list[Run]:
    """Return the runs of process i of k ("i/k", from 1); runs that begin as one stay together."""
    number, n_parts = map(int, part.split("/"))
    groups = [list(group) for _, group in groupby(runs, key=lambda run: run.trunk)]
    result = []
    for group in groups[number - 1 :: n_parts]:
        result += group
    return result


def runs_of(options: argparse.Namespace) -> list[Run]:
    """Return the runs of the plan that the options select."""
    runs = PLANS[options.plan]()
    if options.datasets:
        runs = [run for run in runs if run.dataset in options.datasets.split(",")]
    if options.variants is not None:
        runs = [run for run in runs if run.variant in options.variants.split(",")]
    runs = part_of(runs, options.part)
    if options.tiny:  # runs that differ by what is small here are then one
        runs = list(dict.fromkeys(replace(run, **SMALL) for run in runs))
    return runs


def merge(rows_path: Path, new_path: Path) -> None:
    """Put rows of another file that `rows_path` lacks into it."""
    old = read(rows_path)
    rows = merged(old, read(new_path))
    with atomic_write(rows_path) as file:
        for row in rows:
            file.write((json.dumps(row) + "\n").encode())
    print(f"{rows_path} had {len(old)} rows and has {len(rows)}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a plan, merge rows of another machine, or print the table of all rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plan", choices=PLANS)
    parser.add_argument("--datasets", help="of the plan these alone, separated by commas")
    parser.add_argument("--variants", help="of the plan these alone, separated by commas; a plain run has an empty one")
    parser.add_argument("--part", default="1/1", help="i/k: this is process i of k that share the plan")
    parser.add_argument(
        "--programs", type=int, default=1, help="how many programs share the card, if more than the parts"
    )
    parser.add_argument("--rows", type=Path, default=Path("results/images.jsonl"))
    parser.add_argument("--known", type=Path, nargs="+", default=[], help="further files whose runs are done")
    parser.add_argument("--claims", type=Path, help="folder where programs that share a plan mark what they took")
    parser.add_argument("--sets", type=Path, default=Path("results/sets"))
    parser.add_argument("--limit-seconds", type=float, default=float("inf"))
    parser.add_argument("--commit", help="of the source, where git cannot say")
    parser.add_argument("--data-dir", help="where the data sets lie; default: ONEOF_DATA")
    parser.add_argument(
        "--tiny", action="store_true", help="60 images, five epochs, small networks: does the plan run?"
    )
    parser.add_argument("--merge", type=Path, help="rows of another machine, to put those that --rows lacks into it")
    parser.add_argument("--report", action="store_true", help="print the table of all rows")
    options = parser.parse_args(arguments)
    if options.data_dir:
        os.environ["ONEOF_DATA"] = options.data_dir
    if options.plan:
        facts: Row = {}
        if options.commit:
            facts["commit"] = options.commit
        programs = max(options.programs, int(options.part.split("/")[1]))
        if programs > 1:
            facts["programs"] = programs
        compute(
            runs_of(options),
            options.plan,
            options.rows,
            options.sets,
            options.limit_seconds,
            facts,
            options.known,
            options.claims,
        )
    if options.merge:
        merge(options.rows, options.merge)
    if options.report:
        rows = read(options.rows)
        print(table(rows, rows))


if __name__ == "__main__":
    main()
