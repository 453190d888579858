r"""Does the row's set miss the truth? The probability that it does, told without truth.

A set S of s labels is drawn around the truth with probability 1 - e, and past it with probability e. All sets of one size are alike:

    P(S, j) proportional to  (1 - e) p_j / C(c-1, s-1)   for j in S,       e p_j / C(c-1, s)   for j outside,

where p [n, c] is what learners say that did not train on the row. They are too sure or not sure enough, so p is raised to a power; the power
and e are those under which all sets together are most probable.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
POWERS = (0.3, 0.5, 0.7, 1.0, 1.4)
ROUNDS = 30
FEW = 2  # rows whose sets are taken to hold the truth, beside those that are there


def probability_outside(p: Floats, candidates: NDArray[np.bool_]) -> Floats:
    """How probable it is, for every row, that its set misses the truth [n]; a full set cannot.

    >>> sets = np.repeat([[1, 1, 0, 0], [0, 0, 1, 0]], 20, axis=0).astype(bool)
    >>> p = np.where(sets, 0.9 / sets.sum(1, keepdims=True), 0.1 / (~sets).sum(1, keepdims=True))
    >>> p[0] = [0.01, 0.01, 0.97, 0.01]
    >>> probability_outside(p, sets)[[0, 1, 30]].round(1)
    array([0.9, 0. , 0. ])
    """
    size, c = candidates.sum(1), candidates.shape[1]
    partial = size < c
    if not partial.any():
        return np.zeros(len(p))
    odds = size[partial] / (c - size[partial])  # C(c-1, s-1) / C(c-1, s)
    best: tuple[float, Floats] = (-np.inf, np.zeros(int(partial.sum())))
    for power in POWERS:
        sharp = np.maximum(p[partial].astype(np.float64), 1e-9) ** power
        inside = (sharp * candidates[partial]).sum(1) / sharp.sum(1)
        best = max(best, _missing(inside, (1 - inside) * odds), key=lambda one: one[0])
    found = np.zeros(len(p))
    found[partial] = best[1]
    return found


def _missing(inside: Floats, past: Floats) -> tuple[float, Floats]:
    """The log-likelihood of all sets at the best e, and the probability of each row that its set misses the truth."""
    e = 0.05
    for _ in range(ROUNDS):
        missed = e * past / np.maximum((1 - e) * inside + e * past, 1e-12)
        e = float(missed.sum() / (len(missed) + FEW))
    return float(np.log(np.maximum((1 - e) * inside + e * past, 1e-12)).sum()), missed
