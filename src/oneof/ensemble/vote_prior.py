"""Compute a prior over labels from votes, with a model of annotators and a scaling of the features that held-out votes choose.

`oneof.votes.joint` combines annotators with each other and votes with features. Here it gets its predictions: kernel regressions that leave
each row out, with a few scalings of the features. The prior for training holds the evidence of the *votes* alone; networks then add that of
the features, so that nothing is counted twice.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from oneof.data.dataset import VoteEvidence
from oneof.data.with_ranks import fit_quantiles
from oneof.learners.config import EnsembleConfig
from oneof.learners.kernel import leave_one_out_regression
from oneof.learners.ridge import leave_one_out_ridge
from oneof.learners.scaling import scale
from oneof.methods import BalancedProden
from oneof.votes.ballots import Floats, Integers, Votes
from oneof.votes.dawid_skene import shares, vote_counts
from oneof.votes.dependence import discount_dependent
from oneof.votes.joint import Joint, Predict, choose, join, leave_answers_out
from oneof.votes.read_columns import columns_read_by_rules
from oneof.votes.shared_mistakes import SharedMistakesModel, log_likelihood_of_rules

RIDGES = (0.1, 1.0)
LINEAR_RIDGES = (0.03, 0.3)
LINEAR_INVERSE_TEMPERATURE = 6.0  # of linear regressions; a power is chosen later
SCALINGS = ("feature", "ranks", "both", "none")  # few, since each is tried with every model of the annotators
MIN_LIKELIHOOD = 0.001  # of a row's largest: labels that nobody named and the votes find less likely are no candidates
MIN_PRIOR = 1e-6
MAX_TUNING_ITEMS = 5000  # items on which the settings are chosen
MAX_REGRESSION_ROWS = 50_000
HIDDEN = (256,)  # layers of networks that learn from votes; a second one was not tried there


class VotePrior(NamedTuple):
    """The evidence of the votes on n rows."""

    candidates: NDArray[np.bool_]  # [n, c] named by somebody, or likely by what annotators confuse
    prior: Floats  # [n, c] for training, largest 1 in every row
    evidence: VoteEvidence  # for resolving labels
    joint: Joint
    scaling: str | None  # of the features, by held-out votes; None: features do not help


def vote_prior(
    x: NDArray[Any],
    votes: Votes,
    item: Integers,
    seed: int = 0,
    observed: NDArray[np.bool_] | None = None,
) -> VotePrior:
    """Compute the prior of rows x [n, d], whose items among those of the votes are `item` [n], -1 where nobody voted.

    Where `observed` [n] is False, a row has no features to learn from, and votes alone decide. Columns that rules read are left out, unless
    there are no others.
    """
    rows = _Rows.of(item, len(votes.items), observed)
    is_read = _columns_left_out(x[rows.visible], votes, item[rows.visible])
    visible_features = x[:, ~is_read][rows.visible]
    visible_items = item[rows.visible]
    discounted = discount_dependent(votes)
    joint = _fit_joint(visible_features, discounted, visible_items, seed, n_silent=len(item) - len(rows.voted))
    vote_model = _shared_mistakes_model(visible_features, discounted, visible_items, rows.of_item, joint)
    likelihood = _likelihood(joint, rows)
    evidence = VoteEvidence(
        likelihood=likelihood,
        posterior=np.maximum(rows.spread(joint.votes_alone, joint.fitted.silent_posterior), MIN_PRIOR),
        neighbours=_predictions_of_other_rows(joint, vote_model, rows, learners_repeat_votes=bool(is_read.any())),
        held_out=leave_answers_out(discounted, joint.fitted, rows.of_item, seed),
        vote_model=vote_model,
        learners_repeat_votes=bool(is_read.any()),
        counts=rows.spread(vote_counts(votes), 0.0),
        vote_accuracy=float(np.average(joint.posterior[votes.item, votes.label], weights=votes.share)),
        correlation=joint.fitted.correlation,
    )
    scaling = None
    if joint.choice.features:
        scaling = joint.choice.features.split(",")[0]
    return VotePrior(
        candidates=_candidates(votes, likelihood, rows),
        prior=_training_prior(joint, rows),
        evidence=evidence,
        joint=joint,
        scaling=scaling,
    )


class _Rows(NamedTuple):
    """Which of n rows hold which items of the votes."""

    item: Integers  # [n] item of each row, -1 where nobody voted
    voted: Integers  # rows with votes
    visible: Integers  # those of them that have features to learn from
    of_item: Integers  # [items] row of each item, -1 for none

    @classmethod
    def of(cls, item: Integers, n_items: int, observed: NDArray[np.bool_] | None) -> "_Rows":
        """Return the rows of these items [n]; where `observed` [n] is False, a row has no features to learn from."""
        voted = np.flatnonzero(item >= 0)
        visible = voted
        if observed is not None:
            visible = voted[observed[voted]]
        of_item = np.full(n_items, -1)
        of_item[item[voted]] = voted
        return cls(item, voted, visible, of_item)

    def spread(self, of_items: Floats, of_unvoted: Floats | float) -> Floats:
        """Return the values of the rows [n, c] from those of the items [items, c] and those of a row without votes, [c] or a number."""
        values = np.empty((len(self.item), of_items.shape[1]))
        values[:] = of_unvoted
        values[self.voted] = of_items[self.item[self.voted]]
        return values


def _columns_left_out(x: NDArray[Any], votes: Votes, item: Integers) -> NDArray[np.bool_]:
    """Return which columns [d] nothing is learned from: those that rules read, unless there are no others."""
    is_read = columns_read_by_rules(x, votes, item)
    if is_read.all():
        is_read[:] = False
    return is_read


def _likelihood(joint: Joint, rows: _Rows) -> Floats:
    """Return the likelihood of the votes on each row under each label [n, c]; the largest of a row is 1."""
    abstention = joint.fitted.abstention
    return np.maximum(rows.spread(joint.likelihood, np.exp(abstention - abstention.max())), MIN_PRIOR)


def _candidates(votes: Votes, likelihood: Floats, rows: _Rows) -> NDArray[np.bool_]:
    """Return the labels [n, c] that somebody named, or that the votes find likely; all labels of a row without votes."""
    is_named = np.zeros((len(votes.items), len(votes.labels)), dtype=bool)
    is_named[votes.item, votes.label] = True
    candidates = (likelihood >= MIN_LIKELIHOOD) | (rows.item < 0)[:, None]
    candidates[rows.voted] |= is_named[rows.item[rows.voted]]
    return candidates


def _training_prior(joint: Joint, rows: _Rows) -> Floats:
    """Return the prior [n, c] for training, largest 1 in every row.

    Rows without votes have class frequencies, else networks would balance the classes there.
    """
    of_items = joint.prior / joint.prior.max(1, keepdims=True)
    silent_posterior = joint.fitted.silent_posterior
    return np.maximum(rows.spread(of_items, silent_posterior / silent_posterior.max()), MIN_PRIOR)


def _predictions_of_other_rows(
    joint: Joint, vote_model: SharedMistakesModel | None, rows: _Rows, *, learners_repeat_votes: bool
) -> Floats | None:
    """Return what the votes on other rows predict for each row [n, c], NaN without votes; None if features do not help.

    Where the learners repeat votes, these predictions replace theirs, so linear regressions stand in for a kernel regression that does not help.
    """
    of_items = joint.feature_probabilities
    if of_items is None and vote_model is not None and learners_repeat_votes:
        of_items = vote_model.predictions[-1]
    if of_items is None:
        return None
    return rows.spread(of_items, np.nan)


def _shared_mistakes_model(
    x: NDArray[Any], votes: Votes, item: Integers, row_of_item: Integers, joint: Joint
) -> SharedMistakesModel | None:
    """Return votes and predictions by kernel and linear regressions on x [m, d], the rows of these items [m]; None without features.

    Linear regressions learn from the likelihood by the chosen model, and from shares of the votes, which trust the majority.
    """
    if not x.size:
        return None
    fitted = joint.fitted
    uniform = np.full_like(joint.posterior, 1 / joint.posterior.shape[1])
    predictions = []
    if joint.feature_probabilities is not None:
        predictions.append(np.where(np.isnan(joint.feature_probabilities), uniform, joint.feature_probabilities))
    rows = np.arange(len(x))[:MAX_REGRESSION_ROWS]
    regression = leave_one_out_ridge(x[rows])
    likelihood = softmax(fitted.likelihood[item[rows]], axis=1)
    vote_shares = shares(votes, 0.0)[item[rows]]
    for row_targets in (likelihood, vote_shares):
        for ridge in LINEAR_RIDGES:
            probabilities = uniform.copy()
            probabilities[item[rows]] = softmax(LINEAR_INVERSE_TEMPERATURE * regression(ridge, row_targets), axis=1)
            predictions.append(probabilities)
    # EM starts from the majority, so that each label is what most people call so: from confusions by votes alone, a habit of most annotators
    # may pass for the truth.
    start = joint.majority * predictions[-1]
    start /= start.sum(1, keepdims=True)
    by_people = votes.only(~fitted.confusions.is_rule[votes.annotator])
    return SharedMistakesModel(
        votes=by_people,
        row=row_of_item,
        predictions=predictions,
        start=start,
        annotators=joint.annotators,
        fixed=log_likelihood_of_rules(votes, fitted),
        columns=range(len(votes.labels)),
    )


def config_for_votes(
    config: EnsembleConfig, fitted: VotePrior, *, on_pictures: bool = False, has_embeddings: bool = False
) -> EnsembleConfig:
    """Return the config that suits votes: held-out votes chose the scaling, and class frequencies are as estimated.

    Neither the kernel nor POP removes labels: what the votes leave open is weighed, not cut. Unless others are asked for, networks learn
    alone, and there are twice as many: trees would need one label for every row, which votes leave open. Linear models join them on
    embeddings, whose components keep their scale: the last ones are mostly noise.
    On pictures the epochs stay open, as without votes: what a device can afford is decided where networks are trained on them.
    """
    method = config.method
    if isinstance(method, BalancedProden):
        method = replace(method, balance=0.5)
    scaling = fitted.scaling or "both"
    if has_embeddings and fitted.scaling in (None, "none"):
        scaling = "global"  # the same to a regression, and networks learn faster
    config = replace(
        config,
        hidden=HIDDEN if config.hidden == EnsembleConfig.hidden else config.hidden,
        scalings=(scaling,),
        kernel=None,
        purify=None,
        method=method,
        lr=0.1,
        weight_decay=1e-3,
    )
    if config.learners != EnsembleConfig.learners:
        return config
    n_networks = config.n_networks
    if n_networks == EnsembleConfig.n_networks:
        n_networks = 2 * n_networks
    epochs = config.epochs
    if epochs is None and not on_pictures:
        epochs = 2 * (config.for_size(*fitted.prior.shape).epochs or 30)
    if not has_embeddings:
        return replace(config, learners=("networks",), n_networks=n_networks, epochs=epochs)
    return replace(config, learners=("networks", "linear"), n_networks=n_networks, epochs=epochs)


def _fit_joint(x: NDArray[Any], votes: Votes, item: Integers, seed: int, n_silent: int) -> Joint:
    """Fit annotators and features together; of many items a sample chooses, of many rows a sample is regressed on."""
    permutation = np.random.default_rng(seed).permutation
    n_items = len(votes.items)
    if n_items <= MAX_TUNING_ITEMS:
        return join(votes, _regressions(x, item, n_items, SCALINGS), seed=seed, n_silent=n_silent)
    known = np.unique(item) if len(item) else np.arange(n_items)
    sampled_items = np.sort(permutation(known)[:MAX_TUNING_ITEMS])
    sampled_rows = np.flatnonzero(np.isin(item, sampled_items))
    position = np.searchsorted(sampled_items, item[sampled_rows])
    regressions = _regressions(x[sampled_rows], position, len(sampled_items), SCALINGS)
    n_silent_sampled = round(n_silent * MAX_TUNING_ITEMS / n_items)
    scores = choose(votes.of_items(sampled_items), regressions, seed=seed, n_silent=n_silent_sampled)
    rows = np.sort(permutation(len(item))[:MAX_REGRESSION_ROWS])
    chosen_features = next(iter(scores)).features or ""
    scalings = [scaling for scaling in SCALINGS if chosen_features.startswith(f"{scaling},")]
    return join(votes, _regressions(x[rows], item[rows], n_items, scalings), scores=scores, n_silent=n_silent)


def _regressions(x: NDArray[Any], item: Integers, n_items: int, scalings: Sequence[str]) -> dict[str, Predict]:
    """Return regressions from weights of all items [items, c] to scores [items, c], NaN for items without features."""
    regressions: dict[str, Predict] = {}
    if not x.size or not scalings:
        return regressions
    ranked = fit_quantiles(x)(x)
    for scaling in scalings:
        scaled, _ = scale(ranked, scaling)
        if not scaled.shape[1]:
            continue
        regression = leave_one_out_regression(scaled)
        for ridge in RIDGES:
            predict = partial(_scores_of_items, partial(regression, ridge), item, n_items)
            regressions[f"{scaling}, ridge {ridge:g}"] = predict
    return regressions


def _scores_of_items(
    regression: Callable[[NDArray[Any]], NDArray[Any]], item: Integers, n_items: int, weights: Floats
) -> Floats:
    """Return scores [items, c] by a regression on the rows of these items, from weights of all items; NaN where there is no row."""
    scores = np.full((n_items, weights.shape[1]), np.nan)
    scores[item] = regression(weights[item])
    return scores
