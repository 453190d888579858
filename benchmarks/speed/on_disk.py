"""Training on a Parquet file larger than memory: how resident memory grows with the file, beside that of features in memory.

    python benchmarks/speed/on_disk.py [--gigabytes 0.125 0.25 0.5]
    python benchmarks/speed/on_disk.py --images [--gigabytes 1.2] [--device cuda]

For every size a process of its own turns the Parquet file (256 features) into a file of rows and trains PRODEN + POP on it for an
epoch, a linear model, batches of 1,000 rows of 10 classes; of the smallest size another does so with features in memory. Tables
and order stay in memory, some 200 bytes a row here. The line through the peaks says what a 4 GB file would take; it should stay below 1.5 GB.

--images: PRODEN by LeNet on 2,000 of so many colour pictures of 64 x 64, for an epoch: in memory (and on the device) and on the disk.
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

from oneof.data.augment.views import Pictures, views
from oneof.data.on_disk import OnDiskFeatures, from_parquet
from oneof.networks import LeNet, Linear
from oneof.purify import Pop
from oneof.training.fit import fit
from oneof.training.trials import Training, Trial

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


def run_on_images(path: Path, on_disk: bool, device: str) -> None:
    torch.set_num_threads(1)
    x = OnDiskFeatures(path) if on_disk else np.load(path)
    rng = np.random.default_rng(0)
    sets = rng.random((len(x), C)) < 0.3
    sets[:, 0] = True
    seen = views("plain", Pictures(64, (0.5,) * 3, (0.3,) * 3), device=device)
    trial, start = Trial(rows=rng.permutation(len(x))[:2_000]), time.perf_counter()
    done = fit(x, sets, trials=[trial], network=LeNet(), views=seen, training=Training(1, 256), device=device)
    seconds = time.perf_counter() - start
    there = torch.cuda.max_memory_allocated() if device != "cpu" else 0
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, there, seconds, done.history["loss"].item())


def images(gigabytes: float, device: str) -> None:
    n, rng = int(gigabytes * 1e9 / 12_288), np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "images.npy")
        with path.open("wb") as file:  # no memory map: a child's peak begins at its parent's
            header = {"descr": "|u1", "fortran_order": False, "shape": (n, 3, 64, 64)}
            np.lib.format.write_array_header_1_0(file, header)
            for start in range(0, n, 1_000):
                file.write(rng.integers(0, 256, (min(1_000, n - start), 12_288), dtype=np.uint8).data)
        for where in ("disk", "memory"):
            peak, there, seconds, loss = measured(path, where, device)
            print(f"{n:,} pictures, {where}: peak {peak / 1e9:.2f} GB, on the GPU {there / 1e9:.2f} GB, ", end="")
            print(f"fit {seconds:.1f} s, loss {loss:.17g}", flush=True)


def measured(path: Path, where: str, *device: str) -> list[float]:
    words = [sys.executable, __file__, "--one", path, where, *device]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return [float(word) for word in done.stdout.split()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, nargs="+")
    parser.add_argument("--images", action="store_true")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--one", nargs="+", metavar=("FILE", "WHERE"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        path, where, *device = asked.one
        return run_on_images(Path(path), where == "disk", *device) if device else run(Path(path), where == "disk")
    if asked.images:
        return images((asked.gigabytes or [1.2])[0], asked.device)
    peaks, sizes = [], []
    for size in asked.gigabytes or [0.125, 0.25, 0.5]:
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
