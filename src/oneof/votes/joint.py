"""Combine votes with features: the votes on an item, and the labels of items with similar features.

Held-out votes select the model of annotators, and the regression on features with its inverse temperature. True labels are not used.
The result is a mean over the selected model, the plain majority, whose weight is larger the less held-out votes prefer the selected model to
it, and the model with one accuracy for each annotator, where it was compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax

from oneof.data.dataset import UNNAMED_PRIOR, scatter_columns
from oneof.votes.annotators import AnnotatorFit, Annotators, fit_annotators, vote_exponent
from oneof.votes.ballots import Floats, Integers, Votes
from oneof.votes.independence import correlation_of_errors

MAX_HELD_OUT = 10_000  # votes; where there are more, two of the five folds are enough
N_FOLDS = 5
INVERSE_TEMPERATURES = (2.0, 4.0, 8.0, 16.0, 32.0)
TOLERANCE = 1e-3  # of EM, while models are compared
# Share of the votes by annotators who only give one label, such as rules, above which the model with one accuracy for each is not tried.
MAX_ONE_LABEL_SHARE = 0.1
# Share of the votes' weight that is not on the first label of its answer, as in rankings and long lists, above which confusion matrices are not
# tried: they would explain which second choices follow a first one, rather than the true labels.
MAX_SPREAD = 0.25
MIN_ANNOTATORS = 3  # with fewer, votes do not show which annotator errs more
# Standard errors by which features, or the majority, must predict held-out votes better than what they replace.
MIN_STANDARD_ERRORS = 1.0
MIN_POSTERIOR = 1e-300
# Weight of the majority where held-out votes do not prefer the selected model to it. Annotators who make the same mistakes predict each other
# as well as annotators who are right, so that the model which predicts votes best may predict the truth worse.
_MAJORITY_WEIGHT = 0.6
_MAX_ADVANTAGE = 0.75  # of the selected model over the majority, so that the majority always counts
_ONE_COIN_WEIGHT = 0.4  # of the model with one accuracy for each annotator, where it was compared
# Share of the votes' likelihood that is left in the prior for training, which is multiplied with predictions of models that were
# trained on the row and its votes.
_TRAINING_POWER = 0.75


def folds(votes: Votes, *, seed: int = 0) -> Iterator[tuple[Votes, Votes]]:
    """Yield pairs (training votes, held-out votes) of five folds, or of two of the five where votes are many.

    Labels of one answer stay in one fold. Where there is only one answer, nothing can be held out, and no fold is yielded.
    """
    answer = votes.answer
    weight = votes.share
    n_answers = answer[-1] + 1
    fold_of_answer = np.random.default_rng(seed).permutation(n_answers) % N_FOLDS
    n_folds = N_FOLDS if len(answer) <= MAX_HELD_OUT else 2
    for fold in range(n_folds):
        held_out = fold_of_answer[answer] == fold
        if weight[held_out].sum() > 0 and not held_out.all():
            yield votes.only(~held_out), votes.only(held_out)


class HeldOutVotes(NamedTuple):
    """Held-out votes with the evidence of the other votes on the same items, to score predictions made without these votes."""

    row: Integers  # [h] rows of the predictions
    others: Floats  # [h, c] log-likelihood of the other votes on the item
    log_prior: Floats  # [h, c] log-frequencies of the classes, flattened as the votes are
    vote_probability: Floats  # [h, c] probability of the held-out vote under every true label
    weight: Floats  # [h]

    def log_probabilities(self, logs: Floats, power: float, scale: float = 1.0) -> Floats:
        r"""Return the log-probabilities of the held-out votes [h] under predictions in logs [n, c].

        That is log sum_j T_ij pi_a(j -> l), with T proportional to m^(1 - power) e^(power logs) L^scale: L is the likelihood of the other
        votes, m the class frequencies.
        """
        posterior = scale * self.others + (1 - power) * self.log_prior + power * logs[self.row]
        posterior -= posterior.max(1, keepdims=True)
        np.exp(posterior, out=posterior)
        probabilities = np.einsum("hj,hj->h", posterior, self.vote_probability) / posterior.sum(1)
        return np.asarray(np.log(np.maximum(probabilities, 1e-12)))

    def with_classes(self, columns: Sequence[int], c: int) -> HeldOutVotes:
        """Return the same over c classes, of which these columns could be voted for."""
        return self._replace(
            others=scatter_columns(self.others, columns, c, np.log(UNNAMED_PRIOR)),
            log_prior=scatter_columns(self.log_prior, columns, c, np.log(UNNAMED_PRIOR)),
            vote_probability=scatter_columns(self.vote_probability, columns, c, UNNAMED_PRIOR),
        )


def leave_answers_out(votes: Votes, fitted: AnnotatorFit, row: Integers, seed: int = 0) -> HeldOutVotes:
    """Hold out each answer in turn, using the confusions that were fitted on all votes.

    Parameters
    ----------
    votes
        m votes on n items with c labels.
    fitted
        The model that was fitted to these votes.
    row
        Row of each item [n] in the predictions to be scored, -1 for none. Votes on items without a row are not held out.
    seed
        Seed of the sample that is taken where votes are many.
    """
    answer = votes.answer
    weight = votes.share
    eligible = np.flatnonzero((row[votes.item] >= 0) & (weight > 0))
    held_out = np.sort(np.random.default_rng(seed).permutation(eligible)[:MAX_HELD_OUT])

    # Log-likelihood [answers, c] of each held-out answer, of which all labels are left out together, and its weight.
    in_answers = np.flatnonzero(np.isin(answer, answer[held_out]))
    held_out_answers, answer_index = np.unique(answer[in_answers], return_inverse=True)
    answer_logs = np.zeros((len(held_out_answers), len(votes.labels)))
    vote_logs = fitted.logs_of_votes(votes.annotator[in_answers], votes.label[in_answers])
    np.add.at(answer_logs, answer_index, weight[in_answers, None] * vote_logs)
    # The part of an answer in n_i, by which the others are flattened: none of a rule's.
    weight_in_n = weight[in_answers] * fitted.is_counted[votes.annotator[in_answers]]
    answer_weight = np.bincount(answer_index, weights=weight_in_n)

    item = votes.item[held_out]
    own_answer = np.searchsorted(held_out_answers, answer[held_out])
    exponent = vote_exponent(fitted.n_votes[item] - answer_weight[own_answer], fitted.correlation)
    others = exponent * (fitted.vote_logs[item] - answer_logs[own_answer]) + fitted.abstention
    log_prior = exponent * np.log(fitted.frequencies)
    probabilities = fitted.confusions.of(votes.annotator[held_out], votes.label[held_out])
    return HeldOutVotes(row[item], others, log_prior, probabilities, weight[held_out])


Predict = Callable[[Floats], Floats]
"""Map label weights [n, c] of all items to scores [n, c] on which an item's own weights have no influence; NaN: no score."""

Predictions = Mapping[str, Predict]
Models = Sequence[Annotators]

MAJORITY = Annotators(pooled=True)
ONE_COIN = Annotators(one_coin=True)
SHARED = Annotators(shared=True)
MODELS = (
    MAJORITY,
    ONE_COIN,
    SHARED,
    Annotators(strength=3.0),
    Annotators(strength=10.0),
    Annotators(strength=30.0),
    Annotators(strength=100.0),
)


class Choice(NamedTuple):
    """Settings that held-out votes select."""

    model: Annotators
    features: str | None  # key of the predictions; None: features do not help
    inverse_temperature: float  # of the scores; 0 where there are none


class Joint(NamedTuple):
    """Result of `join`: labels from votes and features, and the settings that held-out votes selected."""

    posterior: Floats  # [n, c] of the true labels
    votes_alone: Floats  # [n, c] the same without features
    likelihood: Floats  # [n, c] of an item's votes under each label, the largest is 1
    prior: Floats  # [n, c] the same, flattened; training multiplies it with its own predictions
    feature_probabilities: Floats | None  # [n, c] probabilities from the features alone, where they help
    fitted: AnnotatorFit
    choice: Choice
    annotators: Annotators  # the best model other than SHARED, to be fitted together with shared mistakes
    majority: Floats  # [n, c] posterior by MAJORITY
    tried: list[dict[str, Any]]  # all settings with their scores, best first


def choose(
    votes: Votes, predictions: Predictions, *, models: Models = MODELS, seed: int = 0, n_silent: int = 0
) -> dict[Choice, float]:
    """Score models of annotators by held-out votes, then what features add to the best of them.

    Parameters
    ----------
    votes
        m votes on n items with c labels.
    predictions
        Named functions that compute scores [n, c] from label weights [n, c], using features. May be empty.
    models
        Models of annotators to compare.
    seed
        Seed of the folds.
    n_silent
        Number of further items, on which nobody voted.

    Returns
    -------
    dict of Choice to float
        Scores, best first; empty where no vote can be held out. From the score of a choice with features, the standard error of
        what they add is subtracted, so that features which may be noise are not chosen. So is the standard error of what the majority
        adds to the next best model where it is the best, since it counts in the average anyway.
    """
    vote_folds = list(folds(votes, seed=seed))
    if not vote_folds:
        return {}
    models = _models_for(votes, models)
    scores: dict[Choice, float] = {}
    gains_of_votes: dict[Choice, Floats] = {}
    for model in models:
        choice = Choice(model, None, 0.0)
        gains = [_gains(train, held_out, predictions, [choice], n_silent) for train, held_out in vote_folds]
        gains_of_votes[choice] = np.concatenate(gains, axis=1)[0]
        scores[choice] = float(gains_of_votes[choice].mean())
    best = max(scores, key=lambda choice: scores[choice])
    if best.model == MAJORITY and len(scores) > 1:
        runner_up = max(scores, key=lambda choice: (choice != best, scores[choice]))
        scores[best] -= MIN_STANDARD_ERRORS * _standard_error(gains_of_votes[best] - gains_of_votes[runner_up])
        best = max(scores, key=lambda choice: scores[choice])
    with_features = _choices_with_features(best.model, predictions)
    if with_features:
        by_fold = [_gains(train, held_out, predictions, with_features, n_silent) for train, held_out in vote_folds]
        for choice, gains in zip(with_features, np.concatenate(by_fold, axis=1), strict=True):
            scores[choice] = float(gains.mean()) - MIN_STANDARD_ERRORS * _standard_error(gains - gains_of_votes[best])
    best_first = sorted(scores.items(), key=lambda choice_and_score: -choice_and_score[1])
    return dict(best_first)


def _standard_error(differences: Floats) -> float:
    return float(differences.std() / len(differences) ** 0.5)


def _models_for(votes: Votes, models: Models) -> Models:
    """Return the models that can be fitted to such votes."""
    if len(votes.annotators) < MIN_ANNOTATORS:
        return [MAJORITY]
    if _spread_of_answers(votes) > MAX_SPREAD:
        return [model for model in models if model in (MAJORITY, ONE_COIN)]
    if _one_label_share(votes) > MAX_ONE_LABEL_SHARE:
        return [model for model in models if model not in (ONE_COIN, SHARED)]
    return models


def _one_label_share(votes: Votes) -> float:
    """Return the share of the votes by annotators who only ever give one label."""
    gives_one = votes.labels_per_annotator == 1
    share: float = votes.share[gives_one[votes.annotator]].sum() / votes.share.sum()
    return share


def _spread_of_answers(votes: Votes) -> float:
    """Return the share of the votes' weight that is not on the first label of its answer."""
    largest = np.zeros(votes.answer[-1] + 1)
    np.maximum.at(largest, votes.answer, votes.share)
    return 1 - float(largest.sum() / votes.share.sum())


def _choices_with_features(model: Annotators, predictions: Predictions) -> list[Choice]:
    choices = []
    for name in predictions:
        for inverse_temperature in INVERSE_TEMPERATURES:
            choices.append(Choice(model, name, inverse_temperature))
    return choices


def join(
    votes: Votes,
    predictions: Predictions | None = None,
    *,
    scores: Mapping[Choice, float] | None = None,
    seed: int = 0,
    n_silent: int = 0,
) -> Joint:
    r"""Combine the votes of all annotators with the features, with settings selected by held-out votes.

        T_ij  proportional to   L_ij exp(inverse_temperature g_ij),         and the posterior of the votes where features do not help

    L is the likelihood of the item's votes, flattened by the correlation rho that they show (`oneof.votes.independence`), and g the scores that
    `predictions` compute for the item from the likelihoods of others: class frequencies among their weights would be counted twice. L and the
    posterior of the votes are means over three models (`model_weights`).
    Feeding T back to the predictions was tried and is not done: errors then confirm themselves.

    Parameters
    ----------
    votes
        m votes on n items with c labels.
    predictions
        Named functions that compute scores [n, c] from label weights [n, c], using features. None: votes alone.
    scores
        The result of `choose`, where it was computed before, such as on a sample of the items.
    seed
        Seed of the folds.
    n_silent
        Number of further items, on which nobody voted: that no rule applies to them is evidence too.

    Returns
    -------
    Joint
        The posterior [n, c], the prior for training [n, c], and the settings selected.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from oneof.votes import read_long
    >>> rows = [(i, a, "ab"[i % 2 if a != "z" else 0]) for i in range(20) for a in "xyz"]
    >>> item, annotator, label = zip(*rows)
    >>> joint = join(read_long(pa.table({"item": item, "annotator": annotator, "label": label})))
    >>> joint.posterior.argmax(1)[:4], joint.choice.features
    (array([0, 1, 0, 1]), None)
    """
    predictions = predictions or {}
    scores = scores or choose(votes, predictions, seed=seed, n_silent=n_silent)
    without_scores = Choice(MAJORITY, None, 0.0)  # where no vote can be held out
    choice = next(iter(scores), without_scores)
    fitted = fit_annotators(votes, choice.model, n_silent)
    fitted = fitted.with_correlation(correlation_of_errors(votes, fitted))
    average = _average_models(votes, model_weights(scores, choice.model), choice.model, fitted, n_silent)

    posterior = average.posterior
    feature_probabilities = None
    if choice.features is not None:
        feature_scores = predictions[choice.features](softmax(fitted.likelihood, axis=1))
        feature_probabilities = softmax(choice.inverse_temperature * feature_scores, axis=1)
        with_features = average.likelihood * feature_probabilities
        with_features /= with_features.sum(1, keepdims=True)
        posterior = np.where(np.isnan(feature_scores), average.posterior, with_features)
    flattened = average.likelihood**_TRAINING_POWER
    tried = [_describe(tried_choice, score) for tried_choice, score in scores.items()]
    return Joint(
        posterior=posterior,
        votes_alone=average.posterior,
        likelihood=average.likelihood,
        prior=flattened / flattened.sum(1, keepdims=True),
        feature_probabilities=feature_probabilities,
        fitted=fitted,
        choice=choice,
        annotators=_best_other_than_shared(scores, choice.model),
        majority=average.majority,
        tried=tried,
    )


class _ModelAverage(NamedTuple):
    """Weighted means over the models of annotators, and the posterior of the majority alone."""

    posterior: Floats  # [n, c]
    likelihood: Floats  # [n, c] of an item's votes under each label, the largest is 1
    majority: Floats  # [n, c] posterior by MAJORITY


def _average_models(
    votes: Votes, weights: Mapping[Annotators, float], chosen: Annotators, fitted: AnnotatorFit, n_silent: int
) -> _ModelAverage:
    """Fit the models that have a weight, of which the chosen one is fitted already, and average them."""
    posterior = np.zeros_like(fitted.posterior)
    likelihood = np.zeros_like(fitted.likelihood)
    majority = fitted.posterior
    for model, weight in weights.items():
        model_fit = fitted
        if model != chosen:
            model_fit = fit_annotators(votes, model, n_silent).with_correlation(fitted.correlation)
        posterior += weight * model_fit.posterior
        likelihood += weight * softmax(model_fit.likelihood, axis=1)
        if model == MAJORITY:
            majority = model_fit.posterior
    return _ModelAverage(posterior, likelihood / likelihood.max(1, keepdims=True), majority)


def model_weights(scores: Mapping[Choice, float], chosen: Annotators) -> dict[Annotators, float]:
    r"""Return the weights of the models that are averaged; they sum to 1.

        majority:    0.6 (1 - r),   r = (score of the chosen model - score of the majority) / score of the chosen model, in [0, 0.75]
        one coin:    0.4 (1 - s) where it was compared, else 0
                     s: the same, of the better of one coin and SHARED instead of the majority, in [0, 1]
        chosen:      the rest

    s is what confusions of one annotator that others do not have add. Confusions that all of them share may be right labels of items that are
    not what they seem, and one coin does not believe in them.

    Parameters
    ----------
    scores
        The result of `choose`.
    chosen
        The model with the best score.

    Examples
    --------
    >>> best = Annotators(strength=10.0)
    >>> scores = {Choice(best, None, 0.0): 0.4, Choice(ONE_COIN, None, 0.0): 0.3, Choice(MAJORITY, None, 0.0): 0.2}
    >>> [round(weight, 2) for weight in model_weights(scores, best).values()]
    [0.3, 0.3, 0.4]
    """
    of_model = {choice.model: score for choice, score in scores.items() if choice.features is None}
    best_score = of_model.get(chosen, 0.0)
    majority_score = of_model.get(MAJORITY, 0.0)
    weights = {MAJORITY: _MAJORITY_WEIGHT * (1 - min(_advantage(best_score, majority_score), _MAX_ADVANTAGE))}
    if ONE_COIN in of_model:
        score_without_own = max(
            of_model[ONE_COIN], of_model.get(SHARED, -np.inf)
        )  # without confusions of each annotator
        weights[ONE_COIN] = _ONE_COIN_WEIGHT * (1 - _advantage(best_score, score_without_own))
    weights[chosen] = weights.get(chosen, 0.0) + 1 - sum(weights.values())
    return weights


def _best_other_than_shared(scores: Mapping[Choice, float], chosen: Annotators) -> Annotators:
    """Return the best model other than SHARED, or the chosen one where no other was compared."""
    for choice in scores:
        if choice.features is None and choice.model != SHARED:
            return choice.model
    return chosen


def _advantage(best_score: float, score: float) -> float:
    """Return by which share of the best score another is lower, in [0, 1]."""
    if best_score <= 0:
        return 0.0
    return min((best_score - score) / best_score, 1.0)


def _describe(choice: Choice, score: float) -> dict[str, Any]:
    """Return the settings and their score as a flat record."""
    return {
        "one_coin": choice.model.one_coin,
        "pooled": choice.model.pooled,
        "shared": choice.model.shared,
        "strength": choice.model.strength,
        "features": choice.features,
        "sharpness": choice.inverse_temperature,
        "score": score,
    }


def joint_posterior(fitted: AnnotatorFit, scores: Floats | None, choice: Choice) -> Floats:
    """Return the posterior [n, c] of the votes and of scores from features [n, c].

    Where there are no scores (None or NaN), it is the posterior of the votes and the class frequencies.
    """
    if scores is None:
        return fitted.posterior
    with_features = softmax(fitted.likelihood + choice.inverse_temperature * scores, axis=1)
    return np.where(np.isnan(scores), fitted.posterior, with_features)


def _gains(train: Votes, held_out: Votes, predictions: Predictions, choices: Sequence[Choice], n_silent: int) -> Floats:
    r"""Return how much better each choice of one model predicts a held-out vote on its item than on an average item, [choices, h].

        log sum_j T_ij pi_a(j -> l)  -  log sum_j t_j pi_a(j -> l)     of the vote (i, a, l),        t_j: mean of T_ij over items

    The second term removes what is gained by assigning all items to one class, or by modelling a habit. That an annotator who always
    gives l gives l again is not informative; the choice of the items is. Votes that share an answer count in proportion.
    A rule whose vote is held out did not abstain, so its abstention is taken out of T.
    """
    fitted = fit_annotators(train, replace(choices[0].model, tolerance=TOLERANCE), n_silent)
    vote_probabilities = fitted.confusions.of(held_out.annotator, held_out.label)  # [h, c]
    items, item_index = np.unique(held_out.item, return_inverse=True)  # only these are scored
    feature_scores: dict[str | None, Floats] = {}
    for name in {choice.features for choice in choices}:
        if name is not None:
            feature_scores[name] = predictions[name](softmax(fitted.likelihood, axis=1))[items]
    held_out_abstention = _abstention_of_held_out(held_out, fitted)[items]
    fitted = fitted._replace(
        likelihood=fitted.likelihood[items] - held_out_abstention,
        posterior=softmax(np.log(np.maximum(fitted.posterior[items], MIN_POSTERIOR)) - held_out_abstention, axis=1),
    )
    weight = held_out.share / held_out.share.mean()
    gains = []
    for choice in choices:
        posterior = joint_posterior(fitted, feature_scores.get(choice.features), choice)
        on_item = np.einsum("hj,hj->h", posterior[item_index], vote_probabilities)
        on_any_item = vote_probabilities @ posterior.mean(0)
        gains.append(weight * (np.log(np.maximum(on_item, 1e-12)) - np.log(np.maximum(on_any_item, 1e-12))))
    return np.array(gains)


def _abstention_of_held_out(held_out: Votes, fitted: AnnotatorFit) -> Floats:
    """Return what the abstention of rules whose votes are held out added to the log-likelihood of each item [n, c]."""
    logs = np.zeros((len(held_out.items), len(held_out.labels)))
    if fitted.abstention.any():
        by_rule = np.flatnonzero(fitted.confusions.is_rule[held_out.annotator])
        rates = fitted.confusions.vote_rates[held_out.annotator[by_rule]]
        np.add.at(logs, held_out.item[by_rule], held_out.share[by_rule, None] * np.log1p(-rates))
    return logs
