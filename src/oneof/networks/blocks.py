"""Convolutions of few channels, computed for the four pixels of every 2x2 block at once.

On a GPU a convolution from 1 or 20 channels wastes the matrix units: cuDNN pads the channels and falls back to slow kernels.
The outputs of a block are four products of one larger window with four shifted kernels, so four times as many channels go in and
come out. The function is the same; docs/decisions/0004-speed-on-the-card.md has what it gives.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

ALIGNED = 8  # bfloat16 numbers in the 16 bytes that the matrix units load at once


def windows_times(x: Tensor, weight: Tensor) -> Tensor:
    """A convolution that keeps the image's size, as one matrix product; meant for a first layer, whose input needs no gradient.

    x [n, i, h, w] with even h and w, weight [o, i, k, k] with odd k; the result [n, h/2, w/2, 4, o] has a block's pixels in the
    order of reading.

    >>> windows_times(torch.ones(2, 3, 8, 8), torch.ones(5, 3, 3, 3)).shape
    torch.Size([2, 4, 4, 4, 5])
    """
    n, _, h, w = x.shape
    o, _, k, _ = weight.shape
    rows = F.pad(x, (k // 2,) * 4).unfold(2, k + 1, 2).unfold(3, k + 1, 2)
    rows = rows.permute(0, 2, 3, 4, 5, 1).reshape(n * h * w // 4, -1)
    kernel = _shifted(weight).permute(0, 2, 3, 1).flatten(1)
    more = -rows.shape[1] % ALIGNED
    return F.linear(F.pad(rows, (0, more)), F.pad(kernel, (0, more))).view(n, h // 2, w // 2, 4, o)


def convolve_blocks(x: Tensor, weight: Tensor) -> Tensor:
    """The same result as a convolution over blocks, which has a fast gradient for x too.

    >>> x, weight = torch.rand(2, 3, 8, 8), torch.rand(5, 3, 5, 5)
    >>> torch.allclose(convolve_blocks(x, weight), windows_times(x, weight), atol=1e-5)
    True
    """
    o, _, k, _ = weight.shape
    y = F.conv2d(_blocks(F.pad(x, (k // 2,) * 4)), _blocks(_shifted(weight))).permute(0, 2, 3, 1)
    return y.reshape(*y.shape[:3], 4, o)


def _blocks(x: Tensor) -> Tensor:
    """Images [n, c, h, w] with the pixels of a block as channels [n, 4 c, h/2, w/2], channels innermost in memory."""
    n, c, h, w = x.shape
    pixels = x.reshape(n, c, h // 2, 2, w // 2, 2).permute(0, 3, 5, 1, 2, 4).flatten(1, 3)
    return pixels.contiguous(memory_format=torch.channels_last)


def _shifted(weight: Tensor) -> Tensor:
    """Kernels [4 o, i, k+1, k+1] for the four pixels of a block, over the window that all of them see."""
    return torch.stack([F.pad(weight, (x, 1 - x, y, 1 - y)) for y in (0, 1) for x in (0, 1)]).flatten(0, 1)
