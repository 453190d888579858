"""Seconds to read many pictures with 1, 2, 4 ... threads, and with as many as `oneof` uses.

    python benchmarks/speed/read_pictures.py --side 32 --pictures 50000
    python benchmarks/speed/read_pictures.py --side 256 --kind JPEG --pictures 2000

Half the work on a small picture is Python, which one thread does at a time; the others wait for it.
The pictures are smooth with some noise, written once below a folder of their own; the first read, which warms the disk's cache, is not counted.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from oneof.data import images
from oneof.data.picture import LARGEST


def write(folder: Path, kind: str, side: int, count: int) -> list[str]:
    """Names of pictures: 200 different ones, repeated."""
    rng = np.random.default_rng(0)
    names = [f"{row}.{kind.lower()}" for row in range(count)]
    for name in names[:200]:
        smooth = Image.fromarray(rng.integers(0, 256, (4, 4, 3), np.uint8)).resize((side, side))
        levels = np.asarray(smooth) + rng.integers(-4, 5, (side, side, 3))
        Image.fromarray(levels.clip(0, 255).astype(np.uint8)).save(folder / name, kind)
    for row, name in enumerate(names[200:]):
        (folder / name).write_bytes((folder / names[row % 200]).read_bytes())
    return names


def seconds(names: list[str], pixels: images.ImageSpec, folder: Path) -> float:
    start = time.perf_counter()
    images.read_pictures(names, pixels, folder)
    return time.perf_counter() - start


def threads(count: int, cells: object, folder: Path) -> int:
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", type=int, default=32, help="pixels a side")
    parser.add_argument("--kind", default="PNG", choices=["PNG", "JPEG"])
    parser.add_argument("--pictures", type=int, default=5000)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2, 4, 8, 20])
    parser.add_argument("--repeats", type=int, default=3, help="the least of them is printed")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        names = write(folder, given.kind, given.side, given.pictures)
        pixels = images.ImageSpec("file", 3, min(given.side, LARGEST))
        seconds(names, pixels, folder)
        ways = {"as oneof does": images._threads}
        ways |= {f"{count} threads": partial(threads, count) for count in given.threads}
        for title, images._threads in ways.items():
            least = min(seconds(names, pixels, folder) for _ in range(given.repeats))
            print(f"{title:13s} {least:6.2f} s, {least / len(names) * 1e6:4.0f} us a picture", flush=True)
        print(f"{os.cpu_count()} cores")


if __name__ == "__main__":
    main()
