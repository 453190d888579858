"""What a person may give the estimator in place of what the library takes: names, widths, and y in many forms."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

import numpy as np


def are_labels(y: Any) -> bool:
    """Is y one label per row, and not a mask or a column of sets?"""
    if hasattr(y, "toarray") or hasattr(y, "to_pylist"):  # SciPy sparse, Arrow
        return False
    rows = y if isinstance(y, (list, tuple)) else np.atleast_1d(np.asarray(y))
    if isinstance(rows, np.ndarray) and rows.ndim == 2:
        return bool(rows.shape[1] == 1)
    return not any(isinstance(row, (set, frozenset, list, tuple, np.ndarray)) for row in rows)


def widths(hidden: Any) -> tuple[int, ...]:
    """Widths of hidden layers, given as one or as several.

    >>> widths(128), widths([64, 32])
    ((128,), (64, 32))
    """
    given = tuple(hidden) if isinstance(hidden, (list, tuple, np.ndarray)) else (hidden,)
    if not all(isinstance(width, (int, np.integer)) and width > 0 for width in given):
        raise ValueError(f"hidden must be widths of layers, such as (128,) or (); got {hidden!r}.")
    return given


def instance(value: Any, known: dict[str, Any], kind: Any, name: str) -> Any:
    """An instance by its name, or the instance that was given."""
    if isinstance(value, kind):
        return value
    if not isinstance(value, str):
        raise TypeError(
            f"{name} must be a name or an instance, such as {next(iter(known.values())).__name__}(); got {value!r}."
        )
    if value not in known:
        near = get_close_matches(value, known, 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"{name} must be one of {', '.join(known)}; got {value!r}.{hint}")
    return known[value]()
