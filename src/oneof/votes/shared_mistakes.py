r"""Estimate true labels from votes beside predictions from features, where annotators may share a mistake on an item.

Given its true label, votes on an item are not independent: what misleads one annotator misleads the next. Votes alone hardly show it, since
annotators who err together are as predictable as annotators who are right together. Features are a second witness: where predictions that were
made without an item's votes differ from these more often than annotators of their care would err *alone*, the votes share mistakes. So
annotators, shared mistakes and the power of the predictions are estimated together, by the likelihood of the votes given the features:

    P(true label j of item i)  ~  q_ij^b L_ij
    L_ij = (1 - h) prod_a pi_a(j -> l_ia)  +  h sum_m C(j -> m) prod_a [s 1(l_ia = m) + (1 - s) pi_a(j -> l_ia)]

q are the predictions, b their power, pi_a the confusion matrix of annotator a, l_ia the annotator's vote. An item misleads with probability h: it looks like the
label m to all annotators, each of whom falls for it with probability s.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import log_softmax, logsumexp, softmax

from oneof.data.dataset import scatter_columns
from oneof.votes.annotators import AnnotatorFit, Annotators, estimate_confusions
from oneof.votes.ballots import Floats, Integers, Votes
from oneof.votes.dawid_skene import vote_matrices

POWERS = (0.0, 0.2, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0)  # b
SAMPLE = 5000  # items by which predictions and powers are weighed
MIN_PREDICTION = 1e-4  # smallest probability of a label, so that no predictor can rule it out
_POWER_SPREAD = 0.5  # standard deviation of log b, around 0, before the votes are seen
_RATE = 0.3  # power of the likelihood by which values of b are weighed: the model is not the truth
_MIN_WEIGHT = 0.01  # predictions to a power with less are left out of the mean
_PSEUDO_MISTAKES = 10.0  # by which the labels that a class is mistaken for are shrunk to those of all classes
_MAX_LOG_RATIO = 600.0  # of likelihoods, so that sums stay finite
_TOLERANCE = 1e-4  # of the log-likelihood per item
_ROUNDS = 40


class SharedMistakes(NamedTuple):
    """Result of `fit_shared_mistakes`."""

    posterior: Floats  # [n, c] of the true labels, a mean over predictions and their powers
    log_likelihood: Floats  # [n, c] log L
    weights: Floats  # [predictions, powers] by which they are averaged; the sum is 1
    misleading: float  # h
    falling: float  # s


class VotesBesideFeatures(NamedTuple):
    """Votes on rows, with predictions from the features of the rows and what else is needed to combine both."""

    votes: Votes
    row: Integers  # [items] row of each item, -1 for none
    predictions: list[Floats]  # [items, c] each, by models that did not see the item's votes
    start: Floats  # [items, c] probabilities of the true labels by votes alone
    model: Annotators
    fixed: Floats  # [items, c] log-likelihood of the votes by rules, and of their silence
    columns: Sequence[int]  # of the votes' labels among the classes of the rows

    def posterior(self, predictions: Sequence[NDArray[Any]]) -> Floats:
        """Return the probabilities of the labels of all rows [n, c], given further predictions [n, c]; NaN without votes."""
        n, c = predictions[0].shape
        items = np.flatnonzero(self.row >= 0)
        votes = self.votes.of_items(items)
        given = [probabilities[items] for probabilities in self.predictions]
        for probabilities in predictions:
            named = probabilities[self.row[items]][:, list(self.columns)] + 1e-12
            given.append(named / named.sum(1, keepdims=True))
        fitted = fit_shared_mistakes(votes, given, self.start[items], self.model, self.fixed[items])
        result = np.full((n, c), np.nan)
        result[self.row[items]] = scatter_columns(fitted.posterior, self.columns, c, 0.0)
        return result

    def with_classes(self, columns: Sequence[int]) -> VotesBesideFeatures:
        """Return the same over more classes, of which these columns could be voted for."""
        return self._replace(columns=columns)


def log_likelihood_of_rules(votes: Votes, fitted: AnnotatorFit) -> Floats:
    """Return the log-likelihood [n, c] of the votes by annotators who only ever give one label, and of their silence."""
    is_rule = np.flatnonzero(fitted.confusions.is_speaker[votes.annotator])
    logs = np.tile(fitted.silence, (len(votes.items), 1))
    rule_logs = fitted.logs_of_votes(votes.annotator[is_rule], votes.label[is_rule])
    np.add.at(logs, votes.item[is_rule], votes.share[is_rule, None] * rule_logs)
    return logs


def fit_shared_mistakes(
    votes: Votes, predictions: Sequence[Floats], start: Floats, model: Annotators, fixed: Floats | float = 0.0
) -> SharedMistakes:
    """Fit annotators, shared mistakes, and the weights and powers of predictions.

    Parameters
    ----------
    votes
        Votes on n items with c labels. Votes of rules, if there are any, are in `fixed` instead.
    predictions
        Probabilities [n, c] from features, each by models that did not see the item's votes. Votes weigh them against each other.
    start
        Probabilities [n, c] of the true labels from which EM starts.
    model
        Settings of the confusion matrices.
    fixed
        Log-likelihood [n, c] of what else is known about the items.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from oneof.votes import read_long
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.integers(3, size=400)
    >>> looks_like = np.where(rng.random(400) < 0.2, (truth + 1) % 3, truth)  # a fifth of the items mislead everybody
    >>> errs_alone = rng.random((400, 3)) < 0.15
    >>> named = np.where(errs_alone, rng.integers(3, size=(400, 3)), looks_like[:, None]).ravel()
    >>> item = np.repeat(np.arange(400), 3)
    >>> votes = read_long(pa.table({"item": item, "annotator": ["x", "y", "z"] * 400, "label": named.astype(str)}))
    >>> predicted = np.where(rng.random(400) < 0.05, rng.integers(3, size=400), truth)  # features mislead seldom
    >>> predictions = np.where(np.arange(3) == predicted[:, None], 0.9, 0.05)
    >>> fitted = fit_shared_mistakes(votes, [predictions], predictions, Annotators())
    >>> bool((fitted.posterior.argmax(1) == truth).mean() > (looks_like == truth).mean() + 0.1)
    True
    """
    n, c = start.shape
    by_pair, _, pair = vote_matrices(votes)
    annotator, label = np.divmod(pair, c)
    n_votes = np.asarray(by_pair.sum(1)).ravel()
    # A *look* is an item and a label that is named on it: what the item may look like to several annotators.
    look, look_of_vote = np.unique(votes.item * c + votes.label, return_inverse=True)
    look_item, look_label = np.divmod(look, c)
    pair_of_vote = np.searchsorted(pair, votes.annotator * c + votes.label)
    by_look = csr_array((votes.share, (look_of_vote, pair_of_vote)), shape=(len(look), len(pair)))
    looks_of_item = csr_array((np.ones(len(look)), (look_item, np.arange(len(look)))), shape=(n, len(look)))
    sample = np.random.default_rng(0).permutation(n)[:SAMPLE]
    log_predictions = [np.log(np.maximum(probabilities, MIN_PREDICTION)) for probabilities in predictions]
    choices = [(logs, power) for logs in log_predictions for power in POWERS]
    log_priors = [log_softmax(power * logs[sample], axis=1) for logs, power in choices]

    misleading = 0.2
    falling = 0.5
    mistaken_for = (1 - np.eye(c)) / max(c - 1, 1)
    own_votes = by_pair.T @ start  # [pairs, c] votes that are the annotators' own, under each true label
    previous = -np.inf
    for _ in range(_ROUNDS):
        confusions = estimate_confusions(len(votes.annotators), pair, own_votes, model)
        probability = confusions.of(annotator, label)  # [pairs, c]
        falls = falling / (falling + (1 - falling) * probability)
        # Likelihoods of an item that misleads, relative to one that does not: for each look, and for labels that nobody named.
        log_odds = np.log(misleading) - np.log1p(-misleading) + n_votes * np.log1p(-falling)
        step = -np.log1p(-falls)  # of a vote for what the item looks like: (s + (1 - s) pi) / ((1 - s) pi)
        to_named = mistaken_for[:, look_label].T  # [looks, c]
        log_ratio = np.minimum(log_odds[look_item, None] + by_look @ step, _MAX_LOG_RATIO)
        ratio = to_named * np.exp(log_ratio)
        to_unnamed = np.maximum(1 - looks_of_item @ to_named, 0)
        total = 1 + to_unnamed * np.exp(log_odds)[:, None] + looks_of_item @ ratio
        log_likelihood = fixed + by_pair @ np.log(probability) + np.log1p(-misleading) + np.log(total)

        scores = np.array([logsumexp(log_likelihood[sample] + log_prior, axis=1).sum() for log_prior in log_priors])
        best_logs, best_power = choices[int(scores.argmax())]
        posterior = softmax(log_likelihood + log_softmax(best_power * best_logs, axis=1), axis=1)
        if abs(scores.max() - previous) <= _TOLERANCE * len(sample):
            break
        previous = scores.max()

        misled_looks = posterior[look_item] * ratio / total[look_item]
        fallen_votes = falls * (by_look.T @ misled_looks)
        own_votes = by_pair.T @ posterior - fallen_votes
        misled_items = (posterior * (1 - 1 / total)).sum(1)
        falling = float(np.clip((fallen_votes.sum() + 1) / (n_votes @ misled_items + 2), 0.01, 0.95))
        misleading = float(np.clip((misled_items.sum() + 1) / (n + 5), 1e-3, 0.9))
        mistaken_for = _mistaken_for(look_label, misled_looks)
    log_powers = np.log(np.maximum(POWERS, POWERS[1]))  # no power is as probable as the least
    log_weights = -0.5 * (log_powers / _POWER_SPREAD) ** 2
    weights = softmax(_RATE * scores + np.tile(log_weights, len(predictions)))
    weights[weights < min(_MIN_WEIGHT, weights.max())] = 0.0
    weights /= weights.sum()
    mean_posterior = np.zeros((n, c))
    for weight, (logs, power) in zip(weights, choices, strict=True):
        if weight > 0:
            mean_posterior += weight * softmax(log_likelihood + log_softmax(power * logs, axis=1), axis=1)
    return SharedMistakes(
        mean_posterior, log_likelihood, weights.reshape(len(predictions), len(POWERS)), misleading, falling
    )


def _mistaken_for(look_label: Integers, misled_looks: Floats) -> Floats:
    """Return C(j -> m) [true, m], from the expected number of items that mislead by each look, [looks, true]."""
    c = misled_looks.shape[1]
    counts = np.zeros((c, c))  # [m, true]
    np.add.at(counts, look_label, misled_looks)
    counts = counts.T
    shape = np.tile(counts.sum(0) + 1, (c, 1))
    np.fill_diagonal(shape, 0.0)
    shape /= np.maximum(shape.sum(1, keepdims=True), 1e-12)
    np.fill_diagonal(counts, 0.0)
    smoothed = counts + _PSEUDO_MISTAKES * shape
    return np.asarray(smoothed / np.maximum(smoothed.sum(1, keepdims=True), 1e-12))
