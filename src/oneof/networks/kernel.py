# mypy: ignore-errors
"""The gradient of a narrow 3x3 convolution's weights, in Triton.

cuDNN is built for wide layers: at 32 channels on 32x32 images it takes six times as long as reading the two tensors. Here every
program walks over its share of the pixels. A pixel and its two neighbours in a row lie side by side in memory, so one load gives
the three columns of the kernel; it meets the gradients of the rows below, at and above. So x is read once and the gradient thrice.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

PIXELS = 64  # of one load
STAGES = 3  # loads in flight


def accumulate(x: Tensor, gradient: Tensor, parts: Tensor) -> None:
    """Fill parts [p, 3, 4 i, o] from x [n, i, h, w] and gradient [n, o, h, w], channels_last; i and o powers of two from 16 on."""
    n, i, h, w = x.shape
    programs, _, columns, o = parts.shape
    steps = triton.cdiv(triton.cdiv(n * h * w, PIXELS), programs)
    _accumulate[(programs,)](x, gradient, parts, n * h * w, steps, h, w, i, o, columns, PIXELS, STAGES, num_warps=4)


@triton.jit
def _accumulate(
    x,
    gradient,
    parts,
    pixels,
    steps,
    height: tl.constexpr,
    width: tl.constexpr,
    inputs: tl.constexpr,
    outputs: tl.constexpr,
    columns: tl.constexpr,
    block: tl.constexpr,
    stages: tl.constexpr,
):
    program = tl.program_id(0)
    j = tl.arange(0, columns)  # the three neighbours' channels, then nothing up to a power of two
    k = tl.arange(0, outputs)
    beside = j // inputs - 1
    above = tl.zeros((columns, outputs), tl.float32)
    at = tl.zeros((columns, outputs), tl.float32)
    below = tl.zeros((columns, outputs), tl.float32)
    for step in tl.range(0, steps, num_stages=stages):
        p = (program * steps + step) * block + tl.arange(0, block)
        row, column = (p // width) % height, p % width
        there = (column[:, None] + beside >= 0) & (column[:, None] + beside < width) & (j < 3 * inputs)
        there &= (p < pixels)[:, None]
        near = tl.trans(tl.load(x + (p[:, None] - 1) * inputs + j, mask=there, other=0.0))
        to = gradient + p[:, None] * outputs + k
        inside = p < pixels
        g = tl.load(to + width * outputs, mask=(inside & (row < height - 1))[:, None], other=0.0)
        above = tl.dot(near, g, above)
        g = tl.load(to, mask=inside[:, None], other=0.0)
        at = tl.dot(near, g, at)
        g = tl.load(to - width * outputs, mask=(inside & (row > 0))[:, None], other=0.0)
        below = tl.dot(near, g, below)
    out = parts + program * 3 * columns * outputs + j[:, None] * outputs + k
    tl.store(out, above)
    tl.store(out + columns * outputs, at)
    tl.store(out + 2 * columns * outputs, below)
