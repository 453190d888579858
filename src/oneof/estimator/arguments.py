"""What a person may give the estimator in place of what the library takes: names, widths, and y in many forms."""

from __future__ import annotations

import numbers
import re
import warnings
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

import numpy as np


def are_labels(y: Any) -> bool:
    """Is y one label per row, and not a mask or a column of sets?"""
    if hasattr(y, "toarray") or hasattr(y, "to_pylist"):  # SciPy sparse, Arrow
        return False
    rows = y if isinstance(y, (list, tuple)) else np.atleast_1d(np.asarray(y))
    if isinstance(rows, np.ndarray) and rows.ndim == 2:
        return bool(rows.shape[1] == 1)
    return not any(isinstance(row, (set, frozenset, list, tuple, np.ndarray)) for row in rows)


def warn_of_joined(labels: Any) -> None:
    """Warn when labels look like sets that were written as text: as they stand, every combination is a class of its own.

    So it is where most of them do, or where one holds a separator beside a label that also occurs alone.

    >>> with warnings.catch_warnings(record=True) as said:
    ...     warnings.simplefilter("always")
    ...     warn_of_joined(["cat|dog", "dog", "cat", "fox"])
    >>> print(said[0].message)
    labels must be single labels or sets; 1 of 4 hold '|', such as 'cat|dog', and count as classes of their own. Split them, e.g. y.str.split('|').
    """
    texts = [label for label in labels if isinstance(label, str)]
    for what, remedy, holds in _JOINED:
        joined = [text for text in texts if holds(text)]
        parts = {part.strip() for text in set(joined) for part in re.split(r"[][(){},;|'\"]+", text)}
        alone = {text.strip() for text in texts if not holds(text)}
        if 2 * len(joined) > len(labels) or parts & alone - {""}:
            warnings.warn(
                f"labels must be single labels or sets; {len(joined)} of {len(labels)} {what}, such as {str(joined[0])[:60]!r}, "
                f"and count as classes of their own. {remedy}",
                UserWarning,
                stacklevel=4,  # the line that calls fit
            )
            return


def _is_printed(text: str) -> bool:
    text = text.strip()
    ends = text[:1] + text[-1:]
    return ends in ("[]", "{}") or (ends == "()" and "," in text)


_JOINED: tuple[tuple[str, str, Callable[[str], bool]], ...] = (
    ("look like a printed list", "Read them, e.g. y.map(ast.literal_eval).", _is_printed),
    ("hold '|'", "Split them, e.g. y.str.split('|').", lambda text: "|" in text),
    ("hold ';'", "Split them, e.g. y.str.split(';').", lambda text: ";" in text),
)


def count(value: Any, name: str) -> int | None:
    """A whole number of at least 1, or None for the default.

    >>> count(None, "epochs"), count(5, "epochs")
    (None, 5)
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, or None for the default; got {value!r}.")
    return int(value)


def widths(hidden: Any) -> tuple[int, ...]:
    """Widths of hidden layers, given as one or as several.

    >>> widths(128), widths([64, 32])
    ((128,), (64, 32))
    """
    given = tuple(hidden) if isinstance(hidden, (list, tuple, np.ndarray)) else (hidden,)
    if not all(isinstance(width, (int, np.integer)) and width > 0 for width in given):
        raise ValueError(f"hidden must be widths of layers, such as (128,) or (); got {hidden!r}.")
    return given


def instance(value: Any, known: dict[str, Any], kind: Any, name: str) -> Any:
    """An instance by its name, or the instance that was given."""
    if isinstance(value, kind):
        return value
    if not isinstance(value, str):
        raise TypeError(
            f"{name} must be a name or an instance, such as {next(iter(known.values())).__name__}(); got {value!r}."
        )
    if value not in known:
        near = get_close_matches(value, known, 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"{name} must be one of {', '.join(known)}; got {value!r}.{hint}")
    return known[value]()
