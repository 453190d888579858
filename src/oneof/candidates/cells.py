"""Parse the cells of a column as lists of labels: `cat|dog`, a list, or a list as Python and JSON print it.

Cells that look like several labels but would be read as one are refused.
"""

import ast
import re
from collections.abc import Iterable, Mapping
from typing import Any
from unicodedata import category, normalize

MIN_LENGTH = 5  # of a word that may be misspelt, by one letter
MISSPELT_RATIO = 5  # times as frequent as a near miss of it: what makes that a misspelling
_MAX_COMPARED = 1000  # labels that are compared with each other: more would take seconds
_MIN_SEPARATOR_SHARE = 0.05  # of the texts must contain a character before it is taken for the separator
_MAX_MASK_CELLS = 2**32  # rows times labels, a byte each
_NUMPY_SCALAR = re.compile(r"\bnp\.\w+\(([^()]*)\)")  # np.str_('cat')
# 'cat' 'dog', as NumPy prints an array; Python would join them to one string.
_MISSING_COMMA = re.compile(r"(['\"])\s+(?=['\"])")


def parse_candidate_cells(cells: list[Any], separator: str, name: str) -> list[list[Any]]:
    """Parse a column of cells as candidate sets.

    Raises ValueError where another separator seems to be used, or where the mask would not fit in memory. `name` says in
    messages where the cells come from.
    """
    _check_separator(cells, separator, name)
    rows = split_cells(cells, separator, name)
    labels: dict[Any, None] = {}  # in the order of their first row
    for row in rows:
        labels.update(dict.fromkeys(row))
    if len(rows) * len(labels) > _MAX_MASK_CELLS:  # typically free-text answers
        examples = ", ".join(repr(label) for label in list(labels)[:3])
        raise ValueError(
            f"labels must be few enough for a table of rows by labels; {name} has {len(labels):,} different ones in "
            f"{len(rows):,} rows: {examples}, ... Write answers that mean the same in one way first."
        )
    return rows


def split_cells(cells: list[Any], separator: str, name: str) -> list[list[Any]]:
    """Return cells as lists of labels: text is split at the separator, a missing cell is empty. Equal texts share one list."""
    parsed_texts: dict[str, list[Any]] = {}
    for row, cell in enumerate(cells):
        if isinstance(cell, str) and cell not in parsed_texts:
            parsed_texts[cell] = _parse_text(cell, separator, name, row)
    rows = []
    for row, cell in enumerate(cells):
        if isinstance(cell, str):
            rows.append(parsed_texts[cell])
        else:
            rows.append(_parse_value(cell, name, row))
    return rows


def is_missing(label: Any) -> bool:
    """Return whether a label is None, the empty string or NaN."""
    if isinstance(label, str):
        return label == ""
    if isinstance(label, float):
        return label != label
    return label is None


def _parse_text(cell: str, separator: str, name: str, row: int) -> list[Any]:
    """Return the labels of a cell of text."""
    text = cell.strip()
    if not text:
        return []
    if _is_bracketed(text):
        printed = _parse_printed_list(text)
        if printed is not None:
            return _parse_value(printed, name, row)
    labels = [label.strip() for label in text.split(separator)]
    if "" in labels:
        raise ValueError(
            f"labels must not be empty; {name}, row {row} is {cell!r}, with nothing on one side of a separator."
        )
    return labels


def _is_bracketed(text: str) -> bool:
    return text.startswith("[") and text.endswith("]")


def _parse_printed_list(text: str) -> list[Any] | None:
    """Return the list that Python, NumPy or JSON printed, as pandas writes columns of lists to CSV; None if it is none."""
    literal = _NUMPY_SCALAR.sub(r"\1", text)
    literal = _MISSING_COMMA.sub(r"\1, ", literal)
    try:
        value = ast.literal_eval(literal)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    if not isinstance(value, list):
        return None
    if not all(isinstance(label, (str, int, float)) for label in value):
        return None
    return value


def _parse_value(cell: Any, name: str, row: int) -> list[Any]:
    """Return the labels of a cell that is a list or a single value."""
    if is_missing(cell):
        return []
    labels = [cell]
    if isinstance(cell, list):
        labels = cell
    for label in labels:
        if is_missing(label):
            raise ValueError(f"labels must not be missing; {name}, row {row} holds {label!r} in its list. Take it out.")
        if isinstance(label, (dict, list)):
            raise ValueError(
                f"labels must be texts or numbers; {name}, row {row} holds {label!r}. Give a list of their names."
            )
    return labels


def _check_separator(cells: Iterable[Any], separator: str, name: str) -> None:
    """Raise ValueError if the sets seem to use another separator: each whole set would become one label.

    That is so if every text is a printed list and one of them cannot be parsed; or if the separator occurs nowhere, another
    one does, and splitting there leaves fewer labels, because they recur.
    """
    texts = []
    for cell in cells:
        if isinstance(cell, str) and cell.strip():
            texts.append(cell.strip())
    if not texts or any(separator in text for text in texts):
        return
    if all(_is_bracketed(text) for text in texts):
        _check_printed_lists(texts, separator, name)
        return
    n_distinct = len(set(texts))
    for other in (";", ",", "|"):
        divided = []
        labels: set[str] = set()
        for text in texts:
            if other in text:
                divided.append(text)
            for label in text.split(other):
                labels.add(label.strip())
        if len(divided) >= _MIN_SEPARATOR_SHARE * len(texts) and len(labels) < n_distinct:
            raise ValueError(
                f"labels must be separated by {separator!r}; {name} has none, and {len(divided)} of {len(texts)} cells hold "
                f"{other!r}, as {divided[0]!r} does. Give the separator {other!r}, or write such labels without it."
            )


def _check_printed_lists(texts: list[str], separator: str, name: str) -> None:
    """Raise ValueError at the first text that is no list as Python, NumPy or JSON prints it."""
    for text in dict.fromkeys(texts):
        if _parse_printed_list(text) is None:
            raise ValueError(
                f"sets must be lists as Python or JSON prints them, or separated by {separator!r}; {name} has {text[:60]!r}."
            )


def near_duplicate_labels(labels: Iterable[Any]) -> list[list[str]]:
    """Return groups of labels that look the same: they differ in case, spaces, Unicode form or invisible characters."""
    groups: dict[str, list[str]] = {}
    for label in map(str, labels):
        groups.setdefault(_appearance(label), []).append(label)
    return [group for group in groups.values() if len(group) > 1]


def _appearance(label: str) -> str:
    """Return a label without what a reader does not see or hardly notices."""
    visible = ""
    for character in normalize("NFKC", label):
        if category(character) != "Cf":  # format characters are invisible
            visible += character
    return " ".join(visible.casefold().split())


def is_near_miss(word: str, name: str) -> bool:
    """Return whether two texts differ by one letter, or two that are swapped, after the first letter of a long word."""
    if word[:1] != name[:1] or min(len(word), len(name)) < MIN_LENGTH or not (word + name).replace(" ", "").isalpha():
        return False
    if abs(len(word) - len(name)) > 1:
        return False
    start = 0
    while start < min(len(word), len(name)) and word[start] == name[start]:
        start += 1
    if len(word) == len(name):
        is_swapped = word[start : start + 2] == name[start : start + 2][::-1] and word[start + 2 :] == name[start + 2 :]
        return is_swapped or word[start + 1 :] == name[start + 1 :]
    longer, shorter = (word, name) if len(word) > len(name) else (name, word)
    return longer[start + 1 :] == shorter[start:]


def misspelt_labels(counts: Mapping[str, int]) -> list[tuple[str, str]]:
    """Return pairs of a label and a much more frequent one that it may be a misspelling of; `counts` are those of the labels."""
    found: list[tuple[str, str]] = []
    if len(counts) > _MAX_COMPARED:
        return found
    for label, count in counts.items():
        for other, other_count in counts.items():
            is_rare_beside = MISSPELT_RATIO * count <= other_count
            if is_rare_beside and count > 0 and is_near_miss(label.casefold(), other.casefold()):
                found.append((label, other))
                break
    return found
