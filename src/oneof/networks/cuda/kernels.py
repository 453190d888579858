# mypy: ignore-errors
"""Kernels in Triton for the residual networks: normalisation with ReLU both ways, and weight gradients of few channels.

Images are [n, h, w, c], contiguous but for a longer step from pixel to pixel where a tensor holds two layers' channels; c is a
power of two. A *framed* image has a column of zeros on either side: [n, h, w + 2, c]. Sums over pixels go in two stages in a fixed
order, so that the same input gives the same bits: every program leaves its part, and the last one to finish adds them up. They
begin with the last pixels, which the kernel before has just written, and end with those that the next one reads first.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def framed(p, width: tl.constexpr, frame: tl.constexpr):
    """Where pixel p lies in a tensor that is framed, or not."""
    if frame:
        p = (p // width) * (width + 2) + p % width + 1
    return p


@triton.jit
def last_to_finish(count):
    """Has every other program left its part? Then the count starts again for the next kernel."""
    tl.debug_barrier()
    last = tl.atomic_add(count, 1) == tl.num_programs(0) - 1
    if last:
        tl.store(count, 0)
    tl.debug_barrier()
    return last


@triton.jit
def two_sums(first, second, third, fourth):
    return first + third, second + fourth


@triton.jit
def leave(parts, program, first, second, c: tl.constexpr):
    """This program's two sums [c]: of its tiles [block, c]."""
    k = tl.arange(0, c)
    first, second = tl.reduce((first, second), 0, two_sums)
    tl.store(parts + program * 2 * c + k, first)
    tl.store(parts + program * 2 * c + c + k, second)


@triton.jit
def added_up(parts, c: tl.constexpr, programs: tl.constexpr, rows: tl.constexpr):
    """The two sums [c] over what all programs left; read past the first cache, which may hold what was there before."""
    i, k = tl.arange(0, rows)[:, None], tl.arange(0, c)
    first = tl.zeros((rows, c), tl.float32)
    second = tl.zeros((rows, c), tl.float32)
    for start in tl.static_range(0, programs, rows):
        left = parts + (start + i) * 2 * c + k
        first += tl.load(left, cache_modifier=".cg")
        second += tl.load(left + c, cache_modifier=".cg")
    return tl.reduce((first, second), 0, two_sums)


@triton.jit
def moments(
    x, kept, summed, norm, mean, var, gamma, beta, parts, count, pixels, x_step, kept_step, momentum, eps,
    c: tl.constexpr, block: tl.constexpr, programs: tl.constexpr, rows: tl.constexpr, stages: tl.constexpr, add: tl.constexpr
):  # fmt: skip
    """Mean and deviation of x, or of `summed` = x + kept, which is written; running statistics follow.

    norm [4, c] becomes mean, 1 / deviation, and scale and shift of the affine map that normalises. Sums are of differences from the
    running mean, so that a mean far from zero costs no precision once it is known.
    """
    program, k = tl.program_id(0), tl.arange(0, c)
    known, old = tl.load(mean + k), tl.load(var + k)  # here, where nothing waits for them
    weight, bias = tl.load(gamma + k), tl.load(beta + k)
    once = tl.zeros((block, c), tl.float32)
    twice = tl.zeros((block, c), tl.float32)
    tiles = tl.cdiv(pixels, block)
    for tile in tl.range(program, tiles, programs, num_stages=stages):
        p = (tiles - 1 - tile) * block + tl.arange(0, block)[:, None]
        there = (p < pixels) & (k >= 0)
        value = tl.load(x + p * x_step + k, mask=there, other=0.0).to(tl.float32)
        if add:
            value += tl.load(kept + p * kept_step + k, mask=there, other=0.0).to(tl.float32)
            value = value.to(summed.dtype.element_ty)
            tl.store(summed + p * c + k, value, mask=there)
            value = value.to(tl.float32)
        value = tl.where(there, value - known, 0.0)
        once += value
        twice += value * value
    leave(parts, program, once, twice, c)
    if last_to_finish(count):
        sum1, sum2 = added_up(parts, c, programs, rows)
        beyond = sum1 / pixels
        variance = tl.maximum(sum2 / pixels - beyond * beyond, 0.0)
        inverse = 1 / tl.sqrt(variance + eps)
        scale = weight * inverse
        tl.store(norm + k, known + beyond)
        tl.store(norm + c + k, inverse)
        tl.store(norm + 2 * c + k, scale)
        tl.store(norm + 3 * c + k, bias - (known + beyond) * scale)
        tl.store(mean + k, known + momentum * beyond)
        unbiased = variance * pixels / (pixels - 1)
        tl.store(var + k, old + momentum * (unbiased - old))


@triton.jit
def rectify(
    x, norm, out, pixels, x_step,
    c: tl.constexpr, width: tl.constexpr, frame: tl.constexpr, block: tl.constexpr
):  # fmt: skip
    """out = relu(scale x + shift), framed with zeros or not; pixels counts those of out."""
    k = tl.arange(0, c)
    q = tl.program_id(0) * block + tl.arange(0, block)[:, None]
    inside, p = q < pixels, q
    if frame:
        column = q % (width + 2) - 1
        inside &= (column >= 0) & (column < width)
        p = (q // (width + 2)) * width + column
    value = tl.load(x + p * x_step + k, mask=inside & (k >= 0), other=0.0).to(tl.float32)
    value = tl.maximum(value * tl.load(norm + 2 * c + k) + tl.load(norm + 3 * c + k), 0.0)
    tl.store(out + q * c + k, tl.where(inside, value, 0.0), mask=(q < pixels) & (k >= 0))


@triton.jit
def rectified_sums(
    x, gradient, norm, sums, parts, count, pixels, x_step,
    c: tl.constexpr, width: tl.constexpr, frame: tl.constexpr,
    block: tl.constexpr, programs: tl.constexpr, rows: tl.constexpr, stages: tl.constexpr
):  # fmt: skip
    """sums [2, c]: gradients of beta and of gamma, from the gradient (framed or not) of `rectify`'s result."""
    program, k = tl.program_id(0), tl.arange(0, c)
    mean, inverse = tl.load(norm + k), tl.load(norm + c + k)
    scale, shift = tl.load(norm + 2 * c + k), tl.load(norm + 3 * c + k)
    plain = tl.zeros((block, c), tl.float32)
    along = tl.zeros((block, c), tl.float32)
    tiles = tl.cdiv(pixels, block)
    for tile in tl.range(program, tiles, programs, num_stages=stages):
        p = (tiles - 1 - tile) * block + tl.arange(0, block)[:, None]
        there = (p < pixels) & (k >= 0)
        value = tl.load(x + p * x_step + k, mask=there, other=0.0).to(tl.float32)
        g = tl.load(gradient + framed(p, width, frame) * c + k, mask=there, other=0.0).to(tl.float32)
        g = tl.where(value * scale + shift > 0, g, 0.0)
        plain += g
        along += g * (value - mean)
    leave(parts, program, plain, along, c)
    if last_to_finish(count):
        for_beta, for_gamma = added_up(parts, c, programs, rows)
        tl.store(sums + k, for_beta)
        tl.store(sums + c + k, for_gamma * inverse)


@triton.jit
def rectified_gradient(
    x, gradient, kept, norm, sums, out, again, pixels, x_step, out_step, again_step,
    c: tl.constexpr, width: tl.constexpr, frame: tl.constexpr, block: tl.constexpr, add: tl.constexpr, twice: tl.constexpr
):  # fmt: skip
    """The gradient of x, plus `kept` if it is to be added: what came to x by another way. Written once or twice."""
    k = tl.arange(0, c)
    mean, inverse = tl.load(norm + k), tl.load(norm + c + k)
    scale, shift = tl.load(norm + 2 * c + k), tl.load(norm + 3 * c + k)
    for_beta, for_gamma = tl.load(sums + k) / pixels, tl.load(sums + c + k) / pixels
    p = tl.program_id(0) * block + tl.arange(0, block)[:, None]
    there = (p < pixels) & (k >= 0)
    value = tl.load(x + p * x_step + k, mask=there, other=0.0).to(tl.float32)
    g = tl.load(gradient + framed(p, width, frame) * c + k, mask=there, other=0.0).to(tl.float32)
    g = tl.where(value * scale + shift > 0, g, 0.0)
    found = scale * (g - for_beta - (value - mean) * inverse * for_gamma)
    if add:
        found += tl.load(kept + p * c + k, mask=there, other=0.0).to(tl.float32)
    tl.store(out + p * out_step + k, found, mask=there)
    if twice:
        tl.store(again + p * again_step + k, found, mask=there)


@triton.jit
def narrow_gradient(
    x, gradient, parts, pixels, steps,
    height: tl.constexpr, width: tl.constexpr, inputs: tl.constexpr, outputs: tl.constexpr, columns: tl.constexpr,
    block: tl.constexpr, stages: tl.constexpr
):  # fmt: skip
    """Every program's part [3, columns, outputs] of the gradient of a 3x3 convolution's weights, x framed.

    A pixel and its two neighbours in a row lie side by side in memory, so one load gives the three columns of the kernel; it meets
    the gradients of the rows below, at and above. So x is read once and the gradient thrice.
    """
    program = tl.program_id(0)
    j = tl.arange(0, columns)  # the three neighbours' channels, then nothing up to a power of two
    k = tl.arange(0, outputs)
    above = tl.zeros((columns, outputs), tl.float32)
    at = tl.zeros((columns, outputs), tl.float32)
    below = tl.zeros((columns, outputs), tl.float32)
    for step in tl.range(0, steps, num_stages=stages):
        p = (program * steps + step) * block + tl.arange(0, block)
        row, inside = (p // width) % height, p < pixels
        q = (p // width) * (width + 2) + p % width  # the left neighbour's place in a frame
        near = tl.load(x + q[:, None] * inputs + j, mask=inside[:, None] & (j < 3 * inputs), other=0.0)
        near = tl.trans(near)
        to = gradient + p[:, None] * outputs + k
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
