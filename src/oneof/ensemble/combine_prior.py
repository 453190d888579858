r"""Combine the prior of each row (counts of votes, probabilities) with what learners predict for it, by held-out evidence.

A prior is evidence on a row that the learners which held the row out have not seen. Within the set S of a row, let v be its prior, q what the
learners predict, and m the mean of their predictions over rows, each normalised. The row's prior is

    d_i = sum_{j in S_i} v_ij q_ij / sum_{j in S_i} v_ij m_ij

times as likely under the learners as under their mean. Learners and mean are stacked with the weight w that maximises the mean of log(w d_i + 1 - w)
over held-out rows. By Jensen's inequality predictions that are independent of the labels within the sets lower that mean, however confident they
are, and constant predictions have 0. So the prior is left as it is unless the mean is clearly above 0. Else

    P(label j of row i)  ~  v_ij (w q_ij + (1 - w) m_ij) / m_ij^b        on S_i.

Where v is a likelihood, as counts are, b should be 0; where v is a posterior, which contains the frequencies of the labels, 1. It is not known
which, so b is 1/2. The prior may be over- or underconfident: v is raised to a power, chosen by the same score.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Mask = NDArray[np.bool_]
WEIGHTS = np.array([0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98])
POWERS = (1.0, 0.7, 1.5, 0.5, 2.0, 3.0, 4.0)  # by their distance from 1, which leaves the prior unchanged
LEAST = 1e-6  # of a row's largest prior, so that a candidate without votes stays possible
BALANCE = 0.5  # b
FLOOR = 0.01  # of predictions, spread over all labels, so that a row whose predicted label is outside the set has little effect within it
HELPFUL = 2.0  # standard errors by which the mean score must exceed 0 for predictions to be used
NOTICEABLE = 1e-3  # and the least mean score, since even constant predictions differ a little between folds
FEWEST = 10  # held-out rows with several candidates, below which the prior is used alone


class _Stacked(NamedTuple):
    """A power of the prior, the weight of the learners, and the log-score of each held-out row."""

    power: float
    weight: float
    scores: Floats


def combine_prior(prior: Floats, predicted: Floats, candidates: Mask, held_out: Mask) -> NDArray[np.float64]:
    """Return the probability of each candidate [n, c], by the prior [n, c] and the learners' probabilities [n, c].

    `held_out` [n] marks the rows whose probabilities come from learners that were not fitted on them: these rows determine the weights.

    >>> rng = np.random.default_rng(0)
    >>> truth = rng.integers(2, size=200)
    >>> prior = np.where(np.eye(2, dtype=bool)[truth], 0.8, 0.2)
    >>> everything = np.ones((200, 2), dtype=bool)
    >>> noise = rng.dirichlet([0.1, 0.1], size=200)
    >>> combine_prior(prior, noise, everything, everything[:, 0]).max(1).round(2)[:3]
    array([0.8, 0.8, 0.8])
    >>> informative = np.where(np.eye(2, dtype=bool)[truth], 0.95, 0.05)
    >>> bool(combine_prior(prior, informative, everything, everything[:, 0]).max(1).min() > 0.95)
    True
    """
    is_scored = held_out & (candidates.sum(1) > 1)
    predicted = _within(predicted + FLOOR / predicted.shape[1], candidates)
    mean = _mean_within(predicted, candidates, is_scored)
    chosen = _choose(prior[is_scored], predicted[is_scored], mean[is_scored], candidates[is_scored])
    shares = _normalised(prior, candidates, chosen.power)
    if chosen.weight == 0:
        return shares  # exactly, so that ties stay ties
    mixed = chosen.weight * predicted + (1 - chosen.weight) * mean
    return _within(shares * mixed / mean**BALANCE, candidates)


def _choose(prior: Floats, predicted: Floats, mean: Floats, candidates: Mask) -> _Stacked:
    """Choose the weight of the predictions, and the power nearest to 1 whose score is within a standard error of the best."""
    as_given = _Stacked(1.0, 0.0, np.zeros(len(prior)))
    if len(prior) < FEWEST:
        return as_given
    helpful = []
    for power in POWERS:
        stacked = _best_weight(power, prior, predicted, mean, candidates)
        if _is_helpful(stacked):
            helpful.append(stacked)
    if not helpful:
        return as_given
    best = max(helpful, key=lambda stacked: stacked.scores.mean())
    for stacked in helpful:  # the powers are in the order of their distance from 1
        if not _clearly_better(best.scores - stacked.scores, 1.0):
            return stacked
    return best


def _best_weight(power: float, prior: Floats, predicted: Floats, mean: Floats, candidates: Mask) -> _Stacked:
    """Return the weight of the predictions that makes their mixture with the prior fit best, for one power of the prior."""
    shares = _normalised(prior, candidates, power)
    ratio = (shares * predicted).sum(1) / (shares * mean).sum(1)
    scores = np.log(WEIGHTS[:, None] * ratio + 1 - WEIGHTS[:, None])  # [weights, n]
    best = int(scores.mean(1).argmax())
    return _Stacked(power, float(WEIGHTS[best]), scores[best])


def _is_helpful(stacked: _Stacked) -> bool:
    """Return whether the predictions make the sets noticeably and significantly likelier than the prior alone does."""
    return stacked.scores.mean() > NOTICEABLE and _clearly_better(stacked.scores, HELPFUL)


def _clearly_better(gain: Floats, standard_errors: float) -> bool:
    """Return whether a mean gain is larger than some standard errors."""
    return bool(gain.mean() > standard_errors * gain.std() / len(gain) ** 0.5)


def _normalised(prior: Floats, candidates: Mask, power: float) -> NDArray[np.float64]:
    """Return the prior raised to a power, as shares within the sets [n, c]; of a row without any prior, equal shares."""
    within = np.where(candidates, prior, 0.0).astype(np.float64)
    largest = within.max(1, keepdims=True)
    relative = np.where(largest > 0, within / np.where(largest > 0, largest, 1.0), 1.0)
    return _within(np.maximum(relative, LEAST) ** power, candidates)


def _mean_within(shares: Floats, candidates: Mask, rows: Mask) -> NDArray[np.float64]:
    """Return the mean share of each label among the rows that have it, normalised within each set [n, c]; 1 outside, to divide by."""
    total = shares[rows].sum(0)
    holders = candidates[rows].sum(0)
    label_mean = np.where(total > 0, total / np.maximum(holders, 1), 1 / shares.shape[1])
    return np.where(candidates, _within(label_mean, candidates), 1.0)


def _within(values: Floats, candidates: Mask) -> NDArray[np.float64]:
    """Return values [n, c] or [c] as shares within the sets [n, c]."""
    inside = np.where(candidates, values, 0.0).astype(np.float64)
    return np.asarray(inside / inside.sum(1, keepdims=True))
