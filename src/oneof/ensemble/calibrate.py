"""When to abstain and which sets to predict, learned from rows that the networks did not train on, where something shows it."""

from typing import Any

import numpy as np
from scipy.special import betaincinv

from oneof.ensemble.accuracy import Claim, HeldOutEval
from oneof.ensemble.candidate_randomness import BoolArray as Mask
from oneof.ensemble.candidate_randomness import FloatArray as Floats
from oneof.ensemble.candidate_randomness import random_membership

_LEVELS = 200  # steps of the stored curves
_UNSURE = 0.1  # how often an accuracy may be lower than the curve says


def calibrate(evaluated: HeldOutEval, claim: Claim) -> dict[str, Any]:
    """Curves to predict with: accuracy above a probability, and how improbable true labels are; as JSON holds them.

    They are by gold labels or sets as the claim is; a claim without an interval gives none.
    """
    if claim.verdict != "interval":
        return {"by": "nothing", "reason": claim.reason, "rows": 0, "accuracy": [], "scores": []}
    used = evaluated.with_gold if claim.by == "gold labels" else evaluated.informative
    least, scores = _by_gold(used) if claim.by == "gold labels" else _by_sets(used)
    sure, m = np.sort(used.confidence)[::-1], len(used.gold)
    at = np.unique(np.linspace(min(20, m) - 1, m - 1, _LEVELS).astype(int))  # at least 20 rows above
    accuracy = [[float(sure[i]), float(least[i])] for i in at[::-1]]
    return {"by": claim.by, "reason": claim.reason, "rows": m, "accuracy": accuracy, "scores": scores.tolist()}


def _by_gold(evaluated: HeldOutEval) -> tuple[Floats, Floats]:
    """The least accuracy of the surest k rows, for k from 1 on; and quantiles of 1 - p(true label)."""
    order, count = np.argsort(-evaluated.confidence, kind="stable"), np.arange(1, len(evaluated.gold) + 1)
    right = np.cumsum((evaluated.probabilities.argmax(1) == evaluated.gold)[order])
    missing = 1 - evaluated.probabilities[np.arange(len(evaluated.gold)), evaluated.gold]
    least = betaincinv(np.maximum(right, 1e-9), count - right + 1, _UNSURE)
    return least, np.quantile(missing, np.linspace(0, 1, _LEVELS + 1), method="higher")


def _by_sets(evaluated: HeldOutEval) -> tuple[Floats, Floats]:
    """The same without gold labels: every candidate counts as the true one, as far as the networks believe in it."""
    order, by_chance = np.argsort(-evaluated.confidence, kind="stable"), random_membership(evaluated.candidates)
    excess, weight = (np.cumsum(part[order]) for part in (evaluated.covered - by_chance, 1 - by_chance))
    share = (excess / np.maximum(weight, 1e-9)).clip(0, 1)
    least = share - 1.3 * np.sqrt(share * (1 - share) / weight.clip(1)) - 0.5 / np.arange(1, len(order) + 1)
    inside = evaluated.probabilities * evaluated.candidates
    belief = (inside / np.maximum(inside.sum(1, keepdims=True), 1e-30)).ravel()
    score = (1 - evaluated.probabilities).ravel()
    order = np.argsort(score)
    mass = np.cumsum(belief[order]) / belief.sum()
    at = np.searchsorted(mass, np.linspace(0, 1, _LEVELS + 1)).clip(max=len(order) - 1)
    return least.clip(min=0), score[order][at]


def _check(calibration: dict[str, Any], name: str, what: str, wished: float) -> None:
    if not 0 < wished < 1:
        raise ValueError(f"{name} between 0 and 1; got {wished}.")
    if calibration["by"] == "nothing":
        why = f"this run does not show it: {calibration['reason']}"
        raise ValueError(f"{what} must be known; {why}. Label the rows in its sample.csv and fit with --gold-file.")


def threshold(calibration: dict[str, Any], wished: float) -> float:
    """The least probability from which on predictions are right as often as wished."""
    _check(calibration, "accuracy must lie", "accuracy", wished)
    reached = [probability for probability, accuracy in calibration["accuracy"] if accuracy >= wished]
    if not reached:
        best = max((accuracy for _, accuracy in calibration["accuracy"]), default=0.0)
        got = f"{wished} is above its best, {best:.3f} (by {calibration['by']})"
        raise ValueError(
            f"accuracy must be one that this model reaches on some rows; {got}. Wish for less, or give more gold labels."
        )
    return float(min(reached))


def prediction_sets(calibration: dict[str, Any], probabilities: Floats, coverage: float) -> Mask:
    """Sets [n, c] that hold the true label in a share `coverage` of new rows (split conformal); the first guess is always in."""
    _check(calibration, "sets must have a coverage", "coverage", coverage)
    m, scores = calibration["rows"], calibration["scores"]
    level = np.ceil((m + 1) * coverage) / m
    limit = 1.0 if level > 1 else scores[int(np.ceil(level * (len(scores) - 1) - 1e-9))]
    first = np.arange(probabilities.shape[1]) == probabilities.argmax(1)[:, None]
    inside: Mask = (1 - probabilities <= limit) | first
    return inside
