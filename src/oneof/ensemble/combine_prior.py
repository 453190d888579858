r"""Combine the prior of each row (counts of votes, probabilities) with what learners predict for it, by held-out evidence.

Within the set S of a row, let v be its prior and q what the learners predict, each normalised, and m the mean of the predictions over rows.
The learners were not fitted on the row, so its prior and their predictions are independent evidence of its label, and are combined to

    P(label j of row i)  ~  v_ij^a (q_ij^b / m_ij^(1/2))^w        on S_i.

Where v is a likelihood, as counts are, the exponent of m should be 0; where v is a posterior, which contains the frequencies of the labels, 1.
It is not known which, so it is 1/2. Three questions determine the rest:

- *Do the predictions help?* The prior of a row is d_i = sum_j v_ij q_ij / sum_j v_ij m_ij times as likely under the learners as under their mean.
  By Jensen's inequality predictions that are independent of the labels within the sets lower the mean of log(u d_i + 1 - u) for every weight u,
  however confident they are, and constant predictions have 0. Unless some u makes that mean clearly positive, the prior is left as it is.
- *How often is the prior right?* Learners reproduce what is systematic in the priors that they were trained on. On the rows of which they are
  surest they are taken to be right, so the share of these rows where the prior's label is theirs is a lower bound of its accuracy. If the prior
  states less, a > 1 raises its mean probability to that share. If it states more, either may be wrong: a < 1 lowers it half way.
- *How often are the learners right?* They were trained on labels that are right at the rate A and therefore predict them less surely than the
  truth. If they are right at the rate r and both err independently, with wrong labels spread evenly over k others, they agree at the rate
  A r + (1 - A)(1 - r) / k. This is solved for r, and b makes the mean probability of the learners' labels equal to it.

If the features explain the mistakes of the prior, as those of a classifier that was trained on the same features, then learners repeat these
mistakes, and their agreement is no evidence. The caller measures that, and lowers w to 0 (see `oneof.ensemble.predictable_sets`), where P is the
prior itself.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

Floats = NDArray[np.floating[Any]]
Mask = NDArray[np.bool_]
WEIGHTS = np.array([0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98])  # u
MIN_RELATIVE_PRIOR = 1e-6  # of a row's largest prior, so that a candidate without votes stays possible
MEAN_POWER = 0.5  # the power of m
# Probability that is spread over all labels, so that a row whose predicted label is outside the set has little effect within it.
SPREAD_PREDICTION = 0.01
MIN_STANDARD_ERRORS = 2.0  # by which the mean score must exceed 0 for predictions to be used
MIN_SCORE = 1e-3  # that the mean must exceed too, since even constant predictions differ a little between folds
MIN_ROWS = 10  # held-out rows with several candidates, below which the prior is used alone
SUREST_SHARE = 0.2  # share of the rows on which the learners are taken to be right
MIN_SUREST_ROWS = 30
MAX_ACCURACY = 0.995
PRIOR_POWERS = (0.1, 6.0)  # the smallest and the largest a
PREDICTION_POWERS = (0.05, 8.0)  # b


def combine_prior(
    prior: Floats, predicted: Floats, candidates: Mask, held_out: Mask, independence: float = 1.0
) -> NDArray[np.float64]:
    """Return the probability of each candidate [n, c], by the prior [n, c] and the learners' probabilities [n, c].

    `held_out` [n] marks the rows whose probabilities come from learners that were not fitted on them: these rows determine the powers.
    `independence` is w: 1 if the mistakes of the prior have nothing to do with the features, 0 if the features explain them.

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
    shares = _normalised(prior, candidates)
    scored = held_out & (candidates.sum(1) > 1)
    predicted = _within(predicted + SPREAD_PREDICTION / predicted.shape[1], candidates)
    mean = _mean_within(predicted, candidates, scored)
    if scored.sum() < MIN_ROWS or not _are_helpful(shares[scored], predicted[scored], mean[scored]):
        return shares  # exactly, so that ties stay ties

    agreement = _agreement(shares[scored], predicted[scored])
    prior_power = _power_of_prior(shares[scored], predicted[scored], agreement)
    sharpened = _powered(shares, prior_power)
    learner_accuracy = _learner_accuracy(sharpened[scored], candidates[scored], agreement)
    prediction_power = _power_with_confidence(predicted[scored], learner_accuracy, PREDICTION_POWERS)
    predicted = _powered(predicted, prediction_power)
    mean = _mean_within(predicted, candidates, scored)

    final_prior = _powered(shares, 1 + independence * (prior_power - 1))
    evidence_of_features = (predicted / mean**MEAN_POWER) ** independence
    combined = _within(final_prior * evidence_of_features, candidates)
    if independence < 1:
        combined = _no_surer_than_stated(combined, shares, independence)
    return combined


def _no_surer_than_stated(combined: Floats, stated: Floats, independence: float) -> NDArray[np.float64]:
    """Return the combined shares [n, c], in the mean no surer than those stated by as much as the learners are no second opinion."""
    confidence = float(combined.max(1).mean())
    limit = independence * confidence + (1 - independence) * float(stated.max(1).mean())
    if confidence <= limit:
        return np.asarray(combined)
    return _powered(combined, _power_with_confidence(combined, limit, (PREDICTION_POWERS[0], 1.0)))


def _are_helpful(shares: Floats, predicted: Floats, mean: Floats) -> bool:
    """Return whether the predictions make the priors noticeably and significantly likelier than their mean does."""
    ratio = (shares * predicted).sum(1) / (shares * mean).sum(1)
    scores = np.log(WEIGHTS[:, None] * ratio + 1 - WEIGHTS[:, None])  # [weights, n]
    best = scores[scores.mean(1).argmax()]
    return bool(best.mean() > max(MIN_SCORE, MIN_STANDARD_ERRORS * best.std() / len(best) ** 0.5))


def _agreement(shares: Floats, predicted: Floats) -> NDArray[np.float64]:
    """Return 1 for each row whose predicted label has the largest prior, divided by the number of labels that share it, else 0."""
    has_largest = shares >= shares.max(1, keepdims=True) * (1 - 1e-9)
    label = predicted.argmax(1)
    agrees = has_largest[np.arange(len(label)), label]
    return np.asarray(agrees / has_largest.sum(1))


def _power_of_prior(shares: Floats, predicted: Floats, agreement: Floats) -> float:
    """Return a, by the rows of which the learners are surest."""
    n_surest = max(int(SUREST_SHARE * len(shares)), min(MIN_SUREST_ROWS, len(shares)))
    surest = np.argsort(-predicted.max(1), kind="stable")[:n_surest]
    stated = float(shares[surest].max(1).mean())
    agreed = float(agreement[surest].mean())
    standard_error = (agreed * (1 - agreed) / n_surest) ** 0.5
    upper = min(agreed + standard_error, MAX_ACCURACY)  # by the error of the estimate, in favour of the prior
    accuracy = upper
    if agreed <= stated:
        accuracy = (stated + min(upper, stated)) / 2
    return _power_with_confidence(shares[surest], accuracy, PRIOR_POWERS)


def _learner_accuracy(shares: Floats, candidates: Mask, agreement: Floats) -> float:
    """Return r: how often the learners' labels are right, if the prior's labels are right as often as its shares say."""
    accuracy = shares.max(1)
    n_wrong = np.maximum(candidates.sum(1) - 1, 1)
    by_chance = float(((1 - accuracy) / n_wrong).mean())  # agreement with a wrong label of the prior
    rate = (agreement.mean() - by_chance) / max(float(accuracy.mean()) - by_chance, 1e-6)
    return float(np.clip(rate, 0, MAX_ACCURACY))


def _power_with_confidence(shares: Floats, confidence: float, powers: tuple[float, float]) -> float:
    """Return the power, between the two given ones, at which the mean of the largest shares is the confidence."""

    def excess(log_power: float) -> float:
        return float(_powered(shares, np.exp(log_power)).max(1).mean()) - confidence

    return float(np.exp(_root(excess, np.log(powers[0]), np.log(powers[1]))))


def _root(increasing: Callable[[float], float], low: float, high: float) -> float:
    """Return where an increasing function is 0, or the end of the interval that is nearest to it."""
    if increasing(low) >= 0:
        return low
    if increasing(high) <= 0:
        return high
    return float(brentq(increasing, low, high, xtol=1e-3))


def _normalised(prior: Floats, candidates: Mask) -> NDArray[np.float64]:
    """Return the prior as shares within the sets [n, c]; of a row without any prior, equal shares."""
    within = np.where(candidates, prior, 0.0).astype(np.float64)
    largest = within.max(1, keepdims=True)
    relative = np.where(largest > 0, within / np.where(largest > 0, largest, 1.0), 1.0)
    return _within(np.maximum(relative, MIN_RELATIVE_PRIOR), candidates)


def _powered(shares: Floats, power: float) -> NDArray[np.float64]:
    """Return shares [n, c] raised to a power and normalised; labels outside the set keep a share of 0."""
    relative = (shares / shares.max(1, keepdims=True)) ** power
    return np.asarray(relative / relative.sum(1, keepdims=True))


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
