r"""Does the row's set miss the truth? The probability that it does, told without truth; and sets that are not believed.

A set S of s labels is drawn around the truth with probability 1 - e, and past it with probability e. All sets of one size are alike:

    P(S, j) proportional to  (1 - e_s) p_j / C(c-1, s-1)   for j in S,       e_s p_j / C(c-1, s)   for j outside,

where p [n, c] is what learners say that did not train on the row. They are too sure or not sure enough, so p is raised to a power; the power
and the e are those under which all sets together are most probable. Each size has its own e: where a label is lost, what is left is smaller, so
that most sets of one label may be wrong where few sets are.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax

from oneof.selection.leave_one_out import Kernel, Opinion, ask_others
from oneof.selection.space import see, widen

Floats = NDArray[np.floating[Any]]
Mask = NDArray[np.bool_]
POWERS = (0.3, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0)
ROUNDS = 30
FEW = 2  # rows whose sets are taken to hold the truth, beside those that are there
SIZE = 10  # rows with the e of all sizes, beside those of a size
DISBELIEVED = 0.3  # a set that misses the truth with this probability teaches nothing
SAMPLE = 50_000  # sets of a large table that say how often sets miss the truth, and how sure learners may be
SELDOM = 0.02  # share of sets that seem to miss the truth in any hard table: below it all are believed
TIMES = 3  # that disbelieved sets are looked for: without some, others stand out


def probability_outside(p: Floats, candidates: Mask) -> Floats:
    """How probable it is, for every row, that its set misses the truth [n]; a full set cannot.

    >>> sets = np.repeat([[1, 1, 0, 0], [0, 0, 1, 0]], 20, axis=0).astype(bool)
    >>> p = np.where(sets, 0.9 / sets.sum(1, keepdims=True), 0.1 / (~sets).sum(1, keepdims=True))
    >>> p[0] = [0.01, 0.01, 0.97, 0.01]
    >>> probability_outside(p, sets)[[0, 1, 30]].round(1)
    array([1., 0., 0.])
    """
    size, c = candidates.sum(1), candidates.shape[1]
    partial = size < c
    found = np.zeros(len(p))
    if partial.any():
        size, inside, said = size[partial], candidates[partial], p[partial]
        some, odds = np.sort(np.random.default_rng(0).permutation(len(size))[:SAMPLE]), size / (c - size)
        held = ((power, _held(said[some], inside[some], power)) for power in POWERS)
        fitted = [(*_fitted(one, (1 - one) * odds[some], size[some]), power) for power, one in held]
        _, e, power = max(fitted, key=lambda one: one[0])
        every = _held(said, inside, power)
        found[partial] = _missed(every, (1 - every) * odds, e[size])
    return found


def _held(p: Floats, inside: Mask, power: float) -> Floats:
    """The share of each set [n] in p that is raised to a power."""
    sharp = np.maximum(p.astype(np.float64), 1e-9) ** power
    return np.asarray((sharp * inside).sum(1) / sharp.sum(1))


def _missed(inside: Floats, past: Floats, e: Floats) -> Floats:
    return np.asarray(e * past / np.maximum((1 - e) * inside + e * past, 1e-12))


def _fitted(inside: Floats, past: Floats, size: NDArray[np.intp]) -> tuple[float, Floats]:
    """The log-likelihood of sets at the best e of each size, and that e before the last round."""
    rows, of_size = np.bincount(size), np.full(size.max() + 1, 0.05)
    for _ in range(ROUNDS):
        before, missed = of_size, _missed(inside, past, of_size[size])
        pooled = missed.sum() / (len(missed) + FEW)
        of_size = (np.bincount(size, missed) + SIZE * pooled) / (rows + SIZE)
    e = of_size[size]
    return float(np.log(np.maximum((1 - e) * inside + e * past, 1e-12)).sum()), before


def disbelieved(
    x: NDArray[Any], candidates: Mask, *, rows: int = 5000, seed: int = 0, device: Any = "cpu"
) -> tuple[Mask, Opinion | None]:
    """Rows [n] whose sets are to be learned from as if nothing were known, by what all other rows say of x [n, d]; and what they say then, if it was asked."""
    seen, _ = see("both", widen(x, torch.device(device))[1])
    kernel, wrong = Kernel(), np.zeros(len(x), dtype=bool)
    for _ in range(TIMES):
        said = ask_others(seen, candidates | wrong[:, None], kernel, rows=rows, seed=seed)
        missing = probability_outside(softmax(kernel.sharpness * said.scores, axis=1), candidates)
        before, wrong = wrong, (missing >= DISBELIEVED) & (missing.mean() >= SELDOM)
        if (wrong == before).all():
            return wrong, said
    return wrong, None
