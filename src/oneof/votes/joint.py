"""Votes and features together: what people said of an item, and what other items like it were called.

Both are wrong at times, and the votes of one item are less independent than any model of annotators takes them to be: what
misleads one person misleads the next. So the votes' likelihood is flattened by a power, and how sharp the features may speak and how flat the votes
must be is chosen by how probable held-out votes become. No truth is used.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax

from oneof.votes.annotators import AnnotatorFit, Annotators, fit_annotators
from oneof.votes.ballots import Floats, Integers, Votes

MANY = 10_000  # votes of which two fifths, held out in turn, say enough
SHARPNESS = (2.0, 4.0, 8.0, 16.0, 32.0)
POWERS = (0.3, 0.5, 0.7, 1.0)
TOLERANCE = 1e-3  # of EM while models are compared
IN_TRAINING = 0.5  # of the power is left in the prior: training multiplies it with an opinion that has seen the row, votes and all


def mean_log(probable: Floats, weight: Floats) -> float:
    """How probable held-out votes are: the weighted mean of the logs of their probabilities [h]."""
    return float(np.average(np.log(np.maximum(probable, 1e-12)), weights=weight))


def folds(votes: Votes, *, seed: int = 0) -> Iterator[tuple[Votes, Votes]]:
    """The votes in five parts, each held out once, or of many votes two of the parts: (those kept, those held out)."""
    # What one annotator says of one item is never divided. Of a single answer nothing can be held out: no fold.
    answer, weight = votes.answer, votes.share
    part = np.random.default_rng(seed).permutation(answer[-1] + 1) % 5
    for number in range(5 if len(answer) <= MANY else 2):
        out = part[answer] == number
        if weight[out].sum() > 0 and not out.all():
            yield votes.only(~out), votes.only(out)


class HeldOutVotes(NamedTuple):
    """Answers, each set against what the other votes on its item say: they judge opinions that never saw the item's votes."""

    row: Integers  # [h] of the opinion
    others: Floats  # [h, c] log-likelihood of the item's other votes, flattened as `power` says
    said: Floats  # [h, c] how probable the vote is under every true label
    weight: Floats  # [h]

    def score(self, logs: Floats) -> float:
        """Mean over the votes of log sum_j T_ij pi_a(j -> l), T in proportion to e^logs [n, c] and the other votes."""
        joined = self.others + logs[self.row]
        joined -= joined.max(1, keepdims=True)
        np.exp(joined, out=joined)
        return mean_log(np.einsum("hj,hj->h", joined, self.said) / joined.sum(1), self.weight)


def leave_answers_out(votes: Votes, fitted: AnnotatorFit, power: float, row: Integers, seed: int = 0) -> HeldOutVotes:
    """Every answer on items that have a row (`row` [items], -1: none), or MANY votes of them by chance."""
    answer, weight = votes.answer, votes.share
    some = np.flatnonzero((row[votes.item] >= 0) & (weight > 0))
    some = np.sort(np.random.default_rng(seed).permutation(some)[:MANY])
    whole = np.flatnonzero(np.isin(answer, answer[some]))  # all labels of the answers that are left out
    own, place = np.unique(answer[whole], return_inverse=True)
    spoken = np.zeros((len(own), len(votes.labels)))
    logs = np.log(fitted.confusions.of(votes.annotator[whole], votes.label[whole]))
    np.add.at(spoken, place, weight[whole, None] * logs)
    bare = whole[
        ~fitted.confusions.has_table[votes.annotator[whole]]
    ]  # they took class frequencies back, each its part
    part = weight[bare] / np.bincount(votes.item, weights=weight)[votes.item[bare]]
    np.add.at(spoken, np.searchsorted(own, answer[bare]), -part[:, None] * fitted.confusions.log_frequencies)
    others = power * (fitted.likelihood[votes.item[some]] - spoken[np.searchsorted(own, answer[some])])
    said = fitted.confusions.of(votes.annotator[some], votes.label[some])
    return HeldOutVotes(row[votes.item[some]], others, said, weight[some])


Predict = Callable[[Floats], Floats]
"""From weights of labels [n, c] of all items to a score of every label [n, c], in which an item's own weights have no part; NaN: no score."""

Predictions = Mapping[str, Predict]
Models = Sequence[Annotators]

# The balance is that of the networks alone: on messages voted on by rules, with 1 they took half of the rows without votes for the rare
# class, with 0.5 none.
MAJORITY = Annotators(balance=0.7, pooled=True)
MODELS = (
    MAJORITY,
    *(Annotators(strength, balance) for balance in (0.5, 0.0) for strength in (3.0, 10.0, 30.0, 100.0)),
)


class Choice(NamedTuple):
    """What held-out votes choose."""

    model: Annotators
    features: str | None  # the key of a prediction; None: features do not help
    sharpness: float  # of its scores; 0 where there are none
    power: float  # of the votes' likelihood


class Joint(NamedTuple):
    """Labels by votes and features, and the settings that held-out votes chose."""

    posterior: Floats  # [n, c] of the true labels
    prior: Floats  # [n, c] what the votes alone say, flattened: what training multiplies its own opinion with
    opinion: Floats | None  # [n, c] what the features alone say, where they help
    fitted: AnnotatorFit
    choice: Choice
    tried: list[dict[str, Any]]  # every choice with its score, best first


def choose(
    votes: Votes, predictions: Predictions, *, models: Models = MODELS, powers: Sequence[float] = POWERS, seed: int = 0
) -> dict[Choice, float]:
    """Score every choice by held-out votes, best first; nothing where no vote can be held out."""
    cut = list(folds(votes, seed=seed))
    scores: dict[Choice, float] = {}
    for model in models if cut else ():
        # Votes alone come first, so that of equals they are taken.
        choices = [Choice(model, None, 0.0, power) for power in powers]
        choices += [Choice(model, name, s, power) for name in predictions for s in SHARPNESS for power in powers]
        means = np.mean([_scores(*fold, predictions, choices) for fold in cut], axis=0)
        scores |= dict(zip(choices, means.tolist(), strict=True))
    return dict(sorted(scores.items(), key=lambda one: -one[1]))


def join(
    votes: Votes, predictions: Predictions | None = None, *, scores: Mapping[Choice, float] | None = None, seed: int = 0
) -> Joint:
    r"""Weigh people against each other and votes against features, by held-out votes.

        T_ij  proportional to   (m_j^-b L_ij)^power exp(sharpness g_ij),         (m_j^(1-b) L_ij)^power where features do not help

    L is the likelihood of the item's votes, g what `predictions` say of the row when they are given the posterior of the votes alone.
    To feed T back to the predictions was tried and is not done: errors then confirm themselves.
    `scores` are those of `choose`, where it was asked before, such as on a sample of many votes.

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
    choice = next(iter(scores), Choice(MODELS[0], None, 0.0, 1.0))
    fitted = fit_annotators(votes, choice.model)
    said = None if choice.features is None else predictions[choice.features](fitted.posterior)
    prior = softmax(IN_TRAINING * choice.power * fitted.likelihood, axis=1)
    opinion = None if said is None else softmax(choice.sharpness * said, axis=1)
    names = ("pooled", "strength", "balance", "features", "sharpness", "power", "score")
    rows = ((model.pooled, model.strength, model.balance, *rest, score) for (model, *rest), score in scores.items())
    tried = [dict(zip(names, row, strict=True)) for row in rows]
    return Joint(together(fitted, said, choice), prior, opinion, fitted, choice, tried)


def together(fitted: AnnotatorFit, scores: Floats | None, choice: Choice) -> Floats:
    """The posterior [n, c] of votes and of the features' scores [n, c]; of votes and class frequencies where there are none (NaN)."""
    logs = fitted.likelihood - choice.model.balance * np.log(fitted.frequencies)
    alone = choice.power * (logs + np.log(fitted.frequencies))
    if scores is not None:
        alone = np.where(np.isnan(scores), alone, choice.power * logs + choice.sharpness * scores)
    return np.asarray(softmax(alone, axis=1))


def _scores(kept: Votes, out: Votes, predictions: Predictions, choices: list[Choice]) -> list[float]:
    r"""Score each choice of one model by what it knows of held-out votes on their items, beyond what it knows of any item.

        mean over votes (i, a, l) of   log sum_j T_ij pi_a(j -> l)  -  log sum_j t_j pi_a(j -> l),        t_j: mean of T_ij over items

    The second term takes back what is gained by taking every item for one class, or every vote for a habit: of an annotator who always
    says l, that l is said is no news, but on which items it is said is.
    """
    fitted = fit_annotators(kept, replace(choices[0].model, tolerance=TOLERANCE))
    said_if_true = fitted.confusions.of(out.annotator, out.label)  # [h, c]
    item, place = np.unique(out.item, return_inverse=True)  # only these are scored
    fitted = fitted._replace(likelihood=fitted.likelihood[item])
    features: dict[str | None, Floats] = {}
    for name, predict in predictions.items():
        features[name] = predict(fitted.posterior)[item]
    scores = []
    for choice in choices:
        posterior = together(fitted, features.get(choice.features), choice)
        on_item = mean_log(np.einsum("hj,hj->h", posterior[place], said_if_true), out.share)
        on_any_item = mean_log(said_if_true @ posterior.mean(0), out.share)
        scores.append(on_item - on_any_item)
    return scores
