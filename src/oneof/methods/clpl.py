"""CLPL: convex loss for partial labels (Cour et al., JMLR 2011)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from oneof.candidates.mask import check_mask
from oneof.methods.base import Memory, Method


def squared_hinge(u: Tensor) -> Tensor:
    """Return max(0, 1 - u)^2."""
    return (1 - u).clamp_min(0).square()


@dataclass(frozen=True)
class CLPL(Method):
    r"""The mean score of the candidates should be high, each other score low.

        loss_i = phi(mean_{j in S_i} s_ij) + sum_{j not in S_i} phi(-s_ij),   phi(u) = max(0, 1 - u)^2

    with s the raw scores, as Cour et al. have it. Memory: none.
    """

    def loss(self, logits: Tensor, candidates: Tensor, memory: Memory) -> Tensor:
        check_mask(candidates)
        inside = torch.where(candidates, logits, 0.0).sum(-1) / candidates.sum(-1)
        outside = torch.where(candidates, 0.0, squared_hinge(-logits)).sum(-1)
        return squared_hinge(inside) + outside


@dataclass(frozen=True)
class CLPLSoftmax(CLPL):
    """CLPL on s = softmax(z), as the authors of VALEN and POP ran it: it saturates, and its loss never reaches zero."""

    def loss(self, logits: Tensor, candidates: Tensor, memory: Memory) -> Tensor:
        return super().loss(logits.softmax(-1), candidates, memory)
