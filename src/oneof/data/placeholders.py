"""Find numbers that stand for a missing value, such as -999."""

import numpy as np
from numpy.typing import NDArray

_NEGATIVE = (-99, -999, -9999, -99999, -999999)
_POSITIVE = (999, 9999, 99999, 999999)
_MIN_CELLS = 3  # that hold the number: a single one may be a mistake, which is left to the user
_MIN_RATIO = 3  # of the distance of a positive number from the other values to their range


def find_placeholder(values: NDArray[np.float32]) -> float | None:
    """Return the number in a column [n] that stands for a missing value; None if there is none.

    It consists of nines, is repeated, and lies apart from all other values. A negative number does if the others are not negative, or if it is
    farther from them than their range; a positive one if it is several times as far.
    """
    known = values[~np.isnan(values)]
    if not len(known):
        return None
    for candidate in (float(known.min()), float(known.max())):
        if candidate not in _NEGATIVE and candidate not in _POSITIVE:
            continue
        is_candidate = known == candidate
        others = known[~is_candidate]
        if is_candidate.sum() < _MIN_CELLS or not len(others) or others.min() == others.max():
            continue
        low = float(others.min())
        high = float(others.max())
        distance = max(low - candidate, candidate - high)
        if candidate < 0 and (low >= 0 or distance > high - low):
            return candidate
        if candidate > 0 and distance > _MIN_RATIO * (high - low):
            return candidate
    return None
