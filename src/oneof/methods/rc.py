"""RC: the risk-consistent method (Feng et al., NeurIPS 2020)."""

from dataclasses import dataclass
from typing import ClassVar

from oneof.methods.proden import Proden


@dataclass(frozen=True)
class RC(Proden):
    r"""Importance-weighted cross-entropy; the weights estimate p(j | x, S) by the classifier itself.

        loss_i = - sum_j w_ij log p_ij
        w_ij  <- p_ij / sum_{k in S_i} p_ik   for j in S_i, else 0

    Memory: w [n, c], uniform over S at first. The formulas are PRODEN's; the weights are renewed from a second forward, after
    the step, and that is all that tells the two apart in practice.
    Differs from the authors' code: only the rows of the batch are renormalised (theirs divides the whole n x c table at every
    batch and spreads a NaN), and the second forward does not move BN statistics.
    """

    after_step: ClassVar[bool] = True
