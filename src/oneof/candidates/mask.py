"""Candidate sets: a boolean mask [n, c] and the names of its classes.

`oneof.candidates.read` makes and checks the mask; `restrict`, `posterior` and `uniform` are how the rest of the package applies it.
They accept any leading axes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

MIN_VECTOR = 16  # numbers of single precision in the widest register of a CPU


def check_mask(candidates: Tensor) -> None:
    """Raise TypeError unless the candidates are a boolean mask.

    With numbers, `~` and views as bytes would give wrong values or fail far from here. Only the type is checked, so that a GPU
    need not be synchronised.
    """
    if candidates.dtype is not torch.bool:
        got = f"{type(candidates).__name__} of {candidates.dtype}"
        raise TypeError(f"candidates must be a mask, a torch tensor of bool; got {got}. Use candidates.bool().")


def mask_to(candidates: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the mask as zeros and ones; converting from bytes is faster on a CPU than from bool."""
    if candidates.dtype is not torch.uint8:  # the training engine passes masks to compiled steps as bytes
        check_mask(candidates)
    return candidates.view(torch.uint8).to(dtype)


def uniform(candidates: Tensor, prior: Tensor | None = None) -> Tensor:
    """Return equal weights on the candidates [..., c], or weights in proportion to e^prior; zero elsewhere.

    >>> uniform(torch.tensor([True, False, True]))
    tensor([0.5000, 0.0000, 0.5000])
    >>> uniform(torch.tensor([True, False, True]), prior=torch.tensor([3.0, 9.0, 1.0]).log())
    tensor([0.7500, 0.0000, 0.2500])
    """
    if prior is not None:
        return posterior(prior, candidates)
    weights = mask_to(candidates, torch.get_default_dtype())
    return weights / weights.sum(-1, keepdim=True)


def restrict(weights: Tensor, candidates: Tensor) -> Tensor:
    """Set weights [..., c] to zero outside the candidates and normalise them; uniform where nothing is left.

    >>> restrict(torch.tensor([[0.2, 0.2, 0.6], [1, 0, 0]]), torch.tensor([[True, True, False], [False, True, True]]))
    tensor([[0.5000, 0.5000, 0.0000],
            [0.0000, 0.5000, 0.5000]])
    """
    # 1e-30 is lost in rounding unless all the weight lies on removed labels: then it makes the result uniform.
    inside = (weights + 1e-30) * mask_to(candidates, weights.dtype)
    return inside / inside.sum(-1, keepdim=True)


def posterior(logits: Tensor, candidates: Tensor) -> Tensor:
    """Return the softmax over the candidates [..., c]; exactly zero elsewhere.

    >>> posterior(torch.tensor([1.0, 900.0, 1.0]), torch.tensor([True, False, True]))
    tensor([0.5000, 0.0000, 0.5000])
    """
    return softmax(masked(logits, candidates))


def softmax(logits: Tensor) -> Tensor:
    """Return the softmax over the labels [..., c].

    >>> softmax(torch.tensor([[0.0, 0.0], [900.0, 1.0]]))
    tensor([[0.5000, 0.5000],
            [1.0000, 0.0000]])
    """
    return _over_labels(torch.softmax, logits)


def log_softmax(logits: Tensor) -> Tensor:
    """Return the logarithm of the softmax over the labels [..., c]."""
    return _over_labels(torch.log_softmax, logits)


def _over_labels(function: Callable[[Tensor, int], Tensor], logits: Tensor) -> Tensor:
    """Return function(logits, axis of the labels), with the memory layout of the logits.

    Along the last axis a CPU computes fewer than MIN_VECTOR numbers one at a time, along another one it computes many rows at once: for
    ten labels that is ten times as fast.
    """
    if logits.device.type != "cpu" or logits.dim() < 2 or logits.shape[-1] >= MIN_VECTOR:
        return function(logits, -1)
    result = function(logits.mT, -2).mT
    return result.contiguous() if logits.is_contiguous() else result


def masked(logits: Tensor, candidates: Tensor) -> Tensor:
    """Set logits outside the candidates to minus infinity, so that softmax, argmax and logsumexp ignore them.

    1 - 1/m is 0 on a candidate and minus infinity elsewhere; on a CPU adding it is faster than torch.where.

    >>> masked(torch.tensor([3.0, 5.0]), torch.tensor([True, False]))
    tensor([3., -inf])
    """
    return logits + (1 - mask_to(candidates, logits.dtype).reciprocal())


@dataclass(frozen=True)
class Statistics:
    """Numbers of rows, labels and special sets."""

    rows: int
    classes: int
    average: float  # labels per set
    largest: int
    singletons: int
    full: int
    absent: int  # classes in no set


@dataclass(frozen=True)
class Candidates:
    """Candidate sets of n rows over `classes` [c]."""

    mask: NDArray[np.bool_]  # [n, c]
    classes: NDArray[Any]  # [c] names, sorted unless the user gave them

    @property
    def absent(self) -> list[Any]:
        """Return the classes in no set: they are allowed, since a class may be known but unseen, but cannot be learned."""
        return self.classes[~self.mask.any(0)].tolist()  # type: ignore[no-any-return]

    def statistics(self) -> Statistics:
        """Count rows, labels and special sets."""
        return statistics(self.mask)


def statistics(mask: NDArray[np.bool_]) -> Statistics:
    """Count rows, labels and special sets of a mask [n, c]."""
    n, c = mask.shape
    sizes = mask.sum(1)
    return Statistics(
        rows=n,
        classes=c,
        average=float(sizes.mean()),
        largest=int(sizes.max()),
        singletons=int((sizes == 1).sum()),
        full=int((sizes == c).sum()),
        absent=int((~mask.any(0)).sum()),
    )
