"""Cells of a column as lists of labels: `cat|dog`, a list, or a list as Python and JSON print it.

What looks like several labels but would be read as one is refused.
"""

import ast
import re
from collections.abc import Iterable
from typing import Any
from unicodedata import category, normalize

_ENOUGH = 0.05  # of the texts hold a divider before it is taken for one
_CELLS = 2**32  # of a table, a byte each
_NUMPY = re.compile(r"\bnp\.\w+\(([^()]*)\)")  # np.str_('cat')
_BARE = re.compile(r"(['\"])\s+(?=['\"])")  # 'cat' 'dog', as NumPy prints an array: Python would read one word


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
