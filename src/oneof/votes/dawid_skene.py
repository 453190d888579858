"""Dawid-Skene: the true labels and the annotators' confusions at once, by EM (Dawid and Skene, 1979)."""

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from oneof.votes.ballots import Floats, Integers, Votes, refuse_without_room


class Fitted(NamedTuple):
    posterior: Floats  # [n, c]
    rounds: int
    settled: bool  # did the last round move less than `tolerance` of an item's mass, on average?


def dawid_skene(votes: Votes, *, smoothing: float = 0.01, tolerance: float = 1e-5, rounds: int = 200) -> Fitted:
    r"""Posterior of the true label of every item, given all votes.

        prior_j      = (sum_i T_ij + s) / (n + c s)
        pi_a(j -> l) = (sum_i w_ial T_ij + s) / (sum_l sum_i w_ial T_ij + c s)
        T_ij    proportional to   prior_j prod_{a, l} pi_a(j -> l) ^ w_ial

    T [n, c] starts as the shares of the votes. A vote weighs w = confidence / labels in its answer, so that a vague answer
    weighs as much as a plain one. The smoothing s, which the paper does not have, keeps an annotator of few votes from being certain.
    Nothing is random. Only pairs (annotator, label) that occur are stored: memory grows with n c and with those pairs times c.
    """
    by_label, by_annotator, _ = ballots(votes)
    n, c, q = len(votes.items), len(votes.labels), by_label.shape[1]
    refuse_without_room(votes, 8 * c * max(3 * n, 2 * n + q))  # three tables at the ends, the confusions in a round
    posterior, done, settled = shares(votes, smoothing), 0, False
    while done < rounds and not settled:  # in logs, in the same memory; pi's denominator is summed per annotator
        logits: Floats = by_label @ _log(by_label.T @ posterior, smoothing)
        logits -= by_annotator @ _log(by_annotator.T @ posterior, c * smoothing)
        logits += np.log((posterior.sum(0) + smoothing) / (n + c * smoothing))
        logits -= logits.max(1, keepdims=True)
        np.exp(logits, out=logits)
        logits /= logits.sum(1, keepdims=True)
        posterior -= logits
        settled = bool(np.abs(posterior, out=posterior).sum() / (2 * n) <= tolerance)
        posterior, done = logits, done + 1
    return Fitted(posterior, done, settled)


def ballots(votes: Votes) -> tuple[Any, Any, Integers]:
    """Weights of the votes as sparse matrices, [n, q] over pairs (annotator, label) that occur, [n, a] over annotators."""
    # The pairs themselves come with them: annotator * c + label [q], ascending.
    n, c, weight = len(votes.items), len(votes.labels), votes.share
    pair, column = np.unique(votes.annotator * c + votes.label, return_inverse=True)
    by_label = csr_array((weight, (votes.item, column)), shape=(n, len(pair)))
    return by_label, csr_array((weight, (votes.item, votes.annotator)), shape=(n, len(votes.annotators))), pair


def shares(votes: Votes, smoothing: float) -> Floats:
    """Shares of the votes [n, c], where every label has so many votes beforehand."""
    count = vote_counts(votes)
    shares: Floats = (count + smoothing) / (count + smoothing).sum(1, keepdims=True)
    return shares


def vote_counts(votes: Votes) -> Floats:
    """Return the weight of all votes for each label of each item, [n, c]."""
    n, c = len(votes.items), len(votes.labels)
    counts = np.bincount(votes.item * c + votes.label, weights=votes.share, minlength=n * c)
    return counts.astype(np.float64).reshape(n, c)


def _log(counts: Floats, smoothing: float) -> Floats:
    counts += smoothing
    return np.log(counts, out=counts)
