"""Trials: what one run of many is given, and how many are trained together."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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


def cut(trials: Sequence[Trial], bytes_each: int, limit: int) -> list[Sequence[Trial]]:
    """Stacks of as many trials as fit under the limit, as even as can be; at least one each.

    >>> [len(part) for part in cut([Trial()] * 7, bytes_each=10, limit=35)]
    [3, 3, 1]
    """
    most = max(1, limit // max(1, bytes_each))
    size = -(-len(trials) // -(-len(trials) // most))
    return [trials[start : start + size] for start in range(0, len(trials), size)]
