"""What a table says about its rows' labels: candidate sets, exclusions, gold labels."""

import numbers
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oneof.candidates.cells import sets_of_cells, split_cells
from oneof.candidates.mask import Candidates
from oneof.candidates.read import empty_message, read
from oneof.data.files.columns import Cells
from oneof.data.roles import Roles
from oneof.storage.did_you_mean import did_you_mean


def read_supervision(name: str, others: Cells, roles: Roles, n: int) -> tuple[Candidates, NDArray[np.intp] | None]:
    """The sets of all rows: what is said to be possible, without what is said to be wrong."""
    if not roles.candidates and not roles.exclude:
        raise ValueError(f"candidates must be a column of {name}, or exclusions; got neither.")
    reading = {roles.candidates: sets_of_cells, roles.exclude: sets_of_cells, roles.gold: split_cells}
    where = {column: f"{name}, column {column!r}" for column in reading}
    cells = {column: way(others[column], roles.separator, where[column]) for column, way in reading.items() if column}
    named = {label for column in cells.values() for labels in column for label in labels}
    numeric = all(isinstance(label, numbers.Real) for label in named)  # then sorted by value, not as text
    classes = list(map(label_text, sorted(named))) if numeric else sorted(set(map(label_text, named)))
    number = {name: j for j, name in enumerate(classes)}
    masks = np.zeros((3, n, len(classes)), dtype=bool)
    for mask, column in zip(masks, (roles.candidates, roles.exclude, roles.gold), strict=True):
        rows = cells[column] if column else []
        row = np.repeat(np.arange(len(rows)), [len(labels) for labels in rows])
        mask[row, [number[label_text(label)] for labels in rows for label in labels]] = True
    possible, wrong, gold = masks
    silent: NDArray[np.bool_] = np.logical_not(possible.any(axis=1))
    unsaid = silent & ~wrong.any(1)
    if roles.empty == "error" and unsaid.any():
        said = empty_message(unsaid, remedy="empty='unlabelled' (--empty unlabelled)")
        raise ValueError(f"{where[roles.candidates or roles.exclude]}: {said}")
    left = (possible | silent[:, None]) & ~wrong
    nothing: NDArray[np.bool_] = np.logical_not(left.any(axis=1))
    if nothing.any():
        raise ValueError(f"{where[roles.exclude]}: {empty_message(nothing, complementary=True)}")
    several = gold.sum(1) > 1
    if several.any():
        got = f"{where[roles.gold]}, row {int(several.argmax())} has several."
        raise ValueError(f"a gold label must be one label; {got}")
    return read(left, classes=classes), np.where(gold.any(1), gold.argmax(1), -1) if roles.gold else None


def label_text(label: Any) -> str:
    return str(int(label)) if isinstance(label, float) and label.is_integer() else str(label)


def strange_gold(candidates: Candidates, gold: NDArray[np.intp]) -> list[str]:
    """A word on gold labels that no set holds: they may be misspelt."""
    classes, held = candidates.classes.tolist(), candidates.mask.sum(0) > 0
    strange = np.flatnonzero((gold >= 0) & ~held[gold])
    if not len(strange):
        return []
    first = classes[gold[strange[0]]]
    advice = f"Write them as the sets do.{did_you_mean(first, candidates.classes[held].tolist())}"
    return [f"{len(strange)} gold labels are in no set, the first in row {strange[0]}: {first!r}. {advice}"]
