"""What the sets hold, which labels cannot be told apart, and what is wrong with the features."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oneof.candidates.mask import Candidates

Label = str | int | float
_ROWS = 1 << 16  # turned to numbers at a time
_MOST = 10_000  # labels
Column = str | int
_BLOCK = 1024  # sets compared with all others of their group at a time


@dataclass(frozen=True)
class Counts:
    rows: int
    classes: tuple[Label, ...]  # [c]
    sizes: tuple[int, ...]  # [c + 1]: how many sets hold 0, 1, ..., c labels
    average: float  # labels per set
    empty: int
    singletons: int
    full: int
    absent: tuple[Label, ...]  # classes in no set
    held: tuple[int, ...]  # [c]: how many sets hold each label
    share: tuple[float, ...]  # [c]: held / rows


def count(candidates: Candidates) -> Counts:
    """Count rows, set sizes and labels."""
    mask, held = candidates.mask, candidates.mask.sum(0)
    n, c = mask.shape
    sizes = np.bincount(mask.sum(1), minlength=c + 1).tolist()
    return Counts(
        rows=n,
        classes=tuple(candidates.classes.tolist()),
        sizes=tuple(sizes),
        average=float(mask.sum() / n),
        empty=sizes[0],
        singletons=sizes[1],
        full=sizes[c],
        absent=tuple(candidates.absent),
        held=tuple(held.tolist()),
        share=tuple((held / n).tolist()),
    )


@dataclass(frozen=True)
class OneSided:
    """No set holds `label` without `other`; some hold `other` without `label`."""

    label: Label
    other: Label
    sets: int  # that hold `label`, and so both


@dataclass(frozen=True)
class Ambiguity:
    """The largest P(other in S | label in S), and the pair that attains it (the one with most sets, where several do)."""

    degree: float
    label: Label
    other: Label


@dataclass(frozen=True)
class Identity:
    """Which labels the sets keep apart.

    `groups`: labels that occur in exactly the same sets. Swapping two of them changes no set, so no method can say from
    candidate sets which of them is right.
    """

    together: tuple[tuple[int, ...], ...]  # [c, c]: sets that hold both labels; the diagonal: sets that hold the label
    groups: tuple[tuple[Label, ...], ...]
    one_sided: tuple[OneSided, ...]  # most sets first
    ambiguity: Ambiguity | None  # none where fewer than two labels occur


def identify(candidates: Candidates) -> Identity:
    r"""Find labels that the sets do not separate, and the ambiguity degree that can be had without true labels.

        degree = max_{j != k} P(k in S | j in S) = max_{j != k} #{i: j, k in S_i} / #{i: j in S_i}

    Cour, Sapp and Taskar (JMLR 2011) define it with the truth, as gamma = sup_{j != k} P(k in S | y = j), and learning is
    guaranteed for gamma < 1. Here y is unknown, so every candidate stands in for the truth. Where distractors are drawn with
    one rate q, independently, the degree is no smaller than gamma = q. In general it is neither an upper nor a lower bound:
    a label that is often a distractor without k hides that it never is the truth without k. One value is exact: a degree
    of 1 means that a label never occurs without another, so that gamma = 1 as soon as that label is ever the truth.
    """
    together, names = _together(candidates.mask), candidates.classes.tolist()
    held = together.diagonal()
    asked = (held[:, None] > 0) & ~np.eye(len(held), dtype=bool)  # of labels that occur, never of a label with itself
    implies = (together == held[:, None]) & asked  # does every set with label j hold k too, [c, c]?
    same = implies & implies.T  # an equivalence, so a group is the row of its first label
    firsts = [j for j in np.flatnonzero(same.any(1)).tolist() if not same[j, :j].any()]
    groups = tuple(tuple(names[k] for k in [j, *np.flatnonzero(same[j]).tolist()]) for j in firsts)
    pairs = np.argwhere(implies & ~implies.T).tolist()
    one_sided = sorted((OneSided(names[j], names[k], int(held[j])) for j, k in pairs), key=lambda pair: -pair.sets)
    probability = np.where(asked, together / np.maximum(held, 1)[:, None], -1)
    best = np.argwhere(probability == probability.max())
    j, k = best[held[best[:, 0]].argmax()].tolist()
    ambiguity = Ambiguity(float(probability[j, k]), names[j], names[k]) if (held > 0).sum() > 1 else None
    return Identity(tuple(map(tuple, together.tolist())), groups, tuple(one_sided), ambiguity)


def _together(mask: NDArray[np.bool_]) -> NDArray[np.int64]:
    """How many sets hold j and k, [c, c]: a product of floats by blocks, where each partial count is exact."""
    c = mask.shape[1]
    if c > _MOST:
        got = f"got {c:,}. Bring answers that mean the same to one form first."
        raise ValueError(f"labels must be at most {_MOST:,} different ones, to be compared pair by pair; {got}")
    total = np.zeros((c, c), dtype=np.int64)
    for start in range(0, len(mask), _ROWS):
        block = mask[start : start + _ROWS].astype(np.float32)
        total += (block.T @ block).astype(np.int64)
    return total


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
