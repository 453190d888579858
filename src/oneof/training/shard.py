"""A batch in several processes: each takes the rows that it owns, and normalises by the statistics of all."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import batch_norm
from torch.overrides import TorchFunctionMode

from oneof.data.augment.views import Part
from oneof.methods.base import Batch, Memory, Step, leaves, tree_map
from oneof.training.processes import ProcessGroup
from oneof.training.stack import Stack
from oneof.training.state import State
from oneof.training.tables import flat_index, gather_rows
from oneof.training.training_data import TrainingData


class Shard(NamedTuple):
    """Rows [t, b'] of a batch [t, b]; fillers, where a trial has fewer, count in no loss and are not written."""

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
        return gather_rows(whole, flat_index(at, whole.shape[1]))


def local_shard(data: TrainingData, at: Tensor) -> Shard | None:
    """What this process takes of the batch at positions [t, b] of everyone's tables; None if it is alone and takes all."""
    if data.group.size == 1:
        return None
    first, end = data.group.local_range(data.n_rows)
    row = at % data.n_rows
    owned = (row >= first) & (row < end)
    count = owned.sum(1)
    width = int(count.max())
    column = (~owned).byte().argsort(dim=1, stable=True)[:, :width]  # its own come first, in the batch's order
    near = (row.gather(1, column) - first).clamp(0, end - first - 1)  # a filler stands at the first or the last row
    own = torch.arange(width, device=at.device) < count[:, None]
    return Shard(flat_index(near, end - first), column, own, at)


def views_of(
    data: TrainingData, rows: Tensor, ours: Shard | None, generators: list[torch.Generator]
) -> tuple[Tensor, ...]:
    """Views [v, t, b', ...] of these rows and, in mixup, of those before them; draws are for the whole batch."""
    if ours is None:
        return (data.views(rows, generators),)
    column = torch.cat([ours.column, ours.before], 1) if data.training.mixup else ours.column
    rows = gather_rows(data.all_rows, ours.batch.gather(1, column))
    views = data.views(rows, generators, [Part(ours.size, one) for one in column])
    return views.tensor_split(2 if data.training.mixup else 1, 2)


def neighbours(data: TrainingData, ours: Shard, batch: Batch) -> tuple[Tensor, Memory]:
    """Of each row the one before it in the batch, whoever owns it: its set, its memory."""
    whole = _whole(data.group, ours, batch)
    at = flat_index(ours.before, ours.size)
    return gather_rows(whole.candidates, at), tree_map(lambda part: gather_rows(part, at), whole.memory)


def gathered_step(data: TrainingData, state: State, ours: Shard, views: Tensor, batch: Batch) -> Step:
    """The whole batch's step in every process, whose networks see its own rows alone; what it gives of these."""
    net = Everyones(state.stack, data.group, ours)
    seen = torch.stack([_scatter_to_batch(ours, view) for view in views])  # no other's views are looked at
    done = data.method.step(net, seen, _whole(data.group, ours, batch), state.shared)
    return Step(ours.of(done.loss), ours.of(done.logits), tree_map(ours.of, done.memory), done.shared)


class Everyones:
    """Networks that take the rows of a whole batch, of which each process sees its own; all get the outputs of all."""

    def __init__(self, stack: Stack, group: ProcessGroup, ours: Shard) -> None:
        self.stack, self.group, self.ours = stack, group, ours
        self.weights, self.buffers, self.fused = stack.weights, stack.buffers, stack.fused

    def __call__(self, x: Tensor, part: str = "", weights: Mapping[str, Tensor] | None = None) -> Any:
        views = x.shape[1] // self.ours.size
        output = self.stack(self.ours.of(x), part, weights)
        whole = iter(self.group.total([_scatter_to_batch(self.ours, one, views) for one in leaves(output)]))
        return tree_map(lambda _: next(whole), output)


def _whole(group: ProcessGroup, ours: Shard, batch: Batch) -> Batch:
    """The batch with the rows of all processes: each fills in its own, and the sum is the whole."""
    prior = () if batch.prior is None else (batch.prior,)
    own = [_scatter_to_batch(ours, rows) for rows in (batch.candidates, *prior, *leaves(batch.memory))]
    sent = group.total([rows.view(-1).view(torch.uint8) for rows in own])  # bytes: so all dtypes go as one
    whole = iter([one.clone().view(rows.dtype).view_as(rows) for one, rows in zip(sent, own, strict=True)])
    sets, votes = next(whole), next(whole) if prior else None
    return batch._replace(candidates=sets, prior=votes, memory=tree_map(lambda _: next(whole), batch.memory))


def _scatter_to_batch(ours: Shard, rows: Tensor, views: int = 1) -> Tensor:
    """Rows [t, v b', ...] where they stand in the batch [t, v b, ...]; zero where another process's stand."""
    trial, place = ours.own.nonzero(as_tuple=True)
    column, k = ours.column[trial, place], ours.own.shape[1]
    whole = rows.new_zeros(len(rows), views * ours.size, *rows.shape[2:])
    for view in range(views):
        whole[trial, column + view * ours.size] = rows[trial, place + view * k]
    return whole


def over_all_processes(group: ProcessGroup, buffers: Mapping[str, Tensor]) -> AbstractContextManager[Any]:
    """Inside, networks with these buffers normalise by the batch of all processes; torch's own needs GPUs for it."""
    return _OverAll(group) if group.size > 1 and buffers else nullcontext()


class _OverAll(TorchFunctionMode):
    """Takes the place of `torch.nn.functional.batch_norm`, whichever layer calls it."""

    def __init__(self, group: ProcessGroup) -> None:
        super().__init__()
        self.group = group

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        if func is batch_norm and given.get("training"):  # torch passes on what follows the statistics by name
            return _normalised(self.group, *args, **given)
        return func(*args, **given)


def _normalised(
    group: ProcessGroup, x: Tensor, running_mean: Tensor | None, running_var: Tensor | None,
    weight: Tensor | None, bias: Tensor | None, training: bool, momentum: float, eps: float,
) -> Tensor:  # fmt: skip
    """(x - mean) / deviation * weight + bias of x [b, c, ...], which may be no row at all; running statistics move."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    shape = [1, -1] + [1] * (x.dim() - 2)
    n, mean, var = _moments(group, wide)
    if running_mean is not None and running_var is not None:
        for kept, now in ((running_mean, mean), (running_var, var * n / (n - 1))):
            kept.mul_(1 - momentum).add_(momentum * now.detach())
    scale = (var + eps).rsqrt() if weight is None else (var + eps).rsqrt() * weight
    y = (wide - mean.view(shape)) * scale.view(shape)
    return (y if bias is None else y + bias.view(shape)).to(x.dtype)


def _moments(group: ProcessGroup, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rows and pixels, mean and variance [c] over all processes, worked out from those of each."""
    axes = [0, *range(2, x.dim())]
    count = x.numel() // x.shape[1]
    mean = x.sum(axes) / max(count, 1)
    square = (x - mean.view([1, -1] + [1] * (x.dim() - 2))).square().sum(axes)
    own = torch.stack([torch.full_like(mean, count), mean, square])
    each = [own if rank == group.rank else torch.zeros_like(own) for rank in range(group.size)]
    ns, means, squares = group.total([torch.stack(each)])[0].unbind(1)  # [processes, c] each
    n = ns.sum(0)
    mean = (ns * means).sum(0) / n
    return n, mean, (squares + ns * (means - mean).square()).sum(0) / n
