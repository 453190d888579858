"""LeNet with batch normalisation, the network of the paper for MNIST-like images."""

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from oneof.networks.classifier import Classifier, check_images

ALIGNED = 8  # bfloat16 numbers in the 16 bytes that the matrix units load at once


@dataclass(frozen=True)
class LeNet:
    """Two convolutions and two affine layers, batch normalisation before every ReLU.

        conv 5x5 -> 20, max pool 2;  conv 5x5 -> 50, max pool 2;  affine -> 500;  affine -> c

    Differs from the authors' code: no bias where batch normalisation follows, which would take it off again.

    >>> LeNet()((1, 28, 28), 10).body[9]
    Linear(in_features=2450, out_features=500, bias=False)
    """

    def __call__(self, shape: tuple[int, ...], classes: int) -> Classifier:
        channels, height, width = check_images("LeNet", shape)
        n_features = 50 * (height // 4) * (width // 4)
        body = LeNetBody(  # weights are drawn in this order
            *_convolution_layers(channels, 20),
            *_convolution_layers(20, 50),
            nn.Flatten(),
            nn.Linear(n_features, 500, bias=False),
            nn.BatchNorm1d(500),
            nn.ReLU(),
        )
        return Classifier(body, 500, classes)


class LeNetBody(nn.Sequential):
    """The layers in their order; compiled, it computes convolutions for the four pixels of a 2x2 block at once, and pools by a maximum.

    On a GPU a convolution from 1 or 20 channels wastes the matrix units: cuDNN pads the channels and falls back to slow kernels. The
    outputs of a block are four products of one larger window with four shifted kernels: four times as many channels.
    docs/decisions/0004-speed-on-the-card.md has the measurements. Of equal largest values in a block the pooling layer gives the first the whole gradient, the maximum gives each its share.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not torch.compiler.is_compiling() or x.shape[2] % 4 or x.shape[3] % 4:
            return super().forward(x)  # type: ignore[no-any-return, no-untyped-call]
        first, norm1, _, _, second, norm2, _, _, _, affine, norm3, _ = self
        blocks = windows_times(x, cast(Tensor, first.weight))
        x = _normalise_and_pool(norm1, blocks)
        blocks = convolve_blocks(x.permute(0, 3, 1, 2), cast(Tensor, second.weight))
        x = _normalise_and_pool(norm2, blocks)
        x = _affine(x, cast(Tensor, affine.weight))
        return norm3(x).relu()  # type: ignore[no-any-return]


def _convolution_layers(before: int, after: int) -> list[nn.Module]:
    convolution = nn.Conv2d(before, after, 5, padding=2, bias=False)
    return [convolution, nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]


def _normalise_and_pool(norm: nn.Module, blocks: Tensor) -> Tensor:
    """Normalise, rectify and pool blocks [n, h, w, 4, o]: [n, h, w, o]."""
    n, h, w, _, o = blocks.shape
    pixels = blocks.flatten(1, 2).permute(0, 3, 1, 2)  # [n, o, hw, 4]: batch normalisation has channels second
    active = norm(pixels).relu()
    return active.amax(3).transpose(1, 2).reshape(n, h, w, o)  # type: ignore[no-any-return]


def _affine(x: Tensor, weight: Tensor) -> Tensor:
    """Apply an affine layer, whose weights are for channels first, to x [n, h, w, c]; zeros fill up inputs and outputs."""
    n_outputs, n_inputs = weight.shape
    channels_last = weight.view(n_outputs, x.shape[3], -1).transpose(1, 2).flatten(1)
    more_inputs = -n_inputs % ALIGNED
    more_outputs = -n_outputs % ALIGNED
    padded_weight = F.pad(channels_last, (0, more_inputs, 0, more_outputs))
    padded_x = F.pad(x.flatten(1), (0, more_inputs))
    return F.linear(padded_x, padded_weight)[:, :n_outputs]


def windows_times(x: Tensor, weight: Tensor) -> Tensor:
    """Compute a convolution that keeps the image's size as one matrix product; for a first layer, whose input needs no gradient.

    x [n, i, h, w] with even h and w, weight [o, i, k, k] with odd k; the result [n, h/2, w/2, 4, o] has a block's pixels in the
    order of reading.

    >>> windows_times(torch.ones(2, 3, 8, 8), torch.ones(5, 3, 3, 3)).shape
    torch.Size([2, 4, 4, 4, 5])
    """
    n, _, h, w = x.shape
    o, _, k, _ = weight.shape
    padded = F.pad(x, (k // 2,) * 4)
    windows = padded.unfold(2, k + 1, 2).unfold(3, k + 1, 2)
    rows = windows.permute(0, 2, 3, 4, 5, 1).reshape(n * h * w // 4, -1)
    kernel = _shifted_kernels(weight).permute(0, 2, 3, 1).flatten(1)
    more = -rows.shape[1] % ALIGNED
    product = F.linear(F.pad(rows, (0, more)), F.pad(kernel, (0, more)))
    return product.view(n, h // 2, w // 2, 4, o)


def convolve_blocks(x: Tensor, weight: Tensor) -> Tensor:
    """Compute the same result as a convolution over blocks, which has a fast gradient for x too.

    >>> x, weight = torch.rand(2, 3, 8, 8), torch.rand(5, 3, 5, 5)
    >>> torch.allclose(convolve_blocks(x, weight), windows_times(x, weight), atol=1e-5)
    True
    """
    o, _, k, _ = weight.shape
    padded = F.pad(x, (k // 2,) * 4)
    y = F.conv2d(_blocks_as_channels(padded), _blocks_as_channels(_shifted_kernels(weight)))
    y = y.permute(0, 2, 3, 1)
    return y.reshape(*y.shape[:3], 4, o)


def _blocks_as_channels(x: Tensor) -> Tensor:
    """Return images [n, c, h, w] with the pixels of a block as channels [n, 4 c, h/2, w/2], channels innermost in memory."""
    n, c, h, w = x.shape
    blocks = x.reshape(n, c, h // 2, 2, w // 2, 2)
    pixels = blocks.permute(0, 3, 5, 1, 2, 4).flatten(1, 3)
    return pixels.contiguous(memory_format=torch.channels_last)


def _shifted_kernels(weight: Tensor) -> Tensor:
    """Return kernels [4 o, i, k+1, k+1] for the four pixels of a block, over the window that they share."""
    shifted = []
    for y in (0, 1):
        for x in (0, 1):
            shifted.append(F.pad(weight, (x, 1 - x, y, 1 - y)))
    return torch.cat(shifted)
