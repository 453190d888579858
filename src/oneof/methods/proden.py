"""PRODEN: progressive identification of true labels (Lv et al., ICML 2020)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from oneof.candidates.mask import log_softmax, posterior, restrict, uniform
from oneof.methods.base import Method


def weighted_cross_entropy(logits: Tensor, weights: Tensor) -> Tensor:
    """Return the cross-entropy against weights [..., c] that sum to one: - sum_j w_j log p_j."""
    return -(weights * log_softmax(logits)).sum(-1)


@dataclass(frozen=True)
class Proden(Method):
    r"""Cross-entropy whose weights follow the classifier (POP's paper, the equation before Algorithm 1).

        loss_i = - sum_j w_ij log p_ij
        w_ij  <- p_ij / sum_{k in S_i} p_ik   for j in S_i, else 0

    Memory: w [n, c], uniform over S at first; renewed from the forward that gave the loss.
    Differs from the authors' code: S is an argument of its own, not read back as w > 0, so that a probability that underflows
    does not remove a label.
    """

    uses_prior: ClassVar[bool] = True
    resettable: ClassVar[bool] = True

    def init(self, candidates: Tensor, prior: Tensor | None = None) -> Tensor:
        return uniform(candidates, prior)

    def loss(self, logits: Tensor, candidates: Tensor, weights: Tensor) -> Tensor:
        return weighted_cross_entropy(logits, restrict(weights, candidates))

    def update(self, logits: Tensor, candidates: Tensor, weights: Tensor) -> Tensor:
        return posterior(logits, candidates)


@dataclass(frozen=True)
class BalancedProden(Proden):
    r"""PRODEN whose weights are corrected, before every epoch, for how much each label has gathered.

        w_ij  <- w_ij / m_j^b   on S_i, normalised;   m_j = mean_i w_ij

    Without it labels that are frequent in sets swallow those that come with them: each epoch makes them more frequent. Ours, not
    in any paper; what it gives is in docs/decisions/0006-default-estimator.md.
    """

    resettable: ClassVar[bool] = False  # weights are corrected at the start of every epoch, which would undo the reset
    balance: float = 0.5  # b; 0 is PRODEN

    def __post_init__(self) -> None:
        if not 0 <= self.balance <= 1:
            raise ValueError(f"balance must lie in [0, 1]; got {self.balance}.")

    def on_epoch_start(self, weights: Tensor, mean: Callable[[Tensor], Tensor]) -> Tensor:
        weights = weights / mean(weights).clamp_min(1e-4) ** self.balance
        return weights / weights.sum(-1, keepdim=True)
