r"""Combine the votes on each row with what learners predict for it, as far as held-out votes support the predictions.

Let L be the likelihood of a row's votes, m the class frequencies as they enter the posterior L m of the votes alone, and q the predictions of
learners that were not fitted on the row. The row's label has the probability

    P(label j of row i)  ~  (L_ij m_ij^(1-b) q_ij^b)^t,            t = 1 / (1 + 2 rho s b)

With b = 0 it is the posterior of the votes alone, which stays unless the learners predict the votes clearly better than class frequencies do.
Three estimates determine b, each of which errs on one side:

- All votes of a row are held out: b_rows maximises the mean of log sum_j L_ij q_ij^b m_j^(1-b). It measures how well the learners are
  calibrated, and ignores that the votes on the row contain part of the same information.
- One answer is held out, and predicted from the learners and the other votes, whose likelihood may be sharpened: b_votes is the power of q
  relative to that of L. Where hard items draw the same mistake from most annotators, other votes predict that mistake better than the truth
  does, and b_votes is too small.
- b_agree makes the mean probability of the learners' own labels equal to the share of them that are also the votes' labels. Where annotators
  err alone, learners are right more often than that, and b_agree is too small; it errs on the other side where features cause the mistakes.

They are averaged to

    b = (1 - v) (u b_rows + b_votes) / 2 + v b_agree,            u = min(3 s, 1),            v = 3 u^2 / 4 where b_agree is the larger, else u^2 / 2

since learners that predict little of the votes agree with them mostly by chance. Learners repeat the mistakes of the annotators whom they
learned from, so t flattens the product: rho is the correlation of two votes on a row, and s the share of the information in the votes that
the learners predict, by the first score. Rows without votes may be unlike the others, on which the learners were scored: they have
b = 3 b_rows / 4 and t = 1. A row that shows nothing to the learners has b = 0.

Where the learners help, this product is averaged with the posterior of a model in which annotators may share a mistake
(`votes/shared_mistakes.py`). The model finds more true labels; the product, whose correlation rho comes from real votes, says how confident
both may be.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import logsumexp, softmax

from oneof.data.dataset import VoteEvidence, VoteScorer
from oneof.learners.base import Predictions
from oneof.votes.annotators import vote_exponent

Floats = NDArray[np.floating[Any]]
POWERS = (0.15, 0.3, 0.5, 0.7, 1.0)  # b
AGREEMENT_POWERS = (0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.85, 1.0, 1.2, 1.4, 1.7, 2.0, 2.5, 3.0)  # b_agree
SCALES = (0.7, 1.0, 1.5, 2.0, 3.0)  # of the other votes' likelihood
FULL_TRUST = 1 / 3  # s from which on b_rows and b_agree count fully
SHARE_ABOVE = 0.75  # of b_agree in b, where it is the larger: learners agree with the votes' labels at most as often as they are right
SHARE_BELOW = 0.5
MIN_STANDARD_ERRORS = 2.0  # by which predictions must score better than class frequencies
UNVOTED_POWER = 0.75  # of rows without votes, in terms of b_rows
SHARED_MISTAKES_WEIGHT = 0.75  # of the model with shared mistakes, in the mean with the product
MIN_PROBABILITY = 1e-9
FACTOR_RANGE = (0.05, 20.0)  # of logs of probabilities, to reach a mean confidence
MIN_PREDICTION = 1e-4  # smallest probability of a label, so that no learner can rule it out


class Powers(NamedTuple):
    """Powers of the predictions by three estimates."""

    rows: float  # b_rows
    votes: float  # b_votes
    agree: float  # b_agree
    explained: float  # s; the predictions with the largest s are used

    @property
    def combined(self) -> float:
        """Return b."""
        trust = min(self.explained / FULL_TRUST, 1.0)
        by_held_out_votes = (trust * self.rows + self.votes) / 2
        share = trust**2 * (SHARE_ABOVE if self.agree > by_held_out_votes else SHARE_BELOW)
        return (1 - share) * by_held_out_votes + share * self.agree


ZERO_POWERS = Powers(0.0, 0.0, 0.0, 0.0)  # where predictions do not help


def combine_votes(votes: VoteEvidence, predictions: Predictions) -> NDArray[np.float32]:
    """Return the probability of each label [n, c], by single votes and by the learners' predictions."""
    if votes.posterior is None or votes.held_out is None or votes.counts is None:
        raise ValueError("votes must be single votes; got counts or probabilities. Combine these by combine_prior.")
    likelihood = np.log(votes.likelihood)
    log_frequencies = np.log(votes.posterior) - likelihood
    has_votes = votes.counts.sum(1) > 0
    scored = has_votes & predictions.held_out
    tried = _predictions_to_try(votes, predictions)
    best = ZERO_POWERS
    best_logs = np.zeros_like(likelihood)
    for probabilities in tried:
        logs = np.log(np.maximum(probabilities, MIN_PREDICTION)).astype(np.float64)
        powers = choose_powers(logs, likelihood, log_frequencies, scored, votes.held_out)
        if powers.explained > best.explained:
            best = powers
            best_logs = logs
    is_predicted = predictions.mean.max(1) > predictions.mean.min(1)  # False where a row shows nothing to the learners
    power_if_predicted = np.where(has_votes, best.combined, UNVOTED_POWER * best.rows)
    power = np.where(is_predicted, power_if_predicted, 0.0)[:, None]
    combined = likelihood + (1 - power) * log_frequencies + power * best_logs
    combined[has_votes & is_predicted] /= 1 + 2 * votes.correlation * best.explained * best.combined
    tempered = softmax(combined, axis=1)
    if best.explained > 0 and votes.vote_model is not None:
        rows = np.flatnonzero(has_votes & is_predicted)
        by_model = votes.vote_model.posterior(tried)[rows]
        exponent = vote_exponent(votes.counts[rows].sum(1), votes.correlation)
        tempered[rows] = average_with_model(tempered[rows], by_model, exponent)
    return np.asarray(tempered, dtype=np.float32)


def _predictions_to_try(votes: VoteEvidence, predictions: Predictions) -> list[Floats]:
    """Return probabilities [n, c], of which those that predict the votes best are used.

    They are the learners', and where votes on other rows predict labels, the mean with these. Where learners repeat votes, predictions by other
    rows replace the learners' on rows with votes.
    """
    if votes.neighbours is None:
        return [predictions.mean]
    by_other_rows = np.where(np.isnan(votes.neighbours), predictions.mean, votes.neighbours)
    if votes.learners_repeat_votes:
        return [by_other_rows]
    return [predictions.mean, (predictions.mean + by_other_rows) / 2]


def average_with_model(tempered: Floats, by_model: Floats, exponent: Floats) -> Floats:
    """Return the mean of tempered probabilities [n, c] and those of the model with shared mistakes, which are tempered alike.

    The model takes votes to depend on each other only as far as features show. `exponent` [n, 1] flattens it by the number of votes. Its mean
    confidence becomes that of the tempered probabilities, as does the confidence of the mean of both.
    """
    confidence = float(tempered.max(1).mean())
    flattened = with_mean_confidence(np.log(np.maximum(by_model, MIN_PROBABILITY)) * exponent, confidence)
    mean = (1 - SHARED_MISTAKES_WEIGHT) * tempered + SHARED_MISTAKES_WEIGHT * flattened
    return with_mean_confidence(np.log(np.maximum(mean, MIN_PROBABILITY)), confidence)


def with_mean_confidence(logs: Floats, confidence: float) -> Floats:
    """Return the softmax [n, c] of logs times the factor at which the mean of the largest probabilities is the given confidence."""

    def excess(log_factor: float) -> float:
        return float(softmax(np.exp(log_factor) * logs, axis=1).max(1).mean()) - confidence

    low, high = np.log(FACTOR_RANGE)
    log_factor = low if excess(low) >= 0 else high
    if excess(low) < 0 < excess(high):
        log_factor = brentq(excess, low, high, xtol=1e-3)
    return np.asarray(softmax(np.exp(log_factor) * logs, axis=1))


def choose_powers(
    logs: NDArray[np.float64],
    likelihood: Floats,
    log_frequencies: Floats,
    scored: NDArray[np.bool_],
    held_out: VoteScorer,
) -> Powers:
    """Choose the powers of predictions in logs [n, c] by the scored rows [n] and by single held-out votes."""
    if not scored.any():
        return ZERO_POWERS
    by_row = {power: _row_scores(logs, likelihood, log_frequencies, scored, power) for power in (0.0, *POWERS)}
    best_by_row = max(POWERS, key=lambda power: by_row[power].mean())
    gain = by_row[best_by_row] - by_row[0.0]
    if not _is_helpful(gain):
        return ZERO_POWERS
    by_vote = {}
    for scale in SCALES:
        for power in (0.0, *POWERS):
            by_vote[power, scale] = held_out.log_probabilities(logs, power, scale)
    power, scale = max(by_vote, key=lambda setting: by_vote[setting].mean())
    best_scale_alone = max(SCALES, key=lambda scale: by_vote[0.0, scale].mean())
    relative_power = 0.0
    if power > 0 and _is_helpful(by_vote[power, scale] - by_vote[0.0, best_scale_alone]):
        relative_power = min(power / scale, 1.0)
    # The gain of predictions with probability 1 for the label that is most likely under the votes.
    largest_gain = -by_row[0.0].mean()
    agreement = power_of_agreement(logs[scored], (likelihood + log_frequencies)[scored])
    return Powers(best_by_row, relative_power, agreement, float(gain.mean() / largest_gain))


def power_of_agreement(logs: Floats, vote_logs: Floats) -> float:
    """Return the power at which the mean probability of the predicted labels equals the rate at which they agree with the votes."""
    agreement = float((logs.argmax(1) == vote_logs.argmax(1)).mean())
    for power in AGREEMENT_POWERS:
        if softmax(power * logs, axis=1).max(1).mean() >= agreement:
            return power
    return AGREEMENT_POWERS[-1]


def _row_scores(
    logs: Floats, likelihood: Floats, log_frequencies: Floats, scored: NDArray[np.bool_], power: float
) -> Floats:
    """Return the log-likelihood of all votes on each scored row under predictions that were made without them."""
    predicted = power * logs[scored] + (1 - power) * log_frequencies[scored]
    normalised = predicted - logsumexp(predicted, axis=1, keepdims=True)
    return np.asarray(logsumexp(likelihood[scored] + normalised, axis=1))


def _is_helpful(gain: Floats) -> bool:
    """Return whether a mean gain is larger than chance explains."""
    return bool(gain.mean() > MIN_STANDARD_ERRORS * gain.std() / len(gain) ** 0.5)
