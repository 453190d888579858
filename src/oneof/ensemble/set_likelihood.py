r"""Decide whether the kernel regresses on resolved candidates or on the sets as they are.

Large sets that depend on the features make the rounds of the regression confirm a first guess. Cross-fitted scores decide, by the
likelihood of the sets under a model in which, given the true label j, label k is in the set with a probability of its own:

    P(S_i) = sum_{j in S_i} p_ij prod_{k != j} P(k in S_i or not | j),      estimated on the other half of the rows.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax

FloatArray = NDArray[np.floating[Any]]
BoolArray = NDArray[np.bool_]

INVERSE_TEMPERATURES = (6.0, 12.0, 18.0, 24.0, 36.0, 48.0)
MAX_CLASSES = 500  # above it pairs of labels are not counted


def choose_raw_set_temperature(scores: tuple[FloatArray, FloatArray], candidates: BoolArray) -> float | None:
    """Return the inverse temperature for a regression on the sets as they are, or None if resolved candidates are better.

    `scores` are those of `oneof.learners.kernel.cross_fit_scores`: from resolved candidates, and from the sets as they are.
    """
    if candidates.shape[1] > MAX_CLASSES:
        return None
    from_resolved, from_raw_sets = scores
    resolved_likelihood, _ = _best_temperature(from_resolved, candidates)
    raw_likelihood, raw_temperature = _best_temperature(from_raw_sets, candidates)
    return raw_temperature if raw_likelihood > resolved_likelihood else None


def set_likelihood(predictions: FloatArray, candidates: BoolArray) -> float:
    """Return the mean log-likelihood of the sets [n, c] under cross-fitted predictions [n, c]."""
    within = np.where(candidates, predictions + 1e-9, 0.0)
    within /= within.sum(1, keepdims=True)
    log_predictions = np.log(predictions + 1e-3)
    order = np.random.default_rng(0).permutation(len(predictions))
    halves = (order[::2], order[1::2])
    total = 0.0
    for rows, other_rows in (halves, halves[::-1]):
        log_present, log_absent = _log_presence(within[other_rows], candidates[other_rows])
        sets = candidates[rows]
        joint = log_predictions[rows] + sets @ log_present.T + ~sets @ log_absent.T
        total += float(logsumexp(np.where(sets, joint, -np.inf), axis=1).sum())
    return total / len(predictions)


def likelihood_given_label(soft_labels: FloatArray, candidates: BoolArray) -> FloatArray:
    """Return how likely each set is given each of its labels as the true one, [n, c], relative to the likeliest; 0 outside the set.

    A label that is in most sets, whatever their true label, explains a set less well than one that is seldom a wrong candidate. All ones
    within the sets above MAX_CLASSES classes.
    """
    if candidates.shape[1] > MAX_CLASSES:
        return candidates.astype(np.float64)
    log_present, log_absent = _log_presence(soft_labels, candidates)
    logs = np.where(candidates, candidates @ log_present.T + ~candidates @ log_absent.T, -np.inf)
    return np.asarray(np.exp(logs - logs.max(1, keepdims=True)))


def _log_presence(soft_labels: FloatArray, candidates: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Return the logs of P(k in S | true label j) and of P(k not in S | j), [j, k]; zero for k = j."""
    presence = (soft_labels.T @ candidates + 0.5) / (soft_labels.sum(0)[:, None] + 1)
    is_true_label = np.eye(len(presence), dtype=bool)
    log_present = np.where(is_true_label, 0.0, np.log(presence))
    log_absent = np.where(is_true_label, 0.0, np.log(np.maximum(1 - presence, 1e-6)))
    return log_present, log_absent


def _best_temperature(scores: FloatArray, candidates: BoolArray) -> tuple[float, float]:
    """Return the largest likelihood and the inverse temperature that reaches it."""
    scored = []
    for inverse_temperature in INVERSE_TEMPERATURES:
        predictions = softmax(inverse_temperature * scores, axis=1)
        scored.append((set_likelihood(predictions, candidates), inverse_temperature))
    return max(scored)
