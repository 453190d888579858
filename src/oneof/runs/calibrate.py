"""When to abstain and which sets to predict, learned from rows that the networks did not train on, where something shows it."""

from typing import Any

import numpy as np
from scipy.stats import beta

from oneof.runs.accuracy import Claim, Judged
from oneof.runs.by_chance import Floats, Mask, chance

_LEVELS = 200  # steps of the stored curves
_UNSURE = 0.1  # how often an accuracy may be lower than the curve says


def calibrate(judged: Judged, claim: Claim) -> dict[str, Any]:
    """Curves to predict with: accuracy above a probability, and how improbable true labels are; as JSON holds them.

    They are by gold labels or sets as the claim is; a claim without an interval gives none.
    """
    if claim.verdict != "interval":
        return {"by": "nothing", "reason": claim.reason, "rows": 0, "accuracy": [], "scores": []}
    gold = claim.by == "gold labels"
    used = judged.known if gold else judged.speaking
    curves = {"accuracy": _accuracy_above(used, gold), "scores": _scores(used, gold)}
    return {"by": claim.by, "reason": claim.reason, "rows": len(used.gold), **curves}


def _accuracy_above(judged: Judged, gold: bool) -> list[list[float]]:
    """[probability, least accuracy of the rows that have at least it], for rising probabilities with at least 20 rows above."""
    order = np.argsort(-judged.sure, kind="stable")
    count = np.arange(1, len(order) + 1)
    if gold:
        right = np.cumsum((judged.probabilities.argmax(1) == judged.gold)[order])
        least = beta.ppf(_UNSURE, np.maximum(right, 1e-9), count - right + 1)
    else:
        by_chance = chance(judged.candidates)
        excess, weight = (np.cumsum(part[order]) for part in (judged.covered - by_chance, 1 - by_chance))
        share = (excess / np.maximum(weight, 1e-9)).clip(0, 1)
        least = (share - 1.3 * np.sqrt(share * (1 - share) / weight.clip(1)) - 0.5 / count).clip(min=0)
    at = np.unique(np.linspace(min(20, len(order)) - 1, len(order) - 1, _LEVELS).astype(int))
    return [[float(judged.sure[order[i]]), float(least[i])] for i in at[::-1]]


def _check(calibration: dict[str, Any], name: str, what: str, wished: float) -> None:
    if not 0 < wished < 1:
        raise ValueError(f"{name} between 0 and 1; got {wished}.")
    if calibration["by"] == "nothing":
        raise ValueError(
            f"{what} must be known before it can be wished for; this run does not show it: {calibration['reason']}. "
            "Label the rows in its sample.csv and fit again with --gold-file."
        )


def threshold(calibration: dict[str, Any], wished: float) -> float:
    """The least probability from which on predictions are right as often as wished."""
    _check(calibration, "accuracy must lie", "accuracy", wished)
    reached = [probability for probability, accuracy in calibration["accuracy"] if accuracy >= wished]
    if not reached:
        best = max((accuracy for _, accuracy in calibration["accuracy"]), default=0.0)
        raise ValueError(
            f"accuracy must be one that this model reaches on some rows; {wished} is above its best, {best:.3f} "
            f"(by {calibration['by']}). Wish for less, or give more gold labels."
        )
    return float(min(reached))


def _scores(judged: Judged, gold: bool) -> list[float]:
    """Quantiles of 1 - p(true label). Without gold labels every candidate counts, as far as the networks believe in it."""
    levels = np.linspace(0, 1, _LEVELS + 1)
    if gold:
        missing = 1 - judged.probabilities[np.arange(len(judged.gold)), judged.gold]
        return [float(value) for value in np.quantile(missing, levels, method="higher")]
    inside = judged.probabilities * judged.candidates
    weight = (inside / np.maximum(inside.sum(1, keepdims=True), 1e-30)).ravel()
    score = (1 - judged.probabilities).ravel()
    order = np.argsort(score)
    mass = np.cumsum(weight[order]) / weight.sum()
    at = np.searchsorted(mass, levels).clip(max=len(order) - 1)
    return [float(value) for value in score[order][at]]


def prediction_sets(calibration: dict[str, Any], probabilities: Floats, coverage: float) -> Mask:
    """Sets [n, c] that hold the true label in a share `coverage` of new rows (split conformal); the first guess is always in."""
    _check(calibration, "sets must have a coverage", "coverage", coverage)
    m, scores = calibration["rows"], calibration["scores"]
    level = np.ceil((m + 1) * coverage) / m
    limit = 1.0 if level > 1 else scores[int(np.ceil(level * (len(scores) - 1) - 1e-9))]
    first = np.arange(probabilities.shape[1]) == probabilities.argmax(1)[:, None]
    inside: Mask = (1 - probabilities <= limit) | first
    return inside
