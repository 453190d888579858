"""Serve the pictures of a table in formats that browsers show."""

from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from oneof.data.picture import Cell, try_decode

BROWSER_FORMATS = {
    ".png": "image/png",
    ".jpeg": "image/jpeg",
    ".jpg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
}
_OTHER_FORMATS = (".bmp", ".dib", ".tif", ".tiff", ".ppm", ".pgm", ".pbm", ".pnm", ".tga", ".ico", ".jp2", ".pcx")
_MAX_SIDE = 1600  # pixels of a picture that is encoded again
THUMBNAIL_SIDE = 160


def find_picture(cell: Cell, folder: Path) -> Path | bytes | None:
    """Return the file of a picture, or its bytes if the table holds them; None unless the file is inside the folder."""
    if cell is None or isinstance(cell, bytes):
        return cell
    path: Path = (folder / cell).resolve()
    is_inside = path.is_relative_to(folder.resolve())
    is_picture = path.suffix.lower() in BROWSER_FORMATS or path.suffix.lower() in _OTHER_FORMATS
    if is_inside and is_picture and path.is_file():
        return path
    return None


def encode_picture(picture: Path | bytes, max_side: int | None = None) -> tuple[bytes, str]:
    """Return the content of a picture and its type.

    It is encoded as PNG unless browsers show its format, or if it may have at most `max_side` pixels a side.
    """
    if max_side is None and isinstance(picture, Path) and picture.suffix.lower() in BROWSER_FORMATS:
        return picture.read_bytes(), BROWSER_FORMATS[picture.suffix.lower()]
    cell: Cell
    if isinstance(picture, bytes):
        cell = picture
    else:
        cell = str(picture)
    encoded = try_decode(partial(_to_png, max_side=max_side or _MAX_SIDE), cell, Path())
    if isinstance(encoded, str):
        raise ValueError(f"the picture cannot be shown: {encoded}.")
    return encoded, "image/png"


def _to_png(image: Any, max_side: int) -> bytes:
    """Return the first frame of an opened image as PNG of at most `max_side` pixels a side."""
    width, height = image.size
    if width * height > (Image.MAX_IMAGE_PIXELS or width * height):
        raise ValueError(f"it has {width * height:,} pixels")
    image = ImageOps.exif_transpose(image)
    has_more_than_8_bits = image.mode == "F" or image.mode.startswith("I")
    if has_more_than_8_bits:  # the darkest level becomes black, the brightest white
        levels = np.asarray(image, dtype=np.float64)
        span = np.ptp(levels) or 1.0
        image = Image.fromarray((255 * (levels - levels.min()) / span).astype(np.uint8))
    is_transparent = image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info
    if is_transparent:
        image = image.convert("RGBA")
    else:
        image = image.convert("RGB")
    image.thumbnail((max_side, max_side))
    file = BytesIO()
    image.save(file, "PNG")
    return file.getvalue()
