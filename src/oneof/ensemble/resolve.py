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

from oneof.data.dataset import Dataset, VoteEvidence
from oneof.ensemble.combine_prior import combine_prior
from oneof.ensemble.noisy_sets import probability_of_missing
from oneof.ensemble.stacking import combine_within_sets
from oneof.learners.base import BoolArray, FittedLearner, FloatArray, IntArray, Predictions
from oneof.training.state import Fit

POWERS = (1.0, 0.7, 0.5, 0.2, 0.0, 1.5)  # of predictions that are combined with votes
MIN_MARGIN = 0.3  # a row is to be reviewed if its label leads the next candidate by less,
MIN_AGREEMENT = 0.7  # if fewer of the models name it,
OUTSIDE_THRESHOLD = 0.5  # or if its set misses the truth with at least this probability
MIN_UNANIMOUS_VOTES = 2  # that keep a class from being lost


class Resolved(NamedTuple):
    """The label of every row, and the evidence for it."""

    label: IntArray  # [n]
    distribution: NDArray[np.float32]  # [n, c] probabilities: shares within the original set, zero outside it
    probability: NDArray[np.float32]  # [n] of the label
    margin: NDArray[np.float32]  # [n] its lead over the next label of the original set
    agreement: NDArray[np.float32]  # [n] share of the models that name it
    kept: BoolArray  # [n, c]
    outside: IntArray  # [n] a label outside the set that the row seems to have; -1: none
    ask: BoolArray  # [n] whether a person should review the row


def soft_labels(
    data: Dataset, sets: BoolArray, by_networks: Sequence[FittedLearner], by_kernel: FloatArray | None
) -> FloatArray:
    """Return how probable each label of each row is, [n, c], as targets for learners that need one label per row.

    With a prior it alone decides, since through other rows' labels a row's prior would reach its own out-of-fold predictions.
    """
    if data.has_prior:
        return combine_within_sets(sets, [], data.prior + 1e-9)
    if by_kernel is not None and not by_networks:
        return by_kernel
    shares = combine_within_sets(sets, [learner.oof.mean for learner in by_networks])
    if by_kernel is None:
        return shares
    return np.asarray((shares + by_kernel) / 2)


def resolve_labels(data: Dataset, predictions: Predictions, allowed: BoolArray) -> Resolved:
    """Choose the label of each row among the allowed ones [n, c]; probabilities are shares within the original set."""
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
    probability = shares[rows, label]
    agreement = predictions.top_share[rows, label]
    is_label = np.arange(c) == label[:, None]
    margin = probability - np.where(is_label, 0, shares).max(1)
    missing: FloatArray = np.zeros(n)
    if data.votes is None:
        missing = probability_of_missing(predictions.mean, original)
    best_outside = np.where(original, 0, predictions.mean).argmax(1)
    outside = np.where(missing >= OUTSIDE_THRESHOLD, best_outside, -1)
    is_doubtful = (margin < MIN_MARGIN) | (agreement < MIN_AGREEMENT)
    ask = (is_doubtful & (original.sum(1) > 1)) | (outside >= 0)
    return Resolved(label, shares, probability, margin, agreement, allowed, outside, ask)


def allowed_labels(data: Dataset, learners: Sequence[FittedLearner], training_sets: BoolArray) -> BoolArray:
    """Return the labels [n, c] that neither networks nor reviewers removed; all candidates where that leaves none."""
    original = data.candidates.mask
    trained = [learner.training for learner in learners if learner.training is not None]
    kept = sets_after_purification(trained, training_sets) if trained else original
    allowed = kept & data.reviewed
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
    """Return the likelihood of the votes combined with the learners' probabilities, [n, c], as far as held-out evidence supports these.

    With single votes: likelihood x prediction^power, where the prediction is the learners', that by the votes on other rows, or their mean, which
    errs less than either; held-out votes choose. With power 0 the votes decide alone. Counts and probabilities are weighted by
    `oneof.ensemble.combine_prior`.
    """
    by_learners = predictions.mean
    if votes.held_out is None:
        return combine_prior(votes.likelihood, by_learners, candidates, predictions.held_out).astype(np.float32)
    by_neighbours: FloatArray = by_learners
    if votes.neighbours is not None:
        by_neighbours = np.where(np.isnan(votes.neighbours), by_learners, votes.neighbours)
    mean = (by_learners + by_neighbours) / 2
    choices = []
    for prediction in (mean, by_learners, by_neighbours):
        logs = np.log(np.maximum(prediction, 1e-12))
        choices += [power * logs for power in POWERS]
    best = max(choices, key=votes.held_out.score)
    return np.asarray(np.exp(best) * votes.likelihood, dtype=np.float32)


def respect_unanimous_votes(
    shares: NDArray[np.float32], label: IntArray, allowed: BoolArray, counts: NDArray[Any], vote_accuracy: float
) -> tuple[NDArray[np.float32], IntArray]:
    """Return probabilities [n, c] and labels [n] that do not contradict unanimous votes (`counts` [n, c]) with too much confidence.

    A label that contradicts all k votes on its row is at most as probable as that k votes are wrong, or as the label that they name.
    And a class that two or more unanimous votes name somewhere is not lost: where no row has it, those rows get it.
    """
    rows = np.arange(len(shares))
    named = counts.argmax(1)
    n_votes = counts.sum(1)
    is_unanimous = ((counts > 0).sum(1) == 1) & allowed[rows, named]
    is_lost = np.bincount(label, minlength=shares.shape[1]) == 0
    gets_back = is_unanimous & is_lost[named] & (n_votes >= MIN_UNANIMOUS_VOTES)
    label = np.where(gets_back, named, label)

    of_named = shares[rows, named]
    of_label = shares[rows, label]
    least = np.where(gets_back, 0.5, 1 - vote_accuracy**n_votes)  # probability of the label that the votes name
    moved = np.maximum(least - of_named, 0) / np.maximum(1 - of_named, 1e-12)
    until_equal = np.maximum(of_label - of_named, 0) / (1 + np.maximum(of_label - of_named, 0))
    moved = np.where(gets_back, moved, np.minimum(moved, until_equal))
    moved = np.where(is_unanimous & (gets_back | (label != named)), moved, 0)[:, None]
    is_named = np.arange(shares.shape[1]) == named[:, None]
    return np.asarray((1 - moved) * shares + moved * is_named, dtype=np.float32), label
