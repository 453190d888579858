"""The part of a batch that one of several processes takes: the rows that it owns."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from oneof.data.augment.views import Part
from oneof.methods.base import Batch, Memory, Method, Step
from oneof.training.problem import Problem
from oneof.training.processes import Crew
from oneof.training.stack import Stack
from oneof.training.state import State
from oneof.training.tables import each, parts, positions, rows_at


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
        """Of the whole batch."""
        return self.batch.shape[1]

    @property
    def before(self) -> Tensor:
        """Where in the batch the row before each of these stands."""
        return (self.column - 1) % self.size

    def of(self, whole: Tensor) -> Tensor:
        """These rows [t, v b', ...] of a batch's [t, v b, ...], which has one or more views after one another."""
        at = torch.cat([self.column + start for start in range(0, whole.shape[1], self.size)], 1)
        return rows_at(whole, positions(at, whole.shape[1]))


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
    own = torch.arange(width, device=at.device) < count[:, None]
    return Portion(positions(near, end - first), column, own, at)


def views_of(problem: Problem, ours: Portion, generators: list[torch.Generator]) -> tuple[Tensor, ...]:
    """Views [v, t, b', ...] of these rows and, in mixup, of those before them; draws are for the whole batch."""
    column = torch.cat([ours.column, ours.before], 1) if problem.training.mixup else ours.column
    rows = rows_at(problem.everyones, ours.batch.gather(1, column))
    views = problem.views(rows, generators, [Part(ours.size, one) for one in column])
    return views.tensor_split(2 if problem.training.mixup else 1, 2)


def neighbours(problem: Problem, ours: Portion, batch: Batch) -> tuple[Tensor, Memory]:
    """Of each row the one before it in the batch, whoever owns it: its set, its memory."""
    whole = _whole(problem.crew, ours, batch)
    at = positions(ours.before, ours.size)
    return rows_at(whole.candidates, at), each(lambda part: rows_at(part, at), whole.memory)


def compares_rows(method: Method) -> bool:
    """Does a step of the method look from one row of the batch to another, as far as the engine can know?"""
    return type(method).step is not Method.step and not method.by_row


def whole_step(problem: Problem, state: State, ours: Portion, views: Tensor, batch: Batch) -> Step:
    """The whole batch's step in every process, whose networks see its own rows alone; what it gives of these."""
    net = Everyones(state.stack, problem.crew, ours)
    seen = torch.stack([_placed(ours, view) for view in views])  # no other's views are looked at
    done = problem.method.step(net, seen, _whole(problem.crew, ours, batch), state.shared)
    return Step(ours.of(done.loss), ours.of(done.logits), each(ours.of, done.memory), done.shared)


class Everyones:
    """Networks that take the rows of a whole batch, of which each process sees its own; all get the outputs of all."""

    def __init__(self, stack: Stack, crew: Crew, ours: Portion) -> None:
        self.stack, self.crew, self.ours = stack, crew, ours
        self.weights, self.buffers = stack.weights, stack.buffers

    def __call__(self, x: Tensor, part: str = "", weights: Mapping[str, Tensor] | None = None) -> Any:
        views = x.shape[1] // self.ours.size
        output = self.stack(self.ours.of(x), part, weights)
        whole = iter(self.crew.total([_placed(self.ours, one, views) for one in parts(output)]))
        return each(lambda _: next(whole), output)


def _whole(crew: Crew, ours: Portion, batch: Batch) -> Batch:
    """The batch with the rows of all processes: each fills in its own, and the sum is the whole."""
    prior = () if batch.prior is None else (batch.prior,)
    own = [_placed(ours, rows) for rows in (batch.candidates, *prior, *parts(batch.memory))]
    sent = crew.total([rows.view(-1).view(torch.uint8) for rows in own])  # bytes: so all dtypes go as one
    whole = iter([one.clone().view(rows.dtype).view_as(rows) for one, rows in zip(sent, own, strict=True)])
    sets, votes = next(whole), next(whole) if prior else None
    return batch._replace(candidates=sets, prior=votes, memory=each(lambda _: next(whole), batch.memory))


def _placed(ours: Portion, rows: Tensor, views: int = 1) -> Tensor:
    """Rows [t, v b', ...] where they stand in the batch [t, v b, ...]; zero where another process's stand."""
    trial, place = ours.own.nonzero(as_tuple=True)
    column, k = ours.column[trial, place], ours.own.shape[1]
    whole = rows.new_zeros(len(rows), views * ours.size, *rows.shape[2:])
    for view in range(views):
        whole[trial, column + view * ours.size] = rows[trial, place + view * k]
    return whole
