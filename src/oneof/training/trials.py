"""Trials: what one run of many is given."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from oneof.data.scaling import Scaling
from oneof.purify import Purify


@dataclass(frozen=True, eq=False)
class Trial:
    """One training run: its randomness, its rows of the data, its rates.

    Rows are indices into the x and candidates given to `fit`.
    """

    seed: int = 0
    rows: NDArray[np.intp] | None = None  # to train on; None: all
    held_out: NDArray[np.intp] | None = None  # their *sets* choose the epoch
    test: NDArray[np.intp] | None = None  # their labels, if given, are reported and choose nothing
    lr: float = 0.05
    weight_decay: float = 1e-3
    scaling: str | Scaling = "none"  # a key of oneof.data.scaling.SCALINGS, or a function like those; fitted on `rows`
    purify: Purify | None = None  # this trial's own numbers, in place of fit's
    start: Mapping[str, Tensor] | None = None  # weights to start from; None: drawn by the seed
