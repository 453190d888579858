r"""Do wrong labels come into sets by chance? Tests of what would follow.

*By chance*: every set of s labels, of c, that holds the truth is equally likely, whatever the row. For any two labels j, k that are picked
without the row's own set, with r = (s - 1) / (c - 1), r2 = r (s - 2) / (c - 2) and b = (r - r2) / (1 - r), the mean over rows of

    1[j in S] 1[k in S] - r2 - b (1[j in S] + 1[k in S] - 2 r)

is then zero; sizes do not depend on what is predicted; sets of all sizes show the same accuracy, (covering - r) / (1 - r); and labels that are
held to be improbable are in no fewer sets than r says. A label that is in the set for the reason that makes networks err breaks the first
by a wide margin, a set that misses the truth the third.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Mask = NDArray[np.bool_]

_SURPRISE = 3.0  # standard errors at which a consequence counts as refuted
_LABELS = 200  # that are compared pair by pair


def chance(candidates: Mask) -> Floats:
    """r: how often a wrong label is in a set of each row's size, if it comes by chance [m]."""
    return np.asarray((candidates.sum(1) - 1) / max(candidates.shape[1] - 1, 1))


def inside(candidates: Mask, labels: NDArray[np.intp]) -> Mask:
    """Is each row's label [m] in its set?"""
    found: Mask = candidates[np.arange(len(labels)), labels]
    return found


def _ranks(values: NDArray[Any]) -> Floats:
    """1 for the least; equal values share the mean of theirs.

    >>> _ranks(np.array([3, 1, 1]))
    array([3. , 1.5, 1.5])
    """
    _, at, count = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((count.cumsum() - (count - 1) / 2)[at])


def refuted(scores: Floats, candidates: Mask) -> str | None:
    """Which consequence of *by chance* the sets [m, c] contradict, with scores [m, c] that owe nothing to the row's own set."""
    size = candidates.sum(1)
    one, other = (_ranks(part) - (len(size) + 1) / 2 for part in (scores.max(1), size))
    spearman = (one @ other) / max(np.sqrt((one @ one) * (other @ other)), 1e-9) * np.sqrt(len(size))
    if abs(spearman) > _SURPRISE or _by_class(scores.argmax(1), size) > _SURPRISE:
        return "how large a set is depends on the row"
    rows = np.logical_not(candidates.all(axis=1))
    sets, order = candidates[rows], np.argsort(-scores[rows], axis=1)
    r, r2, b = _rates(sets)
    held = [inside(sets, order[:, k]).astype(float) for k in range(3)]
    for j, k in ((0, 1), (0, 2), (1, 2)):
        if abs(_standard(held[j] * held[k] - r2 - b * (held[j] + held[k] - 2 * r))) > _SURPRISE:
            return "which wrong labels are in a set depends on the row"
    covered = held[0] - r  # less what it would be if guesses were as often right in sets of every size
    if _by_class(sets.sum(1), covered - covered.sum() / (1 - r).sum() * (1 - r)) > _SURPRISE:
        return "small and large sets show different accuracies"
    low = order[:, (order.shape[1] + 1) // 2 :]  # the less probable half of labels
    if _standard(np.take_along_axis(sets, low, 1).sum(1) - low.shape[1] * r) < -_SURPRISE:
        return "labels that look improbable are in too few sets"
    if _pairs_of_labels(sets) > _SURPRISE:
        return "some labels come into sets together"
    return None


def _standard(values: Floats) -> float:
    """The mean in standard errors."""
    spread = float(values.std())
    return float(values.mean()) / (spread / np.sqrt(len(values))) if spread > 1e-9 else 0.0


def _by_class(label: NDArray[np.intp], value: NDArray[Any]) -> float:
    """How much values differ between the rows of each label, in standard deviations of a chi-square."""
    rows = np.bincount(label)
    often = rows >= 5
    means = np.bincount(label, value)[often] / rows[often]
    square = float((rows[often] * (means - value.mean()) ** 2).sum() / max(float(value.var()), 1e-9))
    free = max(int(often.sum()) - 1, 1)
    return (square - free) / np.sqrt(2 * free)  # type: ignore[no-any-return]


def _rates(sets: Mask) -> tuple[Floats, Floats, Floats]:
    """r, r2 and b of the module's docstring, for every row."""
    r = chance(sets)
    r2 = r * (sets.sum(1) - 2) / (sets.shape[1] - 2)
    return r, r2, (r - r2) / np.maximum(1 - r, 1e-9)


def _pairs_of_labels(sets: Mask) -> float:
    """The pair moments of all labels: their summed squares, in standard deviations of a chi-square."""
    r, r2, b = _rates(sets)
    held = sets[:, np.argsort(-sets.sum(0), kind="stable")[:_LABELS]].astype(float)
    none = 2 * b * r - r2  # the moment where neither label is in, then one, then both
    one, both = none - b, 1 + none - 2 * b
    alone = held.T @ b
    moment = held.T @ held + none.sum() - alone[:, None] - alone
    square = held.T @ ((both**2 - 2 * one**2 + none**2)[:, None] * held) + (none**2).sum()
    single = held.T @ (one**2 - none**2)
    square += single[:, None] + single
    pairs = np.triu(square > 5, 1)  # rarer pairs are far from normal
    if not pairs.any():
        return 0.0
    chi = float((moment[pairs] ** 2 / square[pairs]).sum())
    return (chi - pairs.sum()) / np.sqrt(2 * pairs.sum())  # type: ignore[no-any-return]
