"""Combine votes with features: the votes on an item, and the labels of items with similar features.

Both are wrong at times, and the votes on one item are less independent than any model of annotators assumes: what
misleads one annotator misleads the next. Therefore the likelihood of the votes is flattened by a power. This power, and the inverse
temperature of the scores from features, are selected by the likelihood of held-out votes. True labels are not used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax

from oneof.data.dataset import UNNAMED_PRIOR, scatter_columns
from oneof.votes.annotators import AnnotatorFit, Annotators, fit_annotators
from oneof.votes.ballots import Floats, Integers, Votes

MAX_HELD_OUT = 10_000  # votes; of more, two folds of five are enough
N_FOLDS = 5
INVERSE_TEMPERATURES = (2.0, 4.0, 8.0, 16.0, 32.0)
POWERS = (0.3, 0.5, 0.7, 1.0)
TOLERANCE = 1e-3  # of EM while models are compared
# Share of the power that is left in the prior for training, which is multiplied with predictions of models that were
# trained on the row and its votes.
_TRAINING_POWER = 0.5


def mean_log_probability(probabilities: Floats, weight: Floats) -> float:
    """Return the weighted mean of the log-probabilities of held-out votes, from probabilities [h] and weights [h]."""
    return float(np.average(np.log(np.maximum(probabilities, 1e-12)), weights=weight))


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
    others: Floats  # [h, c] log-likelihood of the other votes on the item, flattened by the power
    said: Floats  # [h, c] probability of the held-out vote under every true label
    weight: Floats  # [h]

    def score(self, logs: Floats) -> float:
        """Return the mean log-probability of the held-out votes under predictions in logs [n, c].

        That is the mean of log sum_j T_ij pi_a(j -> l), with T proportional to e^logs times the likelihood of the other votes.
        """
        posterior = self.others + logs[self.row]
        posterior -= posterior.max(1, keepdims=True)
        np.exp(posterior, out=posterior)
        probabilities = np.einsum("hj,hj->h", posterior, self.said) / posterior.sum(1)
        return mean_log_probability(probabilities, self.weight)

    def with_classes(self, columns: Sequence[int], c: int) -> HeldOutVotes:
        """Return the same over c classes, of which these columns could be voted for."""
        return self._replace(
            others=scatter_columns(self.others, columns, c, np.log(UNNAMED_PRIOR)),
            said=scatter_columns(self.said, columns, c, UNNAMED_PRIOR),
        )


def leave_answers_out(votes: Votes, fitted: AnnotatorFit, power: float, row: Integers, seed: int = 0) -> HeldOutVotes:
    """Hold out each answer in turn, using the confusions that were fitted on all votes.

    Parameters
    ----------
    votes
        m votes on n items with c labels.
    fitted
        The model that was fitted to these votes.
    power
        By which the likelihood of the other votes is flattened.
    row
        Row of each item [n] in the predictions to be scored, -1 for none. Votes on items without a row are not held out.
    seed
        Of the sample that is taken where votes are many.
    """
    answer = votes.answer
    weight = votes.share
    confusions = fitted.confusions
    eligible = np.flatnonzero((row[votes.item] >= 0) & (weight > 0))
    held_out = np.sort(np.random.default_rng(seed).permutation(eligible)[:MAX_HELD_OUT])

    # Log-likelihood [answers, c] of each held-out answer, of which all labels are left out together.
    in_answers = np.flatnonzero(np.isin(answer, answer[held_out]))
    held_out_answers, answer_index = np.unique(answer[in_answers], return_inverse=True)
    answer_logs = np.zeros((len(held_out_answers), len(votes.labels)))
    vote_logs = np.log(confusions.of(votes.annotator[in_answers], votes.label[in_answers]))
    np.add.at(answer_logs, answer_index, weight[in_answers, None] * vote_logs)
    # Votes of annotators without a table also removed their part of the class frequencies.
    tableless = in_answers[~confusions.has_table[votes.annotator[in_answers]]]
    share_of_item = weight[tableless] / np.bincount(votes.item, weights=weight)[votes.item[tableless]]
    tableless_index = np.searchsorted(held_out_answers, answer[tableless])
    np.add.at(answer_logs, tableless_index, -share_of_item[:, None] * confusions.log_frequencies)

    item = votes.item[held_out]
    own_logs = answer_logs[np.searchsorted(held_out_answers, answer[held_out])]
    others = power * (fitted.likelihood[item] - own_logs)
    probabilities = confusions.of(votes.annotator[held_out], votes.label[held_out])
    return HeldOutVotes(row[item], others, probabilities, weight[held_out])


Predict = Callable[[Floats], Floats]
"""Map label weights [n, c] of all items to scores [n, c] on which an item's own weights have no influence; NaN: no score."""

Predictions = Mapping[str, Predict]
Models = Sequence[Annotators]

MAJORITY = Annotators(balance=1.0, pooled=True)
MODELS = (
    MAJORITY,
    Annotators(strength=3.0, balance=0.5),
    Annotators(strength=10.0, balance=0.5),
    Annotators(strength=30.0, balance=0.5),
    Annotators(strength=100.0, balance=0.5),
    Annotators(strength=3.0, balance=0.0),
    Annotators(strength=10.0, balance=0.0),
    Annotators(strength=30.0, balance=0.0),
    Annotators(strength=100.0, balance=0.0),
)


class Choice(NamedTuple):
    """Settings that held-out votes select."""

    model: Annotators
    features: str | None  # key of the predictions; None: features do not help
    inverse_temperature: float  # of the scores; 0 where there are none
    power: float  # of the votes' likelihood


class Joint(NamedTuple):
    """Result of `join`: labels from votes and features, and the settings that held-out votes selected."""

    posterior: Floats  # [n, c] of the true labels
    prior: Floats  # [n, c] from the votes alone, flattened; training multiplies it with its own predictions
    opinion: Floats | None  # [n, c] probabilities from the features alone, where they help
    fitted: AnnotatorFit
    choice: Choice
    tried: list[dict[str, Any]]  # all settings with their scores, best first


def choose(
    votes: Votes, predictions: Predictions, *, models: Models = MODELS, powers: Sequence[float] = POWERS, seed: int = 0
) -> dict[Choice, float]:
    """Score all combinations of settings by held-out votes.

    Parameters
    ----------
    votes
        m votes on n items with c labels.
    predictions
        Named functions that compute scores [n, c] from label weights [n, c], using features. May be empty.
    models
        Models of annotators to compare.
    powers
        Powers of the votes' likelihood to compare.
    seed
        Of the folds.

    Returns
    -------
    dict of Choice to float
        Scores, best first; empty where no vote can be held out.
    """
    vote_folds = list(folds(votes, seed=seed))
    if not vote_folds:
        return {}
    scores: dict[Choice, float] = {}
    for model in models:
        choices = _choices(model, predictions, powers)
        fold_scores = [_scores(train, held_out, predictions, choices) for train, held_out in vote_folds]
        mean_scores = np.mean(fold_scores, axis=0)
        scores.update(zip(choices, mean_scores.tolist(), strict=True))
    best_first = sorted(scores.items(), key=lambda choice_and_score: -choice_and_score[1])
    return dict(best_first)


def _choices(model: Annotators, predictions: Predictions, powers: Sequence[float]) -> list[Choice]:
    """Return all settings of one model. Votes alone come first, so that they are preferred in a tie."""
    choices = [Choice(model, None, 0.0, power) for power in powers]
    for name in predictions:
        for inverse_temperature in INVERSE_TEMPERATURES:
            for power in powers:
                choices.append(Choice(model, name, inverse_temperature, power))
    return choices


def join(
    votes: Votes, predictions: Predictions | None = None, *, scores: Mapping[Choice, float] | None = None, seed: int = 0
) -> Joint:
    r"""Combine the votes of all annotators with the features, with settings selected by held-out votes.

        T_ij  proportional to   (m_j^-b L_ij)^power exp(inverse_temperature g_ij)
        T_ij  proportional to   (m_j^(1-b) L_ij)^power   where features do not help

    L is the likelihood of the item's votes, g the scores that `predictions` compute for the row from the posterior of the votes alone.
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
        Of the folds.

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
    scores = scores or choose(votes, predictions, seed=seed)
    without_scores = Choice(MAJORITY, None, 0.0, 1.0)  # where no vote can be held out
    choice = next(iter(scores), without_scores)
    fitted = fit_annotators(votes, choice.model)
    feature_scores = None
    opinion = None
    if choice.features is not None:
        predict = predictions[choice.features]
        feature_scores = predict(fitted.posterior)
        opinion = softmax(choice.inverse_temperature * feature_scores, axis=1)
    prior = softmax(_TRAINING_POWER * choice.power * fitted.likelihood, axis=1)
    posterior = joint_posterior(fitted, feature_scores, choice)
    tried = [_describe(tried_choice, score) for tried_choice, score in scores.items()]
    return Joint(posterior, prior, opinion, fitted, choice, tried)


def _describe(choice: Choice, score: float) -> dict[str, Any]:
    """Return the settings and their score as a flat record."""
    return {
        "pooled": choice.model.pooled,
        "strength": choice.model.strength,
        "balance": choice.model.balance,
        "features": choice.features,
        "sharpness": choice.inverse_temperature,
        "power": choice.power,
        "score": score,
    }


def joint_posterior(fitted: AnnotatorFit, scores: Floats | None, choice: Choice) -> Floats:
    """Return the posterior [n, c] of the votes and of scores from features [n, c].

    Where there are no scores (None or NaN), it is the posterior of the votes and the class frequencies.
    """
    log_frequencies = np.log(fitted.frequencies)
    vote_logs = fitted.likelihood - choice.model.balance * log_frequencies
    logits = choice.power * (vote_logs + log_frequencies)
    if scores is not None:
        with_features = choice.power * vote_logs + choice.inverse_temperature * scores
        logits = np.where(np.isnan(scores), logits, with_features)
    return np.asarray(softmax(logits, axis=1))


def _scores(train: Votes, held_out: Votes, predictions: Predictions, choices: list[Choice]) -> list[float]:
    r"""Score each choice of one model by how well it predicts which items the held-out votes are on.

        mean over votes (i, a, l) of   log sum_j T_ij pi_a(j -> l)  -  log sum_j t_j pi_a(j -> l),        t_j: mean of T_ij over items

    The second term removes what is gained by assigning all items to one class, or by modelling a habit: that an annotator who always
    gives l gives l again is no information, but on which items is.
    """
    fitted = fit_annotators(train, replace(choices[0].model, tolerance=TOLERANCE))
    vote_probabilities = fitted.confusions.of(held_out.annotator, held_out.label)  # [h, c]
    items, item_index = np.unique(held_out.item, return_inverse=True)  # only these are scored
    feature_scores: dict[str | None, Floats] = {}
    for name, predict in predictions.items():
        feature_scores[name] = predict(fitted.posterior)[items]
    fitted = fitted._replace(likelihood=fitted.likelihood[items])
    scores = []
    for choice in choices:
        posterior = joint_posterior(fitted, feature_scores.get(choice.features), choice)
        on_item = np.einsum("hj,hj->h", posterior[item_index], vote_probabilities)
        on_any_item = vote_probabilities @ posterior.mean(0)
        gain = mean_log_probability(on_item, held_out.share) - mean_log_probability(on_any_item, held_out.share)
        scores.append(gain)
    return scores
