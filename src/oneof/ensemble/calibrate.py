"""Learn when to abstain and which sets to predict, from rows that the models were not trained on."""

from typing import Any

import numpy as np
from scipy.special import betaincinv

from oneof.ensemble.accuracy import AccuracyEstimate, HeldOutEval
from oneof.ensemble.candidate_randomness import BoolArray, FloatArray, random_membership

N_LEVELS = 200  # steps of the stored curves
MIN_ROWS_ABOVE = 20  # for a point of the curve of accuracy
ERROR_RATE = 0.1  # how often an accuracy may be lower than the curve states


def calibrate(evaluated: HeldOutEval, estimate: AccuracyEstimate) -> dict[str, Any]:
    """Return curves to predict with, as JSON holds them: the accuracy above a probability, and how improbable true labels are.

    They rest on gold labels or on sets as the estimate does; without an interval they are empty.
    """
    if estimate.verdict != "interval":
        return {"by": "nothing", "reason": estimate.reason, "rows": 0, "accuracy": [], "scores": []}
    if estimate.by == "gold labels":
        used = evaluated.with_gold
        accuracy, scores = _curves_by_gold(used)
    else:
        used = evaluated.informative
        accuracy, scores = _curves_by_sets(used)
    confidence = np.sort(used.confidence)[::-1]
    m = len(used.gold)
    first = min(MIN_ROWS_ABOVE, m) - 1
    positions = np.unique(np.linspace(first, m - 1, N_LEVELS).astype(int))
    points = [[float(confidence[i]), float(accuracy[i])] for i in positions[::-1]]
    return {"by": estimate.by, "reason": estimate.reason, "rows": m, "accuracy": points, "scores": scores.tolist()}


def _curves_by_gold(evaluated: HeldOutEval) -> tuple[FloatArray, FloatArray]:
    """Return a lower limit of the accuracy of the k most confident rows, for k from 1 on, and quantiles of 1 - p(true label)."""
    m = len(evaluated.gold)
    order = np.argsort(-evaluated.confidence, kind="stable")
    count = np.arange(1, m + 1)
    is_right = evaluated.probabilities.argmax(1) == evaluated.gold
    n_right = np.cumsum(is_right[order])
    lower_limit = betaincinv(np.maximum(n_right, 1e-9), count - n_right + 1, ERROR_RATE)
    scores = 1 - evaluated.probabilities[np.arange(m), evaluated.gold]
    return lower_limit, np.quantile(scores, np.linspace(0, 1, N_LEVELS + 1), method="higher")


def _curves_by_sets(evaluated: HeldOutEval) -> tuple[FloatArray, FloatArray]:
    """Return the same curves without gold labels: every candidate counts as the true one by its share of the probability."""
    order = np.argsort(-evaluated.confidence, kind="stable")
    by_chance = random_membership(evaluated.candidates)
    excess = np.cumsum((evaluated.covered - by_chance)[order])
    weight = np.cumsum((1 - by_chance)[order])
    accuracy = (excess / np.maximum(weight, 1e-9)).clip(0, 1)
    standard_error = np.sqrt(accuracy * (1 - accuracy) / weight.clip(1))
    lower_limit = accuracy - 1.3 * standard_error - 0.5 / np.arange(1, len(order) + 1)

    inside = evaluated.probabilities * evaluated.candidates
    shares = (inside / np.maximum(inside.sum(1, keepdims=True), 1e-30)).ravel()
    scores = (1 - evaluated.probabilities).ravel()
    by_score = np.argsort(scores)
    mass = np.cumsum(shares[by_score]) / shares.sum()
    positions = np.searchsorted(mass, np.linspace(0, 1, N_LEVELS + 1)).clip(max=len(by_score) - 1)
    return lower_limit.clip(min=0), scores[by_score][positions]


def threshold(calibration: dict[str, Any], accuracy: float) -> float:
    """Return the least probability from which on predictions reach this accuracy."""
    _check_request(calibration, "accuracy must lie", "accuracy", accuracy)
    reached = []
    best = 0.0
    for probability, lower_limit in calibration["accuracy"]:
        best = max(best, lower_limit)
        if lower_limit >= accuracy:
            reached.append(probability)
    if not reached:
        raise ValueError(
            "accuracy must be one that this model reaches on some rows; "
            f"{accuracy} is above its best, {best:.3f} (by {calibration['by']}). Ask for a lower accuracy, or give more gold labels."
        )
    return float(min(reached))


def prediction_sets(calibration: dict[str, Any], probabilities: FloatArray, coverage: float) -> BoolArray:
    """Return sets [n, c] that hold the true label in this share of new rows (split conformal); the predicted label is always in."""
    _check_request(calibration, "sets must have a coverage", "coverage", coverage)
    m = calibration["rows"]
    scores = calibration["scores"]
    level = np.ceil((m + 1) * coverage) / m
    limit = 1.0
    if level <= 1:
        limit = scores[int(np.ceil(level * (len(scores) - 1) - 1e-9))]
    is_predicted = np.arange(probabilities.shape[1]) == probabilities.argmax(1)[:, None]
    sets: BoolArray = (1 - probabilities <= limit) | is_predicted
    return sets


def _check_request(calibration: dict[str, Any], requirement: str, quantity: str, value: float) -> None:
    """Raise ValueError unless a share lies between 0 and 1, and the run is calibrated."""
    if not 0 < value < 1:
        raise ValueError(f"{requirement} between 0 and 1; got {value}.")
    if calibration["by"] == "nothing":
        reason = f"this run does not show it: {calibration['reason']}"
        remedy = "Label the rows in its sample.csv and fit with --gold-file."
        raise ValueError(f"{quantity} must be known; {reason}. {remedy}")
