"""RCR: revisiting consistency regularization for partial labels (Wu et al., ICML 2022)."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from oneof.candidates.mask import posterior, restrict, uniform
from oneof.methods.base import Batch, Method, Net, Step, logits_of
from oneof.methods.lws import log_complement
from oneof.methods.proden import weighted_cross_entropy


def exclusion_loss(logits: Tensor, candidates: Tensor) -> Tensor:
    """Return the loss of what a row is not, - sum_{j not in S} log(1 - p_j), [...]."""
    return -torch.where(candidates, 0.0, log_complement(logits)).sum(-1)


def divergence(logits: Tensor, weights: Tensor) -> Tensor:
    """Return KL(w || p) of weights [..., c] that sum to one, with 0 log 0 = 0."""
    return weighted_cross_entropy(logits, weights) + torch.xlogy(weights, weights).sum(-1)


@dataclass(frozen=True)
class RCR(Method):
    r"""Non-candidates are pushed down, and three views must agree with one label distribution.

        loss_i = - sum_{j not in S_i} log(1 - p_ij(x_0)) + lam_e sum_{k=0..2} KL(w_i || p_i(x_k)),   lam_e = min(e / ramp, 1) lam
        w_ij  <- (p_ij(x_0) p_ij(x_1) p_ij(x_2))^(1/3)   for j in S_i, normalised, else 0

    View 0 is the plain one; the three go through the network together, so BN sees them as one batch.
    Memory: w [n, c], uniform over S at first; renewed from the forward that gave the loss.
    Differs from the authors' code: log(1 - p) is exact in logs (theirs takes log(1.0000001 - p)), the geometric mean is one of
    log-probabilities (theirs multiplies powers, which underflow), and w is restricted to the set of the moment.
    Note: in epoch 0 lam is 0 and w is renewed all the same, so the uniform start never acts. Until the ramp has risen only the
    first term teaches, and it cannot tell apart labels that stand in the same sets: where a wrong label is nearly always a
    candidate, w follows an uninformed classifier, and KL then holds it there. Take a short ramp for such sets.
    """

    lam: float = 1.0  # weight of the agreement, at its full height
    ramp: float = 100.0  # epochs until then

    views: ClassVar[int] = 3
    uses_prior: ClassVar[bool] = True
    resettable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.ramp > 0:
            raise ValueError(f"ramp must be positive; got {self.ramp}.")

    def init(self, candidates: Tensor, prior: Tensor | None = None) -> Tensor:
        return uniform(candidates, prior)

    def step(self, net: Net, views: Tensor, batch: Batch, shared: Any) -> Step:
        logits = logits_of(net, views)
        lam = self.lam * (batch.epoch / self.ramp).clamp(max=1)
        agreement = divergence(logits, restrict(batch.memory, batch.candidates)).sum(0)
        loss = exclusion_loss(logits[0], batch.candidates) + lam * agreement
        weights = posterior(batch.weighed(logits.detach().log_softmax(-1).mean(0)), batch.candidates)
        return Step(loss, logits[0].detach(), weights, shared)
