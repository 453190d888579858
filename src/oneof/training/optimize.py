"""Optimisers and schedules for a stack: every trial has its own learning rate and weight decay.

State is one list of tensors per weight. `step` writes to weights and state in place, so that a step can be captured as a graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent with momentum: v <- mu v + g + decay w;  w <- w - lr v."""

    momentum: float = 0.9

    def init(self, weights: Iterable[Tensor]) -> list[list[Tensor]]:
        return [[torch.zeros_like(w)] for w in weights]

    def step(
        self,
        weights: Iterable[Tensor],
        gradients: Iterable[Tensor],
        state: list[list[Tensor]],
        lr: Tensor,
        decay: Tensor,
    ) -> None:
        """One step; lr and decay [t]."""
        if len(lr) == 1:  # few launches for all weights; compiled, one
            move = _compiled_move() if lr.is_cuda else _move
            speeds = [speed for (speed,) in state]
            move(list(weights), speeds, list(gradients), lr.view(()), decay.view(()), self.momentum)
            return
        for one, g, (speed,) in zip(weights, gradients, state, strict=True):
            speed.mul_(self.momentum).add_(g).addcmul_(one, along(decay, one))
            one.addcmul_(speed, along(lr, one), value=-1)


def _move(w: list[Tensor], v: list[Tensor], g: list[Tensor], lr: Tensor, decay: Tensor, momentum: float) -> None:
    torch._foreach_mul_(v, momentum)
    torch._foreach_add_(v, g)
    torch._foreach_add_(v, torch._foreach_mul(w, decay))
    torch._foreach_sub_(w, torch._foreach_mul(v, lr))


@cache
def _compiled_move() -> Callable[..., None]:
    return torch.compile(_move, dynamic=False)  # not at import: it loads the compiler


@dataclass(frozen=True)
class AdamW:
    """Adam with decoupled weight decay (Loshchilov and Hutter, ICLR 2019)."""

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    def init(self, weights: Iterable[Tensor]) -> list[list[Tensor]]:
        return [[torch.zeros_like(w), torch.zeros_like(w), w.new_zeros(())] for w in weights]

    def step(
        self,
        weights: Iterable[Tensor],
        gradients: Iterable[Tensor],
        state: list[list[Tensor]],
        lr: Tensor,
        decay: Tensor,
    ) -> None:
        """One step; lr and decay [t]."""
        for w, g, (mean, square, count) in zip(weights, gradients, state, strict=True):
            count.add_(1)
            mean.lerp_(g, 1 - self.beta1)
            square.mul_(self.beta2).addcmul_(g, g, value=1 - self.beta2)
            rate = along(lr, w)
            w.mul_(1 - rate * along(decay, w))
            scale = (square / (1 - self.beta2**count)).sqrt_().add_(self.epsilon)
            w.sub_(rate * (mean / (1 - self.beta1**count)) / scale)


Optimizer = SGD | AdamW


def along(numbers: Tensor, like: Tensor) -> Tensor:
    """Numbers [t] shaped to multiply a tensor [t, ...]."""
    return numbers.view(-1, *[1] * (like.dim() - 1))


Schedule = Callable[[int, int], float]
"""(epoch, epochs) -> factor on the learning rate."""


def constant(epoch: int, epochs: int) -> float:
    return 1.0


def cosine(epoch: int, epochs: int) -> float:
    """Half a cosine from 1 down to (nearly) 0.

    >>> [round(cosine(epoch, 4), 3) for epoch in range(4)]
    [1.0, 0.854, 0.5, 0.146]
    """
    return 0.5 * (1 + math.cos(math.pi * epoch / epochs))


@dataclass(frozen=True)
class Steps:
    """The rate falls by `factor` at each of the epochs `at`."""

    at: tuple[int, ...] = (100, 150)
    factor: float = 0.1

    def __call__(self, epoch: int, epochs: int) -> float:
        return float(self.factor ** sum(epoch >= milestone for milestone in self.at))
