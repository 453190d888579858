"""Read columns of images, files or bytes of any size and mode, as pixels [n, channels x side x side].

What cannot be read is reported and stays a row of zeros: one broken file does not stop a run.
"""

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from oneof.data.picture import (
    LARGEST,
    SMALLEST,
    Cell,
    decode_pixels,
    guard_decompression_bombs,
    size_and_grey,
    try_decode,
)
from oneof.storage.cores import cores
from oneof.storage.progress import progress_bar

ENDINGS = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff")
FILE = "file"  # column of a folder that is read as a table: the names of the images
CANDIDATES = "candidates"  # and their candidate sets
_SHAPE_SAMPLE = 1000  # images that decide side and channels
_THREADS_SAMPLE = 100  # images whose headers decide how many threads are worth it
# A thread pays for so many pixels: 1,200 of a PNG or 3,000 of a JPEG decode in the time for which Pillow holds Python's lock.
_PIXELS_PER_THREAD = 2048
_MAX_NAMED = 5  # unreadable images that a message names
_BLOCK = 64  # images that a thread decodes at a time
_COARSE_SIDE = 14  # pixels a side, about, for learners that compare images pixel by pixel

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class ImageSpec:
    """A column of images whose pixels are features, in the order channels, rows, columns."""

    column: str
    channels: int
    side: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """Return the shape of one image."""
        return self.channels, self.side, self.side


class PictureRows(NamedTuple):
    """Images of n rows."""

    levels: NDArray[np.uint8]  # [n, d] pixels; zeros where there is no image
    readable: NDArray[np.bool_]  # [n]
    fault: str | None  # a message that names what could not be read


def list_folder(folder: Path) -> pa.Table:
    """List the images below a folder as a table; the subfolder that holds an image names its candidates."""
    paths = []
    for path in folder.rglob("*"):
        if path.suffix.lower() in ENDINGS:
            paths.append(path.relative_to(folder))
    if not paths:
        raise ValueError(
            f"a folder must hold pictures ({', '.join(ENDINGS)}), in subfolders named by their candidates, such as "
            f"'cat|fox'; {folder} has none."
        )
    names = []
    candidates: list[str | None] = []
    for path in sorted(paths):
        names.append(path.as_posix())
        if len(path.parts) > 1:
            candidates.append(path.parts[0])
        else:
            candidates.append(None)
    return pa.table({FILE: names, CANDIDATES: pa.array(candidates, pa.string())})


def folder_of(file: Path) -> Path:
    """Return the folder that names of images are relative to: the table's, or the folder that is read as a table."""
    if file.is_dir():
        return file
    return file.parent


def learn_image_spec(column: str, cells: Sequence[Cell], folder: Path, side: int | None = None) -> ImageSpec:
    """Choose side and channels for a column of images.

    The side is as given, else the median of the shorter sides, at most 64; there is one channel if all images are grey.
    """
    present = [cell for cell in cells if cell is not None]
    sample = _evenly_spaced(present, _SHAPE_SAMPLE)
    n_threads = _threads(sample, folder)
    decoded = _map_in_threads(
        "look at pictures", lambda cell: try_decode(size_and_grey, cell, folder), sample, n_threads
    )
    sizes = []
    are_grey = []
    for result in decoded:
        if not isinstance(result, str):  # a text is the reason why a picture cannot be read
            size, is_grey = result
            sizes.append(size)
            are_grey.append(is_grey)
    if not sizes:
        reason = ""
        if sample:
            reason = f" ({sample[0]!r:.80}: {decoded[0]})"
        raise ValueError(
            f"column {column!r} must hold pictures below {folder}; none of {len(cells):,} can be read{reason}."
        )
    if side is None:
        side = _median_side(sizes)
    channels = 3
    if all(are_grey):
        channels = 1
    return ImageSpec(column, channels, side)


def _median_side(sizes: Sequence[tuple[int, int]]) -> int:
    """Return the median of the shorter sides, within what networks are trained on by default."""
    side = int(np.median([min(size) for size in sizes]))
    has_one_size = len(set(sizes)) == 1
    if not has_one_size:
        side -= side % 4  # networks halve it twice
    return int(np.clip(side, SMALLEST, LARGEST))


def read_pictures(cells: Sequence[Cell], image_spec: ImageSpec, folder: Path, to: Path | None = None) -> PictureRows:
    """Read the images of a column.

    Parameters
    ----------
    cells
        Names of files below `folder`, or their contents [n].
    image_spec
        Side and channels. The shorter side is resized to fit, the longer one is cropped to its middle.
    folder
        Folder that names are relative to.
    to
        A .npy file to write the pixels to; None keeps them in memory.

    Returns
    -------
    PictureRows
        Pixels [n, d], which rows could be read, and a message on those that could not.
    """
    shape = (len(cells), *image_spec.shape)
    if to is None:
        levels = np.zeros(shape, dtype=np.uint8)
    else:
        levels = _create_memmap(to, shape)

    def read_block(start: int) -> list[tuple[int, str]]:
        """Decode a block into `levels`; return (row, reason) of the images that cannot be read."""
        failures = []
        for row in range(start, min(start + _BLOCK, len(cells))):
            decoded = try_decode(decode_pixels, cells[row], folder, image_spec.channels, image_spec.side)
            if isinstance(decoded, str):
                failures.append((row, decoded))
            else:
                levels[row] = decoded
        return failures

    starts = range(0, len(cells), _BLOCK)
    unreadable = []
    for failures in _map_in_threads("read pictures", read_block, starts, _threads(cells, folder)):
        unreadable += failures
    readable = np.ones(len(cells), dtype=bool)
    for row, _ in unreadable:
        readable[row] = False
    return PictureRows(levels.reshape(len(cells), -1), readable, _describe_unreadable(unreadable, cells))


def _create_memmap(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Create a .npy file of zeros whose pages are loaded as they are needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.touch(exist_ok=False)  # a new file: a link of that name is not followed
    array = np.lib.format.open_memmap(path, "w+", np.uint8, shape)
    if hasattr(os, "posix_fallocate"):
        # Fail now if the disk is too small; a later write to a page would kill the process.
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return array


def _describe_unreadable(unreadable: Sequence[tuple[int, str]], cells: Sequence[Cell]) -> str | None:
    """Return a message that counts the unreadable images and names the first ones; None if there are none."""
    if not unreadable:
        return None
    listed = [f"row {row}, {cells[row]!r:.80}: {reason}" for row, reason in unreadable[:_MAX_NAMED]]
    if len(unreadable) > _MAX_NAMED:
        listed.append(f"and {len(unreadable) - _MAX_NAMED:,} more")
    count = f"{len(unreadable):,} of {len(cells):,} pictures cannot be read"
    return f"{count}; skipped in training and prediction: {'; '.join(listed)}."


def downsample(x: NDArray[np.uint8], image_spec: ImageSpec) -> NDArray[np.float32]:
    """Downsample images [n, d] by averaging squares of pixels, to 0 to 1, for learners that compare pixel by pixel."""
    factor = max(1, image_spec.side // _COARSE_SIDE)
    coarse_side = image_spec.side // factor
    images = x.reshape(-1, *image_spec.shape)
    cropped = images[:, :, : coarse_side * factor, : coarse_side * factor]
    sums = np.zeros((len(images), image_spec.channels, coarse_side, coarse_side), dtype=np.float32)
    for i in range(factor):
        for j in range(factor):
            sums += cropped[:, :, i::factor, j::factor].astype(np.float32)
    return np.asarray(sums.reshape(len(x), -1) / (factor * factor) / 255)


def _map_in_threads(
    title: str, function: Callable[[_Item], _Result], items: Sequence[_Item], n_threads: int
) -> list[_Result]:
    """Map a function over items in threads, with a progress bar."""
    results = []
    with (
        guard_decompression_bombs(),
        progress_bar(title, len(items), show=True) as step,
        ThreadPoolExecutor(n_threads) as pool,
    ):
        for result in pool.map(function, items):
            results.append(result)
            step()
    return results


def _threads(cells: Sequence[Cell], folder: Path) -> int:
    """Return how many threads are worth it: half the work on a small image holds Python's lock."""
    pixel_counts = []
    with guard_decompression_bombs():
        for cell in _evenly_spaced(cells, _THREADS_SAMPLE):
            size = try_decode(lambda image: image.size, cell, folder)
            if not isinstance(size, str):
                width, height = size
                pixel_counts.append(width * height)
    by_size = 1 + sum(pixel_counts) // (_PIXELS_PER_THREAD * max(1, len(pixel_counts)))
    return int(min(32, cores() + 4, by_size))


def _evenly_spaced(cells: Sequence[Cell], count: int) -> Sequence[Cell]:
    """Return at most `count` cells, evenly spaced."""
    step = math.ceil(len(cells) / count)
    return cells[:: max(1, step)]
