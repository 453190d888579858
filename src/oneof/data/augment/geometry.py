"""Move pixels: flip, crop, affine maps, resized crops and erased rectangles, each image with its own parameters.

All take and give uint8 images [b, ch, h, w] and reproduce Pillow's arithmetic. Indices are computed, never searched for,
so that every shape is fixed and nothing waits for the device.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

FIXED = 16  # Pillow's nearest-neighbour maps have this many binary places
Box = tuple[Tensor, Tensor, Tensor, Tensor]  # top, left, height and width of a rectangle per image, in pixels, [b] each


def crop(images: Tensor, flip: Tensor, top: Tensor, left: Tensor, pad: int) -> Tensor:
    """Mirror where `flip` [b], pad by reflection, cut the original size out at (top, left) [b], each 0 ... 2 pad."""
    h, w = images.shape[-2:]
    row = _reflect(torch.arange(-pad, h - pad, device=images.device) + top[:, None], h)
    column = _reflect(torch.arange(-pad, w - pad, device=images.device) + left[:, None], w)
    column = torch.where(flip[:, None], w - 1 - column, column)
    return _take(images, row[:, :, None] * w + column[:, None, :])


def affine(images: Tensor, matrix: Tensor, fill: int) -> Tensor:
    """Apply a nearest-neighbour affine map, [b, 2, 3] integers as `fixed_point` gives; grey level `fill` comes from outside."""
    # source column = (m00 x + m01 y + m02) >> 16,   source row = (m10 x + m11 y + m12) >> 16
    h, w = images.shape[-2:]
    # A frame of `fill` stands for all that lies outside: coordinates are shifted by one and clamped into it.
    padded = F.pad(images, (1, 1, 1, 1), value=fill)
    along = matrix[:, :, :1] * torch.arange(w, device=images.device)  # [b, 2, w]
    across = matrix[:, :, 1:2] * torch.arange(h, device=images.device) + (matrix[:, :, 2:] + (1 << FIXED))  # [b, 2, h]
    column, row = ((across[..., None] + along[..., None, :]) >> FIXED).unbind(1)
    return _take(padded, torch.add(column.clamp(0, w + 1), row.clamp(0, h + 1), alpha=w + 2))


def fixed_point(matrix: tuple[float, float, float, float, float, float]) -> tuple[int, int, int, int, int, int]:
    """Return Pillow's integer form of an output-to-input map (a, b, c, d, e, f), taken at the centre of each pixel."""
    a, b, c, d, e, f = matrix
    centred = (a, b, c + 0.5 * (a + b), d, e, f + 0.5 * (d + e))
    xx, xy, x, yx, yy, y = (math.floor(value * (1 << FIXED) + 0.5) for value in centred)
    return xx, xy, x, yx, yy, y


def resized_crop(images: Tensor, box: Box, flip: Tensor) -> Tensor:
    """Cut `box` out of every image, stretch it to the original size (bilinear), and mirror where `flip` [b]."""
    # A box never exceeds the image, so nothing shrinks and anti-aliasing has no part. Columns first, then rows, rounded
    # to grey levels after each, as Pillow does.
    top, left, height, width = box
    h, w = images.shape[-2:]
    column = torch.arange(w, device=images.device)
    column = torch.where(flip[:, None], w - 1 - column, column)
    row = torch.arange(h, device=images.device).expand(len(images), h)
    wide = _stretch(images.float(), column, left, width, -1)
    return _stretch(wide, row, top, height, -2).to(torch.uint8)


def _stretch(pixels: Tensor, position: Tensor, start: Tensor, length: Tensor, axis: int) -> Tensor:
    """Return the pixels at output `position` [b, n] when `length` [b] of them from `start` [b] fill the whole axis."""
    centre = (position + 0.5) * (length / pixels.shape[axis])[:, None] - 0.5
    below = centre.floor()
    weight = (centre - below)[:, None, None, :]
    near = _source_index(below, start, length)
    far = _source_index(below + 1, start, length)
    if axis == -2:
        near = near.mT
        far = far.mT
        weight = weight.mT
    a = pixels.gather(axis, near.expand(pixels.shape))
    b = pixels.gather(axis, far.expand(pixels.shape))
    return (a + weight * (b - a) + 0.5).floor()


def _source_index(index: Tensor, start: Tensor, length: Tensor) -> Tensor:
    """Return positions [b, 1, 1, n] in the image of positions [b, n] in a stretch, kept within its ends."""
    last = (length - 1)[:, None]
    inside = torch.minimum(index.clamp(min=0), last)
    return (inside + start[:, None])[:, None, None, :].long()


def erase(images: Tensor, rows: tuple[Tensor, Tensor], columns: tuple[Tensor, Tensor], colour: Tensor) -> Tensor:
    """Paint `colour` [ch] on the rows and columns from the first to before the second bound, [b] each."""
    h, w = images.shape[-2:]
    y = torch.arange(h, device=images.device)
    x = torch.arange(w, device=images.device)
    inside_rows = (y >= rows[0][:, None]) & (y < rows[1][:, None])
    inside_columns = (x >= columns[0][:, None]) & (x < columns[1][:, None])
    hole = inside_rows[:, None, :, None] & inside_columns[:, None, None, :]
    return torch.where(hole, colour[:, None, None], images)


def _reflect(index: Tensor, n: int) -> Tensor:
    """Mirror indices off the ends of 0 ... n-1 back, without repeating the edge pixel."""
    return (n - 1) - ((n - 1) - index.abs()).abs()


def _take(images: Tensor, index: Tensor) -> Tensor:
    """Return pixels of images [b, ch, ., .] at flat positions [b, h, w], the same in every channel."""
    b, ch = images.shape[:2]
    taken = images.flatten(2).gather(2, index.flatten(1)[:, None].expand(b, ch, -1))
    return taken.view(b, ch, *index.shape[1:])
