"""Split rows into training and held-out rows, k times; rows of one group are never on both sides."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Split = tuple[NDArray[np.intp], NDArray[np.intp] | None]  # training rows, held-out rows


def split_rows(rows: NDArray[np.intp], k: int, groups: Any = None, seed: int = 0) -> list[Split]:
    """Split rows k times into training rows and held-out rows.

    All k training parts are equally large, as trials that are trained in one stack must be. The held-out parts are disjoint as long as
    there are at least k rows; a few rows may be held out by none.

    Parameters
    ----------
    rows
        Row numbers [m].
    k
        Number of splits.
    groups
        Group of each row of the whole table; None if each row is a group of its own.
    seed
        Seed of the random order.

    Returns
    -------
    list of (training rows, held-out rows)
        The held-out rows are None where there are too few rows or groups to hold any out.
    """
    rng = np.random.default_rng(seed)
    row_groups: NDArray[Any] = rows
    if groups is not None:
        row_groups = np.asarray(groups)[rows]
    _, group_codes = np.unique(row_groups, return_inverse=True)
    group_order = rng.permutation(group_codes.max() + 1)
    shuffled = rows[np.argsort(group_order[group_codes], kind="stable")]  # rows of one group stay together
    n_parts = min(k, len(rows))
    part_size = len(rows) // n_parts
    held_out_parts = []
    training_parts = []
    for i in range(n_parts):
        held_out = shuffled[i * part_size : (i + 1) * part_size]
        held_out_groups = np.unique(row_groups[np.isin(rows, held_out)])
        training = rows[~np.isin(row_groups, held_out_groups)]
        held_out_parts.append(held_out)
        training_parts.append(rng.permutation(training))
    training_size = min(len(training) for training in training_parts)
    if training_size < 2:
        return [(rng.permutation(rows), None) for _ in range(k)]
    splits: list[Split] = []
    for i in range(k):
        part = i % n_parts
        splits.append((training_parts[part][:training_size], held_out_parts[part]))
    return splits


def cross_fit_splits(groups: NDArray[Any], k: int, seed: int) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Return k splits into training rows, in random order, and held-out rows, so that every row is held out once.

    Groups stay together. A single group is trained on and held out at the same time.
    """
    rng = np.random.default_rng(seed)
    _, group_codes = np.unique(groups, return_inverse=True)
    order = rng.permutation(group_codes.max() + 1)
    fold_of_row = (order * min(k, len(order)) // len(order))[group_codes]
    splits = []
    for number in range(fold_of_row.max() + 1):
        is_held_out = fold_of_row == number
        is_trained = ~is_held_out
        if is_held_out.all():
            is_trained = is_held_out
        splits.append((rng.permutation(np.flatnonzero(is_trained)), np.flatnonzero(is_held_out)))
    return splits
