"""Trials, and their tables [t, n, ...] whose rows go in and out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oneof.data.scaling import Scaling
from oneof.purify import Purify
from oneof.training.packed import Packed


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


def positions(at: Tensor, n: int) -> Tensor:
    """Where rows `at` [t, b] of tables [t, n, ...] lie once the two axes are one; worked out once, used for every table."""
    return at + torch.arange(0, at.shape[0] * n, n, device=at.device)[:, None]


def parts(table: Any) -> tuple[Any, ...]:
    """The tables that a method's memory is made of: one, several, or none."""
    return table if isinstance(table, tuple) else (table,)


def take(table: Any, where: Tensor) -> Any:
    """Rows of a table [t, n, ...] at `positions` [t, b], as [t, b, ...]; of a tuple of tables, of each.

    >>> take(torch.arange(6).view(2, 3, 1), positions(torch.tensor([[2, 0], [1, 1]]), 3)).squeeze(-1)
    tensor([[2, 0],
            [4, 4]])
    """
    if isinstance(table, tuple):
        return tuple(take(part, where) for part in table)
    if isinstance(table, Packed):
        return table.take(where)
    return table.flatten(0, 1).index_select(0, where.reshape(-1)).view(*where.shape, *table.shape[2:])


def put(table: Any, where: Tensor, rows: Any) -> None:
    """Write rows [t, b, ...] into a table in place; the engine alone does this."""
    for part, new in zip(parts(table), parts(rows), strict=True):
        if isinstance(part, Packed):
            part.put(where, new)
        else:
            part.flatten(0, 1).index_copy_(0, where.reshape(-1), new.flatten(0, 1))
