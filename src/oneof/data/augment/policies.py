"""The operations of AutoAugment and RandAugment, and which of them an image gets, how strong.

An operation is a row of numbers: what an affine map, a table of levels and a blend have to do; it uses one of them
and leaves the other two neutral. So every image of a batch can have an operation of its own at the price of one
gather, one table and one blend. A policy is a table of ready operations on the device and a draw of row numbers
[slots, b]; applying it is `operate`, once per slot. `policies.toml` has what the policies draw from.
"""

import math
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
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
    """Apply to each uint8 image of [b, ch, h, w] the operation in its row of [b, 14]; `fill` comes in from outside."""
    # Grey and smooth forms are those of the image before the table, which is neutral wherever they are asked for.
    moved = affine(images, rows[:, :6].view(-1, 2, 3).long(), fill)
    pixels = moved.float()
    levels = grey(pixels)
    toned = tone(moved, levels, rows[:, 6:12].T)
    share, smoothed = rows[:, 12:, None, None, None].unbind(1)
    return blend(torch.where(smoothed > 0, smooth(pixels), levels), toned, share)


def table(operations: list[Operation]) -> Tensor:
    """Return operations as rows [r, 14] of float32, which holds the fixed-point maps of images up to 250 pixels exactly."""
    return torch.tensor(operations, dtype=torch.float32)


def _move(matrix: Matrix) -> Operation:
    xx, xy, x, yx, yy, y = fixed_point(matrix)
    return IDENTITY._replace(xx=xx, xy=xy, x=x, yx=yx, yy=yy, y=y)


def _rotate(degrees: float, size: int) -> Operation:
    """Return a rotation about the centre, anticlockwise."""
    angle = math.radians(degrees)
    cos = math.cos(angle)
    sin = math.sin(angle)
    centre = size / 2
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


_TABLES = tomllib.loads(resources.files("oneof.data.augment").joinpath("policies.toml").read_text(encoding="utf-8"))
AUTOAUGMENT: list[list[tuple[str, float, int]]] = _TABLES["autoaugment"]
RANDAUGMENT: dict[str, tuple[float, float]] = _TABLES["randaugment"]
STRENGTHS = 256  # magnitudes of each: the range is cut into so many equal parts, the middle taken


def magnitude(operation: str, level: int, sign: int) -> float:
    """Return AutoAugment's magnitude of a level 0 ... 9, for the sign +1 or -1 where the operation has one."""
    share = level / 9
    if operation == "posterize":
        return 8 - round(4 * share)
    if operation == "solarize":
        return 256 - 256 * share
    largest = {"shear": 0.3, "translate": 150 / 331, "rotate": 30.0}.get(operation.split()[0])
    if largest is None:  # an enhancement
        return 1 + sign * 0.9 * share
    return sign * largest * share


@dataclass(frozen=True)
class AugmentPolicy:
    """Ready operations as rows, of which an image gets one per slot."""

    rows: Tensor  # [r, 14]
    size: int  # side of the square images that rows are for
    fill: int  # grey level that comes in from outside

    def apply(self, images: Tensor, draw: Tensor) -> Tensor:
        for rows in draw.unbind():
            images = operate(images, self.rows[rows], self.fill)
        return images


@dataclass(frozen=True)
class AutoAugment(AugmentPolicy):
    """One of the 25 sub-policies per image; each of its two operations with its own probability, signs at random.

    Differs from the code that is commonly used with it: shears take the nearest pixel as the other maps do, not bicubic
    interpolation, and rotations go either way, not one way only. What comes in from outside is grey level 128, as there.
    """

    probabilities: Tensor  # [25, 2, 2]: that of the operation, and half of it; rows: per slot nothing, sign +, sign -

    def draw(self, b: int, generator: torch.Generator) -> Tensor:
        """Draw row numbers [2, b]."""
        device = self.rows.device
        policy = torch.randint(len(self.probabilities), (b,), generator=generator, device=device)
        chance = torch.rand((b, 2, 1), generator=generator, device=device)
        outcome = (chance < self.probabilities[policy]).sum(2)  # [b, 2]: 0, 1 or 2
        return (policy[:, None] * 6 + torch.arange(0, 6, 3, device=device) + outcome).T


def autoaugment(size: int, device: torch.device | str = "cpu") -> AutoAugment:
    """Return AutoAugment's CIFAR-10 policy for square images of side `size`, its tables on the device."""
    rows: list[Operation] = []
    limits = []
    for sub_policy in AUTOAUGMENT:
        limits_of_slots = []
        for name, probability, level in sub_policy:
            make = OPERATIONS[name]
            rows.append(IDENTITY)
            rows.append(make(magnitude(name, level, 1), size))
            rows.append(make(magnitude(name, level, -1), size))
            limits_of_slots.append([probability, probability / 2])
        limits.append(limits_of_slots)
    probabilities = torch.tensor(limits)
    return AutoAugment(table(rows).to(device), size, 128, probabilities.to(device))


@dataclass(frozen=True)
class RandAugment(AugmentPolicy):
    """Operations drawn with replacement, uniformly, and their magnitudes uniformly in their ranges; black comes in."""

    slots: int

    def draw(self, b: int, generator: torch.Generator) -> Tensor:
        """Draw row numbers [slots, b]."""
        return torch.randint(len(self.rows), (self.slots, b), generator=generator, device=self.rows.device)


def randaugment(size: int, slots: int = 3, device: torch.device | str = "cpu") -> RandAugment:
    """Return RandAugment with `slots` operations for square images of side `size`, its table on the device."""
    rows = []
    for name, (low, high) in RANDAUGMENT.items():
        for k in range(STRENGTHS):
            share = (k + 0.5) / STRENGTHS
            rows.append(OPERATIONS[name](low + (high - low) * share, size))
    return RandAugment(table(rows).to(device), size, 0, slots)
