"""Fit a classifier and the label of every row: the one path of tables, votes and pictures.

1. Sets that seem to miss the true label are found; they are not trained on, nor are rows whose set holds every label.
2. A kernel regression that leaves each row out weights the candidates of every row, once for each scaling of the features. The
   agreement with the sets ranks the scalings; labels that another candidate clearly dominates are removed.
3. Networks and linear models are trained on the sets, with the best scalings; trees and the user's own classifiers on the resulting soft
   labels; other trees, some of them boosted, on the sets alone. Every learner predicts rows that it was not trained on.
4. Held-out sets weight the learners. The accuracy on new rows is estimated from held-out predictions.
5. The learners' weighted mean, and the votes where there are any, resolve the label of every row. Probabilities are lowered where sets
   seem to miss the true label, where features predict which wrong labels are in the sets, and where nothing was learned; probabilities
   of the input that features explain stay as they are. New rows are predicted no more confidently than rows whose set is known.

No true label is used, except those that are given as gold.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from oneof.data.dataset import UNKNOWN, Dataset, FloatArray, IntArray
from oneof.ensemble.accuracy import HeldOutEval, estimate_accuracy, learned_nothing
from oneof.ensemble.calibrate import calibrate
from oneof.ensemble.context import make_context
from oneof.ensemble.evaluation_rows import choose_eval_rows, choose_independent_scores, cross_fit_eval_rows
from oneof.ensemble.informative_rows import extend_to_all_rows, informative_rows, take_context
from oneof.ensemble.learner_stages import (
    KernelStage,
    NetworkStage,
    choose_kernel_targets,
    fit_image_networks,
    fit_kernel_stage,
    fit_label_learners,
    fit_networks,
    make_soft_labels,
)
from oneof.ensemble.model import Model, represent_rows
from oneof.ensemble.predictable_sets import MIN_TRUST, estimate_trust, trust_on_new_rows
from oneof.ensemble.records import FitResult, describe_fit, describe_rows, learner_rows, training_record
from oneof.ensemble.resolve import allowed_labels, resolve_labels
from oneof.ensemble.stacking import combine_predictions, weigh_learners
from oneof.ensemble.training_sets import choose_training_sets
from oneof.ensemble.votes_alone import resolve_votes_alone
from oneof.learners.base import Context, FittedLearner, Resources, Targets, WarmStart, trained_networks
from oneof.learners.config import FitConfig
from oneof.learners.kernel import CrossFitScores
from oneof.training.parallel import start_workers


def fit(
    data: Dataset,
    config: FitConfig = FitConfig(),  # noqa: B008 - frozen
    resources: Resources = Resources(),  # noqa: B008 - frozen
    warm_start: WarmStart = WarmStart(),  # noqa: B008 - frozen
) -> FitResult:
    """Fit the ensemble, resolve the label of every row, and estimate the accuracy."""
    data = data.contiguous()
    if data.features.shape[1] == 0:
        return resolve_votes_alone(data, config.seed)
    context, evaluation_gold = make_context(data, config, resources, warm_start)
    with context.resources.limited_threads():
        return fit_ensemble(data, context, evaluation_gold)


def fit_ensemble(data: Dataset, context: Context, evaluation_gold: IntArray) -> FitResult:
    """Fit the learners of a context; `evaluation_gold` [n] measures the accuracy where it is known."""
    # 1. to 4. The learners and their weights. Rows whose set says nothing are predicted only.
    rows = informative_rows(data, context.config.train_on_gold)
    if len(rows) == len(data):
        fitted = fit_learners(data, context)
    else:
        fitted = fit_learners_on_rows(data, rows, np.flatnonzero(evaluation_gold != UNKNOWN), context)

    # The accuracy on new rows.
    predictions = combine_predictions(fitted.learners, fitted.weights).mask_unobserved(data.observed)
    eval_rows = fitted.eval_rows
    evaluated = HeldOutEval(
        probabilities=predictions.mean[eval_rows],
        candidates=data.candidates.mask[eval_rows],
        gold=evaluation_gold[eval_rows],
        cross_fitted=choose_independent_scores(fitted.learners, fitted.weights, fitted.cross_fitted, eval_rows),
        has_prior=data.has_prior,
    ).where(predictions.held_out[eval_rows])
    accuracy = estimate_accuracy(evaluated)

    # 5. The label of every row.
    allowed = allowed_labels(data, fitted.weighted_learners, fitted.networks.sets)
    labels = resolve_labels(data, predictions, allowed).label
    trust = estimate_trust(data, labels)
    nothing_learned = learned_nothing(evaluated)
    if nothing_learned:
        trust = trust._replace(in_labels=MIN_TRUST)
    resolved = resolve_labels(data, predictions, allowed, trust.in_labels, trust.independence)

    # The model for new rows, and the records of the fit.
    trust_in_learners = 1.0
    if nothing_learned:
        trust_in_learners = MIN_TRUST
    elif not data.has_prior and predictions.held_out.any():
        held_out = predictions.held_out
        trust_in_learners = trust_on_new_rows(predictions.mean[held_out], resolved.probability[held_out])
    calibration = calibrate(evaluated.trusted(trust_in_learners), accuracy)
    without_learners = Model(data.classes, data.encoding, members=(), calibration=calibration)
    model = without_learners.with_fitted(fitted.learners, fitted.weights)
    weighted_model = model.without_zero_weights()
    rule = context.criterion  # what chose the settings
    if data.are_pictures:
        rule = "size and device"
    return FitResult(
        model=weighted_model.trusted(trust_in_learners).on_cpu(),
        purified=describe_rows(data, fitted.weighted_learners, resolved, fitted.representation, context.resources),
        training=training_record(trained_networks(fitted.weighted_learners)),
        tried=[*fitted.kernels.tried, *learner_rows(model.learners)],
        accuracy=accuracy,
        metadata=describe_fit(
            data,
            context.config.seed,
            fitted.networks.configs,
            weighted_model,
            rule,
            accuracy,
            context.config.ensemble.sampled_rows(len(rows)),
        ),
        warnings=[*fitted.warnings, *trust.warnings],
    )


class FittedStages(NamedTuple):
    """The fitted learners, with what was computed on the way."""

    kernels: KernelStage
    networks: NetworkStage
    learners: list[FittedLearner]
    weights: FloatArray  # of each learner
    representation: FloatArray  # [n, width] of each row, by `represent_rows`
    eval_rows: IntArray  # [m] rows on which the accuracy is estimated
    cross_fitted: CrossFitScores  # of these rows
    warnings: list[str]

    @property
    def weighted_learners(self) -> list[FittedLearner]:
        """Return the learners whose weight is not 0."""
        weighted = []
        for learner, weight in zip(self.learners, self.weights, strict=True):
            if weight > 0:
                weighted.append(learner)
        return weighted


def fit_learners(data: Dataset, context: Context) -> FittedStages:
    """Fit the learners on all rows of the data, each after those whose results it needs, and weight them."""
    # 1. The sets to train on.
    with start_workers(context.resources.n_workers):
        training_sets, kernel_scores = choose_training_sets(data, context)

    # 2. The kernel, which ranks the scalings of the features.
    kernels = fit_kernel_stage(data, training_sets, kernel_scores, context)

    # 3. Networks on the sets, and then the learners that need the soft labels of kernel and networks.
    if data.are_pictures:
        networks = fit_image_networks(data, training_sets, context)
    else:
        networks = fit_networks(data, training_sets, kernels, context)
    representation = represent_rows(data, networks.models)
    eval_rows = choose_eval_rows(*training_sets.shape)
    cross_fitted = cross_fit_eval_rows(data, representation, eval_rows, context)
    kernels = choose_kernel_targets(data, training_sets, kernels, eval_rows, cross_fitted, context)
    soft_labels = make_soft_labels(data, training_sets, networks.learners, kernels.soft_labels)
    targets = Targets(training_sets, soft_labels)
    label_learners = fit_label_learners(data, targets, networks.best, kernels, context)

    # 4. The weight of each learner.
    learners = [*networks.best, *label_learners.learners]
    weights = weigh_learners(learners, data, context)
    return FittedStages(
        kernels=kernels,
        networks=networks,
        learners=learners,
        weights=weights,
        representation=representation,
        eval_rows=eval_rows,
        cross_fitted=cross_fitted,
        warnings=[*networks.warnings, *label_learners.warnings],
    )


def fit_learners_on_rows(data: Dataset, rows: IntArray, gold_rows: IntArray, context: Context) -> FittedStages:
    """Fit the learners on some rows [m]; the others have predictions, and sets as they were.

    The accuracy is estimated on rows of both kinds: of the others on those among `gold_rows`, whose true labels are known, unless rows
    of their group were trained on.
    """
    fitted = fit_learners(data.take(rows), take_context(context, rows))
    network_sets = data.reviewed_sets.copy()
    network_sets[rows] = fitted.networks.sets
    networks = fitted.networks._replace(sets=network_sets)
    learners = [extend_to_all_rows(learner, rows, data, context.resources.map) for learner in fitted.learners]

    others = np.setdiff1d(gold_rows, rows)
    others = others[~np.isin(data.groups[others], data.groups[rows])]
    predicted = np.mean([learner.oof.mean[others] for learner in learners], axis=0)  # their own sets had no influence
    cross_fitted = CrossFitScores(
        from_resolved=np.concatenate([fitted.cross_fitted.from_resolved, predicted]),
        from_raw_sets=np.concatenate([fitted.cross_fitted.from_raw_sets, predicted]),
    )
    return fitted._replace(
        networks=networks,
        learners=learners,
        representation=represent_rows(data, networks.models),
        eval_rows=np.concatenate([rows[fitted.eval_rows], others]),
        cross_fitted=cross_fitted,
    )
