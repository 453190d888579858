"""The optimiser and the schedule of a stack: every trial has its own learning rate and weight decay."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

Tensors = Iterable[Tensor]
PIECE = 2**14  # numbers of a weight that one block of threads moves


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent with momentum: v <- mu v + g + decay w;  w <- w - lr v. Graphs may capture it."""

    momentum: float = 0.9

    def init(self, weights: Tensors) -> list[list[Tensor]]:
        """A list of tensors for each weight [t, ...]."""
        return [[torch.zeros_like(w)] for w in weights]

    def step(
        self, weights: Tensors, gradients: Tensors, state: list[list[Tensor]], lr: Tensor, decay: tuple[float, ...]
    ) -> None:
        """One step, written to weights and state in place; lr [t], decay of each trial."""
        if len(lr) == 1:  # few launches for all weights; on a GPU one or two
            speeds = [speed for (speed,) in state]
            move = _fused if lr.is_cuda and lr.dtype == torch.float32 and all(map(_is_dense, weights)) else _move
            move(list(weights), speeds, list(gradients), lr.view(()), decay[0], self.momentum)
            return
        decays = _kept(decay, lr.dtype, lr.device)
        for one, g, (speed,) in zip(weights, gradients, state, strict=True):
            speed.mul_(self.momentum).add_(g).addcmul_(one, expand_trials(decays, one))
            one.addcmul_(speed, expand_trials(lr, one), value=-1)


def _move(w: list[Tensor], v: list[Tensor], g: list[Tensor], lr: Tensor, decay: float, momentum: float) -> None:
    torch._foreach_mul_(v, momentum)
    torch._foreach_add_(v, g)
    torch._foreach_add_(v, torch._foreach_mul(w, decay))
    torch._foreach_sub_(w, torch._foreach_mul(v, lr))


def _fused(w: list[Tensor], v: list[Tensor], g: list[Tensor], lr: Tensor, decay: float, momentum: float) -> None:
    # torch wants every gradient to lie in memory as its weight does, or goes weight by weight
    pairs = zip(w, g, strict=True)
    laid = [its if its.stride() == one.stride() else torch.empty_like(one).copy_(its) for one, its in pairs]
    fixed: dict[str, Any] = {"dampening": 0.0, "nesterov": False, "maximize": False, "is_first_step": False}
    pieces = (_pieces(tensors) for tensors in (w, laid, v))
    torch._fused_sgd_(*pieces, weight_decay=decay, momentum=momentum, lr=lr, **fixed)


def _is_dense(one: Tensor) -> bool:
    """Does it take up its memory without gaps, in whatever order?"""
    return one.numel() == 1 + sum((n - 1) * step for n, step in zip(one.shape, one.stride(), strict=True))


def _pieces(tensors: list[Tensor]) -> list[Tensor]:
    """The same memory in short pieces: torch gives up to 65,536 numbers of a tensor to one block of threads, which is slow."""
    return [piece for one in tensors for piece in one.as_strided((one.numel(),), (1,)).split(PIECE)]  # type: ignore[no-untyped-call]


@cache
def _kept(numbers: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.tensor(numbers, dtype=dtype, device=device)  # once: a graph that is captured cannot copy from the host


def expand_trials(numbers: Tensor, like: Tensor) -> Tensor:
    """Numbers [t] shaped to multiply a tensor [t, ...]."""
    return numbers.view(-1, *[1] * (like.dim() - 1))


Schedule = Callable[[int, int], float]
"""(epoch, epochs) -> factor on the learning rate."""


def cosine(epoch: int, epochs: int) -> float:
    """Half a cosine from 1 down to (nearly) 0.

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
