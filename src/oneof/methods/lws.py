"""LWS: leveraged weighted loss (Wen et al., ICML 2021)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from oneof.candidates.mask import check_mask, restrict
from oneof.methods.base import Method


def normalise_by_membership(weights: Tensor, candidates: Tensor) -> Tensor:
    """Return weights normalised on the set and, apart from that, on its complement [..., c]."""
    check_mask(candidates)
    outside = restrict(weights, ~candidates).nan_to_num(0.0)  # a full set has no complement: 0/0
    return torch.where(candidates, restrict(weights, candidates), outside)


def log_complement(logits: Tensor) -> Tensor:
    """Return log(1 - p_j) for every label [..., c], exact where p_j is near one.

    Only the largest p can be near one; for it the sum over the other labels is taken in logs.
    """
    p = logits.softmax(-1)
    top = logits.argmax(-1, keepdim=True)
    is_top = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, top, True)
    others = torch.where(is_top, -torch.inf, logits).logsumexp(-1, keepdim=True)
    rest = torch.log1p(-torch.where(is_top, 0.0, p))
    return torch.where(is_top, others - logits.logsumexp(-1, keepdim=True), rest)


@dataclass(frozen=True)
class LWS(Method):
    r"""Candidates should score high, the others low, and `beta` leverages the two.

        loss_i = sum_{j in S_i} w_ij psi(z_ij) + beta sum_{j not in S_i} w_ij psi(-z_ij),   psi(u) = 1 / (1 + e^u)
        w_ij  <- p_ij normalised inside S_i, and apart from that outside

    Memory: w [n, c], on every label; renewed from a second forward after the step.
    A label that POP removes becomes a non-candidate and enters the second sum.
    Differs from the authors' code: at an example's first visit each half is normalised too (theirs has 1/c everywhere).
    """

    beta: float = 1.0  # weight of the non-candidates; the authors search {1, 2}

    after_step: ClassVar[bool] = True
    uses_prior: ClassVar[bool] = True

    def init(self, candidates: Tensor, prior: Tensor | None = None) -> Tensor:
        flat = torch.full(candidates.shape, 1 / candidates.shape[-1], device=candidates.device)
        if prior is None:
            return flat
        return prior.softmax(-1)

    def loss(self, logits: Tensor, candidates: Tensor, weights: Tensor) -> Tensor:
        weights = normalise_by_membership(weights, candidates)
        side = torch.where(candidates, 1.0, -1.0)
        leverage = torch.where(candidates, 1.0, self.beta)
        return (leverage * weights * torch.sigmoid(-side * logits)).sum(-1)

    def update(self, logits: Tensor, candidates: Tensor, weights: Tensor) -> Tensor:
        return normalise_by_membership(logits.softmax(-1), candidates)


@dataclass(frozen=True)
class LWSCrossEntropy(LWS):
    r"""LWS with the cross-entropy in place of the sigmoid loss.

    loss_i = - sum_{j in S_i} w_ij log p_ij - beta sum_{j not in S_i} w_ij log(1 - p_ij)
    """

    def loss(self, logits: Tensor, candidates: Tensor, weights: Tensor) -> Tensor:
        weights = normalise_by_membership(weights, candidates)
        surprise = -torch.where(candidates, logits.log_softmax(-1), self.beta * log_complement(logits))
        return (weights * surprise).sum(-1)
