"""A fit of small pictures beside other programs that keep the processors busy: wall and processor time at each number of them.

    python benchmarks/speed/busy.py [--loops 0 2 4 8] [--pictures 300] [--epochs 4] [--times 3] [--architecture lenet]

Prints a Markdown table: the least wall time of so many fits and the processor time of that fit, with its ratio to the quiet one.
Variables such as OMP_NUM_THREADS are passed on to the fits. The loops are programs without an end that do nothing but count; they
are ended with the script.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

from oneof.candidates.generate import Flip, generate

SIDE = 28


class Seconds(NamedTuple):
    """What a command took."""

    wall: float
    processor: float


def write_pictures(folder: Path, count: int) -> Path:
    """Write digits as PNG files, and their table with candidate sets."""
    images, labels = load_digits(return_X_y=True)
    sets = generate(labels[:count], 10, Flip(0.3), seed=0)
    lines = ["file,candidates"]
    for row, candidates in enumerate(sets):
        levels = np.clip(images[row].reshape(8, 8) * 16, 0, 255).astype(np.uint8)
        Image.fromarray(levels).resize((SIDE, SIDE)).save(folder / f"{row}.png")
        names = "|".join(str(label) for label in np.flatnonzero(candidates))
        lines.append(f"{row}.png,{names}")
    table = folder / "table.csv"
    table.write_text("\n".join(lines))
    return table


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Run so many programs that keep a processor busy."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        time.sleep(1 if count else 0)
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def fit(table: Path, epochs: int, architecture: str | None) -> Seconds:
    """Fit the pictures in a process of its own, and return what it took."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["fit", str(table), "--image", "file", "--out", str(Path(folder) / "run"), "--epochs", str(epochs)]
        if architecture is not None:
            words += ["--architecture", architecture]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        begun = time.monotonic()
        subprocess.run([sys.executable, "-m", "oneof", *words, "--device", "cpu"], check=True, capture_output=True)
        wall = time.monotonic() - begun
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)
    return Seconds(wall, used)


def main(loops: list[int], pictures: int, epochs: int, times: int, architecture: str | None) -> None:
    print(f"{pictures} pictures of {SIDE} x {SIDE}, {epochs} epochs, {os.cpu_count()} processors\n")
    print("| busy loops | wall, s | processor, s | ratio to the first |\n|---|---|---|---|")
    quiet = None
    with tempfile.TemporaryDirectory() as folder:
        table = write_pictures(Path(folder), pictures)
        for count in loops:
            with busy_loops(count):
                best = min(fit(table, epochs, architecture) for _ in range(times))
            quiet = quiet or best
            ratio = best.processor / quiet.processor
            print(f"| {count} | {best.wall:.1f} | {best.processor:.1f} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loops", type=int, nargs="+", default=[0, 2, 4, 8])
    parser.add_argument("--pictures", type=int, default=300)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--architecture", help="a network on the pixels; default: features of patches")
    options = parser.parse_args()
    main(options.loops, options.pictures, options.epochs, options.times, options.architecture)
