"""Read the candidate sets that `fit` is given, a mask, a SciPy sparse matrix or lists of labels, as a dense mask."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oneof.training.device import available_memory


def read_candidates(candidates: Any, n: int, t: int, device: torch.device) -> Tensor:
    """Return the candidate sets of n rows as a mask [1, n, c], or [t, n, c] where each of t trials has its own.

    >>> read_candidates([[0, 3], None, [2]], 3, 1, torch.device("cpu")).int()
    tensor([[[1, 0, 0, 1],
             [1, 1, 1, 1],
             [0, 0, 1, 0]]], dtype=torch.int32)
    """
    if hasattr(candidates, "tocsr"):
        mask = _mask_from_scipy(candidates)
    elif _are_label_lists(candidates):
        mask = _mask_from_lists(candidates)
    else:
        return _check_mask(as_tensor(candidates, None, device), n, t)
    if len(mask) != n:
        raise ValueError(f"candidates must have a set for every row of x ({n}); got {len(mask)}.")
    return _check_mask(as_tensor(mask, None, device), n, t)


def as_tensor(values: Any, dtype: torch.dtype | None, device: torch.device) -> Tensor:
    """Return values as a tensor on the device, sharing memory where torch can: it does not take arrays that are read-only."""
    if not isinstance(values, Tensor):
        values = np.require(values, requirements="W")
    return torch.as_tensor(values, dtype=dtype, device=device)


def check_memory(n: int, c: int, bytes_per_label: int, device: torch.device) -> None:
    """Raise ValueError if tables of n rows by c labels do not fit in the free memory, before they are allocated."""
    needed = n * c * bytes_per_label
    free = available_memory(device)
    if needed > free:
        raise ValueError(
            f"candidates must be few enough for tables of rows by labels in memory; {n:,} rows x {c:,} labels need "
            f"{needed / 2**30:,.1f} GiB, {free / 2**30:,.1f} GiB are free. Use fewer rows or fewer labels."
        )


def _check_mask(mask: Tensor, n: int, t: int) -> Tensor:
    """Return a mask [n, c] or [t, n, c] with a leading axis, after a check of its type and shape and for empty sets."""
    if mask.dtype != torch.bool:
        raise TypeError(f"candidates must be a bool mask; got {mask.dtype}. oneof.read makes one of other forms.")
    if mask.dim() == 3 and len(mask) != t:
        raise ValueError(f"candidates must have sets for every trial ({t}); got {len(mask)}.")
    if mask.dim() not in (2, 3) or mask.shape[-2] != n:
        raise ValueError(
            f"candidates must be a mask [{n}, c] or [{t}, {n}, c] to match x and trials; got {list(mask.shape)}."
        )
    if mask.dim() == 2:
        mask = mask[None]
    is_empty = ~mask.any(-1).all(0)
    if is_empty.any():
        row = int(is_empty.nonzero()[0])
        raise ValueError(f"candidates must hold at least one label per row; row {row} is empty. Drop it.")
    return mask


def _mask_from_scipy(matrix: Any) -> NDArray[np.bool_]:
    """Return a SciPy sparse matrix [n, c] of 0 and 1 as a dense mask."""
    values = matrix.tocsr().data
    if values.dtype != np.bool_ and not np.isin(values, (0, 1)).all():
        raise ValueError("a sparse mask of candidates must hold only 0 and 1, no weights. Threshold them.")
    n, c = matrix.shape
    check_memory(n, c, 1, torch.device("cpu"))
    mask: NDArray[np.bool_] = matrix.astype(bool).toarray()
    return mask


def _are_label_lists(candidates: Any) -> bool:
    """Return whether every row is a collection of label numbers or None, and not of bool."""
    if not isinstance(candidates, (list, tuple)):
        return False
    for row in candidates:
        if not isinstance(row, (list, tuple, set, frozenset, type(None))):
            return False
    for row in candidates:
        if row:  # the first set that is known
            return any(isinstance(label, (int, np.integer)) and not isinstance(label, bool) for label in row)
    return False


def _mask_from_lists(rows: Sequence[Any]) -> NDArray[np.bool_]:
    """Return lists of label numbers, from 0, as a dense mask; None stands for every label."""
    smallest = 0
    largest = 0
    for i, row in enumerate(rows):
        if not row:
            continue
        if len(set(row)) < len(row):
            raise ValueError(f"labels of a set must differ; row {i} has one twice. Give a mask as an array.")
        smallest = min(smallest, *row)
        largest = max(largest, *row)
    if smallest < 0:
        raise ValueError(f"labels must be numbers from 0; got {smallest}.")
    c = largest + 1
    check_memory(len(rows), c, 1, torch.device("cpu"))
    mask = np.zeros((len(rows), c), dtype=bool)
    for i, row in enumerate(rows):
        if row is None:
            mask[i] = True
        else:
            mask[i, list(row)] = True
    return mask
