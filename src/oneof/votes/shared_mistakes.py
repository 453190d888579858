r"""Estimate true labels from votes and from predictions by features, where annotators may make the same mistake on an item.

Given the true label of an item, its votes are not independent: what misleads one annotator misleads the next. Votes alone hardly show this, since
annotators who err together are as predictable as annotators who are right together. Predictions from features that were made without an item's
votes can: if they differ from the votes more often than such annotators would err *alone*, annotators share mistakes. So the annotators, the
shared mistakes and the power of the predictions are estimated together, by the likelihood of the votes given the features:

    P(true label j of item i)  ~  q_ij^b L_ij
    L_ij = (1 - h) prod_a pi_a(j -> l_ia)  +  h sum_m C(j -> m) prod_a [s 1(l_ia = m) + (1 - s) pi_a(j -> l_ia)]

q are the predictions, b is their power, pi_a the confusion matrix of annotator a, and l_ia the annotator's vote. An item is misleading with
probability h: it then looks like the label m to everybody, and each annotator is fooled with probability s.

EM computes L relative to its first term, in which nobody is fooled:

    L_ij = (1 - h) prod_a pi_a(j -> l_ia)  [1 + sum_m C(j -> m) r_ijm]
    r_ijm = h / (1 - h)  prod_a (1 - s)  prod_{a: l_ia = m} 1 / (1 - f_a(j -> m)),         f = s / (s + (1 - s) pi)

f is the probability that a vote for m on an item that looks like m is by an annotator who was fooled.
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
MAX_SCORED_ITEMS = 5000  # items on which predictions and powers are compared
MIN_PREDICTION = 1e-4  # smallest probability of a label, so that no predictor can rule it out
_POWER_SPREAD = 0.5  # standard deviation of log b around 0 in its prior
_LIKELIHOOD_POWER = 0.3  # of the likelihood that weights the values of b: the model is only approximately true
_MIN_WEIGHT = 0.01  # predictions with a smaller weight are left out of the mean
_PSEUDO_MISTAKES = 10.0  # mistakes by which C is shrunk to the labels that all classes are mistaken for
_MAX_LOG_RATIO = 600.0  # of likelihoods, so that sums stay finite
_TOLERANCE = 1e-4  # of the log-likelihood per item
_ROUNDS = 40


class SharedMistakes(NamedTuple):
    """Result of `fit_shared_mistakes`."""

    posterior: Floats  # [n, c] of the true labels, averaged over predictions and their powers
    log_likelihood: Floats  # [n, c] log L
    weights: Floats  # [predictions, powers] of the average; they sum to 1
    misleading: float  # h, the share of items that are misleading
    fooled: float  # s, the share of annotators whom such an item fools


class SharedMistakesModel(NamedTuple):
    """Votes on rows and predictions from their features, ready to be combined with further predictions."""

    votes: Votes
    row: Integers  # [items] row of each item, -1 for none
    predictions: list[Floats]  # [items, c] each, by models that did not see the item's votes
    start: Floats  # [items, c] probabilities of the true labels by votes alone
    annotators: Annotators
    fixed: Floats  # [items, c] log-likelihood of the votes by rules, and of their abstention
    columns: Sequence[int]  # of the votes' labels among the classes of the rows

    def posterior(self, predictions: Sequence[NDArray[Any]]) -> Floats:
        """Return the probabilities of the labels of all rows [n, c], given further predictions [n, c]; NaN without votes."""
        n, c = predictions[0].shape
        items = np.flatnonzero(self.row >= 0)
        rows = self.row[items]
        of_items = [probabilities[items] for probabilities in self.predictions]
        for probabilities in predictions:
            in_labels = probabilities[rows][:, list(self.columns)] + 1e-12
            of_items.append(in_labels / in_labels.sum(1, keepdims=True))
        votes = self.votes.of_items(items)
        fitted = fit_shared_mistakes(votes, of_items, self.start[items], self.annotators, self.fixed[items])
        result = np.full((n, c), np.nan)
        result[rows] = scatter_columns(fitted.posterior, self.columns, c, 0.0)
        return result

    def with_classes(self, columns: Sequence[int]) -> SharedMistakesModel:
        """Return the same over more classes, of which these columns could be voted for."""
        return self._replace(columns=columns)


def log_likelihood_of_rules(votes: Votes, fitted: AnnotatorFit) -> Floats:
    """Return the log-likelihood [n, c] of the votes by annotators who only ever give one label, and of their abstention."""
    by_rule = np.flatnonzero(fitted.confusions.is_rule[votes.annotator])
    logs = np.tile(fitted.abstention, (len(votes.items), 1))
    rule_logs = fitted.logs_of_votes(votes.annotator[by_rule], votes.label[by_rule])
    np.add.at(logs, votes.item[by_rule], votes.share[by_rule, None] * rule_logs)
    return logs


def fit_shared_mistakes(
    votes: Votes, predictions: Sequence[Floats], start: Floats, annotators: Annotators, fixed: Floats | float = 0.0
) -> SharedMistakes:
    """Fit annotators, shared mistakes, and the weights and powers of predictions.

    Parameters
    ----------
    votes
        Votes on n items with c labels. Votes of rules, if there are any, are in `fixed` instead.
    predictions
        Probabilities [n, c] from features, each by models that did not see the item's votes. The votes decide their weights.
    start
        Probabilities [n, c] of the true labels from which EM starts.
    annotators
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
    n = len(start)
    matrices = _matrices_of(votes)
    powered = _raise_to_powers(predictions)
    sample = np.random.default_rng(0).permutation(n)[:MAX_SCORED_ITEMS]
    sample_priors = [prediction.log_prior(sample) for prediction in powered]

    parameters = _first_parameters(matrices, start, annotators)
    previous = -np.inf
    for _ in range(_ROUNDS):
        likelihood = _likelihood(matrices, parameters, fixed)
        scores = _log_evidence(likelihood.log[sample], sample_priors)
        best = int(scores.argmax())
        if abs(scores[best] - previous) <= _TOLERANCE * len(sample):
            break
        previous = scores[best]
        posterior = powered[best].posterior(likelihood.log)
        parameters = _maximise(matrices, likelihood, posterior, annotators)

    weights = _weights_of_predictions(scores, len(predictions))
    mean_posterior = np.zeros_like(start)
    for weight, prediction in zip(weights.ravel(), powered, strict=True):
        if weight > 0:
            mean_posterior += weight * prediction.posterior(likelihood.log)
    return SharedMistakes(mean_posterior, likelihood.log, weights, parameters.misleading, parameters.fooled)


class _Matrices(NamedTuple):
    """Votes on n items as sparse matrices, over q pairs (annotator, label) and k named labels, the pairs (item, label) that occur."""

    n_annotators: int
    pair: Integers  # [q] annotator * c + label
    by_pair: Any  # [n, q] weights of the votes
    n_votes: Floats  # [n] their sums
    named_item: Integers  # [k]
    named_label: Integers  # [k] what the item may look like to several annotators: the m of r_ijm
    votes_for_named: Any  # [k, q] weights of the votes
    named_of_item: Any  # [n, k] ones


def _matrices_of(votes: Votes) -> _Matrices:
    """Build the sparse matrices of votes."""
    n = len(votes.items)
    c = len(votes.labels)
    by_pair, _, pair = vote_matrices(votes)
    named, named_of_vote = np.unique(votes.item * c + votes.label, return_inverse=True)
    named_item, named_label = np.divmod(named, c)
    k = len(named)
    pair_of_vote = np.searchsorted(pair, votes.annotator * c + votes.label)
    return _Matrices(
        n_annotators=len(votes.annotators),
        pair=pair,
        by_pair=by_pair,
        n_votes=np.asarray(by_pair.sum(1)).ravel(),
        named_item=named_item,
        named_label=named_label,
        votes_for_named=csr_array((votes.share, (named_of_vote, pair_of_vote)), shape=(k, len(pair))),
        named_of_item=csr_array((np.ones(k), (named_item, np.arange(k))), shape=(n, k)),
    )


class _Parameters(NamedTuple):
    """What EM estimates, in the symbols of the module."""

    pi: Floats  # [q, c] probability of the pair's label under each true label, by an annotator who is not fooled
    misleading: float  # h
    fooled: float  # s
    mistaken_for: Floats  # [c, c] C

    @property
    def fooled_given_vote(self) -> Floats:
        """Return f [q, c], the probability that a vote for what the item looks like is by an annotator who was fooled."""
        return self.fooled / (self.fooled + (1 - self.fooled) * self.pi)


def _first_parameters(matrices: _Matrices, start: Floats, annotators: Annotators) -> _Parameters:
    """Return the parameters from which EM starts: all votes are the annotators' own."""
    c = start.shape[1]
    mistaken_for = (1 - np.eye(c)) / max(c - 1, 1)
    pi = _vote_probabilities(matrices, matrices.by_pair.T @ start, annotators)
    return _Parameters(pi, misleading=0.2, fooled=0.5, mistaken_for=mistaken_for)


def _vote_probabilities(matrices: _Matrices, own_votes: Floats, annotators: Annotators) -> Floats:
    """Return pi [q, c] from the expected votes [q, c] of annotators who were not fooled, under each true label."""
    confusions = estimate_confusions(matrices.n_annotators, matrices.pair, own_votes, annotators)
    annotator, label = np.divmod(matrices.pair, own_votes.shape[1])
    return confusions.of(annotator, label)


class _Likelihood(NamedTuple):
    """The likelihood of each item's votes under each true label, and the terms of its sum over m, relative to the first."""

    log: Floats  # [n, c] log L
    total: Floats  # [n, c] 1 + sum_m C r
    of_named: Floats  # [k, c] C r
    fooled_given_vote: Floats  # [q, c] f


def _likelihood(matrices: _Matrices, parameters: _Parameters, fixed: Floats | float) -> _Likelihood:
    """Compute L, to which `fixed` is added in logs: the first half of the E-step."""
    fooled_given_vote = parameters.fooled_given_vote
    log_odds = np.log(parameters.misleading) - np.log1p(-parameters.misleading)
    log_nobody_fooled = log_odds + matrices.n_votes * np.log1p(-parameters.fooled)  # log r of labels that nobody named
    votes_for_it = matrices.votes_for_named @ -np.log1p(-fooled_given_vote)
    log_ratio = np.minimum(log_nobody_fooled[matrices.named_item, None] + votes_for_it, _MAX_LOG_RATIO)
    named_probability = parameters.mistaken_for[:, matrices.named_label].T  # [k, c]
    unnamed_probability = np.maximum(1 - matrices.named_of_item @ named_probability, 0)

    of_named = named_probability * np.exp(log_ratio)
    of_unnamed = unnamed_probability * np.exp(log_nobody_fooled)[:, None]
    total = 1 + of_unnamed + matrices.named_of_item @ of_named
    log_alone = matrices.by_pair @ np.log(parameters.pi)
    log_likelihood = fixed + log_alone + np.log1p(-parameters.misleading) + np.log(total)
    return _Likelihood(log_likelihood, total, of_named, fooled_given_vote)


def _maximise(matrices: _Matrices, likelihood: _Likelihood, posterior: Floats, annotators: Annotators) -> _Parameters:
    """Re-estimate the parameters from the posterior [n, c] of the true labels: the M-step."""
    misled_items = (posterior * (1 - 1 / likelihood.total)).sum(1)  # [n] expected, as are the next three
    item = matrices.named_item
    misled_to_named = posterior[item] * likelihood.of_named / likelihood.total[item]  # [k, c]
    fooled_votes = likelihood.fooled_given_vote * (matrices.votes_for_named.T @ misled_to_named)  # [q, c]
    own_votes = matrices.by_pair.T @ posterior - fooled_votes

    misleading = (misled_items.sum() + 1) / (len(posterior) + 5)
    fooled = (fooled_votes.sum() + 1) / (matrices.n_votes @ misled_items + 2)
    return _Parameters(
        pi=_vote_probabilities(matrices, own_votes, annotators),
        misleading=float(np.clip(misleading, 1e-3, 0.9)),
        fooled=float(np.clip(fooled, 0.01, 0.95)),
        mistaken_for=_mistaken_for(matrices.named_label, misled_to_named),
    )


def _mistaken_for(named_label: Integers, misled_to_named: Floats) -> Floats:
    """Return C(j -> m) [true, m] from the expected number of items of each true label that look like a named one, [k, true]."""
    c = misled_to_named.shape[1]
    counts = np.zeros((c, c))  # [m, true]
    np.add.at(counts, named_label, misled_to_named)
    counts = counts.T
    of_all_classes = np.tile(counts.sum(0) + 1, (c, 1))
    np.fill_diagonal(of_all_classes, 0.0)
    of_all_classes /= np.maximum(of_all_classes.sum(1, keepdims=True), 1e-12)
    np.fill_diagonal(counts, 0.0)
    smoothed = counts + _PSEUDO_MISTAKES * of_all_classes
    return np.asarray(smoothed / np.maximum(smoothed.sum(1, keepdims=True), 1e-12))


class _PoweredPrediction(NamedTuple):
    """Predictions raised to a power, q^b."""

    log: Floats  # [n, c] log q
    power: float  # b

    def log_prior(self, items: Integers | slice = slice(None)) -> Floats:
        """Return log q^b of some items, or of all, normalised."""
        return np.asarray(log_softmax(self.power * self.log[items], axis=1))

    def posterior(self, log_likelihood: Floats) -> Floats:
        """Return the probabilities [n, c] of the true labels."""
        return np.asarray(softmax(log_likelihood + self.log_prior(), axis=1))


def _raise_to_powers(predictions: Sequence[Floats]) -> list[_PoweredPrediction]:
    """Return every prediction with every power."""
    powered = []
    for probabilities in predictions:
        logs = np.log(np.maximum(probabilities, MIN_PREDICTION))
        for power in POWERS:
            powered.append(_PoweredPrediction(logs, power))
    return powered


def _log_evidence(log_likelihood: Floats, log_priors: Sequence[Floats]) -> Floats:
    """Return the log-likelihood of all votes under each prior, from tables [items, c] in logs."""
    return np.array([logsumexp(log_likelihood + log_prior, axis=1).sum() for log_prior in log_priors])


def _weights_of_predictions(scores: Floats, n_predictions: int) -> Floats:
    """Return the weights [predictions, powers] by the log-likelihood of the votes under each, and a prior of the powers."""
    log_powers = np.log(np.maximum(POWERS, POWERS[1]))  # the power 0 is as probable as the smallest other
    log_prior = -0.5 * (log_powers / _POWER_SPREAD) ** 2
    weights = softmax(_LIKELIHOOD_POWER * scores + np.tile(log_prior, n_predictions))
    weights[weights < min(_MIN_WEIGHT, weights.max())] = 0.0
    weights /= weights.sum()
    return np.asarray(weights.reshape(n_predictions, len(POWERS)))
