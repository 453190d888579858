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

from oneof.data.ranks import learn_ranks
from oneof.selection.leave_one_out import Kernel, ask_others
from oneof.selection.space import SEEN

Floats = NDArray[np.floating[Any]]
Mask = NDArray[np.bool_]
POWERS = (0.3, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0)
ROUNDS = 30
FEW = 2  # rows whose sets are taken to hold the truth, beside those that are there
SIZE = 10  # rows with the e of all sizes, beside those of a size
DISBELIEVED = 0.3  # a set that misses the truth with this probability teaches nothing
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
        size, inside = size[partial], candidates[partial]
        sharp = (np.maximum(p[partial].astype(np.float64), 1e-9) ** power for power in POWERS)
        held = ((one * inside).sum(1) / one.sum(1) for one in sharp)
        odds = size / (c - size)  # C(c-1, s-1) / C(c-1, s)
        found[partial] = max((_missing(one, (1 - one) * odds, size) for one in held), key=lambda one: one[0])[1]
    return found


def _missing(inside: Floats, past: Floats, size: NDArray[np.intp]) -> tuple[float, Floats]:
    """The log-likelihood of all sets at the best e of each size, and the probability of each row that its set misses the truth."""
    rows, e = np.bincount(size), np.full(len(inside), 0.05)
    for _ in range(ROUNDS):
        missed = e * past / np.maximum((1 - e) * inside + e * past, 1e-12)
        pooled = missed.sum() / (len(missed) + FEW)
        e = ((np.bincount(size, missed) + SIZE * pooled) / (rows + SIZE))[size]
    return float(np.log(np.maximum((1 - e) * inside + e * past, 1e-12)).sum()), missed


def disbelieved(x: NDArray[Any], candidates: Mask, *, rows: int = 5000, seed: int = 0) -> Mask:
    """Rows [n] whose sets are to be learned from as if nothing were known, by what all other rows say of x [n, d]."""
    wide = torch.as_tensor(learn_ranks(x)(x))
    shift, scale = SEEN["both"](wide)
    seen, kernel = ((wide - shift) * scale)[:, scale != 0].numpy(), Kernel()
    wrong = np.zeros(len(x), dtype=bool)
    for _ in range(TIMES):
        scores = kernel.sharpness * ask_others(seen, candidates | wrong[:, None], kernel, rows=rows, seed=seed).scores
        said = np.exp(scores - scores.max(1, keepdims=True))
        missing = probability_outside(said / said.sum(1, keepdims=True), candidates)
        before, wrong = wrong, (missing >= DISBELIEVED) & (missing.mean() >= SELDOM)
        if (wrong == before).all():
            break
    return wrong
