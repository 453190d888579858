"""The optimiser and the schedule of a stack: every trial has its own learning rate and weight decay."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

Tensors = Iterable[Tensor]
COMPILED = 32  # weights up to which a step is compiled: inductor's time grows with their number, what it saves does not


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent with momentum: v <- mu v + g + decay w;  w <- w - lr v. Graphs may capture it."""

    momentum: float = 0.9

    def init(self, weights: Tensors) -> list[list[Tensor]]:
        """A list of tensors for each weight [t, ...]."""
        return [[torch.zeros_like(w)] for w in weights]

    def step(self, weights: Tensors, gradients: Tensors, state: list[list[Tensor]], lr: Tensor, decay: Tensor) -> None:
        """One step, written to weights and state in place; lr and decay [t]."""
        if len(lr) == 1:  # few launches for all weights; compiled, one
            move = _compiled_move() if lr.is_cuda and len(state) <= COMPILED else _move
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


def along(numbers: Tensor, like: Tensor) -> Tensor:
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
