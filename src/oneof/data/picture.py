"""One picture as people have it, a file or bytes of any size and kind, as levels; and blocks of them, read here or by another process."""

import os
import pickle
import struct
import subprocess
import sys
import warnings
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from oneof.candidates.cells import is_missing
from oneof.storage.regular import irregular_kind

LARGEST, SMALLEST, THUMBNAIL = 64, 8, 48  # pixels a side: of what networks are trained on, and on a page
_BOMB = (Image.DecompressionBombError, Image.DecompressionBombWarning)
UNREADABLE = (OSError, SyntaxError, ValueError, EOFError, IndexError, struct.error, zlib.error, *_BOMB)
"""What Pillow raises of a file that no picture can be read from."""

Cell = str | bytes | None  # a name below the folder, or the file itself


def attempt(work: Callable[..., Any], cell: Cell, folder: Path, *rest: int) -> Any:
    """What `work` gives of an open picture; why it cannot be read, in a few words, where it cannot."""
    if cell is None:
        return "none is named"
    try:
        with Image.open(_opened(cell, folder)) as image:
            return work(image, *rest)
    except UNREADABLE as error:
        known = {
            (FileNotFoundError, IsADirectoryError): "there is no such file",
            (UnidentifiedImageError,): "it is no picture of a known kind",
            _BOMB: f"it has more than {Image.MAX_IMAGE_PIXELS:,} pixels; make it smaller",
        }
        said = str(error).rstrip(".") or type(error).__name__
        return next((why for kinds, why in known.items() if isinstance(error, kinds)), said)


def _opened(cell: str | bytes, folder: Path) -> BytesIO | str:
    """Return the bytes of a picture, or the path of its file, which must be a regular one: a pipe would wait for ever."""
    if isinstance(cell, bytes):
        return BytesIO(cell)
    path = os.path.join(folder, cell)  # as text: a Path takes a tenth of the time of a small picture
    kind = irregular_kind(path)
    if kind is not None and kind != "a folder":
        raise ValueError(f"it is {kind}, not a file")
    return path


def look(image: Any) -> tuple[tuple[int, int], bool]:
    """Size, and whether it is grey."""
    size = image.size
    red, green, blue = levels_of(image, 3, LARGEST)
    return size, bool((red == green).all() and (green == blue).all())


def levels_of(image: Any, channels: int, side: int) -> NDArray[np.uint8]:
    """Levels [channels, side, side] of an open picture: its first frame, turned as its camera says, on white."""
    mode = "L" if channels == 1 else "RGB"
    image.draft(mode, (2 * side, 2 * side))  # a large JPEG is decoded small
    ImageOps.exif_transpose(image, in_place=True)
    if image.mode == "F":
        raise ValueError("its levels are fractions; save it with 8 or 16 bits")
    if image.mode.startswith("I"):  # 16 bits, which Pillow would cut off at 255
        image = Image.fromarray((np.asarray(image) >> 8).clip(0, 255).astype(np.uint8))
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    image = image if image.mode == mode else image.convert(mode)
    if image.size != (side, side):
        image = ImageOps.fit(image, (side, side), Image.Resampling.BILINEAR)
    return np.asarray(image).reshape(side, side, channels).transpose(2, 0, 1)


def thumbnail(cell: Any, folder: Path) -> str | None:
    """A picture as a small data URI, for a page; None where it cannot be read."""
    found = attempt(levels_of, picture_cell(cell), folder, 3, THUMBNAIL)
    if isinstance(found, str):
        return None
    Image.fromarray(found.transpose(1, 2, 0)).save(file := BytesIO(), "JPEG", quality=80)
    return f"data:image/jpeg;base64,{b64encode(file.getvalue()).decode()}"


def picture_cell(cell: Any) -> Cell:
    """A name or bytes; datasets of Hugging Face have both in one cell."""
    cell = (cell.get("bytes") or cell.get("path")) if isinstance(cell, dict) else cell
    return None if is_missing(cell) else cell if isinstance(cell, bytes) else str(cell)


@contextmanager
def bombs_are_errors() -> Iterator[None]:
    """Inside, a picture of too many pixels is an error, and odd metadata is nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


class Block(NamedTuple):
    """Pictures that are read together."""

    cells: Sequence[Cell]
    folder: Path
    channels: int
    side: int

    def read(self) -> tuple[NDArray[np.uint8], list[tuple[int, str]]]:
        """Levels [n, channels, side, side], zeros where there is no picture; and which are not readable, and why."""
        found = [attempt(levels_of, cell, self.folder, self.channels, self.side) for cell in self.cells]
        levels = np.zeros((len(found), self.channels, self.side, self.side), dtype=np.uint8)
        for row, one in enumerate(found):
            if not isinstance(one, str):
                levels[row] = one
        return levels, [(row, why) for row, why in enumerate(found) if isinstance(why, str)]

    def read_apart(self) -> tuple[NDArray[np.uint8], list[tuple[int, str]]]:
        """The same by a process of its own, which shares no lock with this one; here, where there can be none."""
        # not multiprocessing: it would run a script of the user's again; -IS: nothing of the user's own prints there
        program = f"import sys; sys.path[:] = {[*map(str, sys.path)]!r}; from oneof.data.picture import serve; serve()"
        how: dict[str, Any] = {"capture_output": True, "check": True, "start_new_session": True}  # Ctrl-C is for us
        try:
            done = subprocess.run([sys.executable or "", "-IS", "-c", program], input=pickle.dumps(self), **how)
            levels, wrong = pickle.loads(done.stdout)
        except Exception:  # what came was no answer, whatever it was
            return self.read()
        rows = [row for row, _ in wrong]  # once more here, where Pillow may have been told to read more
        levels[rows], wrong = self._replace(cells=[self.cells[row] for row in rows]).read()
        return levels, [(rows[at], why) for at, why in wrong]


def serve() -> None:
    """Read the block that comes by standard input."""
    with bombs_are_errors():
        pickle.dump(pickle.load(sys.stdin.buffer).read(), sys.stdout.buffer)
