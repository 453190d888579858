"""Check and convert what users pass to the estimators: y in many forms, gold labels, priors, seeds."""

import logging
import numbers
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_array, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from oneof.candidates.cells import is_missing
from oneof.candidates.mask import Candidates
from oneof.candidates.read import read
from oneof.data.files.hugging_face import column_values, is_dataset_column

_log = logging.getLogger(__name__)
_MAX_SHOWN = 60  # characters of a label in a message
_MAX_ROUNDING = 1e-4  # of a feature's range: what single precision may lose


class _JoinedForm(NamedTuple):
    """A way in which sets of labels are written as text."""

    description: str
    remedy: str
    pattern: str


_JOINED_FORMS = (
    _JoinedForm(
        "look like a printed list",
        "Read them, e.g. y.map(ast.literal_eval).",
        r"(?s)^\s*(\[.*\]|\{.*\}|\(.*,.*\))\s*$",
    ),
    _JoinedForm("hold '|'", "Split them, e.g. y.str.split('|').", r"\|"),
    _JoinedForm("hold ';'", "Split them, e.g. y.str.split(';').", ";"),
)
_BETWEEN_LABELS = r"[][(){},;|'\"]+"


def is_frame(X: Any) -> bool:
    """Return whether X is a data frame or an Arrow table, whose columns have names."""
    return hasattr(X, "columns") and (hasattr(X, "dtypes") or hasattr(X, "schema"))


def are_labels(y: Any) -> bool:
    """Return whether y holds one label per row, and not a mask or a column of sets."""
    is_sparse = hasattr(y, "toarray")
    is_arrow = hasattr(y, "to_pylist")
    if is_sparse or is_arrow:
        return False
    rows = y
    if not isinstance(y, (list, tuple)):
        rows = np.atleast_1d(np.asarray(y))
    if isinstance(rows, np.ndarray) and rows.ndim == 2:
        return bool(rows.shape[1] == 1)
    return not any(isinstance(row, (set, frozenset, list, tuple, np.ndarray)) for row in rows)


def read_y(y: Any, classes: Any, n: int, estimator_name: str) -> Candidates:
    """Return the candidate sets of n rows, in whatever form y has."""
    if is_dataset_column(y):
        y = column_values(y)
    if y is None:
        raise ValueError(f"{estimator_name} requires y to be passed, but the target y is None.")
    if are_labels(y):
        y = column_or_1d(check_array(y, ensure_2d=False, dtype=None, input_name="y"), warn=True)
        check_classification_targets(y)
        warn_about_joined_labels(y)
    candidates = read(y, classes=classes)
    check_length(candidates.mask, n, "y")
    return candidates


def warn_about_joined_labels(labels: Sequence[Any] | NDArray[Any]) -> None:
    """Warn if sets seem to be written as text, such as "cat|dog".

    A separator alone is no sign of it: labels may contain one. Either most labels look like sets, or a part of one of them is
    itself a label.
    """
    texts = [label for label in labels if isinstance(label, str)]
    for form in _JOINED_FORMS:
        joined = [text for text in texts if re.search(form.pattern, text)]
        if not joined:
            continue
        parts: set[str] = set()
        for text in set(joined):
            parts.update(part.strip() for part in re.split(_BETWEEN_LABELS, text))
        parts.discard("")
        single_labels = {text.strip() for text in set(texts) - set(joined)}
        are_most = 2 * len(joined) > len(labels)
        if are_most or parts & single_labels:
            example = joined[0][:_MAX_SHOWN]
            _log.warning(
                f"labels must be single labels or sets; {len(joined)} of {len(labels)} {form.description}, such as "
                f"{example!r}, and count as classes of their own. {form.remedy}",
                stacklevel=4,  # the line that calls fit
            )
            return


def counts_to_candidates(y: Any) -> tuple[Any, NDArray[np.float64] | None]:
    """Split counts of votes or probabilities [n, c] into candidates and the numbers.

    Returns
    -------
    candidates
        Where the numbers are above 0; y itself if it holds no counts.
    counts : array [n, c] or None
        None if y holds no counts. A 0/1 mask holds none: all of its labels count the same.
    """
    if hasattr(y, "detach") and hasattr(y, "cpu"):  # a tensor
        y = y.detach().cpu().numpy()
    values = y
    if is_frame(y) and hasattr(y, "to_numpy"):
        values = y.to_numpy()
    is_table = isinstance(values, np.ndarray) and values.ndim == 2 and values.shape[1] > 1
    if not is_table or not np.issubdtype(values.dtype, np.number):
        return y, None
    is_faulty = ~(np.isfinite(values) & (values >= 0))
    if is_faulty.any() and not np.isin(values[~is_faulty], (0, 1)).all():
        row, column = np.argwhere(is_faulty)[0].tolist()
        raise ValueError(
            f"counts or probabilities in y must be numbers of at least 0; got {values[row, column]} in row {row}, column {column}. "
            "Leave the row out; of log-probabilities pass np.exp(y)."
        )
    if is_faulty.any():
        return y, None
    if np.isin(values, (0, 1)).all():
        return y, None
    return y > 0, values.astype(np.float64)


def check_prior(prior: Any, n: int, c: int) -> NDArray[np.float64]:
    """Return the prior as an array [n, c] of finite numbers that are not negative."""
    values = np.asarray(prior, dtype=np.float64)
    if values.shape != (n, c) or not (np.isfinite(values) & (values >= 0)).all():
        raise ValueError(
            f"prior must hold numbers of at least 0 [{n}, {c}], a column per class; got {list(values.shape)}."
        )
    return values


def check_gold(gold: Any, classes: NDArray[Any], n: int) -> NDArray[np.intp] | None:
    """Return the index of each row's true label, -1 where it is unknown; None without gold labels."""
    if gold is None:
        return None
    cells = list(gold)
    check_length(cells, n, "gold")
    index_of = {label: index for index, label in enumerate(classes.tolist())}
    indices = np.full(n, -1, dtype=np.intp)
    for row, cell in enumerate(cells):
        if is_missing(cell):
            continue
        if cell not in index_of:
            raise ValueError(
                f"gold must hold labels that are in y, or None where unknown; row {row} is {cell!r}. "
                "Name it in classes= if it is in no set."
            )
        indices[row] = index_of[cell]
    return indices


def check_groups(groups: Any, n: int) -> list[str] | None:
    """Return the name of each row's group; None without groups."""
    if groups is None:
        return None
    check_length(groups, n, "groups")
    return [str(group) for group in groups]


def check_length(values: Any, n: int, name: str) -> None:
    """Raise unless there is one value per row of X."""
    if len(values) != n:
        raise ValueError(f"{name} must have one entry per row of X; got {len(values)} for {n} rows.")


def check_positive_int(value: Any, name: str) -> int | None:
    """Return a whole number of at least 1, or None for the default."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, or None for the default; got {value!r}.")
    return int(value)


def choose_dtype(x: NDArray[np.floating[Any]]) -> type[np.floating[Any]]:
    """Return single precision, which files are read in too, unless rounding would swallow differences between rows.

    Time stamps are such a case: seconds since 1970 differ in digits that single precision does not have.
    """
    with np.errstate(over="ignore"):
        rounding = np.abs(x - x.astype(np.float32)).max(0)
    spread = np.ptp(x, axis=0)
    is_exact_enough = (rounding <= _MAX_ROUNDING * spread) | (spread == 0)
    if is_exact_enough.all():
        return np.float32
    return np.float64


def seed_from(random_state: Any) -> int:
    """Return the seed: a whole number is the seed itself, as in `oneof fit --seed`; a generator draws one."""
    generator = check_random_state(random_state)
    if isinstance(random_state, numbers.Integral):
        return int(random_state)
    return int(generator.randint(2**31 - 1))


@contextmanager
def single_torch_thread() -> Iterator[None]:
    """Let torch use one thread: small networks are fastest with one, above all where other programs run."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)


def normalize_rows(probabilities: NDArray[Any]) -> NDArray[np.float64]:
    """Scale each row [..., c] so that it sums to one in double precision."""
    exact = probabilities.astype(np.float64)
    return np.asarray(exact / exact.sum(-1, keepdims=True))
