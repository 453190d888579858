"""Split a batch between processes: each takes the rows that it owns, and normalises by the statistics of all."""

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
    """Rows [t, b'] of a batch [t, b]. Where a trial has fewer rows, fillers complete them, which count in no loss and are not written."""

    at: Tensor  # [t, b'] their positions in the tables of this process
    column: Tensor  # [t, b'] their positions in the batch
    is_own: Tensor  # [t, b'] bool; False for fillers
    batch: Tensor  # [t, b] positions of the full batch in the tables of all processes

    @property
    def size(self) -> int:
        """Return the size of the full batch."""
        return self.batch.shape[1]

    @property
    def before(self) -> Tensor:
        """Return the position in the batch of the row before each of these."""
        return (self.column - 1) % self.size

    def of(self, batch: Tensor) -> Tensor:
        """Return these rows [t, v b', ...] of a batch [t, v b, ...], which has one or more views after one another."""
        n_rows = batch.shape[1]
        columns_of_views = [self.column + start for start in range(0, n_rows, self.size)]
        return gather_rows(batch, flat_index(torch.cat(columns_of_views, 1), n_rows))


def local_shard(data: TrainingData, at: Tensor) -> Shard | None:
    """Return the rows of this process in the batch at positions [t, b] of all tables; None if it is alone and takes all."""
    if data.group.size == 1:
        return None
    first, end = data.group.local_range(data.n_rows)
    row = at % data.n_rows
    owned = (row >= first) & (row < end)
    count = owned.sum(1)
    width = int(count.max())
    column = (~owned).byte().argsort(dim=1, stable=True)[:, :width]  # its own come first, in the batch's order
    n_local = end - first
    local_row = (row.gather(1, column) - first).clamp(0, n_local - 1)  # a filler gets the first or the last row
    is_own = torch.arange(width, device=at.device) < count[:, None]
    return Shard(flat_index(local_row, n_local), column, is_own, at)


def views_of(
    data: TrainingData, rows: Tensor, shard: Shard | None, generators: list[torch.Generator]
) -> tuple[Tensor, ...]:
    """Return views [v, t, b', ...] of these rows and, in mixup, of those before them; random numbers are drawn for the full batch."""
    if shard is None:
        return (data.views(rows, generators),)
    column = shard.column
    n_parts = 1
    if data.training.mixup:
        column = torch.cat([shard.column, shard.before], 1)
        n_parts = 2
    rows = gather_rows(data.all_rows, shard.batch.gather(1, column))
    parts = [Part(shard.size, column_of_trial) for column_of_trial in column]
    views = data.views(rows, generators, parts)
    return views.tensor_split(n_parts, 2)


def neighbours(data: TrainingData, shard: Shard, batch: Batch) -> tuple[Tensor, Memory]:
    """Return candidates and memory of the row before each row in the batch, whichever process owns it."""
    full_batch = _gather_batch(data.group, shard, batch)
    at = flat_index(shard.before, shard.size)
    memory = tree_map(lambda leaf: gather_rows(leaf, at), full_batch.memory)
    return gather_rows(full_batch.candidates, at), memory


def gathered_step(data: TrainingData, state: State, shard: Shard, views: Tensor, batch: Batch) -> Step:
    """Compute the step of the full batch in every process, whose networks see its own rows alone; return its part."""
    net = GatheringNet(state.stack, data.group, shard)
    views = torch.stack([_scatter_to_batch(shard, view) for view in views])  # those of other processes are not read
    step = data.method.step(net, views, _gather_batch(data.group, shard, batch), state.shared)
    return Step(shard.of(step.loss), shard.of(step.logits), tree_map(shard.of, step.memory), step.shared)


class GatheringNet:
    """Networks that take the rows of a full batch: each process computes its own rows, and all get the outputs of all."""

    def __init__(self, stack: Stack, group: ProcessGroup, shard: Shard) -> None:
        self.stack = stack
        self.group = group
        self.shard = shard
        self.weights = stack.weights
        self.buffers = stack.buffers
        self.fused = stack.fused

    def __call__(self, x: Tensor, part: str = "", weights: Mapping[str, Tensor] | None = None) -> Any:
        """Return the output [t, v b, ...] for x [t, v b, ...]; see `Net`."""
        n_views = x.shape[1] // self.shard.size
        output = self.stack(self.shard.of(x), part, weights)
        scattered = [_scatter_to_batch(self.shard, leaf, n_views) for leaf in leaves(output)]
        gathered = iter(self.group.total(scattered))
        return tree_map(lambda _: next(gathered), output)


def _gather_batch(group: ProcessGroup, shard: Shard, batch: Batch) -> Batch:
    """Return the batch with the rows of all processes: each fills in its own, and they are summed."""
    tensors = [batch.candidates]
    if batch.prior is not None:
        tensors.append(batch.prior)
    tensors.extend(leaves(batch.memory))
    scattered = [_scatter_to_batch(shard, tensor) for tensor in tensors]
    summed = group.total([rows.view(-1).view(torch.uint8) for rows in scattered])  # bytes: so all dtypes go as one
    gathered = []
    for content, rows in zip(summed, scattered, strict=True):
        gathered.append(content.clone().view(rows.dtype).view_as(rows))
    remaining = iter(gathered)
    candidates = next(remaining)
    prior = None
    if batch.prior is not None:
        prior = next(remaining)
    memory = tree_map(lambda _: next(remaining), batch.memory)
    return batch._replace(candidates=candidates, prior=prior, memory=memory)


def _scatter_to_batch(shard: Shard, rows: Tensor, n_views: int = 1) -> Tensor:
    """Return rows [t, v b', ...] at their positions in the batch [t, v b, ...]; zero where another process has the row."""
    trial, position = shard.is_own.nonzero(as_tuple=True)
    column = shard.column[trial, position]
    width = shard.is_own.shape[1]
    batch = rows.new_zeros(len(rows), n_views * shard.size, *rows.shape[2:])
    for view in range(n_views):
        batch[trial, column + view * shard.size] = rows[trial, position + view * width]
    return batch


def over_all_processes(group: ProcessGroup, buffers: Mapping[str, Tensor]) -> AbstractContextManager[Any]:
    """Let networks with these buffers normalise by the batch of all processes, inside; torch's SyncBatchNorm needs GPUs."""
    if group.size > 1 and buffers:
        return _SyncBatchNorm(group)
    return nullcontext()


class _SyncBatchNorm(TorchFunctionMode):
    """Replaces `torch.nn.functional.batch_norm`, whichever layer calls it."""

    def __init__(self, group: ProcessGroup) -> None:
        super().__init__()
        self.group = group

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        keywords = kwargs or {}
        if func is batch_norm and keywords.get("training"):  # torch passes what follows the statistics by name
            return _normalise(self.group, *args, **keywords)
        return func(*args, **keywords)


def _normalise(
    group: ProcessGroup, x: Tensor, running_mean: Tensor | None, running_var: Tensor | None,
    weight: Tensor | None, bias: Tensor | None, training: bool, momentum: float, eps: float,
) -> Tensor:  # fmt: skip
    """Return (x - mean) / deviation * weight + bias of x [b, c, ...], which may have no rows; running statistics move."""
    precise = x.to(torch.promote_types(x.dtype, torch.float32))
    channels = [1, -1] + [1] * (x.dim() - 2)
    n, mean, variance = _moments(group, precise)
    if running_mean is not None and running_var is not None:
        unbiased = variance * n / (n - 1)
        running_mean.mul_(1 - momentum).add_(momentum * mean.detach())
        running_var.mul_(1 - momentum).add_(momentum * unbiased.detach())
    scale = (variance + eps).rsqrt()
    if weight is not None:
        scale = scale * weight
    y = (precise - mean.view(channels)) * scale.view(channels)
    if bias is not None:
        y = y + bias.view(channels)
    return y.to(x.dtype)


def _moments(group: ProcessGroup, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the number of rows and pixels, mean and variance [c] over all processes, computed from those of each."""
    axes = [0, *range(2, x.dim())]
    channels = [1, -1] + [1] * (x.dim() - 2)
    count = x.numel() // x.shape[1]
    local_mean = x.sum(axes) / max(count, 1)
    local_squares = (x - local_mean.view(channels)).square().sum(axes)
    local = torch.stack([torch.full_like(local_mean, count), local_mean, local_squares])
    by_rank = [torch.zeros_like(local) for _ in range(group.size)]
    by_rank[group.rank] = local
    (gathered,) = group.total([torch.stack(by_rank)])
    counts, means, squares = gathered.unbind(1)  # [processes, c] each
    n = counts.sum(0)
    mean = (counts * means).sum(0) / n
    variance = (squares + counts * (means - mean).square()).sum(0) / n
    return n, mean, variance
