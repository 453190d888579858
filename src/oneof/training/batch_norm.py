"""Batch normalisation over the rows of all processes: torch's own for several processes runs on GPUs alone."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import batch_norm
from torch.overrides import TorchFunctionMode

from oneof.training.processes import Crew


def over_all_processes(crew: Crew, buffers: Mapping[str, Tensor]) -> AbstractContextManager[Any]:
    """Inside, networks with these buffers normalise in training by the statistics of a batch that lies in all processes."""
    return _OverAll(crew) if crew.size > 1 and buffers else nullcontext()


class _OverAll(TorchFunctionMode):
    """Takes the place of `torch.nn.functional.batch_norm`, whichever layer calls it."""

    def __init__(self, crew: Crew) -> None:
        super().__init__()
        self.crew = crew

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        if func is batch_norm and given.get("training"):  # torch passes on what follows the statistics by name
            return _normalised(self.crew, *args, **given)
        return func(*args, **given)


def _normalised(
    crew: Crew, x: Tensor, running_mean: Tensor | None, running_var: Tensor | None,
    weight: Tensor | None, bias: Tensor | None, training: bool, momentum: float, eps: float,
) -> Tensor:  # fmt: skip
    """(x - mean) / deviation * weight + bias of x [b, c, ...], which may be no row at all; running statistics move."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    shape = [1, -1] + [1] * (x.dim() - 2)
    n, mean, var = _moments(crew, wide)
    if running_mean is not None and running_var is not None:
        for kept, now in ((running_mean, mean), (running_var, var * n / (n - 1))):
            kept.mul_(1 - momentum).add_(momentum * now.detach())
    scale = (var + eps).rsqrt() if weight is None else (var + eps).rsqrt() * weight
    y = (wide - mean.view(shape)) * scale.view(shape)
    return (y if bias is None else y + bias.view(shape)).to(x.dtype)


def _moments(crew: Crew, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rows and pixels, mean and variance [c] over all processes: each sends those of its own, from which they follow."""
    axes = [0, *range(2, x.dim())]
    count = x.numel() // x.shape[1]
    mean = x.sum(axes) / max(count, 1)
    square = (x - mean.view([1, -1] + [1] * (x.dim() - 2))).square().sum(axes)
    own = torch.stack([torch.full_like(mean, count), mean, square])
    each = [own if rank == crew.rank else torch.zeros_like(own) for rank in range(crew.size)]
    ns, means, squares = crew.total([torch.stack(each)])[0].unbind(1)  # [processes, c] each
    n = ns.sum(0)
    mean = (ns * means).sum(0) / n
    return n, mean, (squares + ns * (means - mean).square()).sum(0) / n
