"""Scale features by an affine map that is fitted on training rows only.

The choice matters as much as the method: standardising principal components one by one, for example, amplifies noise.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor


class Affine(NamedTuple):
    """The map x -> (x - shift) * scale of each feature."""

    shift: Tensor  # [d]
    scale: Tensor  # [d]


def none(x: Tensor) -> Affine:
    """Leave the features as they are."""
    return Affine(torch.zeros_like(x[0]), torch.ones_like(x[0]))


def global_scale(x: Tensor) -> Affine:
    """Centre each feature; divide all of them by one number, the root mean square of the centred features."""
    shift = x.mean(0)
    root_mean_square = (x - shift).square().mean().sqrt()
    return Affine(shift, _inverse(root_mean_square).expand_as(shift))


def feature(x: Tensor) -> Affine:
    """Standardise each feature to zero mean and unit deviation; a constant feature becomes zero."""
    shift = x.mean(0)
    deviation = (x - shift).square().mean(0).sqrt()
    return Affine(shift, _inverse(deviation))


def root(x: Tensor) -> Affine:
    """Divide each feature by the square root of its deviation, then all by one number: between `global` and `feature`."""
    shift = x.mean(0)
    deviation = (x - shift).square().mean(0).sqrt()
    scale = _inverse(deviation.sqrt())
    root_mean_square = ((x - shift) * scale).square().mean().sqrt()
    return Affine(shift, scale * _inverse(root_mean_square))


def minmax(x: Tensor) -> Affine:
    """Map each feature to [0, 1]; a constant feature becomes zero."""
    low = x.amin(0)
    return Affine(low, _inverse(x.amax(0) - low))


def _inverse(spread: Tensor) -> Tensor:
    """Return 1 / spread, and zero for a constant feature."""
    return torch.where(spread > 1e-12, 1 / spread, 0.0)


Scaling = Callable[[Tensor], Affine]
SCALINGS: dict[str, Scaling] = {
    "none": none,
    "global": global_scale,
    "feature": feature,
    "root": root,
    "minmax": minmax,
}


@dataclass(frozen=True)
class RawAndRankScaling:
    """Scale features followed by their ranks [n, 2d] (`oneof.data.with_ranks`); either half, or both, stay visible.

    Indicators, features of 0 and 1, are not divided by their deviation: a rare one would become large, and a category of fifteen
    values would weigh as much as fifteen numbers. Left as 0 and 1, two rows with different values of a category are as far apart as
    two rows are in one number on average.

    >>> RawAndRankScaling(None)(torch.tensor([[1.0, -1.0], [3.0, 1.0]])).scale
    tensor([0., 1.])
    >>> RawAndRankScaling("feature", ranks=False)(torch.tensor([[0.0, -1.0], [1.0, 1.0]])).scale
    tensor([1., 0.])
    """

    STORED_KIND: ClassVar[str] = "Beside"  # its name in checkpoints

    raw: str | None  # scaling of the raw features; None sets them to zero and keeps only the ranks
    ranks: bool = True  # whether the ranks are kept

    def __call__(self, x: Tensor) -> Affine:
        """Fit the map on training rows x [n, 2d]."""
        d = x.shape[1] // 2
        features = x[:, :d]
        scores = x[:, d:]
        raw = SCALINGS[self.raw or "none"](features)
        ranks = feature(scores)
        is_indicator = ((features == 0) | (features == 1)).all(0)
        raw_scale = raw.scale
        if self.raw == "feature":
            raw_scale = torch.where(is_indicator, raw.scale.clamp(max=1.0), raw.scale)
        score_range = scores.amax(0) - scores.amin(0)
        rank_scale = torch.where(is_indicator, _inverse(score_range), ranks.scale)
        divisor = 1.0
        if self.raw and self.ranks:  # both halves are visible: squared distances stay as large as with one
            divisor = 2**0.5
        weights = torch.tensor([self.raw is not None, self.ranks], dtype=x.dtype) / divisor
        scale = torch.cat([raw_scale * float(weights[0]), rank_scale * float(weights[1])])
        return Affine(torch.cat([raw.shift, ranks.shift]), scale)
