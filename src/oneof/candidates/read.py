"""Read candidate sets in any of their usual forms as a mask [n, c] and the names of its classes."""

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
    """Read candidate sets in any of their usual forms.

    Parameters
    ----------
    sets
        A mask [n, c] of bool or 0/1 (NumPy, torch, SciPy sparse, or a DataFrame whose columns are the classes), a sequence of
        sets or lists of labels (strings or numbers, an Arrow or pandas column included), or plain labels [n], which become
        singletons. A list of lists is always read as lists of labels; give a mask as an array.
    classes
        The labels in the order of the mask's columns. By default the labels that occur, sorted; for a mask 0 ... c-1.
    complementary
        The sets list what a row is *not*: each is replaced by its complement.
    empty
        "error", or "unlabelled": an empty set then means that nothing is known, and becomes the full set.

    Returns
    -------
    Candidates
        The mask [n, c] and the names of its columns.

    Examples
    --------
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
        n_classes = "none"
        if len(names) == 1:
            n_classes = "1 class"
        remedy = "Add rows with another label."
        if classes is None:
            remedy = "Give classes= if some are in no set."
        raise ValueError(f"candidates must have at least two classes; got {n_classes} ({show(names)}). {remedy}")
    if complementary:
        mask = ~mask
    is_empty: Mask = np.logical_not(mask.any(axis=1))
    if empty == "unlabelled" and not complementary:
        mask = mask | is_empty[:, None]
    elif is_empty.any():
        raise ValueError(empty_message(is_empty, complementary))
    return Candidates(mask, names)


def read_with_classes(sets: Any, classes: NDArray[Any]) -> Mask:
    """Return the mask [n, c] of sets over the classes of a model; labels that the model does not know are ignored.

    A row with none but unknown labels is empty in the result.
    """
    is_unnamed_mask = getattr(sets, "ndim", 1) == 2 and not hasattr(sets, "columns")
    if is_unnamed_mask:
        mask, names = mask_and_classes(sets, classes)
    else:
        mask, names = mask_and_classes(sets, None)
    is_empty: Mask = np.logical_not(mask.any(axis=1))
    if is_empty.any():
        raise ValueError(empty_message(is_empty))
    if len(names) and isinstance(names[0], str) != isinstance(classes[0], str):
        raise TypeError(f"labels must be of the kind of the classes {show(classes)}; got {show(names)}.")
    column_of_name = {name: j for j, name in enumerate(names.tolist())}
    padded = np.pad(mask, ((0, 0), (0, 1)))  # the last column is for classes in no set
    columns = [column_of_name.get(name, -1) for name in classes.tolist()]
    return padded[:, columns]


def empty_message(blank: Mask, complementary: bool = False, remedy: str = "oneof.read(..., empty='unlabelled')") -> str:
    """Return the message about rows without a label, which `blank` [n] marks."""
    count = f"{int(blank.sum())} of {len(blank)} rows"
    first = f"first row {int(blank.argmax())}"
    if complementary:
        return f"complementary sets must leave at least one label per row; {count} exclude every class, {first}. Drop them."
    advice = f"Leave them out; if nothing is known about them, {remedy} makes them full."
    return f"candidates must hold at least one label per row; {count} are empty, {first}. {advice}"


def mask_and_classes(sets: Any, classes: Iterable[Any] | None) -> tuple[Mask, NDArray[Any]]:
    """Return the mask [n, c] of sets in any form, in which rows may be empty, and the names of its columns [c]."""
    is_frame = hasattr(sets, "columns") and hasattr(sets, "to_numpy")
    if is_frame:  # one column per class
        names = list(sets.columns)
        if classes is not None:
            names = list(classes)
        if set(names) != set(sets.columns):
            raise ValueError(f"a frame's columns must be the classes {show(names)}; got {show(list(sets.columns))}.")
        return _check_mask_values(sets[names].to_numpy(), names)
    if hasattr(sets, "toarray"):  # SciPy sparse
        return _check_mask_values(sets.toarray(), classes)
    if isinstance(sets, torch.Tensor):
        sets = sets.detach().cpu().numpy()
    if isinstance(sets, np.ndarray) and sets.ndim == 2:
        return _check_mask_values(sets, classes)
    if isinstance(sets, np.ndarray) and sets.ndim != 1:
        raise ValueError(
            f"candidates must be a mask [n, c] or a sequence of n sets; got an array of shape {sets.shape}."
        )
    return _mask_from_labels(sets, classes)


def _mask_from_labels(sets: Any, classes: Iterable[Any] | None) -> tuple[Mask, NDArray[Any]]:
    """Return the mask [n, c] of a sequence of sets or of single labels, and the names of its columns [c]."""
    n, rows, labels = _flatten(sets)
    _check_labels(rows, labels)
    if classes is not None:
        names = _distinct(classes)
    elif labels:
        names = np.unique(np.asarray(labels))
    else:
        names = np.empty(0, dtype=int)
    column_of_name = {name: j for j, name in enumerate(names.tolist())}
    columns = np.empty(len(labels), dtype=np.intp)
    for i, label in enumerate(labels):
        if label not in column_of_name:
            raise ValueError(f"candidates must be among the classes {show(names)}; row {rows[i]} has {label!r}.")
        columns[i] = column_of_name[label]
    mask = np.zeros((n, len(names)), dtype=bool)
    mask[rows, columns] = True
    return mask, names


def _check_mask_values(values: NDArray[Any], classes: Iterable[Any] | None) -> tuple[Mask, NDArray[Any]]:
    """Return an array of 0 and 1 [n, c] as a mask, and the names of its columns [c]."""
    if values.dtype != np.bool_:
        _check_zeros_and_ones(values)
    n_columns = values.shape[1]
    if classes is None:
        names = np.arange(n_columns)
    else:
        names = _distinct(classes)
    if len(names) != n_columns:
        raise ValueError(f"classes must name every column of the mask; got {len(names)} names for {n_columns} columns.")
    return values.astype(bool), names


def _check_zeros_and_ones(values: NDArray[Any]) -> None:
    """Raise unless an array [n, c] that is not boolean contains 0 and 1 only."""
    if not (np.issubdtype(values.dtype, np.number) or values.dtype == object):
        raise TypeError(f"a mask of candidates must be of bool or 0/1; got dtype {values.dtype}.")
    if values.dtype == object:
        is_zero_or_one = np.vectorize(lambda cell: _is_real(cell) and cell in (0, 1), [bool])
        is_wrong = ~is_zero_or_one(values)
    else:
        is_wrong = ~np.isin(values, (0, 1))
    if not is_wrong.any():
        return
    row, column = np.argwhere(is_wrong)[0].tolist()
    cell = values[row, column]
    if not _is_real(cell) or cell != cell:
        remedy = "A mask has no gaps: write 0 or 1, or leave the row out."
    else:
        remedy = "Weights are not candidates: threshold them first."
    raise ValueError(
        f"a mask of candidates must hold only 0 and 1; got {shortened(str(cell))} in row {row}, column {column}. {remedy}"
    )


def _is_real(cell: Any) -> bool:
    """Return whether a cell is a number that can be compared, unlike None and pandas.NA."""
    return isinstance(cell, (numbers.Real, Decimal, np.bool_))


def _flatten(sets: Any) -> tuple[int, NDArray[np.intp], list[Any]]:
    """Return the number of rows, and the row and the label of every candidate, of a column of sets or of single labels."""
    if hasattr(sets, "to_pylist"):  # Arrow
        sets = sets.to_pylist()
    elif hasattr(sets, "tolist"):  # NumPy, pandas
        sets = sets.tolist()
    if isinstance(sets, (str, bytes)) or not isinstance(sets, Iterable):
        raise TypeError(f"candidates must be a mask [n, c] or a sequence of sets; got {type(sets).__name__}.")
    rows = list(sets)
    n = len(rows)
    are_sets = [_is_set(row) for row in rows]
    if not any(are_sets):
        return n, np.arange(n), rows
    if not all(are_sets):
        other = are_sets.index(not are_sets[0])
        raise TypeError(
            f"candidates must be all sets or all single labels; row 0 is {_describe_row(rows[0])} "
            f"but row {other} is {_describe_row(rows[other])}."
        )
    lengths = np.fromiter(map(len, rows), dtype=np.intp, count=n)
    if lengths[0] > 1 and (lengths == lengths[0]).all():
        _check_not_mask_as_lists(rows)
        _check_not_counts_as_lists(rows)
    return n, np.repeat(np.arange(n), lengths), list(chain.from_iterable(rows))


def _is_set(row: Any) -> bool:
    if isinstance(row, np.ndarray):
        return row.ndim == 1
    return isinstance(row, (set, frozenset, list, tuple))


def _describe_row(row: Any) -> str:
    if _is_set(row):
        return "a set"
    return f"the single value {row!r}"


def _check_not_mask_as_lists(rows: list[Any]) -> None:
    """Raise ValueError for a mask in the form of lists: zeros and ones in rows of one length, one of which repeats a label."""
    first_repeating = None
    for i, row in enumerate(rows):
        if len(set(row)) < len(row):
            first_repeating = i
            break
    if first_repeating is None:
        return
    if all(label in (0, 1) for label in chain.from_iterable(rows)):
        raise ValueError(
            f"sets must not repeat a label; row {first_repeating} does, and all are 0 or 1. Give a mask as an array."
        )


def _check_not_counts_as_lists(rows: list[Any]) -> None:
    """Raise ValueError for counts or probabilities in the form of lists: different rows of numbers with one sum, and repeats or fractions."""
    numbers_only = all(isinstance(label, numbers.Real) for label in chain.from_iterable(rows))
    if not numbers_only or len({tuple(sorted(row)) for row in rows}) < 2:
        return
    sums = [sum(row) for row in rows]
    has_one_sum = sums[0] > 0 and max(sums) - min(sums) <= 1e-6 * abs(sums[0])
    has_repeats = any(len(set(row)) < len(row) for row in rows)
    are_probabilities = abs(sums[0] - 1) < 1e-6 and all(label >= 0 for label in chain.from_iterable(rows))
    if has_one_sum and (has_repeats or are_probabilities):
        raise ValueError(
            f"sets must hold labels; every row has {len(rows[0])} numbers that add up to {sums[0]:g}, like counts or probabilities. "
            "Give them as an array."
        )


def _check_labels(rows: NDArray[np.intp], labels: list[Any]) -> None:
    """Raise unless every label is a string, or every label is a finite number."""
    are_texts = [isinstance(label, str) for label in labels]
    for row, label, is_text in zip(rows.tolist(), labels, are_texts, strict=True):
        if is_text:
            continue
        if not isinstance(label, numbers.Real) or not np.isfinite(float(label)):
            raise ValueError(f"labels must be strings or finite numbers; row {row} has {label!r}.")
    if any(are_texts) and not all(are_texts):
        other = are_texts.index(not are_texts[0])
        raise TypeError(
            f"labels must be all strings or all numbers; row {rows[0]} has {labels[0]!r} "
            f"but row {rows[other]} has {labels[other]!r}."
        )


def _distinct(classes: Iterable[Any]) -> NDArray[Any]:
    """Return the classes as an array [c] after checking that they are distinct."""
    names = np.asarray(list(classes))
    for name, times in Counter(names.tolist()).most_common(1):
        if times > 1:
            raise ValueError(f"classes must be distinct; {name!r} is given twice.")
    return names


def show(names: Sequence[Any] | NDArray[Any], limit: int = 6, separator: str = ", ") -> str:
    """Return the first few names, and how many there are if some are left out."""
    shown = separator.join(map(str, names[:limit]))
    if len(names) <= limit:
        return shown
    return f"{shown}{separator}... ({len(names)} in all)"
