"""The label of every training row, and how probable it is.

The *probability* of a label is its share within the row's original set, by models that were not trained on the row; where all were, by all of
them. Votes, counts and probabilities are combined with it. The label is the most probable one that was not removed. Estimator, run folder, `clean`
and report take these numbers from here.
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
from oneof.learners.base import FittedLearner, Predictions
from oneof.training.state import Fit

MIN_MARGIN = 0.3  # rows whose label leads the next candidate by less are flagged for review
MIN_AGREEMENT = 0.7  # so are rows whose label fewer of the models predict
OUTSIDE_THRESHOLD = 0.5  # and rows whose set misses the truth with at least this probability
MIN_UNANIMOUS_VOTES = 2  # that keep a class from being lost
LEAD_KEPT = 0.99  # of what would make a label as probable as the one that all votes name, so that the label stays the most probable one


class ResolvedRows(NamedTuple):
    """The label of every row, and the evidence for it."""

    label: IntArray  # [n]
    distribution: NDArray[np.float32]  # [n, c] probabilities: shares within the original set, zero outside it
    probability: NDArray[np.float32]  # [n] of the label
    margin: NDArray[np.float32]  # [n] its lead over the next label of the original set
    agreement: NDArray[np.float32]  # [n] share of the models that name it
    kept: BoolArray  # [n, c] candidates that were not removed
    outside: IntArray  # [n] a label outside the set that the row seems to have; -1: none
    ask: BoolArray  # [n] whether a person should review the row


def resolve_labels(data: Dataset, predictions: Predictions, allowed: BoolArray, trust: float = 1.0) -> ResolvedRows:
    """Choose the label of each row among the allowed ones [n, c]; probabilities are shares within the original set.

    `trust` in the learners is that of `oneof.ensemble.predictable_sets`; at 0 all labels of a set would be equally probable.
    """
    original = data.candidates.mask
    n, c = original.shape
    rows = np.arange(n)
    scores = predictions.mean
    if data.votes is not None:
        scores = combine_with_votes(data.votes, predictions, original)

    shares = np.where(original, scores + np.float32(1e-12), np.float32(0))
    shares /= shares.sum(1, keepdims=True)
    label = np.where(allowed, shares, -1).argmax(1)
    if data.votes is not None and data.votes.counts is not None:
        shares, label = respect_unanimous_votes(shares, label, allowed, data.votes.counts, data.votes.vote_accuracy)
    if trust < 1:
        by_chance = original / original.sum(1, keepdims=True)
        shares = (trust * shares + (1 - trust) * by_chance).astype(np.float32)

    probability = shares[rows, label]
    agreement = predictions.top_share[rows, label]
    is_label = np.arange(c) == label[:, None]
    margin = probability - np.where(is_label, 0, shares).max(1)

    missing: FloatArray = np.zeros(n)
    if data.votes is None:
        missing = probability_of_missing(predictions.mean, original)
    best_outside = np.where(original, 0, predictions.mean).argmax(1)
    outside = np.where(missing >= OUTSIDE_THRESHOLD, best_outside, -1)
    is_doubtful = (margin < MIN_MARGIN) | ((agreement < MIN_AGREEMENT) & data.observed)
    ask = (is_doubtful & (original.sum(1) > 1)) | (outside >= 0)
    if data.votes is not None and data.votes.counts is not None:
        has_votes = data.votes.counts.sum(1) > 0
        ask |= ~has_votes & (~data.observed | is_against_features(data.votes, label, probability))
    return ResolvedRows(label, shares, probability, margin, agreement, allowed, outside, ask)


def is_against_features(votes: VoteEvidence, label: IntArray, probability: FloatArray) -> BoolArray:
    """Return where features speak against the label of a row without votes: it has less than the prior of such rows, and is only frequent."""
    if votes.posterior is None:
        return np.zeros(len(label), dtype=bool)
    prior = votes.posterior[np.arange(len(label)), label]
    return np.asarray(probability < prior - 1e-3)


def allowed_labels(data: Dataset, learners: Sequence[FittedLearner], training_sets: BoolArray) -> BoolArray:
    """Return the labels [n, c] that neither networks nor reviewers removed; all candidates where that leaves none."""
    original = data.candidates.mask
    trained = [learner.training for learner in learners if learner.training is not None]
    kept = sets_after_purification(trained, training_sets) if trained else original
    allowed = kept & data.reviewed_sets
    return np.where(allowed.any(1, keepdims=True), allowed, original)


def sets_after_purification(trained: Sequence[Fit], sets: BoolArray) -> BoolArray:
    """Return the sets [n, c] without labels that every network trained on the row removed.

    Rows that no network was trained on keep their sets.
    """
    kept = np.zeros_like(sets)
    for fitted in trained:
        for rows, own_sets in zip(fitted.rows.cpu().numpy(), fitted.candidates.cpu().numpy(), strict=True):
            kept[rows] |= own_sets
    return np.where(kept.any(1, keepdims=True), kept, sets)


def combine_with_votes(votes: VoteEvidence, predictions: Predictions, candidates: BoolArray) -> NDArray[np.float32]:
    """Return what votes, counts or probabilities and the learners' probabilities say together, [n, c]."""
    if votes.held_out is not None:
        return combine_votes(votes, predictions)
    return combine_prior(votes.likelihood, predictions.mean, candidates, predictions.held_out).astype(np.float32)


def respect_unanimous_votes(
    shares: NDArray[np.float32], label: IntArray, allowed: BoolArray, counts: NDArray[Any], vote_accuracy: float
) -> tuple[NDArray[np.float32], IntArray]:
    """Return probabilities [n, c] and labels [n] that do not contradict unanimous votes (`counts` [n, c]) with too much confidence.

    A label against k unanimous votes is at most as probable as that k votes are right, vote_accuracy ** k, or as the label voted for. A class that would be the
    label of no row is given to the rows where MIN_UNANIMOUS_VOTES or more votes agree on it.
    """
    rows = np.arange(len(shares))
    voted_label = counts.argmax(1)
    n_votes = counts.sum(1)
    is_unanimous = ((counts > 0).sum(1) == 1) & allowed[rows, voted_label]
    is_lost = np.bincount(label, minlength=shares.shape[1]) == 0
    is_restored = is_unanimous & is_lost[voted_label] & (n_votes >= MIN_UNANIMOUS_VOTES)
    label = np.where(is_restored, voted_label, label)

    voted_probability = shares[rows, voted_label]
    label_probability = shares[rows, label]
    min_voted_probability = np.where(is_restored, 0.5, 1 - vote_accuracy**n_votes)
    moved_share = np.maximum(min_voted_probability - voted_probability, 0) / np.maximum(1 - voted_probability, 1e-12)
    lead = np.maximum(label_probability - voted_probability, 0)
    until_nearly_equal = LEAD_KEPT * lead / (1 + lead)
    moved_share = np.where(is_restored, moved_share, np.minimum(moved_share, until_nearly_equal))
    is_contradicted = is_unanimous & (is_restored | (label != voted_label))
    moved_share = np.where(is_contradicted, moved_share, 0)[:, None]
    is_voted = np.arange(shares.shape[1]) == voted_label[:, None]
    moved = (1 - moved_share) * shares + moved_share * is_voted
    return np.asarray(moved, dtype=np.float32), label
