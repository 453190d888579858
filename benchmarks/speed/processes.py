"""Two processes against one: seconds of an epoch, and whether they end with the same.

    python benchmarks/speed/processes.py [--rows 20000] [--width 512]
    python benchmarks/speed/processes.py --whole [--rows 100000] [--features 20]

PRODEN + POP on a table of 64 features and 50 classes, batches of 512, one thread a process. Starting processes takes seconds, so an
epoch's time is that of a long run less that of a short one, over the epochs between. Only the ratio means anything.

--whole: all that `oneof fit` does between reading and writing (10 classes, 12 networks), the start of processes included.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

from oneof.data.synthetic import mixture
from oneof.networks import MLP
from oneof.purify import Pop
from oneof.runs.learn import SPACE
from oneof.selection.search import search
from oneof.selection.trying import Search
from oneof.training.fit import fit
from oneof.training.problem import Training
from oneof.training.state import Fit
from oneof.training.trials import Trial

CLASSES, SHORT, LONG = 50, 2, 8


def run(rows: int, width: int, epochs: int, processes: int) -> tuple[float, Fit]:
    data = mixture(n=rows + 5_000, d=64, c=CLASSES, separation=4.0, seed=0)
    sets = np.eye(CLASSES, dtype=bool)[data.labels] | (np.random.default_rng(0).random((rows + 5_000, CLASSES)) < 0.05)
    trial = Trial(lr=0.1, rows=np.arange(rows), test=np.arange(rows, rows + 5_000))
    start = time.perf_counter()
    fitted = fit(
        data.x.astype(np.float32), sets, trials=[trial], labels=data.labels, network=MLP((width, width)), processes=processes,
        purify=Pop(warm_up=1, interval=1, window=1), training=Training(epochs, 512),
    )  # fmt: skip
    return time.perf_counter() - start, fitted


def whole(rows: int, features: int) -> None:
    data = mixture(n=rows, d=features, c=10, separation=4.0, seed=0)
    sets = np.eye(10, dtype=bool)[data.labels] | (np.random.default_rng(0).random((rows, 10)) < 0.15)
    seconds, ends = [], []
    for processes in (1, 2):
        start = time.perf_counter()
        ends.append(search(data.x.astype(np.float32), sets, Search(SPACE, memory=2**30, processes=processes)))
        seconds.append(time.perf_counter() - start)
        print(f"{processes} process(es): {seconds[-1]:.1f} s for {rows:,} rows x {features} features", flush=True)
    apart = sum((a.candidates != b.candidates).sum().item() for a, b in zip(*(end.fits for end in ends), strict=True))
    total = sum(one.candidates.numel() for one in ends[0].fits)
    print(f"two against one: {seconds[0] / seconds[1]:.2f} x as fast; sets differ in {apart} of {total:,} entries")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--features", type=int, default=20)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.whole:
        whole(asked.rows or 100_000, asked.features)
    else:
        epoch(asked.rows or 20_000, asked.width)


def epoch(rows: int, width: int) -> None:
    seconds, ends = {}, {}
    for processes in (1, 2):
        short, _ = run(rows, width, SHORT, processes)
        long, ends[processes] = run(rows, width, LONG, processes)
        seconds[processes] = (long - short) / (LONG - SHORT)
        print(
            f"{processes} process(es): {seconds[processes]:.2f} s an epoch; {long:.1f} s for {LONG} epochs, start included",
            flush=True,
        )
    one, two = ends[1], ends[2]
    apart = (one.candidates != two.candidates).sum().item()
    print(f"two against one: {seconds[1] / seconds[2]:.2f} x as fast")
    print(f"accuracy {one.history.accuracy[-1].item():.4f} and {two.history.accuracy[-1].item():.4f}; ", end="")
    print(
        f"{len(one.removals.row):,} and {len(two.removals.row):,} labels removed, sets differ in {apart} of {one.candidates.numel():,} entries (float32)"
    )


if __name__ == "__main__":
    main()
