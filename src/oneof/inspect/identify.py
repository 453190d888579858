"""Count what the candidate sets contain, find labels that they do not separate, and check the features."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oneof.candidates.mask import Candidates

Label = str | int | float
Column = str | int

_ROWS_PER_BLOCK = 1 << 16  # rows converted to float at a time
_MAX_LABELS = 10_000  # the co-occurrence matrix grows with the square of this number
_SETS_PER_BLOCK = 1024  # sets compared with all others of their group at a time


@dataclass(frozen=True)
class Counts:
    """Numbers of rows, set sizes and labels."""

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
    mask = candidates.mask
    n, c = mask.shape
    label_counts = mask.sum(0)
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
        held=tuple(label_counts.tolist()),
        share=tuple((label_counts / n).tolist()),
    )


@dataclass(frozen=True)
class ImpliedLabel:
    """A label that never occurs without another one, which does occur without it."""

    label: Label
    other: Label
    sets: int  # number of sets that contain `label`, and therefore both


@dataclass(frozen=True)
class Ambiguity:
    """The largest P(other in S | label in S) and the pair that attains it; of several pairs, the one with most sets."""

    degree: float
    label: Label
    other: Label


@dataclass(frozen=True)
class Identifiability:
    """Labels that the sets separate, and those that they do not.

    `groups` has labels that occur in exactly the same sets. Swapping two of them changes no set, so no method can tell from
    candidate sets which of them is right.
    """

    together: tuple[tuple[int, ...], ...]  # [c, c]: sets that hold both labels; the diagonal: sets that hold the label
    groups: tuple[tuple[Label, ...], ...]
    one_sided: tuple[ImpliedLabel, ...]  # most sets first
    ambiguity: Ambiguity | None  # None if fewer than two labels occur


def check_identifiability(candidates: Candidates) -> Identifiability:
    r"""Find labels that the sets do not separate, and an ambiguity degree that needs no true labels.

        degree = max_{j != k} P(k in S | j in S) = max_{j != k} #{i: j, k in S_i} / #{i: j in S_i}

    Cour, Sapp and Taskar (JMLR 2011) define the degree with the truth, as gamma = sup_{j != k} P(k in S | y = j), and learning is
    guaranteed for gamma < 1. Here y is unknown, so every candidate stands in for the truth. If distractors are drawn independently
    with one rate q, the degree is no smaller than gamma = q. In general it is neither an upper nor a lower bound: a label that is
    often a distractor without k hides that it never is the truth without k. One value is exact: a degree of 1 means that a label
    never occurs without another, so that gamma = 1 as soon as that label is ever the truth.
    """
    names = candidates.classes.tolist()
    cooccurrence = _count_pairs(candidates.mask)
    label_counts = cooccurrence.diagonal()
    occurs = label_counts > 0
    is_pair = occurs[:, None] & ~np.eye(len(label_counts), dtype=bool)
    # implies[j, k]: every set that contains j contains k too.
    implies = (cooccurrence == label_counts[:, None]) & is_pair
    ambiguity = None
    if occurs.sum() > 1:
        ambiguity = _ambiguity(cooccurrence, is_pair, names)
    return Identifiability(
        together=tuple(map(tuple, cooccurrence.tolist())),
        groups=_inseparable_groups(implies, names),
        one_sided=_implied_labels(implies, label_counts, names),
        ambiguity=ambiguity,
    )


def _inseparable_groups(implies: NDArray[np.bool_], names: list[Label]) -> tuple[tuple[Label, ...], ...]:
    """Return the labels that occur in exactly the same sets, group by group."""
    equivalent = implies & implies.T
    groups = []
    for first in np.flatnonzero(equivalent.any(1)).tolist():
        if equivalent[first, :first].any():
            continue  # an earlier label has already listed this group
        members = [first, *np.flatnonzero(equivalent[first]).tolist()]
        groups.append(tuple(names[member] for member in members))
    return tuple(groups)


def _implied_labels(
    implies: NDArray[np.bool_], label_counts: NDArray[np.int64], names: list[Label]
) -> tuple[ImpliedLabel, ...]:
    """Return the pairs of labels of which one implies the other but not the reverse, most sets first."""
    pairs = []
    for label, other in np.argwhere(implies & ~implies.T).tolist():
        pairs.append(ImpliedLabel(names[label], names[other], int(label_counts[label])))
    return tuple(sorted(pairs, key=lambda pair: -pair.sets))


def _ambiguity(cooccurrence: NDArray[np.int64], is_pair: NDArray[np.bool_], names: list[Label]) -> Ambiguity:
    """Return the ambiguity degree over the pairs of labels that `is_pair` [c, c] marks."""
    label_counts = cooccurrence.diagonal()
    probability = np.where(is_pair, cooccurrence / np.maximum(label_counts, 1)[:, None], -1)
    largest = np.argwhere(probability == probability.max())
    most_frequent = label_counts[largest[:, 0]].argmax()
    label, other = largest[most_frequent].tolist()
    return Ambiguity(float(probability[label, other]), names[label], names[other])


def _count_pairs(mask: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Count the sets that contain labels j and k, [c, c].

    Float products are fast, and exact here because a block has fewer rows than float32 has whole numbers.
    """
    c = mask.shape[1]
    if c > _MAX_LABELS:
        raise ValueError(
            f"labels must be at most {_MAX_LABELS:,} different ones, to be compared pair by pair; got {c:,}. "
            "Write answers that mean the same in one way first."
        )
    cooccurrence = np.zeros((c, c), dtype=np.int64)
    for start in range(0, len(mask), _ROWS_PER_BLOCK):
        block = mask[start : start + _ROWS_PER_BLOCK].astype(np.float32)
        cooccurrence += (block.T @ block).astype(np.int64)
    return cooccurrence


@dataclass(frozen=True)
class NonFinite:
    """A feature with NaN or infinite values."""

    column: Column
    rows: int  # number of rows that are not finite
    first: int  # the first of them, counted from 0


@dataclass(frozen=True)
class FeatureIssues:
    """Problems of the features. Rows count from 0."""

    nonfinite: tuple[NonFinite, ...]
    constant: tuple[Column, ...]
    duplicates: int  # rows whose features equal those of an earlier row
    conflicts: tuple[tuple[int, ...], ...]  # per group of equal rows: those whose set is disjoint from that of another


def find_feature_issues(x: NDArray[np.floating], candidates: Candidates, columns: Sequence[Column]) -> FeatureIssues:
    """Find values that are not finite, constant columns and conflicting duplicates in features x [n, d] named `columns`."""
    is_bad = ~np.isfinite(x)
    has_bad = is_bad.any(0)
    is_constant = (x == x[0]).all(0) & ~has_bad & (len(x) > 1)
    nonfinite = []
    for j in np.flatnonzero(has_bad).tolist():
        nonfinite.append(NonFinite(columns[j], int(is_bad[:, j].sum()), int(is_bad[:, j].argmax())))
    duplicates = 0
    conflicts = []
    for group in _equal_rows(x):
        duplicates += len(group) - 1
        conflicting = _rows_with_disjoint_sets(group, candidates.mask)
        if conflicting:
            conflicts.append(conflicting)
    return FeatureIssues(
        nonfinite=tuple(nonfinite),
        constant=tuple(columns[j] for j in np.flatnonzero(is_constant).tolist()),
        duplicates=duplicates,
        conflicts=tuple(conflicts),
    )


def _equal_rows(x: NDArray[np.floating]) -> list[NDArray[np.intp]]:
    """Return groups of two or more rows with the same features, in the order of their first rows."""
    normalized = np.ascontiguousarray(x + 0.0)  # -0.0 becomes 0.0, so that equal numbers have equal bytes
    row_bytes = normalized.view(np.dtype((np.void, normalized.itemsize * normalized.shape[1]))).ravel()
    _, group_of_row, group_size = np.unique(row_bytes, return_inverse=True, return_counts=True)
    repeated = np.flatnonzero(group_size[group_of_row] > 1)
    if len(repeated) == 0:
        return []
    repeated = repeated[np.argsort(group_of_row[repeated], kind="stable")]
    starts = np.flatnonzero(np.diff(group_of_row[repeated])) + 1
    return sorted(np.split(repeated, starts), key=lambda group: int(group[0]))


def _rows_with_disjoint_sets(group: NDArray[np.intp], mask: NDArray[np.bool_]) -> tuple[int, ...]:
    """Return the rows of a group whose set shares no label with the set of another row of the group."""
    labelled = group[mask[group].any(1)]  # an empty set has no information, so it contradicts nothing
    if len(labelled) < 2:
        return ()
    sets, set_of_row = np.unique(mask[labelled], axis=0, return_inverse=True)
    numbers = sets.astype(np.float32)
    blocks = []
    for start in range(0, len(sets), _SETS_PER_BLOCK):
        shared_labels = numbers[start : start + _SETS_PER_BLOCK] @ numbers.T
        blocks.append((shared_labels == 0).any(1))
    is_disjoint = np.concatenate(blocks)
    return tuple(labelled[is_disjoint[set_of_row.ravel()]].tolist())
