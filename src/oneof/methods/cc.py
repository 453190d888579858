"""CC: the classifier-consistent method (Feng et al., NeurIPS 2020)."""

from dataclasses import dataclass

from torch import Tensor

from oneof.candidates.mask import masked
from oneof.methods.base import Memory, Method


@dataclass(frozen=True)
class CC(Method):
    r"""The likelihood that the label lies in the set.

        loss_i = - log sum_{j in S_i} p_ij  =  logsumexp_j z_ij - logsumexp_{j in S_i} z_ij

    Memory: none.
    Differs from the authors' code: in logs throughout, so that a set of probability zero has a finite loss and gradient.
    """

    def loss(self, logits: Tensor, candidates: Tensor, memory: Memory) -> Tensor:
        return logits.logsumexp(-1) - masked(logits, candidates).logsumexp(-1)
