"""Candidate sets in any of the forms people have them in, read as a mask [n, c] and the names of its classes."""

import numbers
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from oneof.candidates.mask import Candidates
from oneof.storage.printable import shortened

Mask = NDArray[np.bool_]


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
        got = f"got {'1 class' if len(names) else 'none'} ({show(names)}). {remedy}"
        raise ValueError(f"candidates must have at least two classes; {got}")
    if complementary:
        mask = ~mask
    blank: Mask = np.logical_not(mask.any(axis=1))
    if empty == "unlabelled" and not complementary:
        mask = mask | blank[:, None]
    elif blank.any():
        raise ValueError(empty_message(blank, complementary))
    return Candidates(mask, names)


def read_known(sets: Any, classes: NDArray[Any]) -> Mask:
    """The mask [n, c] of sets whose labels may lie beyond the classes of a model; these are ignored, so that a row may be empty."""
    nameless = getattr(sets, "ndim", 1) == 2 and not hasattr(sets, "columns")  # a mask that is no frame
    mask, names = mask_and_classes(sets, classes if nameless else None)
    blank: Mask = np.logical_not(mask.any(axis=1))
    if blank.any():
        raise ValueError(empty_message(blank))
    if len(names) and isinstance(names[0], str) != isinstance(classes[0], str):
        raise TypeError(f"labels must be of the kind of the classes {show(classes)}; got {show(names)}.")
    column = {name: j for j, name in enumerate(names.tolist())}
    padded = np.pad(mask, ((0, 0), (0, 1)))  # the last column is that of a class in no set
    return padded[:, [column.get(name, -1) for name in classes.tolist()]]


def empty_message(blank: Mask, complementary: bool = False, remedy: str = "oneof.read(..., empty='unlabelled')") -> str:
    """What to say of rows without a label left, which `blank` [n] marks."""
    count, first = f"{int(blank.sum())} of {len(blank)} rows", f"first row {int(blank.argmax())}"
    if complementary:
        return f"complementary sets must leave at least one label per row; {count} exclude every class, {first}. Drop them."
    advice = f"Leave them out; if nothing is known about them, {remedy} makes them full."
    return f"candidates must hold at least one label per row; {count} are empty, {first}. {advice}"


def mask_and_classes(sets: Any, classes: Iterable[Any] | None) -> tuple[Mask, NDArray[Any]]:
    """The mask [n, c] of sets in any form, and what its columns are called; a row may be empty."""
    if hasattr(sets, "columns") and hasattr(sets, "to_numpy"):  # a DataFrame: one column per class
        wanted = list(sets.columns if classes is None else classes)
        if set(wanted) != set(sets.columns):
            raise ValueError(f"a frame's columns must be the classes {show(wanted)}; got {show(list(sets.columns))}.")
        return _from_mask(sets[wanted].to_numpy(), wanted)
    if hasattr(sets, "toarray"):  # SciPy sparse
        return _from_mask(sets.toarray(), classes)
    if isinstance(sets, torch.Tensor):
        sets = sets.detach().cpu().numpy()
    if isinstance(sets, np.ndarray) and sets.ndim == 2:
        return _from_mask(sets, classes)
    if isinstance(sets, np.ndarray) and sets.ndim != 1:
        got = f"an array of shape {sets.shape}"
        raise ValueError(f"candidates must be a mask [n, c] or a sequence of n sets; got {got}.")
    n, rows, labels = _rows_and_labels(sets)
    _check_labels(rows, labels)
    names = (
        np.unique(np.asarray(labels) if labels else np.empty(0, dtype=int)) if classes is None else _distinct(classes)
    )
    column = {name: j for j, name in enumerate(names.tolist())}
    unknown = next((i for i, label in enumerate(labels) if label not in column), None)
    if unknown is not None:
        got = f"row {rows[unknown]} has {labels[unknown]!r}."
        raise ValueError(f"candidates must be among the classes {show(names)}; {got}")
    mask = np.zeros((n, len(names)), dtype=bool)
    mask[rows, np.fromiter((column[label] for label in labels), dtype=np.intp, count=len(labels))] = True
    return mask, names


def _from_mask(values: NDArray[Any], classes: Iterable[Any] | None) -> tuple[Mask, NDArray[Any]]:
    if values.dtype != np.bool_:
        if not (np.issubdtype(values.dtype, np.number) or values.dtype == object):
            raise TypeError(f"a mask of candidates must be of bool or 0/1; got dtype {values.dtype}.")
        marked = np.vectorize(lambda cell: _is_real(cell) and cell in (0, 1), [bool])
        wrong = ~(marked(values) if values.dtype == object else np.isin(values, (0, 1)))
        if wrong.any():
            row, column = np.argwhere(wrong)[0].tolist()
            cell, remedy = values[row, column], "Weights are not candidates: threshold them first."
            if not _is_real(cell) or cell != cell:
                remedy = "A mask has no gaps: write 0 or 1, or leave the row out."
            place = f"{shortened(str(cell))} in row {row}, column {column}"
            raise ValueError(f"a mask of candidates must hold only 0 and 1; got {place}. {remedy}")
    names = np.arange(values.shape[1]) if classes is None else _distinct(classes)
    if len(names) != values.shape[1]:
        got = f"{len(names)} names for {values.shape[1]} columns"
        raise ValueError(f"classes must name every column of the mask; got {got}.")
    return values.astype(bool), names


def _is_real(cell: Any) -> bool:
    """Not so None and pandas.NA, which may be compared with nothing."""
    return isinstance(cell, (numbers.Real, Decimal, np.bool_))


def _rows_and_labels(sets: Any) -> tuple[int, NDArray[np.intp], list[Any]]:
    """The number of rows, and every (row, label) of a column of sets or of plain labels, flattened."""
    if hasattr(sets, "to_pylist"):  # Arrow
        sets = sets.to_pylist()
    elif hasattr(sets, "tolist"):  # NumPy, pandas
        sets = sets.tolist()
    if isinstance(sets, (str, bytes)) or not isinstance(sets, Iterable):
        raise TypeError(f"candidates must be a mask [n, c] or a sequence of sets; got {type(sets).__name__}.")
    rows = list(sets)
    are_sets = [
        isinstance(row, (set, frozenset, list, tuple)) or (isinstance(row, np.ndarray) and row.ndim == 1)
        for row in rows
    ]
    if not any(are_sets):
        return len(rows), np.arange(len(rows)), rows
    if not all(are_sets):
        first = are_sets.index(not are_sets[0])
        kinds = ["a set" if are_sets[i] else f"the single value {rows[i]!r}" for i in (0, first)]
        said = f"row 0 is {kinds[0]} but row {first} is {kinds[1]}"
        raise TypeError(f"candidates must be all sets or all single labels; {said}.")
    lengths = np.fromiter(map(len, rows), dtype=np.intp, count=len(rows))
    if lengths[0] > 1 and (lengths == lengths[0]).all():
        # Lists of zeros and ones, all of one length, in which a label stands twice, are a mask that lost its array.
        repeats = next((i for i, row in enumerate(rows) if len(set(row)) < len(row)), None)
        if repeats is not None and all(label in (0, 1) for row in rows for label in row):
            said = f"row {repeats} does, and all are 0 or 1. Give a mask as an array."
            raise ValueError(f"sets must not repeat a label; {said}")
    return len(rows), np.repeat(np.arange(len(rows)), lengths), list(chain.from_iterable(rows))


def _check_labels(rows: NDArray[np.intp], labels: list[Any]) -> None:
    """Every label is a string, or every label is a finite number."""
    texts = [isinstance(label, str) for label in labels]
    for row, label, is_text in zip(rows.tolist(), labels, texts, strict=True):
        if not is_text and (not isinstance(label, numbers.Real) or not np.isfinite(float(label))):
            raise ValueError(f"labels must be strings or finite numbers; row {row} has {label!r}.")
    if any(texts) and not all(texts):
        odd = texts.index(not texts[0])
        said = f"row {rows[0]} has {labels[0]!r} but row {rows[odd]} has {labels[odd]!r}"
        raise TypeError(f"labels must be all strings or all numbers; {said}.")


def _distinct(classes: Iterable[Any]) -> NDArray[Any]:
    names = np.asarray(list(classes))
    name, times = max(Counter(names.tolist()).items(), key=lambda one: one[1], default=("", 0))
    if times > 1:
        raise ValueError(f"classes must be distinct; {name!r} is given twice.")
    return names


def show(names: Sequence[Any] | NDArray[Any], limit: int = 6, separator: str = ", ") -> str:
    """The first few, and how many there are."""
    shown = separator.join(map(str, names[:limit]))
    return f"{shown}{separator}... ({len(names)} in all)" if len(names) > limit else shown
