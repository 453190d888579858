"""Rows to train on and rows held out, k times; rows of one group are never on both sides."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Split = tuple[NDArray[np.intp], NDArray[np.intp] | None]


def split_rows(rows: NDArray[np.intp], k: int, groups: Any = None, seed: int = 0) -> list[Split]:
    """(rows to train on, rows held out), k times, equally many each time: trials of one stack must agree in that."""
    # The held-out parts are disjoint as long as there are rows enough; a few rows may be in none. Where there are too
    # few rows or groups to hold any out, None is.
    rng = np.random.default_rng(seed)
    names = rows if groups is None else np.asarray(groups)[rows]
    _, group = np.unique(names, return_inverse=True)
    order = rows[np.argsort(rng.permutation(group.max() + 1)[group], kind="stable")]  # at random, groups together
    count = min(k, len(rows))
    parts = [order[i * (len(rows) // count) :][: len(rows) // count] for i in range(count)]
    training = [rng.permutation(rows[~np.isin(names, np.unique(names[np.isin(rows, part)]))]) for part in parts]
    size = min(map(len, training))
    if size < 2:
        return [(rng.permutation(rows), None) for _ in range(k)]
    return [(training[i % len(parts)][:size], parts[i % len(parts)]) for i in range(k)]
