"""Rows of tables go in and out by their positions; a method's memory is a table, several, or none."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Stored(NamedTuple):
    """A tensor that training changes, as a checkpoint keeps it."""

    name: str
    tensor: Tensor
    sections: list[int] | None = None  # of a process's own rows: how many belong to each trial; None: all have the same


def positions(at: Tensor, n: int) -> Tensor:
    """Where rows `at` [t, b] of tables [t, n, ...] lie once the two axes are one; worked out once, used for every table."""
    return at + torch.arange(0, at.shape[0] * n, n, device=at.device)[:, None]


def rows_at(values: Tensor, where: Tensor) -> Tensor:
    """Rows of a tensor [t, n, ...] at `positions` [t, b], as [t, b, ...].

    >>> rows_at(torch.arange(6).view(2, 3, 1), positions(torch.tensor([[2, 0], [1, 1]]), 3)).squeeze(-1)
    tensor([[2, 0],
            [4, 4]])
    """
    return values.flatten(0, 1).index_select(0, where.reshape(-1)).view(*where.shape, *values.shape[2:])


def parts(memory: Any) -> tuple[Any, ...]:
    """What a method's memory is made of: one table, several, or none."""
    return memory if isinstance(memory, tuple) else (memory,)


def each(change: Callable[[Any], Any], memory: Any) -> Any:
    """A method's memory, in its form, after a change to every part."""
    return tuple(map(change, memory)) if isinstance(memory, tuple) else change(memory)
