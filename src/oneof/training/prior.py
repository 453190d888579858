r"""The prior: how much votes speak for each label of each row, beside the mask that says which labels are possible.

What a method would weigh by the posterior p it weighs by prior x posterior:

    w_ij  ~  (v_ij + s) p_ij     on S_i; where the slack s is not zero, on every label

v: weights of the votes, such as counts; s: what a label counts that nobody named. In logs, and up to a number per row,

    prior_ij = log((v_ij + s) / s)   or, without slack,   log(v_ij / max_k v_ik)     on S_i, and 0 off it

so that at rest it takes room for the candidates alone: the slack is one number, not a table. POP compares the same products; without
slack a label off the set counts there by its probability, so that a row whose mass lies outside its set is left alone, as ever.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from oneof.training.tables import Table

LEAST = 1e-6  # of a row's largest weight: a candidate without votes stays possible


@dataclass(frozen=True, eq=False)
class Prior:
    """What votes say, as `fit` is given it."""

    weights: Any = None  # [n, c], dense or SciPy sparse, not negative; None: nothing is known but the sets
    slack: float = 0.0  # what a label counts that nobody named; 0: it cannot be right

    def __post_init__(self) -> None:
        if not 0 <= self.slack < float("inf"):
            raise ValueError(f"slack must be a number from 0 on; got {self.slack}.")
        if self.weights is None and self.slack > 0:
            raise ValueError("slack needs a prior, against which it counts. Give prior=, such as the counts of votes.")


def log_prior(prior: Prior, sets: Table, dtype: torch.dtype) -> Table | None:
    """The prior as training uses it, in the form of the sets; None if there is none.

    >>> from oneof.training.tables import Dense
    >>> sets = Dense(torch.tensor([[[True, True, False]]]))
    >>> log_prior(Prior([[2, 1, 0]]), sets, torch.float32).values.exp()
    tensor([[[1.0000, 0.5000, 1.0000]]])
    >>> log_prior(Prior([[2, 1, 0]], slack=0.5), sets, torch.float32).values.exp()
    tensor([[[5., 3., 1.]]])
    """
    if prior.weights is None:
        return None

    def logs(weights: Tensor, largest: Tensor) -> Tensor:
        """Relative to the slack or, without one, to the row's largest weight; a row without votes has zeros."""
        if prior.slack > 0:
            return ((weights + prior.slack) / prior.slack).log()
        return torch.where(largest > 0, (weights / largest.clamp_min(1e-30)).clamp_min(LEAST), 1.0).log()

    return sets.weighed(_checked(prior.weights, *sets.shape[1:]), dtype, logs)


def _checked(weights: Any, n: int, c: int) -> Any:
    """Weights as an array or a CSR matrix [n, c] of numbers that are not negative."""
    weights = weights.detach().cpu().numpy() if isinstance(weights, Tensor) else weights
    known: Any = weights.tocsr() if hasattr(weights, "tocsr") else np.asarray(weights)
    if not hasattr(known, "tocsr") and not np.issubdtype(known.dtype, np.number):
        raise TypeError(f"prior must be numbers [n, c], such as counts of votes; got dtype {known.dtype}.")
    if tuple(known.shape) != (n, c):
        raise ValueError(f"prior must be weights [{n}, {c}] to match the candidates; got shape {list(known.shape)}.")
    numbers = known.data if hasattr(known, "tocsr") else known
    wrong = ~(np.isfinite(numbers) & (numbers >= 0))
    if wrong.any():
        raise ValueError(f"prior must hold numbers from 0 on; got {numbers[wrong].flat[0]}.")
    return known
