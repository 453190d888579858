"""Scaling of features as one affine map, fitted on training rows only.

It decides as much as the method: principal components must not be z-scored one by one, or noise is blown up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


class Affine(NamedTuple):
    """x -> (x - shift) * scale, per feature."""

    shift: Tensor  # [d]
    scale: Tensor  # [d]


def none(x: Tensor) -> Affine:
    """Leave the features as they are."""
    return Affine(torch.zeros_like(x[0]), torch.ones_like(x[0]))


def whole(x: Tensor) -> Affine:
    """Centre each feature; divide all by one number, the root mean square of what is left."""
    shift = x.mean(0)
    return Affine(shift, _inverse((x - shift).square().mean().sqrt()).expand_as(shift))


def feature(x: Tensor) -> Affine:
    """Zero mean and unit deviation for each feature; a constant feature becomes zero."""
    shift = x.mean(0)
    return Affine(shift, _inverse((x - shift).square().mean(0).sqrt()))


def minmax(x: Tensor) -> Affine:
    """Each feature onto [0, 1]; a constant feature becomes zero."""
    low = x.amin(0)
    return Affine(low, _inverse(x.amax(0) - low))


def _inverse(spread: Tensor) -> Tensor:
    return torch.where(spread > 1e-12, 1 / spread, 0.0)


SCALINGS: dict[str, Callable[[Tensor], Affine]] = {"none": none, "global": whole, "feature": feature, "minmax": minmax}
