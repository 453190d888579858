"""Networks for tables: a network is anything that, called with the shape of an example and the number of classes, builds a module."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

Network = Callable[[tuple[int, ...], int], nn.Module]
"""Builds a module that maps a batch [b, *shape] to logits [b, c]; a user's own function or class will do."""


@dataclass(frozen=True)
class Linear:
    """One affine layer."""

    def __call__(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        return MLP(hidden=())(shape, classes)


@dataclass(frozen=True)
class MLP:
    """Affine layers with ReLU between them.

    >>> MLP(hidden=(32, 16))((64,), 10)
    Sequential(
      (0): Linear(in_features=64, out_features=32, bias=True)
      (1): ReLU()
      (2): Linear(in_features=32, out_features=16, bias=True)
      (3): ReLU()
      (4): Linear(in_features=16, out_features=10, bias=True)
    )
    """

    hidden: tuple[int, ...] = (128,)

    def __call__(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        widths = [math.prod(shape), *self.hidden]
        layers: list[nn.Module] = [nn.Flatten()] if len(shape) > 1 else []
        for before, after in itertools.pairwise(widths):
            layers += [nn.Linear(before, after), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(widths[-1], classes))
