"""The optimiser and the schedule of a stack: every trial has its own learning rate and weight decay."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache

import torch
from torch import Tensor

Tensors = Iterable[Tensor]
CHUNK = 2**14  # numbers of a weight that one block of threads updates


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent with momentum: v <- mu v + g + decay w;  w <- w - lr v. Graphs may capture it.

    With `max_norm`, the gradients g of a trial are scaled down to this norm where they exceed it, so that wide tables with outliers
    cannot make a network diverge.
    """

    momentum: float = 0.9
    max_norm: float | None = field(default=None, metadata={"since": "0.2"})

    def init(self, weights: Tensors) -> list[list[Tensor]]:
        """Return the momentum buffer of each weight [t, ...], in a list of its own."""
        return [[torch.zeros_like(w)] for w in weights]

    def step(
        self, weights: Tensors, gradients: Tensors, state: list[list[Tensor]], lr: Tensor, decay: tuple[float, ...]
    ) -> None:
        """Take one step, written to weights and state in place; lr [t], decay of each trial."""
        if self.max_norm is not None:
            gradients = _clip(list(gradients), self.max_norm)
        if len(lr) == 1:
            self._step_one_trial(list(weights), list(gradients), state, lr.view(()), decay[0])
            return
        decays = _constant(decay, lr.dtype, lr.device)
        for w, g, (v,) in zip(weights, gradients, state, strict=True):
            v.mul_(self.momentum).add_(g).addcmul_(w, expand_trials(decays, w))
            w.addcmul_(v, expand_trials(lr, w), value=-1)

    def _step_one_trial(
        self, weights: list[Tensor], gradients: list[Tensor], state: list[list[Tensor]], lr: Tensor, decay: float
    ) -> None:
        """Take the step of a single trial with few launches for all weights; on a GPU one or two."""
        buffers = [v for (v,) in state]
        can_fuse = lr.is_cuda and lr.dtype == torch.float32 and all(map(_is_dense, weights))
        if can_fuse:
            _fused_step(weights, buffers, gradients, lr, decay, self.momentum)
        else:
            _foreach_step(weights, buffers, gradients, lr, decay, self.momentum)


def _clip(gradients: list[Tensor], max_norm: float) -> list[Tensor]:
    """Return gradients [t, ...], scaled down where the norm over all gradients of a trial exceeds a bound.

    >>> _clip([torch.tensor([[3.0, 4.0], [0.3, 0.4]])], 1.0)[0].tolist()
    [[0.6..., 0.8...], [0.3..., 0.4...]]
    """
    squares = [gradient.flatten(1).square().sum(1) for gradient in gradients]
    norm = torch.stack(squares).sum(0).sqrt()  # [t]
    factor = (max_norm / norm.clamp_min(1e-12)).clamp_max(1.0)
    return [gradient * expand_trials(factor, gradient) for gradient in gradients]


def _foreach_step(w: list[Tensor], v: list[Tensor], g: list[Tensor], lr: Tensor, decay: float, momentum: float) -> None:
    torch._foreach_mul_(v, momentum)
    torch._foreach_add_(v, g)
    torch._foreach_add_(v, torch._foreach_mul(w, decay))
    torch._foreach_sub_(w, torch._foreach_mul(v, lr))


def _fused_step(w: list[Tensor], v: list[Tensor], g: list[Tensor], lr: Tensor, decay: float, momentum: float) -> None:
    # torch needs every gradient to have the strides of its weight, or goes weight by weight
    gradients = []
    for weight, gradient in zip(w, g, strict=True):
        if gradient.stride() != weight.stride():
            gradient = torch.empty_like(weight).copy_(gradient)
        gradients.append(gradient)
    torch._fused_sgd_(
        _chunks(w),
        _chunks(gradients),
        _chunks(v),
        weight_decay=decay,
        momentum=momentum,
        lr=lr,
        dampening=0.0,
        nesterov=False,
        maximize=False,
        is_first_step=False,
    )


def _is_dense(tensor: Tensor) -> bool:
    """Return whether the tensor takes up its memory without gaps, in whatever order of the axes."""
    last_offset = 0
    for length, stride in zip(tensor.shape, tensor.stride(), strict=True):
        last_offset += (length - 1) * stride
    return tensor.numel() == 1 + last_offset


def _chunks(tensors: list[Tensor]) -> list[Tensor]:
    """Return the same memory in short chunks: torch gives up to 65,536 numbers of a tensor to one block of threads, which is slow."""
    chunks: list[Tensor] = []
    for tensor in tensors:
        flat = tensor.as_strided((tensor.numel(),), (1,))
        chunks.extend(flat.split(CHUNK))  # type: ignore[no-untyped-call]
    return chunks


@cache
def _constant(numbers: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the numbers as a tensor that is made once: while a graph is captured, nothing can be copied from the host."""
    return torch.tensor(numbers, dtype=dtype, device=device)


def expand_trials(numbers: Tensor, like: Tensor) -> Tensor:
    """Return numbers [t] in a shape that multiplies a tensor [t, ...]."""
    ones = [1] * (like.dim() - 1)
    return numbers.view(-1, *ones)


Schedule = Callable[[int, int], float]
"""(epoch, epochs) -> factor on the learning rate."""


def cosine(epoch: int, epochs: int) -> float:
    """Return half a cosine, from 1 down to (nearly) 0.

    >>> [round(cosine(epoch, 4), 3) for epoch in range(4)]
    [1.0, 0.854, 0.5, 0.146]
    """
    return 0.5 * (1 + math.cos(math.pi * epoch / epochs))


@dataclass(frozen=True)
class Steps:
    """A learning rate that is multiplied by a factor at certain epochs; the defaults are POP's released ones.

    >>> schedule = Steps(at=(2, 3))
    >>> [round(schedule(epoch, 4), 3) for epoch in range(4)]
    [1.0, 1.0, 0.1, 0.01]
    """

    at: tuple[int, ...] = (100, 150)
    factor: float = 0.1

    def __call__(self, epoch: int, epochs: int) -> float:
        passed = sum(epoch >= start for start in self.at)
        return self.factor**passed
