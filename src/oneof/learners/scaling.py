"""Scale features and their ranks in one of several ways: the one place where learners scale a table."""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oneof.data.scaling import Affine, RawAndRankScaling
from oneof.data.with_ranks import QuantileNormalizer, fit_quantiles, fit_quantiles_on_device
from oneof.training.set_input import as_tensor

SCALINGS_WITH_RANKS = {
    "feature": RawAndRankScaling("feature", ranks=False),
    "global": RawAndRankScaling("global", ranks=False),
    "root": RawAndRankScaling("root", ranks=False),
    "minmax": RawAndRankScaling("minmax", ranks=False),
    "none": RawAndRankScaling("none", ranks=False),
    "ranks": RawAndRankScaling(None),
    "both": RawAndRankScaling("feature"),
}
"""How features followed by their ranks may be scaled; "both" standardises the features and keeps the ranks."""


class RankedFeatures(NamedTuple):
    """Features followed by their ranks, and the map that computes the ranks of new rows."""

    ranks: QuantileNormalizer
    values: NDArray[np.float64] | Tensor  # [n, 2d]; on a GPU a tensor


def append_ranks(x: NDArray[Any], device: torch.device) -> RankedFeatures:
    """Return features x [n, d] with their ranks; unless on the CPU, as a tensor there."""
    if device.type == "cpu":
        ranks = fit_quantiles(x)
        return RankedFeatures(ranks, ranks(x))
    on_device = as_tensor(x, None, device)
    ranks = fit_quantiles_on_device(on_device)
    return RankedFeatures(ranks, ranks.on_device(on_device))


def scale(values: NDArray[np.float64] | Tensor, scaling: str) -> tuple[Any, Affine]:
    """Return features with ranks [n, 2d] scaled in one way, without the columns that it hides, and the map.

    Arrays stay arrays, and tensors tensors.
    """
    tensor = torch.as_tensor(values)
    shift, factor = SCALINGS_WITH_RANKS[scaling](tensor)
    scaled = ((tensor - shift) * factor)[:, factor != 0]
    result = scaled if isinstance(values, Tensor) else scaled.numpy()
    return result, Affine(shift.cpu(), factor.cpu())
