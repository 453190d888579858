"""Layers made of kernels: which one is launched, on how many programs, with which tensors.

All images are [n, h, w, c] in memory. Framed ones have a column of zeros on either side: for 3x3 convolutions of few channels,
where two neighbouring pixels are read as one of twice the channels (`pair_pixels`), which fills the matrix units.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from oneof.networks.cuda.launch import launch

PROGRAMS = 128  # share the pixels when sums are taken: a power of two, about one on each of an H200's multiprocessors
STAGES = 3  # loads in flight
ELEMENTS = 8192  # of a tile
PARTS = 132  # programs that share the pixels of a weight gradient
WIDEST = 1024  # channels for whose sums there is room
NARROW = 32  # channels up to which convolutions are paired
FEW = 4  # channels up to which images are filled, so that a pair has as many as the matrix units load at once


Scratch = tuple[Tensor, Tensor]


def scratch(device: torch.device) -> Scratch:
    """Return room for partial sums, and the count of programs that have written theirs."""
    partial_sums = torch.empty(PROGRAMS * 2 * WIDEST, device=device)
    finished = torch.zeros(1, dtype=torch.int32, device=device)
    return partial_sums, finished


def _tile(c: int) -> tuple[int, int, int, int]:
    """Return how sums are taken: pixels at a time, programs, how many of their parts are added at a time, loads in flight."""
    pixels = ELEMENTS * _warps(c) // 8 // c
    parts_at_a_time = min(PROGRAMS, pixels)
    return pixels, PROGRAMS, parts_at_a_time, STAGES


def _warps(c: int) -> int:
    """Return how many warps a program has that takes sums of c channels."""
    if c < 128:
        return 8
    return 4


def moments(scratch: Scratch, layer: nn.BatchNorm2d, x: Tensor, shortcut: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return x (plus the shortcut), and the numbers [4, c] that normalise it; the layer's running statistics move."""
    from oneof.networks.cuda import kernels

    n, h, w, c = x.shape
    norm = torch.empty(4, c, device=x.device)
    adds = shortcut is not None
    summed = x
    if shortcut is None:
        shortcut = x  # not read
    else:
        summed = torch.empty((n, h, w, c), dtype=x.dtype, device=x.device)
    launch(
        kernels.moments, (PROGRAMS,),
        x, shortcut, summed, norm, layer.running_mean, layer.running_var, layer.weight, layer.bias, *scratch,
        n * h * w, x.stride(2), shortcut.stride(2), layer.momentum, layer.eps,
        c, *_tile(c), adds, num_warps=_warps(c),
    )  # fmt: skip
    return summed, norm


def running_moments(layer: nn.BatchNorm2d, x: Tensor, shortcut: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the same as `moments` in evaluation, from the running statistics."""
    mean = layer.running_mean
    variance = layer.running_var
    if mean is None or variance is None:
        raise AssertionError("batch normalisation of these networks keeps running statistics")
    inverse = (variance + layer.eps).rsqrt()
    scale = layer.weight * inverse
    shift = layer.bias - mean * scale
    if shortcut is not None:
        x.add_(shortcut)
    return x, torch.stack((mean, inverse, scale, shift))


def rectify(x: Tensor, norm: Tensor, frame: bool) -> Tensor:
    """Return x normalised and rectified."""
    from oneof.networks.cuda import kernels

    n, h, w, c = x.shape
    out = torch.empty((n, h, w + 2 * frame, c), dtype=x.dtype, device=x.device)
    pixels = out.numel() // c
    block = ELEMENTS // 2 // c
    n_programs = -(-pixels // block)
    launch(kernels.rectify, (n_programs,), x, norm, out, pixels, x.stride(2), c, w, frame, block, num_warps=8)
    return out


def rectify_backward(
    scratch: Scratch,
    x: Tensor,
    gradient: Tensor,
    norm: Tensor,
    d_shortcut: Tensor | None,
    out: Tensor,
    copy_to: Tensor | None,
) -> Tensor:
    """Write the gradient of x, from that of `rectify`'s result, to `out`; return the gradients of beta and gamma [2, c].

    `d_shortcut`, the gradient that reaches x by the shortcut, is added; what is written to `out` is written to `copy_to` too.
    """
    from oneof.networks.cuda import kernels

    n, h, w, c = x.shape
    frame = gradient.shape[2] != w
    pixels = n * h * w
    sums = torch.empty(2, c, device=x.device)
    launch(
        kernels.rectified_sums, (PROGRAMS,),
        x, gradient, norm, sums, *scratch, pixels, x.stride(2), c, w, frame, *_tile(c), num_warps=_warps(c),
    )  # fmt: skip
    block = ELEMENTS // 2 // c
    n_programs = -(-pixels // block)
    adds = d_shortcut is not None
    copies = copy_to is not None
    copy_step = 0
    if d_shortcut is None:
        d_shortcut = gradient  # not read
    if copy_to is None:
        copy_to = out  # not written to twice
    else:
        copy_step = copy_to.stride(2)
    launch(
        kernels.rectified_gradient, (n_programs,),
        x, gradient, d_shortcut, norm, sums, out, copy_to,
        pixels, x.stride(2), out.stride(2), copy_step,
        c, w, frame, block, adds, copies, num_warps=8,
    )  # fmt: skip
    return sums


def pair_pixels(weight: Tensor, fill: int = 0) -> Tensor:
    """Return [o, i, 3, 3] as [2 o, 2 i, 3, 2]: the kernel that reads and writes two pixels of a framed row as one of twice the channels."""
    left = F.pad(weight, (0, 1), value=fill)
    right = F.pad(weight, (1, 0), value=fill)
    o, i, *_ = weight.shape
    pairs = torch.stack([left, right]).view(2, o, i, 3, 2, 2)
    return pairs.permute(0, 1, 5, 2, 3, 4).reshape(2 * o, 2 * i, 3, 2)


def channels_first(x: Tensor, pixels: int) -> Tensor:
    """Return [n, h, w, c] as channels-first [n, pixels c, h, w/pixels], the same memory: neighbours in a row are one."""
    n, h, w, c = x.shape
    return x.view(n, h, w // pixels, pixels * c).permute(0, 3, 1, 2)


def convolve(x: Tensor, weight: Tensor, stride: int) -> Tensor:
    """Compute a 3x3 convolution; paired if x is framed, which the weight's shape says."""
    pixels, settings = _convolution_settings(weight, stride)
    y = torch.ops.aten.convolution(channels_first(x, pixels), weight, *settings)
    return as_images(y, pixels)


def convolve_backward(x: Tensor, gradient: Tensor, weight: Tensor, stride: int) -> Tensor:
    """Compute the gradient of x, framed if x is."""
    pixels, settings = _convolution_settings(weight, stride)
    wanted = [True, False, False]  # of input, weight and bias
    d_x, _, _ = torch.ops.aten.convolution_backward(
        channels_first(gradient, pixels), channels_first(x, pixels), weight, *settings, wanted
    )
    return as_images(d_x, pixels)


def weight_gradient(x: Tensor, gradient: Tensor, weight: Tensor, stride: int) -> Tensor:
    """Compute the gradient [o, i, 3, 3] of the weight, as it was before it was paired."""
    pixels, settings = _convolution_settings(weight, stride)
    if pixels == 2:
        return _narrow_gradient(x, gradient)
    wanted = [False, True, False]  # of input, weight and bias
    _, d_weight, _ = torch.ops.aten.convolution_backward(
        channels_first(gradient, 1), channels_first(x, 1), weight, *settings, wanted
    )
    return d_weight  # type: ignore[no-any-return]


def _narrow_gradient(x: Tensor, gradient: Tensor) -> Tensor:
    """Compute the weight gradient of a paired convolution."""
    from oneof.networks.cuda import kernels

    n, h, w, o = gradient.shape
    i = x.shape[3]
    pixels = n * h * w
    # Triton needs powers of two: four columns, of which three count.
    parts = torch.empty(PARTS, 3, 4 * i, o, device=x.device)
    steps = -(-pixels // (128 * PARTS))
    launch(kernels.narrow_gradient, (PARTS,), x, gradient, parts, pixels, steps, h, w, i, o, 4 * i, 128, 3)
    total = parts.sum(0)
    return total[:, : 3 * i].reshape(3, 3, i, o).permute(3, 2, 0, 1)


def as_images(x: Tensor, pixels: int) -> Tensor:
    """Return channels-first [n, pixels c, h, w] as images [n, h, pixels w, c]: the same memory where channels lie innermost."""
    channels_last = x.permute(0, 2, 3, 1).contiguous()
    n, h, w, c = channels_last.shape
    return channels_last.view(n, h, pixels * w, c // pixels)


def in_float32(tensors: list[Tensor]) -> list[Tensor]:
    """Return the tensors in float32, converted in one go."""
    converted = []
    sources = []
    targets = []
    for tensor in tensors:
        target = tensor
        if tensor.dtype != torch.float32:
            target = torch.empty_like(tensor, dtype=torch.float32)
            sources.append(tensor)
            targets.append(target)
        converted.append(target)
    if sources:
        torch._foreach_copy_(targets, sources)
    return converted


def _convolution_settings(weight: Tensor, stride: int) -> tuple[int, tuple[Any, ...]]:
    """Return how many pixels are read as one, and the arguments of aten's convolution after its tensors.

    A row above and below is padded; columns only where there is no frame.
    """
    pixels = 1
    padding = [1, 1]
    is_paired = weight.shape[3] == 2
    if is_paired:
        pixels = 2
        padding = [1, 0]
    bias = None
    strides = [stride, stride]
    dilation = [1, 1]
    transposed = False
    output_padding = [0, 0]
    groups = 1
    return pixels, (bias, strides, padding, dilation, transposed, output_padding, groups)
