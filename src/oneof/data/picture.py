"""Decode an image, a file or bytes of any size and mode, to pixels."""

import os
import struct
import warnings
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from oneof.candidates.cells import is_missing
from oneof.storage.regular import irregular_kind

LARGEST = 64  # pixels a side that networks are trained on, at most
SMALLEST = 8  # at least
THUMBNAIL = 48  # pixels a side on a page
# Formats for which Pillow starts Ghostscript, or calls Windows, whatever the name of the file.
_DRAWN_BY_PROGRAMS = ("EPS", "WMF")
_TOO_LARGE = (Image.DecompressionBombError, Image.DecompressionBombWarning)
UNREADABLE = (
    OSError, SyntaxError, ValueError, EOFError, LookupError, ArithmeticError, RuntimeError, struct.error, zlib.error,
    *_TOO_LARGE,
)  # fmt: skip
"""Exceptions that Pillow raises for a file that cannot be decoded."""

Cell = str | bytes | None  # name of a file below the folder, or its content


def try_decode(decode: Callable[..., Any], cell: Cell, folder: Path, *args: int) -> Any:
    """Return `decode(image, *args)` of the opened image, or in a few words why it cannot be read."""
    if cell is None:
        return "none is named"
    try:
        with Image.open(_open_cell(cell, folder)) as image:
            if image.format in _DRAWN_BY_PROGRAMS:
                return f"it is {image.format}, which another program would draw; save it as PNG"
            return decode(image, *args)
    except (FileNotFoundError, IsADirectoryError):
        return "there is no such file"
    except UnidentifiedImageError:
        return "it is no picture of a known kind"
    except _TOO_LARGE:
        return f"it has more than {Image.MAX_IMAGE_PIXELS:,} pixels; make it smaller"
    except UNREADABLE as error:
        return str(error).rstrip(".") or type(error).__name__


def _open_cell(cell: str | bytes, folder: Path) -> BytesIO | str:
    """Return the bytes of an image, or the path of its file, which must be a regular one: a pipe would block for ever."""
    if isinstance(cell, bytes):
        return BytesIO(cell)
    path = os.path.join(folder, cell)  # a string: creating a Path takes a tenth of the time of a small image
    kind = irregular_kind(path)
    if kind is not None and kind != "a folder":
        raise ValueError(f"it is {kind}, not a file")
    return path


def size_and_grey(image: Any) -> tuple[tuple[int, int], bool]:
    """Return the size of an opened image, and whether it is grey."""
    size = image.size  # before decoding, which may reduce it
    red, green, blue = decode_pixels(image, 3, LARGEST)
    is_grey = (red == green).all() and (green == blue).all()
    return size, bool(is_grey)


def decode_pixels(image: Any, channels: int, side: int) -> NDArray[np.uint8]:
    """Return the pixels [channels, side, side] of an opened image.

    The first frame is rotated as its EXIF data say and put on white; the middle is cropped to a square.
    """
    mode = "RGB"
    if channels == 1:
        mode = "L"
    image.draft(mode, (2 * side, 2 * side))  # a large JPEG is decoded at a smaller size
    ImageOps.exif_transpose(image, in_place=True)
    if image.mode == "F":
        raise ValueError("its levels are fractions; save it with 8 or 16 bits")
    if image.mode.startswith("I"):  # 16 bits, which Pillow would clip at 255
        high_bytes = np.asarray(image) >> 8
        image = Image.fromarray(high_bytes.clip(0, 255).astype(np.uint8))
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        image = image.convert("RGBA")
        background = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(background, image)
    if image.mode != mode:
        image = image.convert(mode)
    if image.size != (side, side):
        image = ImageOps.fit(image, (side, side), Image.Resampling.BILINEAR)
    return np.asarray(image).reshape(side, side, channels).transpose(2, 0, 1)


def thumbnail(cell: Any, folder: Path) -> str | None:
    """Return an image as a small data URI, or None if it cannot be read."""
    pixels = try_decode(decode_pixels, picture_cell(cell), folder, 3, THUMBNAIL)
    if isinstance(pixels, str):
        return None
    file = BytesIO()
    Image.fromarray(pixels.transpose(1, 2, 0)).save(file, "JPEG", quality=80)
    return f"data:image/jpeg;base64,{b64encode(file.getvalue()).decode()}"


def picture_cell(cell: Any) -> Cell:
    """Return the name or the bytes of an image; a cell of a Hugging Face dataset is a dict of both."""
    if isinstance(cell, dict):
        cell = cell.get("bytes") or cell.get("path")
    if is_missing(cell):
        return None
    if isinstance(cell, bytes):
        return cell
    return str(cell)


@contextmanager
def guard_decompression_bombs() -> Iterator[None]:
    """Raise for images with too many pixels, and silence Pillow's warnings about odd metadata."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield
