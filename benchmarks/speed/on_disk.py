"""Training on a Parquet file larger than memory: how resident memory grows with the file, beside that of features in memory.

    python benchmarks/speed/on_disk.py [--gigabytes 0.125 0.25 0.5]

For every size a process of its own turns the Parquet file (256 features) into a file of rows and trains PRODEN + POP on it for an
epoch, a linear model, batches of 1,000 rows of 10 classes; of the smallest size another does so with features in memory. Tables
and order stay in memory, some 200 bytes a row here. The line through the peaks says what a 4 GB file would take; the bound of the issue is 1.5 GB.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from oneof.data.on_disk import from_parquet
from oneof.networks import Linear
from oneof.purify import Pop
from oneof.training.fit import fit
from oneof.training.problem import Training
from oneof.training.trials import Trial

D, C = 256, 10


def make(path: Path, n: int) -> None:
    """Random features, a group of rows at a time."""
    rng = np.random.default_rng(0)
    names = [f"x{j}" for j in range(D)]
    with pq.ParquetWriter(path, pa.schema([(name, pa.float32()) for name in names]), use_dictionary=False) as writer:
        for start in range(0, n, 50_000):
            x = rng.standard_normal((min(50_000, n - start), D), dtype=np.float32)
            writer.write_table(pa.table(list(x.T), names=names))


def run(path: Path, on_disk: bool) -> None:
    torch.set_num_threads(1)
    start = time.perf_counter()
    if on_disk:
        x = from_parquet(path, path.with_suffix(".npy"))
    else:
        table = pq.read_table(path)
        x = np.empty(table.shape, dtype=np.float32)
        for j, column in enumerate(table.columns):
            x[:, j] = column
        del table
    ready = time.perf_counter()
    rng = np.random.default_rng(0)
    sets = rng.integers(10, size=(len(x), C), dtype=np.uint8) < 3
    sets[np.arange(len(x)), rng.integers(C, size=len(x))] = True
    trial, rule = Trial(scaling="feature"), Pop(warm_up=0, interval=1, window=1)
    fit(x, sets, trials=[trial], network=Linear(), purify=rule, training=Training(1, 1_000))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, ready - start, time.perf_counter() - ready)


def measured(path: Path, where: str) -> list[float]:
    done = subprocess.run([sys.executable, __file__, "--one", path, where], capture_output=True, text=True, check=True)
    return [float(word) for word in done.stdout.split()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, nargs="+", default=[0.125, 0.25, 0.5])
    parser.add_argument("--one", nargs=2, metavar=("FILE", "WHERE"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        return run(Path(asked.one[0]), asked.one[1] == "disk")
    peaks, sizes = [], []
    for size in asked.gigabytes:
        n = int(size * 1e9 / D / 4)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "x.parquet")
            make(path, n)
            sizes.append(path.stat().st_size / 1e9)
            disk = measured(path, "disk")
            peaks.append(disk[0] / 1e9)
            print(f"{sizes[-1]:.2f} GB of Parquet, n = {n:,}: on disk peak {peaks[-1]:.2f} GB, ", end="")
            print(f"prepared in {disk[1]:.1f} s, fit {disk[2]:.1f} s", flush=True)
            if len(sizes) == 1:
                memory = measured(path, "memory")
                print(
                    f"  in memory peak {memory[0] / 1e9:.2f} GB, prepared in {memory[1]:.1f} s, fit {memory[2]:.1f} s",
                    flush=True,
                )
    slope, rest = np.polyfit(sizes, peaks, 1)
    print(
        f"on disk the peak is {rest:.2f} GB + {slope:.2f} GB for every GB of Parquet: {rest + 4 * slope:.2f} GB for 4 GB (bound 1.5)"
    )
    sys.exit(int(rest + 4 * slope > 1.5))


if __name__ == "__main__":
    main()
