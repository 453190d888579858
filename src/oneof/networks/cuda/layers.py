"""The layers that the kernels make up: what is launched, on how many programs, with which tensors.

All images are [n, h, w, c] in memory. `framed` ones have a column of zeros on either side: for 3x3 convolutions of few channels,
where two neighbouring pixels are read as one of twice the channels (`paired`), which fills the matrix units.
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
    """What kernels need beside their tensors: places for parts of sums, and the count of programs that have left theirs."""
    return torch.empty(PROGRAMS * 2 * WIDEST, device=device), torch.zeros(1, dtype=torch.int32, device=device)


def _tile(c: int) -> tuple[int, int, int, int]:
    """How sums are taken: pixels at a time, programs, how many of their parts are added up at a time, loads in flight."""
    pixels = ELEMENTS * _warps(c) // 8 // c
    return pixels, PROGRAMS, min(PROGRAMS, pixels), STAGES


def _warps(c: int) -> int:
    return 8 if c < 128 else 4


def moments(room: Scratch, layer: nn.BatchNorm2d, x: Tensor, kept: Tensor | None) -> tuple[Tensor, Tensor]:
    """x (plus what was kept), and the numbers [4, c] that normalise it; the layer's running statistics move."""
    from oneof.networks.cuda import kernels

    n, h, w, c = x.shape
    norm = torch.empty(4, c, device=x.device)
    summed = x if kept is None else torch.empty((n, h, w, c), dtype=x.dtype, device=x.device)
    other = x if kept is None else kept
    launch(
        kernels.moments, (PROGRAMS,),
        x, other, summed, norm, layer.running_mean, layer.running_var, layer.weight, layer.bias, *room,
        n * h * w, x.stride(2), other.stride(2), layer.momentum, layer.eps,
        c, *_tile(c), kept is not None, num_warps=_warps(c),
    )  # fmt: skip
    return summed, norm


def settled(layer: nn.BatchNorm2d, x: Tensor, kept: Tensor | None) -> tuple[Tensor, Tensor]:
    """The same in evaluation, from the running statistics."""
    mean, var = layer.running_mean, layer.running_var
    if mean is None or var is None:
        raise AssertionError("batch normalisation of these networks keeps running statistics")
    inverse = (var + layer.eps).rsqrt()
    scale = layer.weight * inverse
    return x if kept is None else x.add_(kept), torch.stack((mean, inverse, scale, layer.bias - mean * scale))


def rectify(x: Tensor, norm: Tensor, frame: bool) -> Tensor:
    """Normalised and rectified."""
    from oneof.networks.cuda import kernels

    n, h, w, c = x.shape
    out = torch.empty((n, h, w + 2 * frame, c), dtype=x.dtype, device=x.device)
    pixels, block = out.numel() // c, ELEMENTS // 2 // c
    programs = (-(-pixels // block),)
    launch(kernels.rectify, programs, x, norm, out, pixels, x.stride(2), c, w, frame, block, num_warps=8)
    return out


def rectify_backward(
    room: Scratch, x: Tensor, gradient: Tensor, norm: Tensor, kept: Tensor | None, out: Tensor, again: Tensor | None
) -> Tensor:
    """Writes to `out` (and `again`) the gradient of x from that of the rectified, plus what was kept; gives those of beta and gamma."""
    from oneof.networks.cuda import kernels

    n, h, w, c = x.shape
    frame, pixels, block = gradient.shape[2] != w, n * h * w, ELEMENTS // 2 // c
    sums = torch.empty(2, c, device=x.device)
    launch(
        kernels.rectified_sums, (PROGRAMS,),
        x, gradient, norm, sums, *room, pixels, x.stride(2), c, w, frame, *_tile(c), num_warps=_warps(c),
    )  # fmt: skip
    launch(
        kernels.rectified_gradient, (-(-pixels // block),),
        x, gradient, gradient if kept is None else kept, norm, sums, out, out if again is None else again,
        pixels, x.stride(2), out.stride(2), 0 if again is None else again.stride(2),
        c, w, frame, block, kept is not None, again is not None, num_warps=8,
    )  # fmt: skip
    return sums


def paired(weight: Tensor, fill: int = 0) -> Tensor:
    """[o, i, 3, 3] as [2 o, 2 i, 3, 2]: the kernel that reads and writes two pixels of a framed row as one of twice the channels."""
    two = [F.pad(weight, (right, 1 - right), value=fill) for right in (0, 1)]
    o, i, *_ = weight.shape
    return torch.stack(two).view(2, o, i, 3, 2, 2).permute(0, 1, 5, 2, 3, 4).reshape(2 * o, 2 * i, 3, 2)


def channels_first(x: Tensor, pixels: int) -> Tensor:
    """[n, h, w, c] as channels-first [n, pixels c, h, w/pixels], the same memory: neighbours in a row are one."""
    n, h, w, c = x.shape
    return x.view(n, h, w // pixels, pixels * c).permute(0, 3, 1, 2)


def convolve(x: Tensor, weight: Tensor, stride: int) -> Tensor:
    """A 3x3 convolution; paired if x is framed, which the weight's shape says."""
    pixels, settings = _form(weight, stride)
    return as_images(torch.ops.aten.convolution(channels_first(x, pixels), weight, *settings), pixels)


def convolve_backward(x: Tensor, gradient: Tensor, weight: Tensor, stride: int) -> Tensor:
    """The gradient of x, framed if x is."""
    pixels, settings = _form(weight, stride)
    both = channels_first(gradient, pixels), channels_first(x, pixels)
    return as_images(torch.ops.aten.convolution_backward(*both, weight, *settings, [True, False, False])[0], pixels)


def weight_gradient(x: Tensor, gradient: Tensor, weight: Tensor, stride: int) -> Tensor:
    """The gradient [o, i, 3, 3] of the weight, as it was before it was paired."""
    pixels, settings = _form(weight, stride)
    if pixels == 2:
        return _narrow_gradient(x, gradient)
    both = channels_first(gradient, 1), channels_first(x, 1)
    return torch.ops.aten.convolution_backward(*both, weight, *settings, [False, True, False])[1]  # type: ignore[no-any-return]


def _narrow_gradient(x: Tensor, gradient: Tensor) -> Tensor:
    from oneof.networks.cuda import kernels

    n, h, w, o = gradient.shape
    i, pixels = x.shape[3], n * h * w
    # Triton wants powers of two: four columns of which three count
    parts = torch.empty(PARTS, 3, 4 * i, o, device=x.device)
    steps = -(-pixels // (128 * PARTS))
    launch(kernels.narrow_gradient, (PARTS,), x, gradient, parts, pixels, steps, h, w, i, o, 4 * i, 128, 3)
    return parts.sum(0)[:, : 3 * i].reshape(3, 3, i, o).permute(3, 2, 0, 1)


def as_images(x: Tensor, pixels: int) -> Tensor:
    """Channels-first [n, pixels c, h, w] as images [n, h, pixels w, c]: the same memory where channels lie innermost."""
    inner = x.permute(0, 2, 3, 1).contiguous()
    n, h, w, c = inner.shape
    return inner.view(n, h, pixels * w, c // pixels)


def in_float32(found: list[Tensor]) -> list[Tensor]:
    """The tensors in float32, converted in one go."""
    rounded = [one for one in found if one.dtype != torch.float32]
    exact = [torch.empty_like(one, dtype=torch.float32) for one in rounded]
    if rounded:
        torch._foreach_copy_(exact, rounded)
    converted = iter(exact)
    return [one if one.dtype == torch.float32 else next(converted) for one in found]


def _form(weight: Tensor, stride: int) -> tuple[int, tuple[Any, ...]]:
    """Pixels that are read as one; and what aten wants beside its tensors: no bias, stride, padding, dilation, no transposition, groups.

    A row above and below is filled up, beside only where there is no frame.
    """
    paired = weight.shape[3] == 2
    return 1 + paired, (None, [stride, stride], [1, int(not paired)], [1, 1], False, [0, 0], 1)
