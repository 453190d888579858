r"""Should the kernel learn resolved candidates, or the sets as they are? Large sets that depend on the row make rounds confirm a first guess.

What strangers say decides, by a model of how sets came about: given the truth j, label k is in the set with a chance of its own,

    P(S_i) = sum_{j in S_i} p_ij prod_{k != j} P(k in S_i or not | j),      counted on the other half of the rows.
"""

import numpy as np
from scipy.special import logsumexp, softmax

from oneof.selection.missing_truth import Floats, Mask

SHARPNESS = (6.0, 12.0, 18.0, 24.0, 36.0, 48.0)
MOST = 500  # classes: pairs of them are counted


def sharpness_as_given(strangers: tuple[Floats, Floats], sets: Mask) -> float | None:
    """How sharp a regression on the sets as given should be, by the sets; None: on resolved candidates it is better."""
    if sets.shape[1] > MOST:
        return None
    resolved, given = (max((likelihood(softmax(a * said, axis=1), sets), a) for a in SHARPNESS) for said in strangers)
    return given[1] if given[0] > resolved[0] else None


def likelihood(p: Floats, sets: Mask) -> float:
    """Mean log-likelihood of sets [n, c] under probabilities p [n, c] of strangers."""
    inside = np.where(sets, p + 1e-9, 0.0)
    inside /= inside.sum(1, keepdims=True)
    order, logs = np.random.default_rng(0).permutation(len(p)), np.log(p + 1e-3)
    total = 0.0
    for own, other in ((order[::2], order[1::2]), (order[1::2], order[::2])):
        present = (inside[other].T @ sets[other] + 0.5) / (inside[other].sum(0)[:, None] + 1)  # [j, k]
        itself = np.eye(len(present), dtype=bool)
        on, off = (np.where(itself, 0.0, np.log(one)) for one in (present, np.maximum(1 - present, 1e-6)))
        joint = logs[own] + sets[own] @ on.T + ~sets[own] @ off.T
        total += float(logsumexp(np.where(sets[own], joint, -np.inf), axis=1).sum())
    return total / len(p)
