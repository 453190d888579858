"""How much each learner counts, by the sets of rows that it did not learn from; and what all of them believe."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from oneof.metrics import MEANS, criteria

Floats = NDArray[np.floating[Any]]
Mask = NDArray[np.bool_]
LEAST = 0.1  # share below which a learner is left out
PSEUDO = 100  # rows for which all learners speak alike: so few rows say little about learners
FEW = 10  # the same, where a learner may be left out
SAMPLE = 50_000  # rows of a large table that say how much each learner counts


def believed(mask: Mask, said: Sequence[Floats], prior: Floats | None = None) -> Floats:
    """Share of each candidate [n, c]: the mean over opinions [n, c] of what they give within the set, weighed by the prior."""
    weights = mask * (1.0 if prior is None else prior)
    parts = [weights * (one + 1e-9) for one in said] or [weights]
    return np.asarray(np.mean([part / part.sum(1, keepdims=True) for part in parts], axis=0))


def shares(left_out: Sequence[Floats], mask: Mask, prior: Floats | None = None) -> Floats:
    r"""How much each learner counts: what makes the sets of left-out rows most likely, drawn half way to equal shares.

        maximise  sum_i log sum_k w_k P_k(S_i | x_i),     P_k(S_i | x_i) = sum_{j in S_i} prior_ij p_ij

    by EM, of a large table on SAMPLE rows. A learner whose share would be below LEAST is left out: it says nothing that others do not say better.

    >>> good, poor = np.array([[0.9, 0.1], [0.1, 0.9]] * 300), np.full((600, 2), 0.5)
    >>> shares([good, poor], good > 0.5).tolist()
    [1.0, 0.0]
    """
    rows = np.sort(np.random.default_rng(0).permutation(len(mask))[:SAMPLE])
    weights = mask[rows] * (1.0 if prior is None else prior[rows])
    inside = np.stack([(weights * one[rows]).sum(1) for one in left_out], axis=1) + 1e-6  # [n, k]
    share = _mixed(inside, FEW)
    kept = share >= min(LEAST, share.max())
    found = np.zeros(len(kept))
    found[kept] = (_mixed(inside[:, kept], PSEUDO) + 1 / kept.sum()) / 2
    return found


def clearly_better(one: Floats, other: Floats, mask: Mask, rule: str) -> bool:
    """Do sets [n, c] prefer probabilities [n, c] to others by a rule of the search, and by more than the standard error of the difference?"""
    logs = torch.from_numpy(np.log(np.stack([one, other]) + 1e-9))
    sets = torch.from_numpy(mask).expand(2, -1, -1)
    scores = criteria(logs[:, :, None], sets[:, :, None])  # of each row by itself: [2, n]
    ours, others = np.mean([scores[name].numpy() for name in MEANS.get(rule, (rule,))], axis=0)
    gap = ours - others
    return bool(gap.mean() > gap.std() / len(gap) ** 0.5)


def _mixed(inside: Floats, alike: int) -> Floats:
    """Shares by EM, beside so many rows for which all learners speak alike."""
    n, k = inside.shape
    share = np.full(k, 1 / k)
    for _ in range(200):
        responsible = inside * share
        responsible /= responsible.sum(1, keepdims=True)
        share = (responsible.sum(0) + alike / k) / (n + alike)
    return share
