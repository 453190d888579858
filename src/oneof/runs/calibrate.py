r"""How far to trust the networks, learned from rows that they did not train on, without true labels if there are none.

A held-out set says only whether a prediction *can* be right. It is right, or it is wrong and its label happens to be in the set:

    P(prediction in S) = accuracy + (1 - accuracy) q,     q = P(prediction in S | prediction wrong).

There are two ways to guess q, by different facts, each exact where wrong labels get into sets regardless of the features.
*The first two guesses*: rows whose set holds both, one or none of them show how often a wrong label gets in, if rows count
by how nearly the two guesses are equal. *The size of the set*: a larger set covers more wrong guesses, and sets of one label show
the accuracy itself. Both hope too much where a label is in the set for the very reason that makes the networks err; so the
smaller accuracy of the two is taken.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, logit
from scipy.stats import beta

Floats = NDArray[np.floating[Any]]
Mask = NDArray[np.bool_]

MARGIN = 0.055
"""How far the interval of candidate sets reaches beyond its value and its noise: by what the real sets showed over 20 splits each."""
ENOUGH = 30  # gold labels, to go by them and not by candidate sets
_FEW = 100  # held-out rows below which nothing is said but a bound
_LEVELS = 200  # steps of the stored curves


class Estimate(NamedTuple):
    """The accuracy to be had on new rows like these."""

    value: float
    low: float
    high: float
    kind: str  # "interval", or "bound": then only `high` is meant
    by: str  # "gold labels" or "candidate sets"


class Judged(NamedTuple):
    """Held-out rows: what the networks said, and what is known."""

    probabilities: Floats  # [m, c]
    candidates: Mask  # [m, c]
    gold: NDArray[np.intp]  # [m], -1 where unknown

    @property
    def known(self) -> Judged:
        """The rows with a gold label."""
        return self._where(self.gold >= 0)

    @property
    def speaking(self) -> Judged:
        """The rows whose set says something: not the full ones."""
        return self._where(np.logical_not(self.candidates.all(axis=1)))

    def _where(self, rows: Mask) -> Judged:
        return Judged(self.probabilities[rows], self.candidates[rows], self.gold[rows])

    @property
    def sure(self) -> Floats:
        """How probable the first guess is [m]."""
        return self.probabilities.max(1)  # type: ignore[no-any-return]

    @property
    def covered(self) -> Mask:
        """Does the first guess lie in the set [m]?"""
        first = self.probabilities.argmax(1)
        covered: Mask = self.candidates[np.arange(len(first)), first]
        return covered


def estimate(judged: Judged) -> Estimate:
    """The accuracy on new rows: by gold labels if there are ENOUGH of them, else by candidate sets.

    >>> rng = np.random.default_rng(0)
    >>> truth = rng.integers(4, size=2000)
    >>> p = rng.dirichlet(np.ones(4), size=2000)
    >>> p[np.arange(2000), truth] += rng.exponential(1, size=2000)
    >>> sets = (rng.random((2000, 4)) < 0.3) | (np.arange(4) == truth[:, None])
    >>> found = estimate(Judged(p / p.sum(1, keepdims=True), sets, np.full(2000, -1)))
    >>> found.low < (p.argmax(1) == truth).mean() < found.high, found.kind
    (np.True_, 'interval')
    """
    known = judged.known
    if len(known.gold) >= ENOUGH:
        return _by_gold(known.probabilities.argmax(1) == known.gold)
    judged = judged.speaking
    if len(judged.gold) == 0:
        return Estimate(1.0, 0.0, 1.0, "bound", "candidate sets")
    sizes = np.bincount(judged.candidates.sum(1)) / len(judged.gold)
    if len(judged.gold) < _FEW or (sizes > 0.03).sum() < 2:
        covering = float(judged.covered.mean())
        high = float(share_limits(covering * len(judged.gold), len(judged.gold))[1])
        return Estimate(covering, 0.0, high, "bound", "candidate sets")
    value = max(0.0, min(by_two_guesses(judged), by_set_size(judged)))
    reach = MARGIN + float(np.sqrt(value * (1 - value) / len(judged.gold)))
    return Estimate(value, max(0.0, value - reach), min(1.0, value + reach), "interval", "candidate sets")


def by_two_guesses(judged: Judged) -> float:
    """The accuracy if a wrong first guess gets into the set as often as `chance_covered` says."""
    return _corrected(float(judged.covered.mean()), chance_covered(judged))


def chance_covered(judged: Judged) -> float:
    r"""How often a wrong label that looks right gets into the set.

    Let one of the first two guesses be true, or neither (a share g of rows), and wrong ones get in with probability q:

        P(both in S) = (1 - g) q + g q^2,   P(none in S) = g (1 - q)^2,   so   q^2 - (1 - none + both) q + both = 0.

    A row counts by the square of second / first probability: where these are equal, an error is a toss between them.
    """
    first, second = np.argsort(-judged.probabilities, axis=1)[:, :2].T
    at = np.arange(len(first))
    inside = judged.candidates[at, first].astype(int) + judged.candidates[at, second]
    weight = (judged.probabilities[at, second] / judged.probabilities[at, first].clip(1e-12)) ** 2 + 1e-12
    both, none = (float(weight[inside == count].sum() / weight.sum()) for count in (2, 0))
    half = (1 - none + both) / 2
    return float(half - np.sqrt(max(half**2 - both, 0.0)))


def _corrected(covering: float, chance: float) -> float:
    return (covering - chance) / max(1 - chance, 1e-12)


def by_set_size(judged: Judged) -> float:
    r"""The accuracy by a curve through the covering rates of small and large sets, fitted by maximum likelihood.

        P(covered) = a + (1 - a) q,   logit q = u + log((s - 1) / (c - s)) + v o,   logit a = w + z o

    s: labels in the set; o: log-odds of the first guess. u = v = 0 is a draw of s - 1 from the c - 1 wrong labels.
    Normal priors keep the slopes where nothing speaks against it: z at 1 (the networks are calibrated), v at 0.
    """
    odds = logit(judged.sure.clip(1e-4, 1 - 1e-4).astype(np.float64))
    size, c = judged.candidates.sum(1), judged.candidates.shape[1]
    drawn = np.log((size - 1).clip(1e-9)) - np.log((c - size).clip(1e-9))
    covered = judged.covered

    def loss(at: Floats) -> float:
        missed = expit(-at[0] - at[1] * odds) * expit(-at[2] - drawn - at[3] * odds)
        chance = np.where(covered, 1 - missed, missed).clip(1e-9)
        return float(-np.log(chance).sum() + (at[1] - 1) ** 2 / 2 + 50 * at[3] ** 2 + 0.01 * at[2] ** 2)

    fits = [minimize(loss, start, method="L-BFGS-B") for start in ([0, 1, 1, 0], [-1, 1, 0, 0], [0, 1, 2, 0])]
    w, z = min(fits, key=lambda one: float(one.fun)).x[:2]
    return float(expit(w + z * odds).mean())


def _by_gold(right: Mask) -> Estimate:
    low, high = share_limits(float(right.sum()), len(right))
    return Estimate(float(right.mean()), low, high, "interval", "gold labels")


def share_limits(hits: float, rows: int) -> tuple[float, float]:
    """The 95 % interval of a share (Clopper and Pearson)."""
    low = 0.0 if hits == 0 else float(beta.ppf(0.025, hits, rows - hits + 1))
    high = 1.0 if hits == rows else float(beta.ppf(0.975, hits + 1, rows - hits))
    return low, high


# -------------------------------------------------------------------------------------------- when to abstain, and what sets


def calibrate(judged: Judged) -> dict[str, Any]:
    """Curves to predict with: accuracy above a probability, and how improbable true labels are; as JSON holds them."""
    known = judged.known
    gold = len(known.gold) >= ENOUGH
    used = known if gold else judged.speaking
    if len(used.gold) == 0:
        return {"by": "nothing", "rows": 0, "accuracy": [], "scores": []}
    return {
        "by": "gold labels" if gold else "candidate sets",
        "rows": len(used.gold),
        "accuracy": _accuracy_above(used, gold),
        "scores": _scores(used, gold),
    }


def _accuracy_above(judged: Judged, gold: bool) -> list[list[float]]:
    """[probability, accuracy of the rows that have at least it], for rising probabilities with at least 20 rows above."""
    right = judged.probabilities.argmax(1) == judged.gold if gold else judged.covered
    order = np.argsort(-judged.sure, kind="stable")
    count = np.arange(1, len(order) + 1)
    share = np.cumsum(right[order]) / count
    if not gold:
        chance = chance_covered(judged)
        share = ((share - chance) / max(1 - chance, 1e-12)).clip(min=0)
    at = np.unique(np.linspace(min(20, len(order)) - 1, len(order) - 1, _LEVELS).astype(int))
    return [[float(judged.sure[order[i]]), float(share[i])] for i in at[::-1]]


def threshold(calibration: dict[str, Any], wished: float) -> float:
    """The least probability from which on predictions are right as often as wished."""
    if not 0 < wished < 1:
        raise ValueError(f"accuracy must lie between 0 and 1; got {wished}.")
    reached = [probability for probability, accuracy in calibration["accuracy"] if accuracy >= wished]
    if not reached:
        best = max((accuracy for _, accuracy in calibration["accuracy"]), default=0.0)
        raise ValueError(
            f"accuracy must be one that this model reaches on some rows; {wished} is above its best, {best:.3f} "
            f"(by {calibration['by']}). Wish for less, or give gold labels."
        )
    return float(min(reached))


def _scores(judged: Judged, gold: bool) -> list[float]:
    """Quantiles of 1 - p(true label). Without gold labels every candidate counts, as far as the networks believe in it."""
    if gold:
        return [float(v) for v in np.quantile(_missing(judged), np.linspace(0, 1, _LEVELS + 1), method="higher")]
    inside = judged.probabilities * judged.candidates
    weight = (inside / np.maximum(inside.sum(1, keepdims=True), 1e-30)).ravel()
    score = (1 - judged.probabilities).ravel()
    order = np.argsort(score)
    mass = np.cumsum(weight[order]) / weight.sum()
    at = np.searchsorted(mass, np.linspace(0, 1, _LEVELS + 1)).clip(max=len(order) - 1)
    return [float(v) for v in score[order][at]]


def _missing(judged: Judged) -> Floats:
    return 1 - judged.probabilities[np.arange(len(judged.gold)), judged.gold]


def prediction_sets(calibration: dict[str, Any], probabilities: Floats, coverage: float) -> Mask:
    """Sets [n, c] that hold the true label in a share `coverage` of new rows (split conformal); the first guess is always in.

    >>> curve = {"by": "gold labels", "rows": 999, "scores": [i / 200 for i in range(201)]}
    >>> prediction_sets(curve, np.array([[0.7, 0.2, 0.1]]), 0.85).tolist()
    [[True, True, False]]
    """
    if not 0 < coverage < 1:
        raise ValueError(f"sets must have a coverage between 0 and 1; got {coverage}.")
    m = calibration["rows"]
    level = np.ceil((m + 1) * coverage) / m if m else 2.0
    scores = calibration["scores"]
    limit = 1.0 if level > 1 else scores[int(np.ceil(level * (len(scores) - 1) - 1e-9))]
    first = np.arange(probabilities.shape[1]) == probabilities.argmax(1)[:, None]
    inside: Mask = (1 - probabilities <= limit) | first
    return inside
