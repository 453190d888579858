"""What is wrong with the features: values that are no numbers, constant columns, equal rows whose sets contradict."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oneof.candidates.mask import Candidates

Column = str | int
_BLOCK = 1024  # sets compared with all others of their group at a time


@dataclass(frozen=True)
class NonFinite:
    column: Column
    rows: int  # how many
    first: int


@dataclass(frozen=True)
class Faults:
    """Faults of the features. Rows count from 0."""

    nonfinite: tuple[NonFinite, ...]
    constant: tuple[Column, ...]
    duplicates: int  # rows whose features equal those of an earlier row
    conflicts: tuple[tuple[int, ...], ...]  # per group of equal rows: those whose set is disjoint from that of another


def find_faults(x: NDArray[np.floating], candidates: Candidates, columns: Sequence[Column]) -> Faults:
    """Look through features x [n, d], whose columns are called `columns`."""
    wrong, groups = ~np.isfinite(x), _equal_rows(x)
    constant = (x == x[0]).all(0) & ~wrong.any(0) & (len(x) > 1)
    bad = ((columns[j], wrong[:, j]) for j in np.flatnonzero(wrong.any(0)).tolist())
    return Faults(
        nonfinite=tuple(NonFinite(name, int(rows.sum()), int(rows.argmax())) for name, rows in bad),
        constant=tuple(columns[j] for j in np.flatnonzero(constant).tolist()),
        duplicates=sum(len(group) - 1 for group in groups),
        conflicts=tuple(filter(None, (_disjoint(group, candidates.mask) for group in groups))),
    )


def _equal_rows(x: NDArray[np.floating]) -> list[NDArray[np.intp]]:
    """Groups of two or more rows with the same features, in the order of their first rows."""
    exact = np.ascontiguousarray(x + 0.0)  # -0.0 becomes 0.0, so that equal numbers have equal bytes
    rows = exact.view(np.dtype((np.void, exact.itemsize * exact.shape[1]))).ravel()
    _, which, size = np.unique(rows, return_inverse=True, return_counts=True)
    members = np.flatnonzero(size[which] > 1)
    members = members[np.argsort(which[members], kind="stable")]
    starts = np.flatnonzero(np.diff(which[members])) + 1
    return sorted((group for group in np.split(members, starts) if len(group)), key=lambda group: int(group[0]))


def _disjoint(group: NDArray[np.intp], mask: NDArray[np.bool_]) -> tuple[int, ...]:
    """The rows of a group whose set shares no label with the set of some other row of the group."""
    group = group[mask[group].any(1)]  # an empty set says nothing, so it contradicts nothing
    if len(group) < 2:
        return ()
    sets, which = np.unique(mask[group], axis=0, return_inverse=True)
    numbers = sets.astype(np.float32)
    alone = [(numbers[start : start + _BLOCK] @ numbers.T == 0).any(1) for start in range(0, len(sets), _BLOCK)]
    return tuple(group[np.concatenate(alone)[which.ravel()]].tolist())
