r"""The prior: how much votes speak for each label of each row, beside the mask that says which labels are possible.

A method that weighs candidates by the posterior p weighs them by prior x posterior:

    w_ij  ~  (v_ij + s) p_ij     on S_i; where the slack s is not zero, on every label

v: weights of the votes, such as counts; s: what a label counts that nobody named. In logs, and up to a number per row,

    prior_ij = log((v_ij + s) / s)   or, without slack,   log(v_ij / max_k v_ik)     on S_i, and 0 off it

POP compares the same products; without slack a label off the set counts there by its probability, so that a row whose mass lies
outside its set is left alone, as ever.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from oneof.candidates.prior import check_weights, log_weights


@dataclass(frozen=True, eq=False)
class Prior:
    """Hold the prior as it is passed to `fit`."""

    weights: Any = None  # [n, c], dense or SciPy sparse, not negative; None: nothing is known but the sets
    slack: float = 0.0  # what a label counts that nobody named; 0: it cannot be right

    def __post_init__(self) -> None:
        if not 0 <= self.slack < float("inf"):
            raise ValueError(f"slack must be a number from 0 on; got {self.slack}.")
        if self.weights is None and self.slack > 0:
            raise ValueError("slack needs a prior, against which it counts. Give prior=, such as the counts of votes.")


def log_prior(prior: Prior, candidates: Tensor, dtype: torch.dtype) -> Tensor | None:
    """Return the log prior [1, n, c] at the labels that are in any trial's sets [t, n, c], zero elsewhere; None if there is none.

    >>> candidates = torch.tensor([[[True, True, False]]])
    >>> log_prior(Prior([[2, 1, 0]]), candidates, torch.float32).exp()
    tensor([[[1.0000, 0.5000, 1.0000]]])
    >>> log_prior(Prior([[2, 1, 0]], slack=0.5), candidates, torch.float32).exp()
    tensor([[[5., 3., 1.]]])
    """
    if prior.weights is None:
        return None
    weights = check_weights(prior.weights, *candidates.shape[1:])
    if hasattr(weights, "toarray"):
        weights = weights.toarray()
    is_candidate = candidates.any(0, keepdim=True)
    dense = torch.as_tensor(np.asarray(weights, dtype=np.float64))
    weight = dense.to(candidates.device, dtype) * is_candidate
    largest = weight.amax(-1, keepdim=True)
    return torch.where(is_candidate, log_weights(weight, largest, prior.slack), 0.0)
