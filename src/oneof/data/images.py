"""Pictures as people have them: files or bytes of any size and kind become levels [n, channels x side x side].

What cannot be read is named and stays a row of zeros; one broken file does not stop a run.
"""

import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from oneof.data.picture import LARGEST, SMALLEST, Block, Cell, attempt, bombs_are_errors, look
from oneof.storage.cores import cores
from oneof.storage.progress import bar

ENDINGS = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff")
FILE, CANDIDATES = "file", "candidates"  # the columns of a folder
_LOOKED_AT = 1000  # pictures that tell side and channels
_MEASURED = 100  # pictures whose headers tell how many threads pay
_PIXELS = 2048  # a thread: 1,200 of a PNG, 3,000 of a JPEG decode as long as Pillow holds Python's lock for a picture
_NAMED = 5  # unreadable ones that are named
_BLOCK = 64  # pictures that a thread reads at a time
_MANY, _BLOCK_APART = 4000, 4000  # pictures for which processes pay, and that one of them reads at most
_COARSE = 14  # pixels a side, about, for learners that compare pictures pixel by pixel


@dataclass(frozen=True)
class Pixels:
    """A column of pictures whose levels are features: channels, then rows, then columns of pixels."""

    column: str
    channels: int
    side: int

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.channels, self.side, self.side


class PictureRows(NamedTuple):
    levels: NDArray[np.uint8]  # [n, d]; zeros where there is no picture
    readable: NDArray[np.bool_]  # [n]
    fault: str | None  # what could not be read, in words


def list_folder(folder: Path) -> pa.Table:
    """A folder as a table: every picture below it, and as its candidates the name of the subfolder that holds it."""
    found = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.suffix.lower() in ENDINGS)
    if not found:
        form = f"pictures ({', '.join(ENDINGS)}), in subfolders named by their candidates, such as 'cat|fox'"
        raise ValueError(f"a folder must hold {form}; {folder} has none.")
    said = [path.parts[0] if len(path.parts) > 1 else None for path in found]
    return pa.table({FILE: [path.as_posix() for path in found], CANDIDATES: pa.array(said, pa.string())})


def folder_of(file: Path) -> Path:
    """Where the names of pictures in a table are looked up: beside it, or in the folder that stands for one."""
    return file if file.is_dir() else file.parent


def learn_pixels(column: str, cells: Sequence[Cell], folder: Path) -> Pixels:
    """Side and channels for pictures: the side that most have, 64 at most; one channel where all are grey."""
    some = _spread([cell for cell in cells if cell is not None], _LOOKED_AT)
    threads = _threads(some, folder)
    looks = _in_threads("look at pictures", lambda cell: attempt(look, cell, folder), some, threads)
    known = [one for one in looks if not isinstance(one, str)]
    if not known:
        why = f" ({some[0]!r:.80}: {looks[0]})" if some else ""
        got = f"none of {len(cells):,} can be read{why}."
        raise ValueError(f"column {column!r} must hold pictures below {folder}; {got}")
    short = int(np.median([min(size) for size, _ in known]))
    alike = len({size for size, _ in known}) == 1
    side = int(np.clip(short if alike else short - short % 4, SMALLEST, LARGEST))  # networks halve it twice
    return Pixels(column, 1 if all(grey for _, grey in known) else 3, side)


def read_pictures(cells: Sequence[Cell], pixels: Pixels, folder: Path, to: Path | None = None) -> PictureRows:
    """The pictures of cells, resized so that the shorter side fits and cut to the middle of the longer; in memory, or in a file `to`."""
    shape = (len(cells), *pixels.shape)
    if to is None:
        levels: NDArray[np.uint8] = np.zeros(shape, dtype=np.uint8)
    else:  # a .npy file, whose pages come to memory as they are needed
        to.parent.mkdir(parents=True, exist_ok=True)
        to.unlink(missing_ok=True)
        to.touch(exist_ok=False)  # a new file: a link of that name is not followed
        levels = np.lib.format.open_memmap(to, "w+", np.uint8, shape)
        if hasattr(os, "posix_fallocate"):  # a disk that is too small says so now; later it would end the process
            with to.open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, to.stat().st_size)

    threads, most = _threads(cells, folder), cores()
    # where threads wait for each other, processes do not; a program that is frozen would start itself
    apart = threads < most and len(cells) >= _MANY and not getattr(sys, "frozen", False)
    each = -(-len(cells) // most)
    size = -(-each // -(-each // _BLOCK_APART)) if apart else _BLOCK  # every process as many

    def read(start: int) -> list[tuple[int, str]]:
        block = Block(cells[start : start + size], folder, pixels.channels, pixels.side)
        levels[start : start + size], wrong = block.read_apart() if apart else block.read()
        return [(start + row, why) for row, why in wrong]

    starts = range(0, len(cells), size)
    wrong = [*chain.from_iterable(_in_threads("read pictures", read, starts, most if apart else threads))]
    readable = np.ones(len(cells), dtype=bool)
    readable[[row for row, _ in wrong]] = False
    named = "; ".join(f"row {row}, {cells[row]!r:.80}: {why}" for row, why in wrong[:_NAMED])
    more = f"; and {len(wrong) - _NAMED:,} more" * (len(wrong) > _NAMED)
    said = f"{len(wrong):,} of {len(cells):,} pictures cannot be read, and nothing is learned or said of them"
    return PictureRows(levels.reshape(len(cells), -1), readable, f"{said}: {named}{more}." if wrong else None)


def coarse(x: NDArray[np.uint8], pixels: Pixels) -> NDArray[np.float32]:
    """Pictures [n, d] as means over squares of pixels, 0 to 1, for learners that compare them pixel by pixel."""
    k = max(1, pixels.side // _COARSE)
    m = pixels.side // k
    cut = x.reshape(-1, *pixels.shape)[:, :, : m * k, : m * k]
    sums: Any = sum(cut[:, :, i::k, j::k].astype(np.float32) for i in range(k) for j in range(k))
    return np.asarray(sums.reshape(len(x), -1) / (k * k) / 255)


def _in_threads(title: str, work: Callable[[Any], Any], items: Sequence[Any], threads: int) -> list[Any]:
    with bombs_are_errors(), bar(title, len(items), show=True) as step, ThreadPoolExecutor(threads) as pool:
        return [(found, step())[0] for found in pool.map(work, items)]


def _threads(cells: Sequence[Cell], folder: Path) -> int:
    """How many threads pay: half the work on a small picture is Python, for whose lock many threads only wait."""
    with bombs_are_errors():
        sizes = [attempt(lambda image: image.size, cell, folder) for cell in _spread(cells, _MEASURED)]
    pixels = [size[0] * size[1] for size in sizes if not isinstance(size, str)]
    return int(min(32, cores() + 4, 1 + sum(pixels) // (_PIXELS * max(1, len(pixels)))))


def _spread(cells: Sequence[Cell], count: int) -> Sequence[Cell]:
    """At most `count` cells, at even distances."""
    return cells[:: -(-len(cells) // count) or 1]
