"""The part of a batch that one of several processes takes: the rows that it owns."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from oneof.methods.base import Batch, Memory
from oneof.training.problem import Problem
from oneof.training.tables import parts, positions, rows_at


class Portion(NamedTuple):
    """Rows [t, b'] of a batch [t, b]. A trial of which this process owns fewer than of another is filled up.

    Fillers are rows of the tables like others, so their numbers are sound; they count nothing in a loss and are not written.
    """

    at: Tensor  # [t, b'] where they lie in the tables of this process
    column: Tensor  # [t, b'] where they stand in the batch
    own: Tensor  # [t, b'] bool; False for fillers
    batch: Tensor  # [t, b] where the whole batch lies in everyone's tables

    @property
    def size(self) -> int:
        """Rows of the whole batch, of each trial."""
        return self.batch.shape[1]

    def counted(self, loss: Tensor) -> Tensor:
        """Losses [t, b'] with nothing for fillers."""
        return loss.where(self.own, 0.0)

    def without_fillers(self, *tables: Any) -> list[Any]:
        """Rows [t, b', ...] of tables, or of tuples of them, as one trial's [1, k, ...]: what may be written."""
        return [
            tuple(part[self.own][None] for part in table) if isinstance(table, tuple) else table[self.own][None]
            for table in tables
        ]


def portion(problem: Problem, at: Tensor) -> Portion | None:
    """What this process takes of the batch at positions [t, b] of everyone's tables; None if it is alone and takes all."""
    if problem.crew.size == 1:
        return None
    first, end = problem.crew.owned(problem.total)
    row = at % problem.total
    owned = (row >= first) & (row < end)
    count = owned.sum(1)
    width = int(count.max())
    column = (~owned).byte().argsort(dim=1, stable=True)[:, :width]  # its own come first, in the batch's order
    near = (row.gather(1, column) - first).clamp(0, end - first - 1)  # a filler stands at the first or the last row
    own = torch.arange(width) < count[:, None]
    return Portion(positions(near, end - first), column, own, at)


def neighbours(problem: Problem, ours: Portion, batch: Batch) -> tuple[Tensor, Tensor, Memory]:
    """Of each row the one before it in the batch, whoever owns it: its features [1, t, b', ...], its set, its memory.

    Features are held by every process. Sets and memory travel: each process fills in its own rows of the batch, and the sum over
    all is the batch.
    """
    before = (ours.column - 1) % ours.size
    features = problem.features(rows_at(problem.everyones, ours.batch.gather(1, before)))[None]
    own = (batch.candidates.byte(), *parts(batch.memory))  # bytes: there is no sum of bool
    whole = problem.crew.total([_placed(ours, rows) for rows in own])
    trial = torch.arange(len(before))[:, None]
    sets, *memory = (rows[trial, before].to(one.dtype) for rows, one in zip(whole, own, strict=True))
    return features, sets.bool(), tuple(memory) if isinstance(batch.memory, tuple) else memory[0]


def _placed(ours: Portion, rows: Tensor) -> Tensor:
    """Rows [t, b', ...] where they stand in the batch [t, b, ...]; zero where another process's stand."""
    trial, place = ours.own.nonzero(as_tuple=True)
    whole = rows.new_zeros(len(rows), ours.size, *rows.shape[2:])
    whole[trial, ours.column[trial, place]] = rows[trial, place]
    return whole
