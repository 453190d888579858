"""Tables at rest: numbers of every label of every row of t trials.

A `Dense` one keeps all of them: small tables are fastest so, and some methods look at whole columns. A `Packed` one keeps those of
the candidates alone. Both have the same methods, which are described here; nobody asks which it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from oneof.methods.base import each
from oneof.training.packed import Fallen, Packed, Stored, pack
from oneof.training.processes import Crew


@dataclass(frozen=True, eq=False)
class Dense:
    """A table [t, m, c] as it is; a method's memory may have other axes after the rows.

    >>> sets = Dense(torch.tensor([[[True, False, True], [True, True, True]]]))
    >>> sets.take(torch.tensor([[1, 0]]))
    tensor([[[ True,  True,  True],
             [ True, False,  True]]])
    """

    values: Tensor  # written to in place

    @property
    def shape(self) -> tuple[int, ...]:
        """t, m, c."""
        return self.values.shape

    def take(self, where: Tensor) -> Tensor:
        """Rows at `positions` [t, b], as [t, b, c]."""
        return rows_at(self.values, where)

    def put(self, where: Tensor, rows: Tensor) -> None:
        """Write rows [t, b, c] in place; the engine alone does this."""
        self.values.flatten(0, 1).index_copy_(0, where.reshape(-1), rows.flatten(0, 1))

    def chosen(self, where: Tensor) -> Dense:
        """The rows at positions [t, m] as a table of their own, that may be written to."""
        return Dense(self.take(where))

    def zeros(self, dtype: torch.dtype, rest: bool = False) -> Dense:
        """A table of zeros of the same form; `rest`: it must know the total of a row."""
        return Dense(torch.zeros_like(self.values, dtype=dtype))

    def dense(self) -> Tensor:
        """All of it [t, m, c]."""
        return self.values

    def packed(self) -> Packed:
        """The same sets, packed."""
        return pack(self.values)

    def count_cells(self) -> int:
        """Cells that the sets of a trial take when packed; of several trials, the mean."""
        size = self.values.sum(-1)
        return int(torch.where(size == self.values.shape[-1], 1, size).sum()) // len(self.values)

    def sizes(self) -> Tensor:
        """Labels of all sets of a trial [t]."""
        return self.values.sum((1, 2))

    def by_trial(self, numbers: Tensor) -> Tensor:
        """Numbers [t] in a shape that goes with the values."""
        return numbers.view(-1, 1, 1)

    def places(self, at: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Trial, row and label of entries of the values, counted flat."""
        _, n, c = self.values.shape
        return at // (n * c), at // c % n, at % c  # torch.unravel_index would import a second's worth of modules

    def first_memory(self, init: Callable[..., Any], prior: Dense | None) -> Any:
        """What a method's `init` makes of all rows: a table, a tuple of them, or ()."""
        return each(Dense, init(self.values) if prior is None else init(self.values, prior.values))

    def weighed(self, weights: Any, dtype: torch.dtype, log: Callable[[Tensor, Tensor], Tensor]) -> Dense:
        """log(weight, largest of its row) of weights [n, c] at the labels of any trial's set; zero elsewhere."""
        numbers = np.asarray(weights.toarray() if hasattr(weights, "toarray") else weights, dtype=np.float64)
        named = self.values.any(0, keepdim=True)
        weight = torch.as_tensor(numbers).to(named.device, dtype) * named
        return Dense(torch.where(named, log(weight, weight.amax(-1, keepdim=True)), 0.0))

    def falls(self, margins: Callable[..., Tensor], seen: Dense, threshold: Tensor) -> Iterator[Fallen]:
        """What falls, by margins(sets, seen, threshold) above zero, some rows at a time."""
        margin = margins(self.values, seen.values, threshold)
        falls = margin > 0
        yield falls, margin[falls], falls.sum((1, 2))

    def stored(self, name: str) -> Iterator[Stored]:
        """The tensors that change during training."""
        t, m = self.values.shape[:2]
        yield Stored(name, self.values.flatten(0, 1), [m] * t)

    def identity(self) -> tuple[Tensor, ...]:
        """What tells these sets from others."""
        return (self.values,)

    def gathered(self, crew: Crew) -> Dense:
        """The rows that a crew's processes own as one table."""
        return Dense(crew.gathered_rows(self.values))

    def joined(self, others: Sequence[Dense]) -> Dense:
        """With the tables of other stacks of trials as one."""
        return Dense(torch.cat([self.values, *(table.values for table in others)]))


Table = Dense | Packed


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
