"""Resolve the label of every training row, with its probability, and decide which rows a person should review.

The *probability* of a candidate is its share within the row's original set, times the probability that the set holds the true label.
Both come from models that were not trained on the row, or from all models where all were trained on it. Votes, counts and
probabilities are combined with them; with votes, any label may be right. The label is the most probable candidate that was not removed.
Estimator, run folder, `clean` and report take these numbers from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oneof.data.dataset import BoolArray, Dataset, FloatArray, IntArray, VoteEvidence
from oneof.ensemble.combine_prior import combine_prior
from oneof.ensemble.combine_votes import combine_votes
from oneof.ensemble.noisy_sets import probability_of_missing
from oneof.learners.base import FittedLearner, Predictions, trained_networks
from oneof.training.state import Fit

# A row is flagged for review if its label leads the next candidate by less than MIN_MARGIN, if fewer than MIN_AGREEMENT of the models predict
# it, or if its set misses the true label with a probability of at least OUTSIDE_THRESHOLD.
MIN_MARGIN = 0.3
MIN_AGREEMENT = 0.7
OUTSIDE_THRESHOLD = 0.5
MAX_MISSING = 0.999  # probability that a set misses its true label; below 1, so that its candidates keep their order
MIN_UNANIMOUS_VOTES = 2  # for a class that would otherwise be the label of no row
# Share of the probability that would have to move for the label that all votes name to draw level with the chosen one. Below 1, so that the
# chosen label stays the most probable one.
MAX_MOVED_OF_LEAD = 0.99


class ResolvedRows(NamedTuple):
    """The label of every row, and the evidence for it."""

    label: IntArray  # [n]
    # [n, c] probabilities of the candidates, zero outside the original set; a row's sum is the probability that its set holds the true label
    distribution: NDArray[np.float32]
    probability: NDArray[np.float32]  # [n] of the label
    margin: NDArray[np.float32]  # [n] its lead over the next label of the original set
    agreement: NDArray[np.float32]  # [n] share of the models that predict it
    kept: BoolArray  # [n, c] candidates that were not removed
    outside: IntArray  # [n] the most probable label outside the set, if the set seems to miss the true label; else -1
    ask: BoolArray  # [n] whether a person should review the row


def resolve_labels(
    data: Dataset, predictions: Predictions, allowed: BoolArray, trust: float = 1.0, independence: float = 1.0
) -> ResolvedRows:
    """Choose the label of each row among the allowed ones [n, c], with the probabilities of its original candidates.

    `trust` is the probability that the learners can be believed (see `oneof.ensemble.predictable_sets`). If they cannot, all labels of a set
    are equally probable, and it holds the true label. `independence` weights them beside counts or probabilities of the input.
    """
    original = data.candidates.mask
    n, c = original.shape
    rows = np.arange(n)
    scores = predictions.mean
    if data.votes is not None:
        scores = combine_with_votes(data.votes, predictions, original, independence)

    shares = np.where(original, scores + np.float32(1e-12), np.float32(0))
    shares /= shares.sum(1, keepdims=True)
    label = np.where(allowed, shares, -1).argmax(1)
    if data.votes is not None and data.votes.counts is not None:
        shares, label = respect_unanimous_votes(shares, label, allowed, data.votes.counts, data.votes.vote_accuracy)

    missing: FloatArray = np.zeros(n)
    if data.votes is None:
        missing = np.minimum(probability_of_missing(predictions.mean, original), MAX_MISSING)
        missing = np.where(data.observed, missing, 0)
    by_chance = original / original.sum(1, keepdims=True)
    distribution = trust * (1 - missing[:, None]) * shares + (1 - trust) * by_chance
    distribution = distribution.astype(np.float32)
    best_outside = np.where(original, 0, predictions.mean).argmax(1)
    outside = np.where(trust * missing >= OUTSIDE_THRESHOLD, best_outside, -1)

    probability = distribution[rows, label]
    is_label = np.arange(c) == label[:, None]
    margin = probability - np.where(is_label, 0, distribution).max(1)
    agreement = predictions.top_share[rows, label]
    is_doubtful = (margin < MIN_MARGIN) | ((agreement < MIN_AGREEMENT) & data.observed)
    ask = (is_doubtful & (original.sum(1) > 1)) | (outside >= 0)
    if data.votes is not None and data.votes.counts is not None:
        has_votes = data.votes.counts.sum(1) > 0
        ask |= ~has_votes & (~data.observed | is_against_features(data.votes, label, probability))
    return ResolvedRows(label, distribution, probability, margin, agreement, allowed, outside, ask)


def is_against_features(votes: VoteEvidence, label: IntArray, probability: FloatArray) -> BoolArray:
    """Return [n] whether the label of a row on which nobody voted is less probable than it would be without the row's features.

    Such a label was chosen because it is frequent, although the features make it less likely. For rows with votes the result means nothing.
    """
    if votes.posterior is None:
        return np.zeros(len(label), dtype=bool)
    prior = votes.posterior[np.arange(len(label)), label]
    return np.asarray(probability < prior - 1e-3)


def allowed_labels(data: Dataset, learners: Sequence[FittedLearner], training_sets: BoolArray) -> BoolArray:
    """Return the labels [n, c] that neither networks nor reviewers removed; all candidates where that leaves none."""
    original = data.candidates.mask
    trained = trained_networks(learners)
    kept = original
    if trained:
        kept = sets_after_purification(trained, training_sets)
    allowed = kept & data.reviewed_sets
    return np.where(allowed.any(1, keepdims=True), allowed, original)


def sets_after_purification(trained: Sequence[Fit], sets: BoolArray) -> BoolArray:
    """Return the sets [n, c] without labels that every network trained on the row removed.

    Rows that no network was trained on keep their sets.
    """
    kept = np.zeros_like(sets)
    for fitted in trained:
        for rows, network_sets in zip(fitted.rows.cpu().numpy(), fitted.candidates.cpu().numpy(), strict=True):
            kept[rows] |= network_sets
    return np.where(kept.any(1, keepdims=True), kept, sets)


def combine_with_votes(
    votes: VoteEvidence, predictions: Predictions, candidates: BoolArray, independence: float = 1.0
) -> NDArray[np.float32]:
    """Return the probabilities [n, c] that result from votes, counts or given probabilities and the learners' predictions."""
    if votes.held_out is not None:
        return combine_votes(votes, predictions)
    combined = combine_prior(votes.likelihood, predictions.mean, candidates, predictions.held_out, independence)
    return combined.astype(np.float32)


def respect_unanimous_votes(
    shares: NDArray[np.float32], label: IntArray, allowed: BoolArray, counts: NDArray[Any], vote_accuracy: float
) -> tuple[NDArray[np.float32], IntArray]:
    """Return probabilities [n, c] and labels [n] that do not contradict unanimous votes too confidently.

    Where k votes all name one label and another was chosen, probability moves to the label voted for, until that has at least
    1 - vote_accuracy ** k, or nearly as much as the chosen label. A class that would be the label of no row becomes the label of those rows
    where MIN_UNANIMOUS_VOTES or more votes name it alone.

    Parameters
    ----------
    shares
        Probabilities [n, c] of the candidates.
    label
        The labels [n] chosen so far.
    allowed
        Labels [n, c] that may be chosen.
    counts
        Number of votes [n, c] for each label.
    vote_accuracy
        How often a single vote is right.
    """
    rows = np.arange(len(shares))
    voted_label = counts.argmax(1)
    n_votes = counts.sum(1)
    is_unanimous = ((counts > 0).sum(1) == 1) & allowed[rows, voted_label]
    is_lost = np.bincount(label, minlength=shares.shape[1]) == 0
    is_restored = is_unanimous & is_lost[voted_label] & (n_votes >= MIN_UNANIMOUS_VOTES)
    label = np.where(is_restored, voted_label, label)

    # The share of a row's probabilities that moves to the label voted for.
    voted_probability = shares[rows, voted_label]
    label_probability = shares[rows, label]
    min_voted_probability = np.where(is_restored, 0.5, 1 - vote_accuracy**n_votes)
    moved_share = np.maximum(min_voted_probability - voted_probability, 0) / np.maximum(1 - voted_probability, 1e-12)
    lead = np.maximum(label_probability - voted_probability, 0)
    until_nearly_equal = MAX_MOVED_OF_LEAD * lead / (1 + lead)
    moved_share = np.where(is_restored, moved_share, np.minimum(moved_share, until_nearly_equal))
    is_contradicted = is_unanimous & (is_restored | (label != voted_label))
    moved_share = np.where(is_contradicted, moved_share, 0)[:, None]
    is_voted = np.arange(shares.shape[1]) == voted_label[:, None]
    moved = (1 - moved_share) * shares + moved_share * is_voted
    return np.asarray(moved, dtype=np.float32), label
