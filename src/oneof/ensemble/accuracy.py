r"""Estimate the accuracy on new rows: a figure where the data show it, else a bound, else nothing.

A held-out set shows only whether a prediction *can* be right. If it holds the truth, the covering rate bounds the accuracy:

    P(prediction in S) = accuracy + (1 - accuracy) q,     q = P(prediction in S | prediction wrong).

q is known if wrong labels come into sets at random, which `oneof.ensemble.candidate_randomness` tests. An interval is given only where
these tests reject nothing. That sets hold the truth cannot be tested, and is stated as an assumption.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from oneof.ensemble.candidate_randomness import (
    BoolArray,
    FloatArray,
    failed_randomness_test,
    is_candidate,
    random_membership,
)
from oneof.ensemble.noisy_sets import probability_of_missing

IntArray = NDArray[np.intp]

MIN_GOLD = 30  # gold labels of a random sample from which on they count in place of candidate sets
GOLD_SAMPLE_ROWS = 50  # rows that are drawn for a person to label
MIN_HELD_OUT = 100  # held-out rows below which sets give no interval
MIN_AMBIGUOUS = 50  # sets of several labels below which they do not show how wrong ones come in
LEARNED_STANDARD_ERRORS = 2.3  # by which predictions must lie in the sets more often than in shuffled ones
MODEL_DIFFERENCE = 0.015  # by which the accuracy of all models may differ from that of the models that held a row out
MAX_INTERVAL = 0.25  # a wider interval is not worth showing
MAX_ABOVE_COVERING = 0.1  # of the bound, in addition to the share of sets that seem to miss the truth
MAX_USEFUL_BOUND = 0.995
MIN_MISSING_SHARE = 0.05  # of sets that seem to miss the truth; less may be an error of the models
CONFIDENT_QUANTILE = 0.7  # above it predictions are taken as nearly always right
N_SHUFFLES = 99


@dataclass(frozen=True)
class AccuracyEstimate:
    """Estimate of the accuracy on new rows, and the reason for its form."""

    verdict: str  # "interval", "bound" or "nothing learned"
    value: float | None  # only of an interval
    low: float
    high: float  # of the interval; else the bound
    bound: float  # the accuracy is at most this, if the sets hold the truth
    covering: float  # how often held-out predictions lie in the set
    by: str  # "gold labels", "candidate sets" or "votes"
    reason: str  # what it rests on, or why no more can be said

    @property
    def is_known(self) -> bool:
        """Return whether there is a figure to show; a bound of nearly 1 does not count."""
        if self.verdict == "interval":
            return True
        return self.verdict == "bound" and self.bound <= MAX_USEFUL_BOUND

    @property
    def in_words(self) -> str:
        """Return the estimate as a sentence."""
        if self.verdict == "nothing learned":
            return f"nothing learned: {self.reason}"
        if not self.is_known:
            return f"not known: {self.reason}"
        if self.value is None:
            words = f"at most {self.bound:.0%}, if the sets hold the truth; no more can be said: {self.reason}"
        else:
            words = f"about {self.value:.0%} ({self.low:.0%} to {self.high:.0%}), by {self.by}: {self.reason}"
        return words.replace("%", " %")


class HeldOutEval(NamedTuple):
    """m rows to estimate the accuracy by, predicted by models that were not trained on them."""

    probabilities: FloatArray  # [m, c]
    candidates: BoolArray  # [m, c]
    gold: IntArray  # [m] true labels of a random sample, -1 elsewhere
    # [m, c] by a learner on which the row's own set had no influence, not even through other rows
    cross_fitted: FloatArray
    has_prior: bool = False  # whether the sets come from votes, counts or probabilities, which may all miss the truth

    @property
    def with_gold(self) -> HeldOutEval:
        """Return the rows that have a gold label."""
        return self.where(self.gold >= 0)

    @property
    def informative(self) -> HeldOutEval:
        """Return the rows whose set leaves some label out."""
        return self.where(np.logical_not(self.candidates.all(axis=1)))

    def where(self, rows: BoolArray) -> HeldOutEval:
        """Return the rows where the mask [m] is True."""
        return HeldOutEval(
            self.probabilities[rows],
            self.candidates[rows],
            self.gold[rows],
            self.cross_fitted[rows],
            self.has_prior,
        )

    def trusted(self, trust: float) -> HeldOutEval:
        """Return the same with predictions that are believed with this probability; else all labels are equally probable."""
        if trust == 1:
            return self
        by_chance = (1 - trust) / self.probabilities.shape[1]
        return self._replace(probabilities=trust * self.probabilities + by_chance)

    @property
    def confidence(self) -> FloatArray:
        """Return the probability of the predicted label [m]."""
        return self.probabilities.max(1)  # type: ignore[no-any-return]

    @property
    def covered(self) -> BoolArray:
        """Return whether the predicted label lies in the set [m]."""
        return is_candidate(self.candidates, self.probabilities.argmax(1))

    @property
    def covering(self) -> float:
        """Return the share of rows whose predicted label lies in the set; 1 without rows."""
        if not len(self.gold):
            return 1.0
        return float(self.covered.mean())


def sample_order(n: int) -> IntArray:
    """Return all rows in the order in which a person labels them: the first are a random sample, the same for every fit of n rows."""
    return np.random.default_rng(n).permutation(n)


def gold_of_random_sample(gold: IntArray) -> IntArray:
    """Return the gold labels [n] of the rows that were drawn, -1 elsewhere.

    Labels of rows that a person chose are not a random sample. Of a large sample, half is left to choose settings by.
    """
    order = sample_order(len(gold))
    is_unknown = gold[order] < 0
    n_sampled = len(order)
    if is_unknown.any():
        n_sampled = int(is_unknown.argmax())
    if n_sampled >= 4 * GOLD_SAMPLE_ROWS:
        n_sampled //= 2
    sampled = np.full(len(gold), -1)
    if n_sampled >= MIN_GOLD:
        rows = order[:n_sampled]
        sampled[rows] = gold[rows]
    return sampled


def estimate_accuracy(evaluated: HeldOutEval) -> AccuracyEstimate:
    """Estimate the accuracy by gold labels of a random sample if there are MIN_GOLD, else by candidate sets."""
    with_gold = evaluated.with_gold
    covering = evaluated.covering
    if len(with_gold.gold) >= MIN_GOLD:
        is_right = with_gold.probabilities.argmax(1) == with_gold.gold
        low, high = binomial_interval(int(is_right.sum()), len(is_right))
        reason = f"{len(is_right)} rows of a random sample have gold labels"
        return AccuracyEstimate("interval", float(is_right.mean()), low, high, high, covering, "gold labels", reason)

    informative = evaluated.informative
    if len(informative.gold) and not _beats_shuffled_sets(informative):
        reason = "predictions lie in the sets no more often than in shuffled sets"
        bound = _upper_bound(evaluated, 0.0)  # labels that such models find outside the sets show nothing
        return AccuracyEstimate("nothing learned", None, 0.0, bound, bound, covering, "candidate sets", reason)

    missing_share = _share_missing_truth(evaluated)
    bound = _upper_bound(evaluated, missing_share)
    obstacle = _obstacle_to_interval(informative)
    if obstacle is None:
        obstacle = failed_randomness_test(evaluated.cross_fitted, evaluated.candidates)
    if obstacle is None:
        value, low, high = _interval(informative)
        if high - low <= MAX_INTERVAL:
            reason = "if wrong labels come into sets by chance, which tests do not refute, and next to no set misses the truth"
            high = min(high, bound)
            return AccuracyEstimate("interval", value, low, high, bound, covering, "candidate sets", reason)
        obstacle = f"an interval would reach from {low:.0%} to {high:.0%}"
    if missing_share:
        obstacle = f"about {missing_share:.0%} of the sets seem to miss the true label, for which the bound allows; and {obstacle}"
    return AccuracyEstimate("bound", None, 0.0, bound, bound, covering, "candidate sets", obstacle)


def learned_nothing(evaluated: HeldOutEval) -> bool:
    """Return whether held-out sets do not show that the predictions lie in them more often than in shuffled ones.

    Gold labels, which measure the accuracy, have no influence. With votes, counts or probabilities the labels do not rest on the
    predictions alone, and the answer is no, as it is where all sets are full: then only gold labels can have taught anything.
    """
    informative = evaluated.informative
    if evaluated.has_prior or len(informative.gold) == 0:
        return False
    return not _beats_shuffled_sets(informative)


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


def measure_labels(is_right: BoolArray, is_known: BoolArray) -> LabelAccuracy | None:
    """Measure the resolved labels [n] where gold labels are known; None where these are not a random sample.

    The sample is that of `gold_of_random_sample`, which leaves out rows whose gold labels may have chosen settings.
    """
    if is_known.all():
        share = float(is_right.mean())
        return LabelAccuracy(len(is_right), share, share, share)
    is_sampled = gold_of_random_sample(np.where(is_known, 0, -1)) >= 0
    n_sampled = int(is_sampled.sum())
    if n_sampled == 0:
        return None
    hits = int(is_right[is_sampled].sum())
    return LabelAccuracy(n_sampled, hits / n_sampled, *binomial_interval(hits, n_sampled))


def binomial_interval(hits: int, n: int, tail: float = 0.025) -> tuple[float, float]:
    """Return the interval of Clopper and Pearson for a share, with this probability outside at each end."""
    low = 0.0
    if hits > 0:
        low = float(betaincinv(hits, n - hits + 1, tail))
    high = 1.0
    if hits < n:
        high = float(betaincinv(hits + 1, n - hits, 1 - tail))
    return low, high


def _share_missing_truth(evaluated: HeldOutEval) -> float:
    """Return the share of sets that seem to miss the truth; 0 where it may be an error of the models."""
    if not len(evaluated.gold):
        return 0.0
    share = float(probability_of_missing(evaluated.probabilities, evaluated.candidates).mean())
    if share < MIN_MISSING_SHARE:
        return 0.0
    return share


def _upper_bound(evaluated: HeldOutEval, missing_share: float) -> float:
    """Return the covering rate with its noise, and with the share of sets that miss the most confident predictions.

    It is at most MAX_ABOVE_COVERING above the covering rate, and as much more as sets seem to miss the truth.
    """
    m = len(evaluated.gold)
    if m == 0:
        return 1.0
    covering = evaluated.covering
    _, covering_limit = binomial_interval(round(covering * m), m, 0.005)
    noise = covering_limit - covering + MODEL_DIFFERENCE
    is_confident = evaluated.confidence >= np.quantile(evaluated.confidence, CONFIDENT_QUANTILE)
    confident_covered = evaluated.covered[is_confident]
    lowest_share, _ = binomial_interval(int(confident_covered.sum()), len(confident_covered), 0.05)
    excess = min(MAX_ABOVE_COVERING + missing_share, noise + (1 - lowest_share))
    return min(1.0, covering + excess)


def _beats_shuffled_sets(evaluated: HeldOutEval) -> bool:
    """Return whether the cross-fitted predictions lie in the sets more often than in shuffled ones."""
    predicted = evaluated.cross_fitted.argmax(1)
    rng = np.random.default_rng(0)
    m = len(predicted)
    shuffled_rates = []
    for _ in range(N_SHUFFLES):
        shuffled_sets = evaluated.candidates[rng.permutation(m)]
        shuffled_rates.append(is_candidate(shuffled_sets, predicted).mean())
    excess = is_candidate(evaluated.candidates, predicted).mean() - np.mean(shuffled_rates)
    return bool(excess > LEARNED_STANDARD_ERRORS * max(float(np.std(shuffled_rates)), 1e-9))


def _obstacle_to_interval(evaluated: HeldOutEval) -> str | None:
    """Return why the sets cannot give an interval, or None if they may."""
    m = len(evaluated.gold)
    n_ambiguous = int((evaluated.candidates.sum(1) > 1).sum())
    if evaluated.has_prior:
        return "the sets come from votes, counts or probabilities, which may share their errors"
    if m == 0:
        return "every held-out set holds all labels"
    if m < MIN_HELD_OUT:
        return f"only {m} held-out sets exclude a label, {MIN_HELD_OUT} are needed"
    if evaluated.candidates.shape[1] == 2:
        return "with two labels, how wrong ones come into sets cannot be tested"
    if n_ambiguous < MIN_AMBIGUOUS:
        return f"only {n_ambiguous} sets have several labels, too few to test how wrong ones come in"
    return None


def _interval(evaluated: HeldOutEval) -> tuple[float, float, float]:
    """Return the accuracy if wrong labels come into sets at random, and the ends of an interval around it.

    Downwards it allows for what the models may owe to the row's own set through other rows: as far as they lie in the sets more often
    than those of the cross-fitted learner do. Upwards it allows for the share of sets that seem to miss the truth: what the most confident
    predictions lack.
    """
    by_chance = random_membership(evaluated.candidates)
    excess = evaluated.covered - by_chance
    weight = 1 - by_chance
    value = float(np.clip(excess.sum() / weight.sum(), 0, 1))
    standard_error = float(np.sqrt(((excess - value * weight) ** 2).sum()) / weight.sum())
    half_width = 2 * np.hypot(standard_error, 0.5 / len(weight)) + MODEL_DIFFERENCE
    cross_fitted_covering = float(is_candidate(evaluated.candidates, evaluated.cross_fitted.argmax(1)).mean())
    leak = max(0.0, evaluated.covering - cross_fitted_covering)
    is_confident = evaluated.confidence >= np.quantile(evaluated.confidence, CONFIDENT_QUANTILE)
    confident = float(np.clip(excess[is_confident].sum() / weight[is_confident].sum(), 0.5, 1))
    deviation = float(np.sqrt(confident * (1 - confident) / is_confident.sum()))
    low = max(0.0, value - half_width - leak)
    high = min(1.0, (value + half_width) / max(confident - 1.5 * deviation, 0.5))
    return value, low, high
