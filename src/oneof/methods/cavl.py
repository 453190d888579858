"""CAVL: class activation value learning (Zhang et al., ICLR 2022)."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn.functional import one_hot

from oneof.candidates.mask import masked, restrict, uniform
from oneof.methods.base import Method
from oneof.methods.proden import weighted_cross_entropy


@dataclass(frozen=True)
class CAVL(Method):
    r"""Cross-entropy against the candidate with the largest class activation value.

        loss_i = - log p_i,y_i          (uniform over S_i at the first visit)
        y_i   <- argmax_{j in S_i} z_ij |1 - z_ij|

    Memory: y as one-hot weights [n, c]; renewed from a second forward after the step. An activation value is no
    probability, so a prior is not used.
    Differs from the authors' code: non-candidates are masked by minus infinity. Theirs multiplies by the mask, so that a
    non-candidate (value 0) wins wherever every candidate's value is negative.
    """

    after_step: ClassVar[bool] = True

    def init(self, candidates: Tensor, prior: Tensor | None = None) -> Tensor:
        return uniform(candidates)

    def loss(self, logits: Tensor, candidates: Tensor, weights: Tensor) -> Tensor:
        return weighted_cross_entropy(logits, restrict(weights, candidates))

    def update(self, logits: Tensor, candidates: Tensor, weights: Tensor) -> Tensor:
        value = masked(logits * (1 - logits).abs(), candidates)
        return one_hot(value.argmax(-1), logits.shape[-1]).to(weights.dtype)
