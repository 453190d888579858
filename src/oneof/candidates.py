"""Candidate sets: a boolean mask [n, c] and the names of its classes.

`read` turns whatever form the sets come in into that mask and checks it; `restrict`, `posterior` and `uniform` are the three
ways in which the rest of the package looks through the mask. They work on any leading axes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oneof.sets import mask_and_classes, show

# ---------------------------------------------------------------------------------------------- looking through the mask


def as_numbers(candidates: Tensor, dtype: torch.dtype) -> Tensor:
    """The mask as zeros and ones; read as bytes first, which on a CPU is faster than from bool."""
    return candidates.view(torch.uint8).to(dtype)


def uniform(candidates: Tensor) -> Tensor:
    """Equal weight on every candidate, [..., c]; zero elsewhere.

    >>> uniform(torch.tensor([True, False, True]))
    tensor([0.5000, 0.0000, 0.5000])
    """
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


# ------------------------------------------------------------------------------------------------------- reading the sets


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


@dataclass(frozen=True)
class Statistics:
    """What a mask looks like in numbers."""

    rows: int
    classes: int
    average: float  # labels per set
    largest: int
    singletons: int
    full: int
    absent: int  # classes in no set


def statistics(mask: NDArray[np.bool_]) -> Statistics:
    """Count rows, labels and special sets of a mask [n, c].

    >>> statistics(np.array([[1, 0, 0], [1, 1, 0]], dtype=bool))
    Statistics(rows=2, classes=3, average=1.5, largest=2, singletons=1, full=0, absent=1)
    """
    size = mask.sum(1)
    n, c = mask.shape
    return Statistics(
        rows=n,
        classes=c,
        average=float(size.mean()),
        largest=int(size.max()),
        singletons=int((size == 1).sum()),
        full=int((size == c).sum()),
        absent=int((~mask.any(0)).sum()),
    )


def read(
    sets: Any, *, classes: Iterable[Any] | None = None, complementary: bool = False, empty: str = "error"
) -> Candidates:
    """Read candidate sets in any of the forms people have them in.

    Parameters
    ----------
    sets
        A mask [n, c] of bool or 0/1 (NumPy, torch, SciPy sparse, or a DataFrame whose columns are the classes), a sequence of
        sets or lists of labels (strings or numbers, an Arrow or pandas column included), or plain labels [n], which become
        singletons. A list of lists is always read as lists of labels; give a mask as an array.
    classes
        The labels in the order of the mask's columns. By default the labels that occur, sorted; for a mask 0 ... c-1.
    complementary
        The sets say what a row is *not*: each is replaced by its complement.
    empty
        "error", or "unlabelled": an empty set then means that nothing is known, and becomes the full set.

    >>> read([["cat", "dog"], ["dog"], {"fox", "cat"}]).mask.astype(int)
    array([[1, 1, 0],
           [0, 1, 0],
           [1, 0, 1]])
    >>> read([["dog"], []], classes=["cat", "dog", "fox"], complementary=True, empty="unlabelled").mask.astype(int)
    array([[1, 0, 1],
           [1, 1, 1]])
    """
    if empty not in ("error", "unlabelled"):
        raise ValueError(f"empty must be 'error' or 'unlabelled'; got {empty!r}.")
    mask, names = mask_and_classes(sets, classes)
    if len(mask) == 0:
        raise ValueError("candidates must have at least one row; got none.")
    if len(names) < 2:
        remedy = "Give classes= if some are in no set." if classes is None else "Add rows with another label."
        raise ValueError(
            f"candidates must have at least two classes; got {'1 class' if len(names) else 'none'} ({show(names)}). {remedy}"
        )
    if complementary:
        mask = ~mask
    blank: NDArray[np.bool_] = np.logical_not(mask.any(axis=1))
    if empty == "unlabelled" and not complementary:
        mask = mask | blank[:, None]
    elif blank.any():
        raise ValueError(_empty_message(blank, complementary))
    return Candidates(mask, names)


def read_known(sets: Any, classes: NDArray[Any]) -> NDArray[np.bool_]:
    """The mask [n, c] of sets whose labels may lie beyond the classes of a model; these are ignored, so that a row may be empty.

    >>> read_known([["cat", "yak"], ["yak"]], np.array(["cat", "dog"])).astype(int).tolist()
    [[1, 0], [0, 0]]
    """
    nameless = getattr(sets, "ndim", 1) == 2 and not hasattr(sets, "columns")  # a mask that is no frame
    mask, names = mask_and_classes(sets, classes if nameless else None)
    blank: NDArray[np.bool_] = np.logical_not(mask.any(axis=1))
    if blank.any():
        raise ValueError(_empty_message(blank, complementary=False))
    if len(names) and isinstance(names[0], str) != isinstance(classes[0], str):
        raise TypeError(f"labels must be of the kind of the classes {show(classes)}; got {show(names)}.")
    column = {name: j for j, name in enumerate(names.tolist())}
    nothing = np.zeros(len(mask), dtype=bool)
    return np.stack([mask[:, column[name]] if name in column else nothing for name in classes.tolist()], axis=1)


def _empty_message(blank: NDArray[np.bool_], complementary: bool) -> str:
    first, count = int(blank.argmax()), int(blank.sum())
    if complementary:
        return (
            f"complementary sets must leave at least one label per row; {count} of {len(blank)} rows exclude every class, "
            f"first row {first}. Drop them."
        )
    return (
        f"candidates must hold at least one label per row; {count} of {len(blank)} rows are empty, first row {first}. "
        "Leave them out; if nothing is known about them, oneof.read(..., empty='unlabelled') or --empty unlabelled makes them full."
    )
