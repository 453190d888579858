"""Candidate sets: a boolean mask [n, c] and the names of its classes.

`read` turns whatever form the sets come in into that mask and checks it; `restrict`, `posterior` and `uniform` are the three
ways in which the rest of the package looks through the mask. They work on any leading axes.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def check_mask(candidates: Tensor) -> None:
    """Raise unless the candidates are a mask: of numbers, `~` and views as bytes would give others, or fail far from here.

    It looks at the type alone, so that no step waits for a value.
    """
    if candidates.dtype is not torch.bool:
        got = f"{type(candidates).__name__} of {candidates.dtype}"
        raise TypeError(f"candidates must be a mask, a torch tensor of bool; got {got}. Use candidates.bool().")


def as_numbers(candidates: Tensor, dtype: torch.dtype) -> Tensor:
    """The mask as zeros and ones; read as bytes first, which on a CPU is faster than from bool."""
    if candidates.dtype is not torch.uint8:  # the form in which the engine hands masks to compiled steps
        check_mask(candidates)
    return candidates.view(torch.uint8).to(dtype)


def uniform(candidates: Tensor, prior: Tensor | None = None) -> Tensor:
    """Equal weight on every candidate, [..., c], or weights in proportion to e^prior; zero elsewhere.

    >>> uniform(torch.tensor([True, False, True]))
    tensor([0.5000, 0.0000, 0.5000])
    >>> uniform(torch.tensor([True, False, True]), prior=torch.tensor([3.0, 9.0, 1.0]).log())
    tensor([0.7500, 0.0000, 0.2500])
    """
    if prior is not None:
        return posterior(prior, candidates)
    weights = as_numbers(candidates, torch.get_default_dtype())
    return weights / weights.sum(-1, keepdim=True)


def restrict(weights: Tensor, candidates: Tensor) -> Tensor:
    """Weights [..., c] set to zero off the candidates and normalised; uniform where nothing is left.

    >>> restrict(torch.tensor([[0.2, 0.2, 0.6], [1, 0, 0]]), torch.tensor([[True, True, False], [False, True, True]]))
    tensor([[0.5000, 0.5000, 0.0000],
            [0.0000, 0.5000, 0.5000]])
    """
    # the trace is lost in rounding, unless the remembered weight lies wholly on removed labels: then only the traces are left
    inside = (weights + 1e-30) * as_numbers(candidates, weights.dtype)
    return inside / inside.sum(-1, keepdim=True)


def posterior(logits: Tensor, candidates: Tensor) -> Tensor:
    """Softmax over the candidates alone, [..., c]; exactly zero elsewhere.

    >>> posterior(torch.tensor([1.0, 900.0, 1.0]), torch.tensor([True, False, True]))
    tensor([0.5000, 0.0000, 0.5000])
    """
    return masked(logits, candidates).softmax(-1)


def masked(logits: Tensor, candidates: Tensor) -> Tensor:
    """Logits with minus infinity off the candidates, so that softmax, argmax and logsumexp see only these.

    1 - 1/m is 0 on a candidate and minus infinity off it; on a CPU adding it is faster than torch.where.

    >>> masked(torch.tensor([3.0, 5.0]), torch.tensor([True, False]))
    tensor([3., -inf])
    """
    return logits + (1 - as_numbers(candidates, logits.dtype).reciprocal())


@dataclass(frozen=True)
class Statistics:
    rows: int
    classes: int
    average: float  # labels per set
    largest: int
    singletons: int
    full: int
    absent: int  # classes in no set


@dataclass(frozen=True)
class Candidates:
    """Candidate sets as read: which of `classes` [c] each row may be.

    `absent` lists classes that are in no set: allowed, since a class may be known and unseen, but never learnable.
    """

    mask: NDArray[np.bool_]  # [n, c]
    classes: NDArray[Any]  # [c], sorted unless given

    @property
    def absent(self) -> list[Any]:
        return self.classes[~self.mask.any(0)].tolist()  # type: ignore[no-any-return]

    def statistics(self) -> Statistics:
        return statistics(self.mask)


def statistics(mask: NDArray[np.bool_]) -> Statistics:
    """Count rows, labels and special sets of a mask [n, c]."""
    size, (n, c) = mask.sum(1), mask.shape
    singletons, full, absent = (int(marked.sum()) for marked in (size == 1, size == c, ~mask.any(0)))
    return Statistics(n, c, float(size.mean()), int(size.max()), singletons, full, absent)
