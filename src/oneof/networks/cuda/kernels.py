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
    """Return the position of pixel p in a tensor that is framed, or not."""
    if frame:
        p = (p // width) * (width + 2) + p % width + 1
    return p


@triton.jit
def last_to_finish(count):
    """Return whether every other program has written its part; then set the count back for the next kernel."""
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
def write_sums(parts, program, first, second, c: tl.constexpr):
    """Write this program's two sums [c], over its tiles [block, c]."""
    k = tl.arange(0, c)
    first, second = tl.reduce((first, second), 0, two_sums)
    tl.store(parts + program * 2 * c + k, first)
    tl.store(parts + program * 2 * c + c + k, second)


@triton.jit
def total_sums(parts, c: tl.constexpr, programs: tl.constexpr, rows: tl.constexpr):
    """Return the two sums [c] over all programs; read past the first cache, which may hold earlier values."""
    i = tl.arange(0, rows)[:, None]
    k = tl.arange(0, c)
    first = tl.zeros((rows, c), tl.float32)
    second = tl.zeros((rows, c), tl.float32)
    for start in tl.static_range(0, programs, rows):
        part = parts + (start + i) * 2 * c + k
        first += tl.load(part, cache_modifier=".cg")
        second += tl.load(part + c, cache_modifier=".cg")
    return tl.reduce((first, second), 0, two_sums)


@triton.jit
def moments(
    x, shortcut, summed, norm, mean, var, gamma, beta, parts, count, pixels, x_step, shortcut_step, momentum, eps,
    c: tl.constexpr, block: tl.constexpr, programs: tl.constexpr, rows: tl.constexpr, stages: tl.constexpr, add: tl.constexpr
):  # fmt: skip
    """Compute mean and deviation of x, or of `summed` = x + shortcut, which is written; running statistics follow.

    norm [4, c] becomes mean, 1 / deviation, and scale and shift of the affine map that normalises. Sums are of differences from the
    running mean, so that a mean far from zero costs no precision once it is known.
    """
    program = tl.program_id(0)
    k = tl.arange(0, c)
    # Loaded early, where nothing waits for them.
    running_mean = tl.load(mean + k)
    running_var = tl.load(var + k)
    weight = tl.load(gamma + k)
    bias = tl.load(beta + k)
    values = tl.zeros((block, c), tl.float32)
    squares = tl.zeros((block, c), tl.float32)
    tiles = tl.cdiv(pixels, block)
    for tile in tl.range(program, tiles, programs, num_stages=stages):
        p = (tiles - 1 - tile) * block + tl.arange(0, block)[:, None]
        there = (p < pixels) & (k >= 0)
        value = tl.load(x + p * x_step + k, mask=there, other=0.0).to(tl.float32)
        if add:
            value += tl.load(shortcut + p * shortcut_step + k, mask=there, other=0.0).to(tl.float32)
            value = value.to(summed.dtype.element_ty)
            tl.store(summed + p * c + k, value, mask=there)
            value = value.to(tl.float32)
        value = tl.where(there, value - running_mean, 0.0)
        values += value
        squares += value * value
    write_sums(parts, program, values, squares, c)
    if last_to_finish(count):
        sum_of_values, sum_of_squares = total_sums(parts, c, programs, rows)
        difference = sum_of_values / pixels
        variance = tl.maximum(sum_of_squares / pixels - difference * difference, 0.0)
        inverse = 1 / tl.sqrt(variance + eps)
        scale = weight * inverse
        tl.store(norm + k, running_mean + difference)
        tl.store(norm + c + k, inverse)
        tl.store(norm + 2 * c + k, scale)
        tl.store(norm + 3 * c + k, bias - (running_mean + difference) * scale)
        tl.store(mean + k, running_mean + momentum * difference)
        unbiased = variance * pixels / (pixels - 1)
        tl.store(var + k, running_var + momentum * (unbiased - running_var))


@triton.jit
def rectify(
    x, norm, out, pixels, x_step,
    c: tl.constexpr, width: tl.constexpr, frame: tl.constexpr, block: tl.constexpr
):  # fmt: skip
    """Compute out = relu(scale x + shift), framed with zeros or not; `pixels` counts those of out."""
    k = tl.arange(0, c)
    q = tl.program_id(0) * block + tl.arange(0, block)[:, None]
    inside = q < pixels
    p = q
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
    """Compute sums [2, c], the gradients of beta and of gamma, from the gradient (framed or not) of `rectify`'s result."""
    program = tl.program_id(0)
    k = tl.arange(0, c)
    mean = tl.load(norm + k)
    inverse = tl.load(norm + c + k)
    scale = tl.load(norm + 2 * c + k)
    shift = tl.load(norm + 3 * c + k)
    beta_sums = tl.zeros((block, c), tl.float32)
    gamma_sums = tl.zeros((block, c), tl.float32)
    tiles = tl.cdiv(pixels, block)
    for tile in tl.range(program, tiles, programs, num_stages=stages):
        p = (tiles - 1 - tile) * block + tl.arange(0, block)[:, None]
        there = (p < pixels) & (k >= 0)
        value = tl.load(x + p * x_step + k, mask=there, other=0.0).to(tl.float32)
        g = tl.load(gradient + framed(p, width, frame) * c + k, mask=there, other=0.0).to(tl.float32)
        g = tl.where(value * scale + shift > 0, g, 0.0)
        beta_sums += g
        gamma_sums += g * (value - mean)
    write_sums(parts, program, beta_sums, gamma_sums, c)
    if last_to_finish(count):
        for_beta, for_gamma = total_sums(parts, c, programs, rows)
        tl.store(sums + k, for_beta)
        tl.store(sums + c + k, for_gamma * inverse)


@triton.jit
def rectified_gradient(
    x, gradient, d_shortcut, norm, sums, out, copy_to, pixels, x_step, out_step, copy_step,
    c: tl.constexpr, width: tl.constexpr, frame: tl.constexpr, block: tl.constexpr, add: tl.constexpr, copy: tl.constexpr
):  # fmt: skip
    """Compute the gradient of x, plus `d_shortcut`, which reaches x by the shortcut, if `add`; write it once or, if `copy`, twice."""
    k = tl.arange(0, c)
    mean = tl.load(norm + k)
    inverse = tl.load(norm + c + k)
    scale = tl.load(norm + 2 * c + k)
    shift = tl.load(norm + 3 * c + k)
    for_beta = tl.load(sums + k) / pixels
    for_gamma = tl.load(sums + c + k) / pixels
    p = tl.program_id(0) * block + tl.arange(0, block)[:, None]
    there = (p < pixels) & (k >= 0)
    value = tl.load(x + p * x_step + k, mask=there, other=0.0).to(tl.float32)
    g = tl.load(gradient + framed(p, width, frame) * c + k, mask=there, other=0.0).to(tl.float32)
    g = tl.where(value * scale + shift > 0, g, 0.0)
    d_x = scale * (g - for_beta - (value - mean) * inverse * for_gamma)
    if add:
        d_x += tl.load(d_shortcut + p * c + k, mask=there, other=0.0).to(tl.float32)
    tl.store(out + p * out_step + k, d_x, mask=there)
    if copy:
        tl.store(copy_to + p * copy_step + k, d_x, mask=there)


@triton.jit
def narrow_gradient(
    x, gradient, parts, pixels, steps,
    height: tl.constexpr, width: tl.constexpr, inputs: tl.constexpr, outputs: tl.constexpr, columns: tl.constexpr,
    block: tl.constexpr, stages: tl.constexpr
):  # fmt: skip
    """Compute every program's part [3, columns, outputs] of the gradient of a 3x3 convolution's weights, x framed.

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
        row = (p // width) % height
        inside = p < pixels
        q = (p // width) * (width + 2) + p % width  # position of the left neighbour in a frame
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
