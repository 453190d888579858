"""Estimate true labels and annotators' confusion matrices jointly by EM (Dawid and Skene, 1979)."""

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from oneof.votes.ballots import Floats, Integers, Votes, check_table_memory


class Fitted(NamedTuple):
    """Result of `dawid_skene`."""

    posterior: Floats  # [n, c]
    rounds: int
    converged: bool  # the last round moved at most `tolerance` of an item's mass, on average


def dawid_skene(votes: Votes, *, smoothing: float = 0.01, tolerance: float = 1e-5, rounds: int = 200) -> Fitted:
    r"""Compute the posterior of the true label of every item, given all votes.

        prior_j      = (sum_i T_ij + s) / (n + c s)
        pi_a(j -> l) = (sum_i w_ial T_ij + s) / (sum_l sum_i w_ial T_ij + c s)
        T_ij    proportional to   prior_j prod_{a, l} pi_a(j -> l) ^ w_ial

    T [n, c] starts as the vote shares. A vote has the weight w = confidence / labels in its answer, so that a vague answer
    counts as much as a single label. The smoothing s, which the paper does not have, keeps annotators of few votes from extreme
    probabilities. The result is deterministic. Only pairs (annotator, label) that occur are stored: memory grows with n c and with
    those pairs times c.

    Parameters
    ----------
    votes
        m votes on n items with c labels.
    smoothing
        Pseudocount s of every label.
    tolerance
        Stop when a round moves at most this much of an item's mass, on average.
    rounds
        Maximum number of EM rounds.

    Returns
    -------
    Fitted
        The posterior [n, c], the number of rounds, and whether EM converged.
    """
    by_pair, by_annotator, _ = vote_matrices(votes)
    n = len(votes.items)
    c = len(votes.labels)
    n_pairs = by_pair.shape[1]
    # Three tables [n, c] before and after a round; two of them and the confusions [q, c] within one.
    check_table_memory(votes, 8 * c * max(3 * n, 2 * n + n_pairs))
    posterior = shares(votes, smoothing)
    n_rounds = 0
    converged = False
    while n_rounds < rounds and not converged:
        # All in logs, and in place to save memory. The denominator of pi is summed per annotator.
        logits: Floats = by_pair @ _log_smoothed(by_pair.T @ posterior, smoothing)
        logits -= by_annotator @ _log_smoothed(by_annotator.T @ posterior, c * smoothing)
        logits += np.log((posterior.sum(0) + smoothing) / (n + c * smoothing))
        logits -= logits.max(1, keepdims=True)
        np.exp(logits, out=logits)
        logits /= logits.sum(1, keepdims=True)

        posterior -= logits
        np.abs(posterior, out=posterior)
        converged = bool(posterior.sum() / (2 * n) <= tolerance)
        posterior = logits
        n_rounds += 1
    return Fitted(posterior, n_rounds, converged)


def vote_matrices(votes: Votes) -> tuple[Any, Any, Integers]:
    """Return the weights of the votes as sparse matrices.

    Returns
    -------
    by_pair
        Sparse array [n, q] over the pairs (annotator, label) that occur.
    by_annotator
        Sparse array [n, a] over the annotators.
    pair
        The pairs themselves as annotator * c + label [q], ascending.
    """
    n = len(votes.items)
    weight = votes.share
    pair, column = np.unique(votes.annotator * len(votes.labels) + votes.label, return_inverse=True)
    by_pair = csr_array((weight, (votes.item, column)), shape=(n, len(pair)))
    by_annotator = csr_array((weight, (votes.item, votes.annotator)), shape=(n, len(votes.annotators)))
    return by_pair, by_annotator, pair


def shares(votes: Votes, smoothing: float) -> Floats:
    """Return the share of each label in an item's votes [n, c], with `smoothing` added to every count."""
    counts = vote_counts(votes)
    shares: Floats = (counts + smoothing) / (counts + smoothing).sum(1, keepdims=True)
    return shares


def vote_counts(votes: Votes) -> Floats:
    """Return the total weight of the votes for each label of each item [n, c]."""
    n = len(votes.items)
    c = len(votes.labels)
    counts = np.bincount(votes.item * c + votes.label, weights=votes.share, minlength=n * c)
    return counts.astype(np.float64).reshape(n, c)


def _log_smoothed(counts: Floats, smoothing: float) -> Floats:
    """Replace the counts, in place, by the logs of the smoothed counts."""
    counts += smoothing
    return np.log(counts, out=counts)
