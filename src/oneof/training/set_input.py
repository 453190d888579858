"""The sets as `fit` is given them: a dense mask, a SciPy sparse matrix, or lists of labels; and whether to keep them packed."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oneof.training.packed import Packed, cells_of, starts_of, whole_sets
from oneof.training.tables import Dense, Table

LARGE = 20_000_000  # labels of all rows and trials below which nothing is packed: small tables are faster dense


def read_sets(candidates: Any, n: int, t: int, device: torch.device) -> Table:
    """The sets of n rows on the device: [1, n, c], or [t, n, c] where each of t trials has its own.

    A mask stays dense; SciPy sparse and lists of labels are packed.

    >>> read_sets([[0, 3], None, [2]], 3, 1, torch.device("cpu")).dense().int()
    tensor([[[1, 0, 0, 1],
             [1, 1, 1, 1],
             [0, 0, 1, 0]]], dtype=torch.int32)
    """
    if isinstance(candidates, (Dense, Packed)):
        return candidates
    if hasattr(candidates, "tocsr"):
        sets = _from_scipy(candidates, device)
    elif _are_label_lists(candidates):
        sets = _from_lists(candidates, device)
    else:
        return Dense(_mask(candidates, n, t, device))
    if sets.shape[1] != n:
        raise ValueError(f"candidates must have a set for every row of x ({n}); got {sets.shape[1]}.")
    return sets


def as_tensor(values: Any, dtype: torch.dtype | None, device: torch.device) -> Tensor:
    """As a tensor on the device, sharing memory where torch can: it does not take arrays that are read-only."""
    shareable = values if isinstance(values, Tensor) else np.require(values, requirements="W")
    return torch.as_tensor(shareable, dtype=dtype, device=device)


def bytes_at_rest(sets: Table, packed: bool) -> int:
    """What a trial's sets, a method's memory and POP's state take, dense or packed."""
    n, c = sets.shape[1:]
    # a label: set 1, memory 4, POP's sum 4, its fall 6; if dense 4 more while they change, if packed 2 for its number
    return 17 * sets.count_cells() + 8 * n if packed else 19 * n * c


def worth_packing(sets: Table, t: int) -> bool:
    """Are the tables of t trials large, and at most half as large when packed?"""
    n, c = sets.shape[1:]
    return t * n * c > LARGE and 2 * bytes_at_rest(sets, packed=True) <= bytes_at_rest(sets, packed=False)


def _mask(candidates: Any, n: int, t: int, device: torch.device) -> Tensor:
    mask = as_tensor(candidates, None, device)
    if mask.dtype != torch.bool:
        raise TypeError(f"candidates must be a bool mask; got {mask.dtype}. oneof.read makes one of other forms.")
    if mask.dim() == 3 and len(mask) != t:
        raise ValueError(f"candidates must have sets for every trial ({t}); got {len(mask)}.")
    if mask.dim() not in (2, 3) or mask.shape[-2] != n:
        raise ValueError(
            f"candidates must be a mask [{n}, c] or [{t}, {n}, c] to match x and trials; got {list(mask.shape)}."
        )
    whole = mask if mask.dim() == 3 else mask[None]
    _check_none_empty(~whole.any(-1).all(0))
    return whole


def _check_none_empty(empty: Any) -> None:
    if empty.any():
        row = int(empty.nonzero()[0][0])
        raise ValueError(f"candidates must hold at least one label per row; row {row} is empty. Drop it.")


def _from_scipy(matrix: Any, device: torch.device) -> Packed:
    csr = matrix.tocsr()
    if csr.data.dtype != np.bool_ and not np.isin(csr.data, (0, 1)).all():
        raise ValueError("a sparse mask of candidates must hold only 0 and 1, no weights. Threshold them.")
    if not (csr.has_canonical_format and csr.data.all()):  # sorted, nothing twice, no zeros that are stored
        csr = csr.copy()
        csr.sum_duplicates()
        csr.eliminate_zeros()
    lengths = np.diff(csr.indptr).astype(np.int64)
    return _packed(csr.indices, lengths, lengths == csr.shape[1], csr.shape[1], device)


def _are_label_lists(candidates: Any) -> bool:
    """Rows that are lists of label numbers or None, and not of bool?"""
    sets = (list, tuple, set, frozenset, type(None))
    if not isinstance(candidates, (list, tuple)) or not all(isinstance(row, sets) for row in candidates):
        return False
    known = next((row for row in candidates if row), ())
    return any(isinstance(label, (int, np.integer)) and not isinstance(label, bool) for label in known)


def _from_lists(rows: Sequence[Any], device: torch.device) -> Packed:
    """Row by row the numbers of its labels, from 0; None: nothing is known, so any label may be right."""
    unknown = np.fromiter((row is None for row in rows), dtype=bool, count=len(rows))
    lengths = np.fromiter((len(row or ()) for row in rows), dtype=np.int64, count=len(rows))
    twice = next((i for i, row in enumerate(rows) if row and len(set(row)) < len(row)), None)
    if twice is not None:
        raise ValueError(f"labels of a set must differ; row {twice} has one twice. Give a mask as an array.")
    flat = chain.from_iterable(sorted(row) for row in rows if row)
    labels = np.fromiter(flat, dtype=np.int32, count=int(lengths.sum()))
    if labels.min() < 0:
        raise ValueError(f"labels must be numbers from 0; got {labels.min()}.")
    c = int(labels.max()) + 1
    return _packed(labels, lengths, unknown | (lengths == c), c, device)


def _packed(
    labels: NDArray[Any], lengths: NDArray[np.int64], full: NDArray[np.bool_], c: int, device: torch.device
) -> Packed:
    """The sets, of which the labels lie one after the other; those of full sets make room for a single cell."""
    _check_none_empty((lengths == 0) & ~full)
    if full.any():
        told, lengths_told = labels[~full.repeat(lengths)], np.where(full, 1, lengths)
        labels = np.full(lengths_told.sum(), -1, dtype=labels.dtype)
        labels[~full.repeat(lengths_told)] = told
        lengths = lengths_told
    starts = starts_of(torch.from_numpy(lengths).to(device))
    return whole_sets(cells_of(torch.as_tensor(labels, device=device), starts, (1, len(lengths), c)))
