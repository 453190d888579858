"""PRODEN with other posteriors than the network's own on view 0: what POP is shown, and what the weights follow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from oneof.methods import Proden
from oneof.methods.base import Batch, Memory, Net, Step, first_output, logits_of
from oneof.methods.proden import BalancedProden


@dataclass(frozen=True)
class ProdenSeenByAll(Proden):
    """PRODEN of which POP observes all views, as the geometric mean of their posteriors: a label that one view doubts is doubted."""

    def step(self, net: Net, views: Tensor, batch: Batch, shared: object) -> Step:
        logits = logits_of(net, views)
        loss = self.loss(logits, batch.candidates, batch.memory).mean(0)
        seen = logits.detach()
        memory = self.update(seen[0], batch.candidates, batch.memory)
        return Step(loss, seen.log_softmax(-1).mean(0), memory, shared)


@dataclass(frozen=True)
class FairProden(BalancedProden):
    r"""Balanced PRODEN of which POP observes the balanced posterior: without that, purification undoes the balance.

        POP sees  log p_ij - b log m_j,   m_j = mean_i w_ij before the epoch

    Shared: b log m [t, 1, c].
    """

    balance: float = 1.0

    def on_epoch_start(self, weights: Tensor, mean: Callable[[Tensor], Tensor]) -> Tensor:
        return weights  # `refresh` does it, which may also write what is shared

    def shared(self, net: Net) -> tuple[Tensor, ...]:
        return (torch.zeros_like(net.weights["head.bias"])[:, None],)

    def refresh(
        self, net: Net, features: Callable[[], Tensor], memory: Memory, shared: tuple[Tensor, ...], epoch: int
    ) -> tuple[Memory, tuple[Tensor, ...]]:
        mean = memory.mean(1, keepdim=True)
        gathered = self.balance * mean.clamp_min(1e-4).log()
        return BalancedProden.on_epoch_start(self, memory, lambda _: mean), (gathered, *shared[1:])

    def step(self, net: Net, views: Tensor, batch: Batch, shared: tuple[Tensor, ...]) -> Step:
        logits = logits_of(net, views)
        loss = self.loss(logits, batch.candidates, batch.memory).mean(0)
        seen, shared = self.judge(net, views, logits[0].detach(), shared)
        return Step(loss, seen - shared[0], self.update(seen, batch.candidates, batch.memory), shared)

    def judge(
        self, net: Net, views: Tensor, logits: Tensor, shared: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the logits [t, b, c] that weights follow, and what is shared after the step."""
        return logits, shared


@dataclass(frozen=True)
class TrailingProden(FairProden):
    """PRODEN whose weights follow a network that trails behind the one that learns, as POP's sets do; balance 0: without balance.

    Shared: b log m, and the trailing weights in the order of the network's own.
    """

    momentum: float = 0.999

    def shared(self, net: Net) -> tuple[Tensor, ...]:
        return *super().shared(net), *(weight.clone() for weight in net.weights.values())

    def judge(
        self, net: Net, views: Tensor, logits: Tensor, shared: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        gathered, *trailing = shared
        with torch.no_grad():
            moved = []
            for old, new in zip(trailing, net.weights.values(), strict=True):
                moved.append(torch.lerp(old, new, 1 - self.momentum))
            seen = first_output(net(views[0], weights=dict(zip(net.weights, moved, strict=True))))
        return seen, (gathered, *moved)
