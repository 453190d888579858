"""Draw random crops, holes, boxes and colours, one per image, from a generator.

Everything is made on the generator's device with fixed shapes; nothing is copied there and nothing is read back.
"""

import math

import torch
from torch import Tensor

from oneof.data.augment.geometry import Box

TRIES = 10  # boxes drawn per image; the first that fits is taken
Shift = tuple[Tensor, Tensor, Tensor]  # flip, top and left of geometry.crop, [b] each
Span = tuple[Tensor, Tensor]  # the first row or column of a hole, and the one after its last, [b] each
Hole = tuple[Span, Span]  # its rows and columns
Jitter = tuple[Tensor, Tensor, Tensor, Tensor]  # see `jitter`


def coin(b: int, generator: torch.Generator, p: float = 0.5) -> Tensor:
    """Draw booleans [b], True with probability p."""
    return torch.rand(b, generator=generator, device=generator.device) < p


def shift(b: int, pad: int, generator: torch.Generator, flipped: float = 0.5) -> Shift:
    """Draw shifts: this share of the images is flipped, and every corner of the padded image is as likely."""
    top, left = torch.randint(2 * pad + 1, (2, b), generator=generator, device=generator.device)
    return coin(b, generator, flipped), top, left


def cutout(b: int, side: int, h: int, w: int, generator: torch.Generator) -> Hole:
    """Draw square holes whose centre is any pixel; what lies outside the image is cut off (DeVries and Taylor, 2017)."""
    row = torch.randint(h, (b,), generator=generator, device=generator.device)
    column = torch.randint(w, (b,), generator=generator, device=generator.device)
    half = side // 2
    return (row - half, row + half), (column - half, column + half)


def cutout_up_to(b: int, share: float, h: int, w: int, generator: torch.Generator) -> Hole:
    """Draw square holes of a side up to `share` of the width, as at the end of PiCO's RandAugment."""
    side, row, column = torch.rand((3, b), generator=generator, device=generator.device)
    side = side * (share * w)
    return _span(row, side, h), _span(column, side, w)


def _span(centre: Tensor, side: Tensor, n: int) -> Span:
    """Return the rows or columns of a hole; `centre` is a share of the n pixels.

    The corner is kept inside the image before the side is added, and the far edge is painted too.
    """
    first = (centre * n - side / 2).clamp(min=0).floor()
    end = (first + side).clamp(max=n).floor() + 1
    return first, end


def box(b: int, h: int, w: int, generator: torch.Generator, smallest: float = 0.2) -> Box:
    """Draw boxes with a share of the area uniform in [smallest, 1] and a ratio of sides in [3/4, 4/3], uniform in its log.

    A box is drawn again, ten times at most, if it does not fit; if none fits (about one image in 10^9), the first is cut down.
    """
    area, ratio, top, left = torch.rand((4, TRIES, b), generator=generator, device=generator.device)
    area = h * w * (smallest + (1 - smallest) * area)
    ratio = ((2 * ratio - 1) * math.log(4 / 3)).exp()
    heights = (area / ratio).sqrt().round()  # [TRIES, b]
    widths = (area * ratio).sqrt().round()
    fits = (heights <= h) & (widths <= w)
    first_fit = fits.int().argmax(0, keepdim=True)
    height = heights.gather(0, first_fit)[0].clamp(max=h)
    width = widths.gather(0, first_fit)[0].clamp(max=w)
    top_row = ((h - height + 1) * top[0]).floor()
    left_column = ((w - width + 1) * left[0]).floor()
    return top_row, left_column, height, width


def jitter(b: int, generator: torch.Generator, p: float = 0.8, strength: float = 0.4, hue: float = 0.1) -> Jitter:
    """Draw factors uniform in 1 ± strength and a turn of the hue uniform in ± hue, with probability p.

    Returns whether there is one [b]; brightness (0), contrast (1) and saturation (2) in their order [3, b]; the factors of these [3, b],
    1 where there is none; the turn of the hue [b] in 1/256 of the circle, 0 where there is none.
    """
    # Brightness, contrast and saturation come in a random order per image. Hue comes last always: it is the one that needs
    # another colour space, and in a random place every image would pay for it three times more.
    device = generator.device
    on = coin(b, generator, p)
    order = torch.randint(6, (b,), generator=generator, device=device)
    first = order % 3
    second = (first + 1 + order // 3) % 3
    kinds = torch.stack((first, second, 3 - first - second))
    u = (2 * torch.rand((4, b), generator=generator, device=device) - 1) * on
    factors = 1 + strength * u[:3]
    turn = (u[3] * hue * 255).trunc() % 256
    return on, kinds, factors, turn
