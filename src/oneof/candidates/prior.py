"""Weights of votes as a log prior over the labels of each row."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

LEAST = 1e-6  # of a row's largest weight: a candidate without votes stays possible


def log_weights(weights: Tensor, largest: Tensor, slack: float = 0.0) -> Tensor:
    """Return log weights relative to the slack or, without one, to the row's largest weight; zeros for a row without votes.

    >>> log_weights(torch.tensor([[2.0, 1.0]]), torch.tensor([[2.0]])).exp()
    tensor([[1.0000, 0.5000]])
    """
    if slack > 0:
        return ((weights + slack) / slack).log()
    relative = (weights / largest.clamp_min(1e-30)).clamp_min(LEAST)
    return torch.where(largest > 0, relative, 1.0).log()


def check_weights(weights: Any, n: int, c: int) -> Any:
    """Return weights as an array or a CSR matrix [n, c] after checking that they are numbers of at least zero."""
    if isinstance(weights, Tensor):
        weights = weights.detach().cpu().numpy()
    checked: Any
    if hasattr(weights, "tocsr"):
        checked = weights.tocsr()
        numbers = checked.data
    else:
        checked = np.asarray(weights)
        numbers = checked
        if not np.issubdtype(checked.dtype, np.number):
            raise TypeError(f"prior must be numbers [n, c], such as counts of votes; got dtype {checked.dtype}.")
    if tuple(checked.shape) != (n, c):
        raise ValueError(f"prior must be weights [{n}, {c}] to match the candidates; got shape {list(checked.shape)}.")
    wrong = ~(np.isfinite(numbers) & (numbers >= 0))
    if wrong.any():
        raise ValueError(f"prior must hold numbers from 0 on; got {numbers[wrong].flat[0]}.")
    return checked
