# mypy: ignore-errors
"""Kernels in Triton for the views of images: the arithmetic of `oneof.data.augment`, to the level.

Images are uint8 [n, ch, h, w]. What a kernel writes is that again, or, at the end, normalised and with channels innermost. A program
sees one channel of one image, `block` pixels at a time.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def write(out, scale, offset, image, k, p, level, there, ch: tl.constexpr, size: tl.constexpr, normalise: tl.constexpr):
    """Write levels of pixels p of channel k, as they are or normalised."""
    if normalise:
        value = tl.fma(level.to(tl.float32), tl.load(scale + k), tl.load(offset + k))
        tl.store(out + (image * size + p) * ch + k, value.to(out.dtype.element_ty), mask=there)
    else:
        tl.store(out + (image * ch + k) * size + p, level.to(tl.uint8), mask=there)


@triton.jit
def mirrored(i, n: tl.constexpr):
    """Mirror an index off the ends of 0 ... n-1 back, without repeating the edge."""
    return (n - 1) - tl.abs((n - 1) - tl.abs(i))


@triton.jit
def shift(
    images, flip, top, left, first_row, end_row, first_column, end_column, scale, offset, out, b,
    ch: tl.constexpr, h: tl.constexpr, w: tl.constexpr, pad: tl.constexpr, moves: tl.constexpr, hole: tl.constexpr,
    normalise: tl.constexpr, block: tl.constexpr
):  # fmt: skip
    """Flip each image and crop it from its reflected frame if it `moves`; cut out a black hole or none. The b images repeat."""
    image = tl.program_id(0)
    k = tl.program_id(1)
    source = images + ((image % b) * ch + k) * h * w
    for start in range(0, h * w, block):
        p = start + tl.arange(0, block)
        there = p < h * w
        y = p // w
        x = p % w
        row = y
        column = x
        if moves:
            row = mirrored(y - pad + tl.load(top + image).to(tl.int32), h)
            column = mirrored(x - pad + tl.load(left + image).to(tl.int32), w)
            column = tl.where(tl.load(flip + image) != 0, w - 1 - column, column)
        level = tl.load(source + row * w + column, mask=there, other=0)
        if hole:
            inside = (y >= tl.load(first_row + image)) & (y < tl.load(end_row + image))
            inside &= (x >= tl.load(first_column + image)) & (x < tl.load(end_column + image))
            level = tl.where(inside, 0, level)
        write(out, scale, offset, image, k, p, level, there, ch, h * w, normalise)


@triton.jit
def mapped(source, operation, y, x, there, fill, h: tl.constexpr, w: tl.constexpr):
    """Return levels at (y, x) after the affine map that `operation` begins with; `fill` comes from outside."""
    xx = tl.load(operation).to(tl.int32)
    xy = tl.load(operation + 1).to(tl.int32)
    x0 = tl.load(operation + 2).to(tl.int32)
    yx = tl.load(operation + 3).to(tl.int32)
    yy = tl.load(operation + 4).to(tl.int32)
    y0 = tl.load(operation + 5).to(tl.int32)
    column = (xx * x + xy * y + x0) >> 16
    row = (yx * x + yy * y + y0) >> 16
    inside = there & (column >= 0) & (column < w) & (row >= 0) & (row < h)
    return tl.load(source + row * w + column, mask=inside, other=fill).to(tl.int32)


@triton.jit
def grey(image, operation, y, x, there, fill, ch: tl.constexpr, h: tl.constexpr, w: tl.constexpr):
    """Return grey levels, rounded as Pillow does."""
    level = mapped(image, operation, y, x, there, fill, h, w)
    if ch == 3:
        green = mapped(image + h * w, operation, y, x, there, fill, h, w)
        blue = mapped(image + 2 * h * w, operation, y, x, there, fill, h, w)
        level = (level * 19595 + green * 38470 + blue * 7471 + 32768) >> 16
    return level


@triton.jit
def smooth(source, operation, y, x, there, fill, h: tl.constexpr, w: tl.constexpr):
    """Return smoothed levels: a pixel weighs 5 and its eight neighbours 1; the outermost frame stays."""
    centre = mapped(source, operation, y, x, there, fill, h, w)
    total = 4 * centre
    for dy in tl.static_range(-1, 2):
        for dx in tl.static_range(-1, 2):
            total += mapped(source, operation, y + dy, x + dx, there, fill, h, w)
    inner = (y > 0) & (y < h - 1) & (x > 0) & (x < w - 1)
    return tl.where(inner, (2 * total + 13) // 26, centre)


@triton.jit
def operate(
    images, operations, chosen, chosen_step, scale, offset, out, fill,
    ch: tl.constexpr, h: tl.constexpr, w: tl.constexpr, normalise: tl.constexpr, block: tl.constexpr
):  # fmt: skip
    """Apply to each image its operation, one of the rows [r, 14]: the map, then the table of levels, then the blend."""
    image = tl.program_id(0)
    k = tl.program_id(1)
    all_channels = images + image * ch * h * w
    source = all_channels + k * h * w
    operation = operations + tl.load(chosen + image * chosen_step) * 14
    factor = tl.load(operation + 6)
    contrast = tl.load(operation + 7)
    threshold = tl.load(operation + 8)
    step = tl.load(operation + 9)
    stretch = tl.load(operation + 10)
    equalize = tl.load(operation + 11)
    share = tl.load(operation + 12)
    smoothed = tl.load(operation + 13)

    # Lowest and highest level of the mapped channel, and the sum of the mapped image's grey levels.
    low = 255
    high = 0
    total = 0
    histogram = tl.zeros((256,), tl.int32)
    for start in range(0, h * w, block):
        p = start + tl.arange(0, block)
        there = p < h * w
        y = p // w
        x = p % w
        level = mapped(source, operation, y, x, there, fill, h, w)
        low = tl.minimum(low, tl.min(tl.where(there, level, 255)))
        high = tl.maximum(high, tl.max(tl.where(there, level, 0)))
        total += tl.sum(tl.where(there, grey(all_channels, operation, y, x, there, fill, ch, h, w), 0))
        histogram += tl.histogram(tl.where(there, level, 255), 256)  # what is not there is never below anything
    below = tl.cumsum(histogram) - histogram
    width = (tl.sum(tl.where(tl.arange(0, 256) == high, below, 0)) * equalize).to(tl.int32) // 255

    spread = (high - low) * stretch
    slope = tl.where(spread > 0, 255 * tl.div_rn(1.0, spread), factor)  # exact, as torch divides
    pivot = contrast * tl.floor(tl.div_rn(total.to(tl.float32), h * w) + 0.5)
    base = tl.where(spread > 0, low.to(tl.float32), pivot)
    for start in range(0, h * w, block):
        p = start + tl.arange(0, block)
        there = p < h * w
        y = p // w
        x = p % w
        level = mapped(source, operation, y, x, there, fill, h, w)
        old = level.to(tl.float32)
        new = tl.minimum(tl.maximum(tl.fma(old - base, slope, pivot), 0.0), 255.0)
        new = tl.floor(new / step) * step
        new = tl.where(old >= threshold, 255 - old, new)
        if width > 0:
            ranked = (tl.gather(below, level, 0) + width // 2) // width
            new = tl.minimum(ranked, 255).to(tl.float32)
        pale = grey(all_channels, operation, y, x, there, fill, ch, h, w)
        if smoothed > 0:
            pale = smooth(source, operation, y, x, there, fill, h, w)
        pale = pale.to(tl.float32)
        level = tl.minimum(tl.maximum(tl.fma(new - pale, share, pale), 0.0), 255.0).to(tl.int32)
        write(out, scale, offset, image, k, p, level, there, ch, h * w, normalise)
