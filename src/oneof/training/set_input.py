"""The sets as `fit` is given them: a dense mask, a SciPy sparse matrix, or lists of labels; and whether to keep them packed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oneof.training.packed import Packed, Table, cells_of, starts_of, whole_sets

LARGE = 2**28
"""Bytes of dense tables below which nothing is packed: small tables are faster dense."""


def read_sets(candidates: Any, device: torch.device) -> Table:
    """What was given as a mask on the device, or packed [1, n, c] if it came as SciPy sparse or as lists of labels.

    >>> read_sets([[0, 3], None, [2]], torch.device("cpu")).take(torch.arange(3)[None]).int()
    tensor([[[1, 0, 0, 1],
             [1, 1, 1, 1],
             [0, 0, 1, 0]]], dtype=torch.int32)
    """
    if hasattr(candidates, "tocsr"):
        return _from_scipy(candidates, device)
    if _are_label_lists(candidates):
        return _from_lists(candidates, device)
    shareable = candidates if isinstance(candidates, Tensor) else np.require(candidates, requirements="W")
    return torch.as_tensor(shareable, device=device)


def shape_of(sets: Table) -> tuple[int, int]:
    """Rows and classes of sets as given."""
    n, c = sets.cells.shape[1:] if isinstance(sets, Packed) else sets.shape[-2:]
    return n, c


def bytes_at_rest(sets: Table, packed: bool) -> int:
    """What a trial's sets, a method's memory and POP's state take, dense or packed.

    Dense a label takes 13 bytes: 1 for the set, 4 each for memory and POP's sum, 4 while they change. Packed a cell takes 17:
    its label, the set, memory, POP's sum, round and margin of its fall; and a row 8.
    """
    n, c = shape_of(sets)
    if not packed:
        return 13 * n * c
    return 17 * (len(sets.cells.labels) if isinstance(sets, Packed) else _cells(sets)) + 8 * n


def worth_packing(sets: Table, t: int) -> bool:
    """Are the tables of t trials large, and at most half as large when packed?"""
    dense = bytes_at_rest(sets, packed=False)
    return t * dense > LARGE and 2 * bytes_at_rest(sets, packed=True) <= dense


def _cells(mask: Tensor) -> int:
    """Cells that the sets of a trial would have; of several trials, the mean."""
    size = mask.sum(-1)
    return int(torch.where(size == mask.shape[-1], 1, size).sum()) // (len(mask) if mask.dim() == 3 else 1)


def _from_scipy(matrix: Any, device: torch.device) -> Packed:
    csr = matrix.tocsr()
    if csr.data.dtype != np.bool_ and not np.isin(csr.data, (0, 1)).all():
        raise ValueError(
            "a sparse mask of candidates must hold only 0 and 1; weights are not candidates. Threshold them."
        )
    if not (csr.has_canonical_format and csr.data.all()):  # sorted, nothing twice, no zeros that are stored
        csr = csr.copy()
        csr.sum_duplicates()
        csr.eliminate_zeros()
    lengths = np.diff(csr.indptr).astype(np.int64)
    return _packed(csr.indices, lengths, lengths == csr.shape[1], csr.shape[1], device)


def _are_label_lists(candidates: Any) -> bool:
    """Rows that are lists of label numbers or None, and not of bool?"""
    if not isinstance(candidates, (list, tuple)):
        return False
    if not all(row is None or isinstance(row, (list, tuple, set, frozenset)) for row in candidates):
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
    empty = (lengths == 0) & ~full
    if empty.any():
        raise ValueError(
            f"candidates must hold at least one label per row; row {int(empty.argmax())} is empty. Drop it."
        )
    if full.any():
        told, lengths_told = labels[~full.repeat(lengths)], np.where(full, 1, lengths)
        labels = np.full(lengths_told.sum(), -1, dtype=labels.dtype)
        labels[~full.repeat(lengths_told)] = told
        lengths = lengths_told
    starts = starts_of(torch.from_numpy(lengths).to(device))
    narrow = labels.astype(np.int16) if c <= np.iinfo(np.int16).max else labels
    return whole_sets(cells_of(torch.as_tensor(narrow, device=device), starts, (1, len(lengths), c)))
