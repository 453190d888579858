"""What a person may give the estimator in place of what the library takes: names, widths, and y in many forms."""

import logging
import numbers
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_array, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from oneof.candidates.cells import is_missing
from oneof.candidates.mask import Candidates
from oneof.candidates.read import read

_log = logging.getLogger(__name__)
_PRINTED = r"(?s)^\s*(\[.*\]|\{.*\}|\(.*,.*\))\s*$"
_JOINED = (
    ("look like a printed list", "Read them, e.g. y.map(ast.literal_eval).", _PRINTED),
    ("hold '|'", "Split them, e.g. y.str.split('|').", r"\|"),
    ("hold ';'", "Split them, e.g. y.str.split(';').", ";"),
)


def is_frame(X: Any) -> bool:
    """A pandas frame or an Arrow table, whose columns have names?"""
    return hasattr(X, "columns") and (hasattr(X, "dtypes") or hasattr(X, "schema"))


def are_labels(y: Any) -> bool:
    """Is y one label per row, and not a mask or a column of sets?"""
    if hasattr(y, "toarray") or hasattr(y, "to_pylist"):  # SciPy sparse, Arrow
        return False
    rows = y if isinstance(y, (list, tuple)) else np.atleast_1d(np.asarray(y))
    if isinstance(rows, np.ndarray) and rows.ndim == 2:
        return bool(rows.shape[1] == 1)
    return not any(isinstance(row, (set, frozenset, list, tuple, np.ndarray)) for row in rows)


def warn_of_joined(labels: Any) -> None:
    """Warn of sets that were written as text: most labels look so, or one holds a separator beside a label that also occurs alone."""
    texts = [label for label in labels if isinstance(label, str)]
    for what, remedy, pattern in _JOINED:
        joined = [text for text in texts if re.search(pattern, text)]
        parts = {part.strip() for text in set(joined) for part in re.split(r"[][(){},;|'\"]+", text)}
        alone = {text.strip() for text in set(texts) - set(joined)}
        if 2 * len(joined) > len(labels) or parts & alone - {""}:
            got = f"{len(joined)} of {len(labels)} {what}, such as {joined[0][:60]!r}"
            told = f"labels must be single labels or sets; {got}, and count as classes of their own. {remedy}"
            _log.warning(told, stacklevel=4)  # the line that calls fit
            return


def count(value: Any, name: str) -> int | None:
    """A whole number of at least 1, or None for the default."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1):
        raise ValueError(f"{name} must be a whole number of at least 1, or None for the default; got {value!r}.")
    return None if value is None else int(value)


def read_y(y: Any, classes: Any, n: int, who: str) -> Candidates:
    """The sets of n rows, in whatever form y is."""
    if y is None:
        raise ValueError(f"{who} requires y to be passed, but the target y is None.")
    if are_labels(y):
        y = column_or_1d(check_array(y, ensure_2d=False, dtype=None, input_name="y"), warn=True)
        check_classification_targets(y)
        warn_of_joined(y)
    candidates = read(y, classes=classes)
    check_length(candidates.mask, n, "y")
    return candidates


def split_counts(y: Any) -> tuple[Any, NDArray[np.float64] | None]:
    """Counts of votes or probabilities [n, c] as the labels that anybody named, and the numbers; else y as it is, and None."""
    values = y.to_numpy() if is_frame(y) and hasattr(y, "to_numpy") else y
    wide = isinstance(values, np.ndarray) and values.ndim == 2 and values.shape[1] > 1
    counted = wide and np.issubdtype(values.dtype, np.number) and (np.isfinite(values) & (values >= 0)).all()
    if not counted or np.isin(values, (0, 1)).all():  # in a mask nobody has more votes than others: they say nothing
        return y, None
    return y > 0, values.astype(np.float64)


def log_prior_of(prior: Any, n: int, c: int) -> NDArray[np.float64]:
    """The weights of labels [n, c] that a person gives beside the sets."""
    values = np.asarray(prior, dtype=np.float64)
    if values.shape != (n, c) or not (np.isfinite(values) & (values >= 0)).all():
        raise ValueError(f"prior must be numbers from 0 on [{n}, {c}], a column per class; got {list(values.shape)}.")
    return values


def gold_labels(gold: Any, classes: np.ndarray, n: int) -> NDArray[np.intp] | None:
    """The number of each row's true label, -1 where it is missing."""
    if gold is None:
        return None
    cells = list(gold)
    check_length(cells, n, "gold")
    number = {label: j for j, label in enumerate(classes.tolist())}
    strange = next((row for row, cell in enumerate(cells) if not is_missing(cell) and cell not in number), None)
    if strange is not None:
        got = f"row {strange} is {cells[strange]!r}. Name it in classes= if it is in no set"
        raise ValueError(f"gold must hold labels that are in y, or None where unknown; {got}.")
    return np.array([-1 if is_missing(cell) else number[cell] for cell in cells], dtype=np.intp)


def check_length(values: Any, n: int, name: str) -> None:
    """One value per row of X."""
    if len(values) != n:
        raise ValueError(f"{name} must have one entry per row of X; got {len(values)} for {n} rows.")


def precision(x: NDArray[np.floating[Any]]) -> type[np.floating[Any]]:
    """Single precision, in which files are read too, unless it would swallow what differs between rows, as it does of time stamps."""
    with np.errstate(over="ignore"):
        lost = np.abs(x - x.astype(np.float32)).max(0)
    spread = np.ptp(x, axis=0)
    return np.float32 if ((lost <= 1e-4 * spread) | (spread == 0)).all() else np.float64


def seed_of(random_state: Any) -> int:
    """A whole number is the seed itself, as `oneof fit --seed` has it; from a generator one is drawn."""
    drawn = check_random_state(random_state)
    return int(random_state) if isinstance(random_state, numbers.Integral) else int(drawn.randint(2**31 - 1))


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread of torch for a while: small networks are fastest with one, above all on cores that others use."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def normalised(probabilities: NDArray[Any]) -> NDArray[np.float64]:
    exact = probabilities.astype(np.float64)
    return np.asarray(exact / exact.sum(-1, keepdims=True))  # sums to one in double precision
