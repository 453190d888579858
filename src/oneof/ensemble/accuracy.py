r"""What may be said of the accuracy on new rows: a figure where something shows it, else a bound, else nothing.

A held-out set says only whether a prediction *can* be right. If it holds the truth, the covering rate bounds the accuracy:

    P(prediction in S) = accuracy + (1 - accuracy) q,     q = P(prediction in S | prediction wrong).

q is known if wrong labels come into sets by chance; `oneof.ensemble.candidate_randomness` tests that. Only where its tests refute nothing, an interval is
given. What cannot be tested at all is said: that sets hold the truth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from oneof.ensemble.candidate_randomness import BoolArray as Mask
from oneof.ensemble.candidate_randomness import FloatArray as Floats
from oneof.ensemble.candidate_randomness import failed_randomness_test, is_candidate, random_membership
from oneof.ensemble.noisy_sets import probability_of_missing

ENOUGH = 30  # gold labels of a random sample, to go by them and not by candidate sets
SAMPLE = 50  # rows that are drawn for a person to label
_FEW = 100  # held-out rows below which sets give no interval
_LEARNED = 2.3  # standard errors by which sets must be met more often than shuffled ones
_BETTER = 0.015  # by how much all networks on new rows may differ from those that held a row out
_WIDEST = 0.25  # interval that still says something
_MOST = 0.1  # that the bound may lie above the covering rate, beside the share of sets that seem to miss the truth
_NO_BOUND = 0.995  # a bound above it says nothing
_SHOWN = 0.05  # share of sets that must seem to miss the truth; less may be an error of the networks


@dataclass(frozen=True)
class Claim:
    """What may be said of the accuracy on new rows, and on what ground."""

    verdict: str  # "interval", "bound" or "nothing learned"
    value: float | None  # only of an interval
    low: float
    high: float  # of the interval; else the bound
    bound: float  # the accuracy is at most this, if the sets hold the truth
    covering: float  # how often held-out predictions lie in the set
    by: str  # "gold labels" or "candidate sets"
    reason: str  # what it rests on, or why no more is said

    @property
    def is_known(self) -> bool:
        """Return whether there is a figure to show: a bound of nearly 1 is none."""
        return self.verdict == "interval" or (self.verdict == "bound" and self.bound <= _NO_BOUND)

    @property
    def in_words(self) -> str:
        """As a person reads it."""
        if self.verdict == "nothing learned":
            return f"nothing learned: {self.reason}"
        if not self.is_known:
            return f"not known: {self.reason}"
        words = f"at most {self.bound:.0%}, if the sets hold the truth; no more can be said: {self.reason}"
        if self.value is not None:
            words = f"about {self.value:.0%} ({self.low:.0%} to {self.high:.0%}), by {self.by}: {self.reason}"
        return words.replace("%", " %")


class HeldOutEval(NamedTuple):
    """m rows to estimate the accuracy by, predicted by models that were not trained on them."""

    probabilities: Floats  # [m, c]
    candidates: Mask  # [m, c]
    gold: NDArray[np.intp]  # [m] true labels of a random sample, -1 elsewhere
    cross_fitted: Floats  # [m, c] by a learner on which the row's own set had no influence, not even through other rows
    from_votes: bool = False  # whether the sets are what people voted for: then the truth may be in none

    @property
    def with_gold(self) -> HeldOutEval:
        """Return the rows that have a gold label."""
        return self.where(self.gold >= 0)

    @property
    def informative(self) -> HeldOutEval:
        """Return the rows whose set leaves some label out."""
        return self.where(np.logical_not(self.candidates.all(axis=1)))

    def where(self, rows: Mask) -> HeldOutEval:
        """Return some of the rows."""
        return HeldOutEval(
            self.probabilities[rows],
            self.candidates[rows],
            self.gold[rows],
            self.cross_fitted[rows],
            self.from_votes,
        )

    @property
    def confidence(self) -> Floats:
        """Return the probability of the predicted label [m]."""
        return self.probabilities.max(1)  # type: ignore[no-any-return]

    @property
    def covered(self) -> Mask:
        """Return whether the predicted label lies in the set [m]."""
        return is_candidate(self.candidates, self.probabilities.argmax(1))

    @property
    def covering(self) -> float:
        """Return how often it does."""
        return float(self.covered.mean()) if len(self.gold) else 1.0


def drawn_rows(n: int) -> NDArray[np.intp]:
    """Rows in the order in which a person labels them: the first ones are a random sample, the same for every run on n rows."""
    return np.random.default_rng(n).permutation(n)


def random_sample(gold: NDArray[np.intp]) -> NDArray[np.intp]:
    """The gold labels [n] of the rows that were drawn, -1 elsewhere: labels that a person chose to give are no random sample."""
    order = drawn_rows(len(gold))
    unknown = gold[order] < 0
    first = order[: int(unknown.argmax()) if unknown.any() else len(order)]
    if len(first) >= 4 * SAMPLE:
        first = first[: len(first) // 2]  # the others are left to choose settings by
    found = np.full(len(gold), -1)
    if len(first) >= ENOUGH:
        found[first] = gold[first]
    return found


def estimate_accuracy(evaluated: HeldOutEval) -> Claim:
    """What held-out rows show: by gold labels of a random sample if there are ENOUGH, else by candidate sets."""
    known = evaluated.with_gold
    informative = evaluated.informative
    covering = evaluated.covering
    if len(known.gold) >= ENOUGH:
        right = known.probabilities.argmax(1) == known.gold
        low, high = share_limits(int(right.sum()), len(right))
        reason = f"{len(right)} rows of a random sample have gold labels"
        return Claim("interval", float(right.mean()), low, high, high, covering, "gold labels", reason)
    missing = (
        float(probability_of_missing(evaluated.probabilities, evaluated.candidates).mean())
        if len(evaluated.gold)
        else 0.0
    )
    missing = missing if missing >= _SHOWN else 0.0  # the share of sets that seem to miss the truth
    bound = _bound(evaluated, missing)
    if len(informative.gold) and not _learned(informative):
        reason = "predictions meet the sets no more often than they would meet shuffled sets"
        bound = _bound(evaluated, 0.0)  # what such networks find outside the sets shows nothing
        return Claim("nothing learned", None, 0.0, bound, bound, covering, "candidate sets", reason)
    why = _too_little(informative) or failed_randomness_test(evaluated.cross_fitted, evaluated.candidates)
    if not why:
        value, low, high = _interval(informative)
        why = f"an interval would reach from {low:.0%} to {high:.0%}" if high - low > _WIDEST else None
    if why:
        shown = f"about {missing:.0%} of them seem to miss it, for which the bound allows; and " if missing else ""
        return Claim("bound", None, 0.0, bound, bound, covering, "candidate sets", shown + why)
    reason = "if wrong labels come into sets by chance, which tests do not refute, and next to no set misses the truth"
    return Claim("interval", value, low, min(high, bound), bound, covering, "candidate sets", reason)


class LabelAccuracy(NamedTuple):
    """The share of resolved labels of the table that are right, measured on gold labels."""

    rows: int  # that it was measured on: a random sample, or all
    value: float
    low: float  # of the 95 % interval
    high: float

    @property
    def in_words(self) -> str:
        """Return a line for the terminal."""
        if self.low == self.high:
            words = f"{self.value:.0%} are right, by the gold labels of all rows"
        else:
            words = (
                f"about {self.value:.0%} are right ({self.low:.0%} to {self.high:.0%}), by {self.rows:,} gold labels"
            )
        return words.replace("%", " %")


def measure_labels(is_right: Mask, is_known: Mask) -> LabelAccuracy | None:
    """Measure the resolved labels [n] where gold labels are known; None where these are no random sample.

    The sample is that of `random_sample`, which leaves out rows whose gold labels may have chosen settings.
    """
    if is_known.all():
        share = float(is_right.mean())
        return LabelAccuracy(len(is_right), share, share, share)
    is_drawn = random_sample(np.where(is_known, 0, -1)) >= 0
    rows = int(is_drawn.sum())
    if rows == 0:
        return None
    hits = int(is_right[is_drawn].sum())
    return LabelAccuracy(rows, hits / rows, *share_limits(hits, rows))


def share_limits(hits: int, rows: int, outside: float = 0.025) -> tuple[float, float]:
    """The interval of a share (Clopper and Pearson), with so much outside at each end."""
    low = 0.0 if hits == 0 else float(betaincinv(hits, rows - hits + 1, outside))
    high = 1.0 if hits == rows else float(betaincinv(hits + 1, rows - hits, 1 - outside))
    return low, high


def _bound(evaluated: HeldOutEval, shown: float) -> float:
    """The covering rate, with its noise, and with the share of sets that miss what networks are surest of; the shown share may come on top of _MOST."""
    m, covering = len(evaluated.gold), evaluated.covering
    if m == 0:
        return 1.0
    noise = share_limits(round(covering * m), m, 0.005)[1] - covering + _BETTER
    surest = evaluated.covered[evaluated.confidence >= np.quantile(evaluated.confidence, 0.7)]
    missing = 1 - share_limits(int(surest.sum()), len(surest), 0.05)[0]
    return min(1.0, covering + min(_MOST + shown, noise + missing))


def _learned(evaluated: HeldOutEval) -> bool:
    """Are sets met more often than shuffled ones would be? By the plain learner, whose guess owes nothing to the row's set."""
    guess = evaluated.cross_fitted.argmax(1)
    rng, m = np.random.default_rng(0), len(guess)
    shuffled = [is_candidate(evaluated.candidates[rng.permutation(m)], guess).mean() for _ in range(99)]
    excess = is_candidate(evaluated.candidates, guess).mean() - np.mean(shuffled)
    return bool(excess > _LEARNED * max(float(np.std(shuffled)), 1e-9))


def _too_little(evaluated: HeldOutEval) -> str | None:
    m, several = len(evaluated.gold), int((evaluated.candidates.sum(1) > 1).sum())
    if m == 0:
        return "every set that was held out is full"
    if evaluated.from_votes:
        return "the sets are people's votes, which may all err alike"
    if m < _FEW:
        return f"only {m} held-out sets say something"
    if evaluated.candidates.shape[1] == 2:
        return "of two labels, sets show nothing that could be tested"
    if several < _FEW / 2:
        return f"only {several} sets have several labels, too few to test how wrong ones come in"
    return None


def _interval(evaluated: HeldOutEval) -> tuple[float, float, float]:
    """The accuracy if wrong labels come by chance, and how far it may be off.

    Downwards by what the networks may owe to the row's own set by way of other rows (as far as they meet sets more often than the plain
    learner); upwards by the share of sets that seem to miss the truth, which is what the surest predictions lack.
    """
    by_chance = random_membership(evaluated.candidates)
    excess, weight = evaluated.covered - by_chance, 1 - by_chance
    value = float(np.clip(excess.sum() / weight.sum(), 0, 1))
    error = float(np.sqrt(((excess - value * weight) ** 2).sum()) / weight.sum())
    reach = 2 * np.hypot(error, 0.5 / len(weight)) + _BETTER
    leak = max(
        0.0, evaluated.covering - float(is_candidate(evaluated.candidates, evaluated.cross_fitted.argmax(1)).mean())
    )
    top = evaluated.confidence >= np.quantile(evaluated.confidence, 0.7)
    surest = float(np.clip(excess[top].sum() / weight[top].sum(), 0.5, 1))
    spread = float(np.sqrt(surest * (1 - surest) / top.sum()))
    return value, max(0.0, value - reach - leak), min(1.0, (value + reach) / max(surest - 1.5 * spread, 0.5))
