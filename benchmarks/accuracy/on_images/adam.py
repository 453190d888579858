"""Adam, with which CAVL's authors train; everything else here is trained by SGD."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from oneof.training.optimize import SGD, expand_trials


@dataclass(frozen=True)
class Adam(SGD):
    """Adam with weight decay as a part of the gradient, as `torch.optim.Adam` has it.

    State of a weight: first and second moment, and the powers of both betas, as tensors so that a graph may capture the step.
    """

    momentum: float = 0.9  # beta 1
    second: float = 0.999  # beta 2
    epsilon: float = 1e-8

    def init(self, weights: Iterable[Tensor]) -> list[list[Tensor]]:
        """Return the state of each weight [t, ...]."""
        state = []
        for weight in weights:
            power = torch.ones_like(weight[(slice(None), *[0] * (weight.dim() - 1))])
            state.append([torch.zeros_like(weight), torch.zeros_like(weight), power.clone(), power.clone()])
        return state

    def step(
        self,
        weights: Iterable[Tensor],
        gradients: Iterable[Tensor],
        state: list[list[Tensor]],
        lr: Tensor,
        decay: tuple[float, ...],
    ) -> None:
        """Take one step, written to weights and state in place; lr [t], the same decay for all trials."""
        (weight_decay,) = set(decay)
        for weight, gradient, (mean, square, power, second_power) in zip(weights, gradients, state, strict=True):
            total = gradient.add(weight, alpha=weight_decay)
            mean.mul_(self.momentum).add_(total, alpha=1 - self.momentum)
            square.mul_(self.second).addcmul_(total, total, value=1 - self.second)
            power.mul_(self.momentum)
            second_power.mul_(self.second)
            size = (square / expand_trials(1 - second_power, weight)).sqrt().add_(self.epsilon)
            rate = expand_trials(lr / (1 - power), weight)
            weight.sub_(rate * mean / size)
