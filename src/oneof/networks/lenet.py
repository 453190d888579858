"""LeNet with batch normalisation, the network of the paper for MNIST-like images."""

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from oneof.networks.blocks import ALIGNED, convolve_blocks, windows_times
from oneof.networks.classifier import Classifier, check_images


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
        body = Body(
            *_convolved(channels, 20),
            *_convolved(20, 50),
            nn.Flatten(),
            nn.Linear(50 * (height // 4) * (width // 4), 500, bias=False),
            nn.BatchNorm1d(500),
            nn.ReLU(),
        )
        return Classifier(body, 500, classes)


class Body(nn.Sequential):
    """The layers in their order; when compiled, the convolutions go block by block, and pooling is a maximum in a block.

    Of equal largest values in a block the pooling layer gives the first the whole gradient, the maximum gives each its share.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not torch.compiler.is_compiling() or x.shape[2] % 4 or x.shape[3] % 4:
            return super().forward(x)  # type: ignore[no-any-return, no-untyped-call]
        first, norm1, _, _, second, norm2, _, _, _, affine, norm3, _ = self
        x = _pooled(norm1, windows_times(x, cast(Tensor, first.weight)))
        x = _pooled(norm2, convolve_blocks(x.permute(0, 3, 1, 2), cast(Tensor, second.weight)))
        return norm3(_affine(x, cast(Tensor, affine.weight))).relu()  # type: ignore[no-any-return]


def _convolved(before: int, after: int) -> list[nn.Module]:
    convolution = nn.Conv2d(before, after, 5, padding=2, bias=False)
    return [convolution, nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]


def _pooled(norm: nn.Module, y: Tensor) -> Tensor:
    """Blocks [n, h, w, 4, o] normalised, rectified and pooled: [n, h, w, o]."""
    n, h, w, _, o = y.shape
    pixels = y.flatten(1, 2).permute(0, 3, 1, 2)  # [n, o, hw, 4], as the layer wants its channels
    return norm(pixels).relu().amax(3).transpose(1, 2).reshape(n, h, w, o)  # type: ignore[no-any-return]


def _affine(x: Tensor, weight: Tensor) -> Tensor:
    """The affine layer on x [n, h, w, c], whose weights are for channels first; both sides filled up with zeros."""
    outputs, inputs = weight.shape
    weight = weight.view(outputs, x.shape[3], -1).transpose(1, 2).flatten(1)
    more = -inputs % ALIGNED
    filled = F.pad(weight, (0, more, 0, -outputs % ALIGNED))
    return F.linear(F.pad(x.flatten(1), (0, more)), filled)[:, :outputs]
