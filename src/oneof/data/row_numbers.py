"""Columns that number or name the rows, such as an id: whoever learns from them learns the order of the table."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

_NAMES = re.compile(r"(|unnamed: \d+|index|id|item|row|.*[_ .-]id|.*[a-z]I[dD])", re.DOTALL)
_EXACT = 2**24  # whole numbers that float32 can hold
_FEW = 20  # rows: in a small table anything may be distinct


def numbers_rows(name: str, values: NDArray[np.float32]) -> bool:
    """Is a column [n] the row's number, or by its name an id that is different in every row?

    >>> numbers_rows("x", np.arange(7, 107, dtype=np.float32)), numbers_rows("age", np.arange(100, 0, -1, dtype=np.float32))
    (True, False)
    >>> numbers_rows("user_id", np.arange(100, 0, -1, dtype=np.float32))
    True
    """
    if len(values) < _FEW or not np.isfinite(values).all() or (values != np.round(values)).any():
        return False
    if (values == values[0] + np.arange(len(values))).all():
        return True
    like_id = _NAMES.fullmatch(name) or _NAMES.fullmatch(name.lower())
    return bool(like_id) and (len(np.unique(values)) == len(values) or bool(np.abs(values).max() >= _EXACT))
