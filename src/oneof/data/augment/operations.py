"""The operations of AutoAugment and RandAugment as rows of numbers, and one function that applies a row per image.

A row says what an affine map, a table of levels and a blend have to do; an operation uses one of them and leaves the other
two neutral. So every image of a batch can have an operation of its own at the price of one gather, one table and one blend.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from oneof.data.augment.colour import blend, grey, smooth, tone
from oneof.data.augment.geometry import affine, fixed_point

Matrix = tuple[float, float, float, float, float, float]


class Operation(NamedTuple):
    xx: float  # source column = (xx x + xy y + x) / 65536, see geometry.affine
    xy: float
    x: float
    yx: float
    yy: float
    y: float
    factor: float  # levels move away from the pivot by this factor: brightness (pivot 0), contrast (pivot: mean grey)
    contrast: float  # 1: the pivot is the image's mean grey level; 0: black
    threshold: float  # levels from here on are inverted: solarize; 0 inverts all
    step: float  # levels are rounded down to multiples of it: posterize; a power of two
    stretch: float  # 1: autocontrast
    equalize: float  # 1: equalize the histogram
    blend: float  # share of the image against its grey or smooth form
    smooth: float  # 1: smooth form (sharpness), 0: grey form (saturation)


IDENTITY = Operation(*fixed_point((1, 0, 0, 0, 1, 0)), 1, 0, 256, 1, 0, 0, 1, 0)


def operate(images: Tensor, rows: Tensor, fill: int) -> Tensor:
    """Apply to each uint8 image of [b, ch, h, w] the operation in its row of [b, 14]; `fill` comes in from outside.

    Grey and smooth forms are those of the image before the table, which is neutral wherever they are asked for.
    """
    moved = affine(images, rows[:, :6].view(-1, 2, 3).long(), fill)
    pixels = moved.float()
    levels = grey(pixels)
    toned = tone(moved, levels, rows[:, 6:12].T)
    share, smoothed = rows[:, 12:, None, None, None].unbind(1)
    return blend(torch.where(smoothed > 0, smooth(pixels), levels), toned, share)


def table(operations: list[Operation]) -> Tensor:
    """Operations as rows [r, 14] of float32, which holds the fixed-point maps of images up to 250 pixels exactly."""
    return torch.tensor(operations, dtype=torch.float32)


def _move(matrix: Matrix) -> Operation:
    xx, xy, x, yx, yy, y = fixed_point(matrix)
    return IDENTITY._replace(xx=xx, xy=xy, x=x, yx=yx, yy=yy, y=y)


def _rotate(degrees: float, size: int) -> Operation:
    """Anticlockwise about the centre."""
    cos, sin, centre = math.cos(math.radians(degrees)), math.sin(math.radians(degrees)), size / 2
    return _move((cos, -sin, centre * (1 - cos + sin), sin, cos, centre * (1 - cos - sin)))


# Every operation by name, made from its magnitude and the side of the (square) image. Magnitudes are: shears, the slope;
# translations, the share of the side; rotate, degrees; the four enhancements, Pillow's factor; posterize, the bits that
# stay; solarize, the threshold. The others have none.
OPERATIONS: dict[str, Callable[[float, int], Operation]] = {
    "identity": lambda _, size: IDENTITY,
    "shear x": lambda slope, size: _move((1, slope, 0, 0, 1, 0)),
    "shear y": lambda slope, size: _move((1, 0, 0, slope, 1, 0)),
    "translate x": lambda share, size: _move((1, 0, share * size, 0, 1, 0)),
    "translate y": lambda share, size: _move((1, 0, 0, 0, 1, share * size)),
    "rotate": _rotate,
    "brightness": lambda factor, size: IDENTITY._replace(factor=factor),
    "contrast": lambda factor, size: IDENTITY._replace(factor=factor, contrast=1),
    "colour": lambda factor, size: IDENTITY._replace(blend=factor),
    "sharpness": lambda factor, size: IDENTITY._replace(blend=factor, smooth=1),
    "posterize": lambda bits, size: IDENTITY._replace(step=2 ** (8 - int(bits))),
    "solarize": lambda threshold, size: IDENTITY._replace(threshold=threshold),
    "invert": lambda _, size: IDENTITY._replace(threshold=0),
    "autocontrast": lambda _, size: IDENTITY._replace(stretch=1),
    "equalize": lambda _, size: IDENTITY._replace(equalize=1),
}
