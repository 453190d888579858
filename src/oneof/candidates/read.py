"""Candidate sets in any of the forms people have them in, read as a mask [n, c] and the names of its classes.

Cells of labels are `cat|dog`, a list, or a list as Python and JSON print it; what looks like several labels but would
be read as one is refused.
"""

import ast
import numbers
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from itertools import chain
from typing import Any
from unicodedata import category, normalize

import numpy as np
import torch
from numpy.typing import NDArray

from oneof.candidates.mask import Candidates
from oneof.storage.printable import shortened

Mask = NDArray[np.bool_]
_ENOUGH = 0.05  # of the texts hold a divider before it is taken for one
_CELLS = 2**32  # of a table, a byte each
_NUMPY = re.compile(r"\bnp\.\w+\(([^()]*)\)")  # np.str_('cat')
_BARE = re.compile(r"(['\"])\s+(?=['\"])")  # 'cat' 'dog', as NumPy prints an array: Python would read one word


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
        wrong = ~(np.vectorize(_is_mark, [bool])(values) if values.dtype == object else np.isin(values, (0, 1)))
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


def _is_mark(cell: Any) -> bool:
    return _is_real(cell) and cell in (0, 1)


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


def sets_of_cells(cells: list[Any], separator: str, name: str) -> list[list[Any]]:
    """Candidate sets out of a column of cells, looked at for what is read wrongly or would not fit in memory."""
    _check_divided(cells, separator, name)
    rows = split_cells(cells, separator, name)
    labels = dict.fromkeys(label for row in rows for label in row)
    if len(rows) * len(labels) > _CELLS:  # then labels are mostly answers that nobody has sorted
        first = ", ".join(repr(label) for label in list(labels)[:3])
        got = f"{name} has {len(labels):,} different ones in {len(rows):,} rows: {first}, .."
        remedy = "Bring answers that mean the same to one form first."
        raise ValueError(f"labels must be few enough for a table of rows by labels; {got}. {remedy}")
    return rows


def split_cells(cells: list[Any], separator: str, name: str) -> list[list[Any]]:
    """Cells as lists of labels: text is cut at the separator, a missing cell is empty. Equal texts share one list."""
    seen: dict[str, list[Any]] = {}
    for row, cell in enumerate(cells):
        if isinstance(cell, str) and cell not in seen:
            seen[cell] = _of_text(cell, separator, name, row)
    return [seen[cell] if isinstance(cell, str) else _of_value(cell, name, row) for row, cell in enumerate(cells)]


def is_missing(label: Any) -> bool:
    return label is None or (isinstance(label, str) and label == "") or (isinstance(label, float) and label != label)


def _of_text(cell: str, separator: str, name: str, row: int) -> list[Any]:
    text = cell.strip()
    if not text:
        return []
    if text.startswith("[") and text.endswith("]") and (printed := _printed_list(text)) is not None:
        return _of_value(printed, name, row)
    labels = [label.strip() for label in text.split(separator)]
    if "" in labels:
        raise ValueError(f"labels must not be empty; {name}, row {row} is {cell!r}, with nothing beside a separator.")
    return labels


def _printed_list(text: str) -> list[Any] | None:
    """The list that Python, NumPy or JSON printed: what pandas writes into a CSV for a column of lists."""
    try:
        value = ast.literal_eval(_BARE.sub(r"\1, ", _NUMPY.sub(r"\1", text)))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    plain = isinstance(value, list) and all(isinstance(label, (str, int, float)) for label in value)
    return value if plain else None


def _of_value(cell: Any, name: str, row: int) -> list[Any]:
    if is_missing(cell):
        return []
    labels = cell if isinstance(cell, list) else [cell]
    for label in labels:
        if is_missing(label):
            raise ValueError(f"labels must not be missing; {name}, row {row} holds {label!r} in its list. Take it out.")
        if isinstance(label, (dict, list)):
            got = f"{name}, row {row} holds {label!r}. Give a list of their names."
            raise ValueError(f"labels must be texts or numbers; {got}")
    return labels


def _check_divided(cells: Iterable[Any], separator: str, name: str) -> None:
    """Refuse sets whose labels are divided in another way: as they are, each set would be a label of its own."""
    # So it is where every text is a printed list that cannot be read, or where the separator occurs nowhere, another
    # does, and cutting there leaves fewer labels, as they recur.
    texts = [cell.strip() for cell in cells if isinstance(cell, str) and cell.strip()]
    if not texts or any(separator in text for text in texts):
        return
    if all(text.startswith("[") and text.endswith("]") for text in texts):
        unread = next((text for text in dict.fromkeys(texts) if _printed_list(text) is None), None)
        if unread is not None:
            got = f"{name} has {unread[:60]!r}."
            raise ValueError(f"sets must be lists as Python or JSON prints them, or divided by {separator!r}; {got}")
        return
    for other in (";", ",", "|"):
        inside = [text for text in texts if other in text]
        parts = {part.strip() for text in texts for part in text.split(other)}
        if len(inside) >= _ENOUGH * len(texts) and len(parts) < len(set(texts)):
            got = f"{name} has none, and {len(inside)} of {len(texts)} cells hold {other!r}, as {inside[0]!r} does"
            remedy = f"Give the separator {other!r}, or write such labels without it."
            raise ValueError(f"labels must be divided by {separator!r}; {got}. {remedy}")


def lookalikes(labels: Iterable[Any]) -> list[list[str]]:
    """Labels that a reader takes for one: they differ in case, space, Unicode form, or in characters that are not seen."""
    alike: dict[str, list[str]] = {}
    for label in map(str, labels):
        seen = "".join(sign for sign in normalize("NFKC", label) if category(sign) != "Cf")
        alike.setdefault(" ".join(seen.casefold().split()), []).append(label)
    return [names for names in alike.values() if len(names) > 1]
