"""Read what a table holds about labels: candidate sets, exclusions and gold labels."""

import numbers
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oneof.candidates.cells import parse_candidate_cells, split_cells
from oneof.candidates.mask import Candidates
from oneof.candidates.read import empty_message, read
from oneof.data.files.columns import Cells
from oneof.data.roles import ColumnRoles
from oneof.storage.did_you_mean import did_you_mean


def read_supervision(
    name: str, others: Cells, roles: ColumnRoles, n: int, known_classes: Sequence[str] = ()
) -> tuple[Candidates, NDArray[np.intp] | None]:
    """Read candidate sets without the excluded labels, and gold labels.

    Parameters
    ----------
    name
        What messages call the table.
    others
        Cells of the columns that are not features, by column.
    roles
        Which of them hold candidates, exclusions and gold labels, and how sets are written.
    n
        Number of rows.
    known_classes
        Classes in addition to those that the cells name.

    Returns
    -------
    candidates : Candidates
        Sets of the n rows. A row with exclusions only has all other labels.
    gold : NDArray or None
        Index of the gold label of each row [n], -1 where unknown; None without a gold column.
    """
    if not roles.candidates and not roles.exclude:
        raise ValueError(f"candidates must be a column of {name}, or exclusions; got neither.")
    candidate_labels = _read_labels(name, others, roles.candidates, roles.separator, parse_candidate_cells)
    excluded_labels = _read_labels(name, others, roles.exclude, roles.separator, parse_candidate_cells)
    gold_labels = _read_labels(name, others, roles.gold, roles.separator, split_cells)
    gold_labels = _without_decimals(gold_labels, [*candidate_labels, *excluded_labels])
    classes = _sorted_classes([*candidate_labels, *excluded_labels, *gold_labels])
    classes += sorted(set(known_classes) - set(classes))
    possible = _label_mask(candidate_labels, classes, n)
    excluded = _label_mask(excluded_labels, classes, n)
    gold = _label_mask(gold_labels, classes, n)

    has_no_candidates: NDArray[np.bool_] = np.logical_not(possible.any(axis=1))
    is_unlabelled = has_no_candidates & ~excluded.any(1)
    if roles.empty == "error" and is_unlabelled.any():
        message = empty_message(is_unlabelled, remedy="empty='unlabelled' (--empty unlabelled)")
        raise ValueError(f"{_column_of(name, roles.candidates or roles.exclude)}: {message}")
    mask = (possible | has_no_candidates[:, None]) & ~excluded
    is_empty: NDArray[np.bool_] = np.logical_not(mask.any(axis=1))
    if is_empty.any():
        message = empty_message(is_empty, complementary=True)
        raise ValueError(f"{_column_of(name, roles.exclude)}: {message}")
    has_several = gold.sum(1) > 1
    if has_several.any():
        row = int(has_several.argmax())
        raise ValueError(f"a gold label must be one label; {_column_of(name, roles.gold)}, row {row} has several.")
    candidates = read(mask, classes=classes)
    if not roles.gold:
        return candidates, None
    return candidates, np.where(gold.any(1), gold.argmax(1), -1)


def _column_of(table: str, column: str | None) -> str:
    """Return what messages call a column."""
    return f"{table}, column {column!r}"


def _read_labels(
    name: str, others: Cells, column: str | None, separator: str, parse: Callable[..., Sequence[Sequence[Any]]]
) -> Sequence[Sequence[Any]]:
    """Return the labels of each row in a column; no rows without a column."""
    if not column:
        return []
    return parse(others[column], separator, _column_of(name, column))


def _without_decimals(gold: Sequence[Sequence[Any]], sets: Sequence[Sequence[Any]]) -> Sequence[Sequence[Any]]:
    """Write gold labels such as "3.0" as the sets do, "3": a column of whole numbers with gaps becomes one of fractions."""
    known: set[str] = set()
    for labels in sets:
        known.update(map(label_text, labels))
    rewritten = []
    for labels in gold:
        row = []
        for label in labels:
            text = label_text(label)
            whole = text.removesuffix(".0")
            if text not in known and whole in known:
                row.append(whole)
            else:
                row.append(label)
        rewritten.append(row)
    return rewritten


def _sorted_classes(rows: Sequence[Sequence[Any]]) -> list[str]:
    """Return the distinct labels of all rows as text, sorted by value if all are numbers."""
    labels: set[Any] = set()
    for row_labels in rows:
        labels.update(row_labels)
    if all(isinstance(label, numbers.Real) for label in labels):
        return [label_text(label) for label in sorted(labels)]
    return sorted({label_text(label) for label in labels})


def _label_mask(rows: Sequence[Sequence[Any]], classes: list[str], n: int) -> NDArray[np.bool_]:
    """Return the labels of each row as a mask [n, c]; all False if there are no rows."""
    index_of_class = {name: j for j, name in enumerate(classes)}
    row_numbers = np.repeat(np.arange(len(rows)), [len(labels) for labels in rows])
    class_numbers = []
    for labels in rows:
        class_numbers += [index_of_class[label_text(label)] for label in labels]
    mask = np.zeros((n, len(classes)), dtype=bool)
    mask[row_numbers, class_numbers] = True
    return mask


def label_text(label: Any) -> str:
    """Return a label as text; a whole number is written the same whether it is an integer or a float."""
    if isinstance(label, float) and label.is_integer():
        return str(int(label))
    return str(label)


def unknown_gold(candidates: Candidates, gold: NDArray[np.intp]) -> list[str]:
    """Return a line on gold labels [n] that are in no candidate set, which may be misspelt; none if there are none."""
    is_used = candidates.mask.sum(0) > 0
    unknown_rows = np.flatnonzero((gold >= 0) & ~is_used[gold])
    if not len(unknown_rows):
        return []
    first_row = unknown_rows[0]
    label = candidates.classes.tolist()[gold[first_row]]
    suggestion = did_you_mean(label, candidates.classes[is_used].tolist())
    return [
        f"{len(unknown_rows)} gold labels are in no set, the first in row {first_row}: {label!r}. "
        f"Write them as the sets do.{suggestion}"
    ]
