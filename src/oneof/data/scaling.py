"""Scaling of features as one affine map, fitted on training rows only.

It decides as much as the method: principal components must not be z-scored one by one, or noise is blown up.
"""

from collections.abc import Callable
from dataclasses import dataclass
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


def root(x: Tensor) -> Affine:
    """Between `global` and `feature`: each feature divided by the root of its deviation, then all by one number."""
    shift = x.mean(0)
    scale = _inverse((x - shift).square().mean(0).sqrt().sqrt())
    return Affine(shift, scale * _inverse(((x - shift) * scale).square().mean().sqrt()))


def minmax(x: Tensor) -> Affine:
    """Each feature onto [0, 1]; a constant feature becomes zero."""
    low = x.amin(0)
    return Affine(low, _inverse(x.amax(0) - low))


def _inverse(spread: Tensor) -> Tensor:
    return torch.where(spread > 1e-12, 1 / spread, 0.0)


Scaling = Callable[[Tensor], Affine]
SCALINGS: dict[str, Scaling] = {"none": none, "global": whole, "feature": feature, "root": root, "minmax": minmax}


@dataclass(frozen=True)
class Beside:
    """For features that stand beside their ranks [n, 2d] (`oneof.data.with_ranks`): one, the other, or both are seen.

    Indicators, features of 0 and 1, are not divided by their deviation: they would be the larger the rarer they are, and a
    category of fifteen values would weigh as much as fifteen numbers. As 0 and 1, two rows with different values of a category are
    as far apart as two rows are in one number on average.

    >>> Beside(None)(torch.tensor([[1.0, -1.0], [3.0, 1.0]])).scale
    tensor([0., 1.])
    >>> Beside("feature", ranks=False)(torch.tensor([[0.0, -1.0], [1.0, 1.0]])).scale
    tensor([1., 0.])
    """

    raw: str | None  # scaling of the features themselves; None: only their ranks are seen
    ranks: bool = True

    def __call__(self, x: Tensor) -> Affine:
        d = x.shape[1] // 2
        features, scores = x[:, :d], x[:, d:]
        raw = SCALINGS[self.raw or "none"](features)
        ranks = feature(scores)
        indicators = ((features == 0) | (features == 1)).all(0)
        raw_scale = raw.scale
        if self.raw == "feature":
            raw_scale = torch.where(indicators, raw.scale.clamp(max=1.0), raw.scale)
        rank_scale = torch.where(indicators, _inverse(scores.amax(0) - scores.amin(0)), ranks.scale)
        parted = 2**0.5 if self.raw and self.ranks else 1
        seen = torch.tensor([self.raw is not None, self.ranks], dtype=x.dtype) / parted
        scale = torch.cat([raw_scale * float(seen[0]), rank_scale * float(seen[1])])
        return Affine(torch.cat([raw.shift, ranks.shift]), scale)
