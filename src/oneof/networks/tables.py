"""Networks for tables: affine layers, plain or with batch normalisation. Images are flattened."""

import itertools
import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from oneof.networks.classifier import Classifier


class StackedLinear(nn.Linear):
    """A linear layer whose weights may have a leading axis t, and its input too: then it is t layers at once."""

    def forward(self, x: Tensor) -> Tensor:
        if self.weight.dim() == 2:
            return super().forward(x)
        # Transposed, so that gradients have the memory layout of the weights.
        return torch.baddbmm(self.bias[:, :, None], self.weight, x.mT).mT


@dataclass(frozen=True)
class Linear:
    """One affine layer; the features are the input itself."""

    def __call__(self, shape: tuple[int, ...], classes: int) -> Classifier:
        return MLP(hidden=())(shape, classes)


@dataclass(frozen=True)
class MLP:
    """Affine layers with ReLU between them.

    >>> MLP(hidden=(32, 16))((64,), 10)
    Classifier(
      (body): Sequential(
        (0): StackedLinear(in_features=64, out_features=32, bias=True)
        (1): ReLU()
        (2): StackedLinear(in_features=32, out_features=16, bias=True)
        (3): ReLU()
      )
      (head): StackedLinear(in_features=16, out_features=10, bias=True)
    )
    """

    hidden: tuple[int, ...] = (128,)

    def __call__(self, shape: tuple[int, ...], classes: int) -> Classifier:
        widths = [math.prod(shape), *self.hidden]
        layers = _flatten_layers(shape)
        for before, after in itertools.pairwise(widths):
            layers.append(StackedLinear(before, after))
            layers.append(nn.ReLU())
        module = Classifier(nn.Sequential(*layers), widths[-1], classes, StackedLinear)
        module.batched_weights = len(shape) == 1  # nn.Flatten takes no leading axis
        return module


@dataclass(frozen=True)
class GeneratorMLP:
    """The network whose posterior draws candidate sets for MNIST-like images: 784-300-301-302-303-c.

    Batch normalisation after every hidden layer, and no bias but on the last layer.

    >>> GeneratorMLP()((1, 28, 28), 10).width
    303
    """

    hidden: tuple[int, ...] = (300, 301, 302, 303)

    def __call__(self, shape: tuple[int, ...], classes: int) -> Classifier:
        widths = [math.prod(shape), *self.hidden]
        layers = _flatten_layers(shape)
        for before, after in itertools.pairwise(widths):
            layers.append(nn.Linear(before, after, bias=False))
            layers.append(nn.BatchNorm1d(after))
            layers.append(nn.ReLU())
        return Classifier(nn.Sequential(*layers), widths[-1], classes)


def _flatten_layers(shape: tuple[int, ...]) -> list[nn.Module]:
    """Return a layer that makes a row of an image; no layer if examples are rows."""
    if len(shape) > 1:
        return [nn.Flatten()]
    return []
