"""Fit a classifier and the label of every row: the one path of tables, votes and pictures.

1. Sets that seem to miss the true label are found; they are not trained on, nor are rows whose set holds every label.
2. A kernel regression that leaves each row out weights the candidates of every row, once for each scaling of the features. The
   agreement with the sets ranks the scalings; labels that another candidate clearly dominates are removed.
3. Networks and linear models are trained on the sets, with the best scalings; trees and the user's own classifiers on the resulting soft
   labels; other trees on the sets alone. Every learner predicts rows that it was not trained on.
4. Held-out sets weight the learners. The accuracy on new rows is estimated from held-out predictions.
5. The learners' weighted mean, and the votes where there are any, resolve the label of every row. Probabilities are lowered where sets
   seem to miss the true label, where features predict which wrong labels are in the sets, and where nothing was learned; probabilities
   of the input that features explain stay as they are.

No true label is used, except those that are given as gold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from oneof.data.dataset import UNKNOWN, BoolArray, Dataset, FloatArray, IntArray, replace_by_gold
from oneof.ensemble.accuracy import (
    GOLD_SAMPLE_ROWS,
    MIN_AMBIGUOUS,
    MIN_GOLD,
    MIN_HELD_OUT,
    HeldOutEval,
    estimate_accuracy,
    gold_of_random_sample,
    learned_nothing,
    sample_order,
)
from oneof.ensemble.calibrate import calibrate
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
from oneof.ensemble.model import Model
from oneof.ensemble.noisy_sets import find_noisy_sets
from oneof.ensemble.predictable_sets import (
    MAX_ROWS,
    MIN_TRUST,
    describe_share,
    describe_share_of_prior,
    explained_share,
    explained_share_of_prior,
    independence_of_prior,
    trust_in_labels,
)
from oneof.ensemble.records import (
    FitResult,
    describe_fit,
    purified_table,
    removals_table,
    training_counts,
    training_record,
)
from oneof.ensemble.resolve import ResolvedRows, allowed_labels, resolve_labels
from oneof.ensemble.review_order import neighbours_and_gain
from oneof.ensemble.stacking import combine_predictions, weigh_learners
from oneof.ensemble.votes_alone import resolve_votes_alone
from oneof.learners.base import Context, FittedLearner, Resources, Targets, WarmStart, trained_networks
from oneof.learners.config import FitConfig
from oneof.learners.kernel import CrossFitScores, KernelConfig, KernelScores, cross_fit_scores, with_best_gamma
from oneof.metrics import CRITERIA, MEANS
from oneof.storage.rows import Row
from oneof.training.device import device_for, device_for_pictures
from oneof.training.parallel import start_workers
from oneof.training.processes import check_rows, current_group

MAX_EVAL_ROWS = 4000  # rows used to estimate the accuracy
MAX_EVAL_CELLS = 2**21  # rows x classes used to estimate it


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


class FittedStages(NamedTuple):
    """The fitted learners, with what was computed on the way."""

    kernels: KernelStage
    networks: NetworkStage
    learners: list[FittedLearner]
    weights: FloatArray  # of each learner
    representation: FloatArray  # [n, width] of `represent_rows`
    eval_rows: IntArray  # [m] rows on which the accuracy is estimated
    cross_fitted: CrossFitScores  # of these rows
    warnings: list[str]


def fit_ensemble(data: Dataset, context: Context, evaluation_gold: IntArray) -> FitResult:
    """Fit the learners of a context; `evaluation_gold` [n] measures the accuracy where it is known."""
    # 1. to 3. The learners and their weights. Rows whose set says nothing are predicted only.
    rows = informative_rows(data, context.config.train_on_gold)
    if len(rows) == len(data):
        fitted = fit_learners(data, context)
    else:
        fitted = fit_learners_on_rows(data, rows, np.flatnonzero(evaluation_gold != UNKNOWN), context)
    learners = fitted.learners
    eval_rows = fitted.eval_rows

    # 4. The accuracy on new rows.
    weights = fitted.weights
    weighted_learners = with_positive_weight(learners, weights)
    predictions = combine_predictions(learners, weights).mask_unobserved(data.observed)
    evaluated = HeldOutEval(
        probabilities=predictions.mean[eval_rows],
        candidates=data.candidates.mask[eval_rows],
        gold=evaluation_gold[eval_rows],
        cross_fitted=choose_independent_scores(learners, weights, fitted.cross_fitted, eval_rows),
        has_prior=data.has_prior,
    ).where(predictions.held_out[eval_rows])
    accuracy = estimate_accuracy(evaluated)

    # 5. The label of every row.
    allowed = allowed_labels(data, weighted_learners, fitted.networks.sets)
    labels = resolve_labels(data, predictions, allowed).label
    trust = estimate_trust(data, labels)
    if learned_nothing(evaluated):
        trust = trust._replace(in_labels=MIN_TRUST)
    resolved = resolve_labels(data, predictions, allowed, trust.in_labels, trust.independence)

    model = Model(data.classes, data.encoding, (), calibrate(evaluated, accuracy)).with_fitted(learners, weights)
    weighted_model = model.without_zero_weights()
    rule = context.criterion  # what chose the settings
    if data.are_pictures:
        rule = "size and device"
    return FitResult(
        model=weighted_model.on_cpu(),
        purified=describe_rows(data, weighted_learners, resolved, fitted.representation, context),
        training=training_record(trained_networks(weighted_learners)),
        tried=[*fitted.kernels.tried, *_learner_rows(model)],
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


def fit_learners(data: Dataset, context: Context) -> FittedStages:
    """Fit the learners on all rows of the data, each after those whose results it needs, and weight them."""
    with start_workers(context.resources.n_workers):
        training_sets, kernel_scores = choose_training_sets(data, context)

    kernels = fit_kernel_stage(data, training_sets, kernel_scores, context)
    if data.are_pictures:
        networks = fit_image_networks(data, training_sets, context)
    else:
        networks = fit_networks(data, training_sets, kernels, context)
    representation = represent_rows(data, networks)
    eval_rows = choose_eval_rows(*training_sets.shape)
    cross_fitted = cross_fit_eval_rows(data, representation, eval_rows, context)
    kernels = choose_kernel_targets(data, training_sets, kernels, eval_rows, cross_fitted, context)
    soft_labels = make_soft_labels(data, training_sets, networks.learners, kernels.soft_labels)
    targets = Targets(training_sets, soft_labels)
    label_learners = fit_label_learners(data, targets, networks.best, kernels, context)
    learners = [*networks.best, *label_learners.learners]
    return FittedStages(
        kernels=kernels,
        networks=networks,
        learners=learners,
        weights=weigh_learners(learners, data, context),
        representation=representation,
        eval_rows=eval_rows,
        cross_fitted=cross_fitted,
        warnings=[*networks.warnings, *label_learners.warnings],
    )


def fit_learners_on_rows(data: Dataset, rows: IntArray, measured: IntArray, context: Context) -> FittedStages:
    """Fit the learners on some rows [m]; the others have predictions, and sets as they were.

    The accuracy is estimated on rows of both kinds: of the others on those that are `measured`, whose true labels are known, unless rows
    of their group were trained on.
    """
    fitted = fit_learners(data.take(rows), take_context(context, rows))
    network_sets = data.reviewed_sets.copy()
    network_sets[rows] = fitted.networks.sets
    networks = fitted.networks._replace(sets=network_sets)
    learners = [extend_to_all_rows(learner, rows, data, context.resources.map) for learner in fitted.learners]

    others = np.setdiff1d(measured, rows)
    others = others[~np.isin(data.groups[others], data.groups[rows])]
    predicted = np.mean([learner.oof.mean[others] for learner in learners], axis=0)  # their own sets had no influence
    cross_fitted = CrossFitScores(*(np.concatenate([scores, predicted]) for scores in fitted.cross_fitted))
    return fitted._replace(
        networks=networks,
        learners=learners,
        representation=represent_rows(data, networks),
        eval_rows=np.concatenate([rows[fitted.eval_rows], others]),
        cross_fitted=cross_fitted,
    )


def make_context(
    data: Dataset, config: FitConfig, resources: Resources, warm_start: WarmStart
) -> tuple[Context, IntArray]:
    """Adapt the settings to the data; return the learners' context, and the gold labels [n] that measure accuracy.

    Labels from the review's random sample measure the accuracy; without them, gold labels of a random sample do. The other gold labels,
    if there are MIN_GOLD or more, choose settings.
    """
    known = (*MEANS, *CRITERIA)
    if config.criterion not in known:
        raise ValueError(f"criterion must be one of {', '.join(known)}; got {config.criterion!r}.")
    evaluation_gold = gold_of_random_sample(data.gold)
    if (data.audit_labels != UNKNOWN).any():
        evaluation_gold = data.audit_labels
    selection_gold = np.where(evaluation_gold != UNKNOWN, UNKNOWN, data.gold)
    if (selection_gold != UNKNOWN).sum() < MIN_GOLD:
        selection_gold = np.full(len(data), UNKNOWN)

    if data.are_pictures:
        check_rows(len(data), resources.n_jobs or 1)  # before any process is started
    seed = current_group(resources.n_jobs).broadcast_int(config.seed)  # processes that were started together share one
    ensemble = config.ensemble
    if data.votes is not None and not data.has_single_votes:
        ensemble = ensemble.for_prior()
    if data.are_pictures:
        device = device_for_pictures(resources.device)
        ensemble = replace(ensemble, learners=("networks",), kernel=None)  # other learners cannot use single pixels
    else:
        device = device_for(resources.device, *data.features.shape)
        n_rows = len(informative_rows(data, config.train_on_gold))
        ensemble = ensemble.for_size(n_rows, len(data.classes)).for_width(data.features.shape[1])
    context = Context(
        config=replace(config, ensemble=ensemble, seed=seed),
        resources=replace(resources, device=device, are_ranks=data.are_pictures),
        warm_start=warm_start,
        selection_gold=selection_gold,
        evaluation_sets=replace_by_gold(data.candidates.mask, selection_gold),
    )
    return context, evaluation_gold


def choose_training_sets(data: Dataset, context: Context) -> tuple[BoolArray, KernelScores | None]:
    """Return the sets [n, c] to train on: all labels where a set seems to miss the true label; with train_on_gold, gold labels.

    The kernel scores by which noisy sets were found are returned too, or None if the kernel learner would compute other ones: it has
    other settings, leaves out groups, or is fitted on gold labels.
    """
    config = context.config
    sets = data.reviewed_sets
    kernel_scores = None
    if config.ensemble.kernel is not None and not data.has_prior:
        noisy = context.warm_start.noisy_sets
        if noisy is None:
            noisy, kernel_scores = find_noisy_sets(
                data.features,
                sets,
                max_rows=config.ensemble.max_kernel_rows,
                seed=config.seed,
                device=context.resources.device,
            )
        sets = np.asarray(sets | noisy[:, None])
        if config.ensemble.kernel != KernelConfig() or data.has_groups:
            kernel_scores = None
    if config.train_on_gold and data.has_gold:
        sets = replace_by_gold(sets, data.gold)
        kernel_scores = None
    return sets, kernel_scores


def choose_eval_rows(n: int, c: int) -> IntArray:
    """Return the rows on which the accuracy is estimated: all, or a random sample of a large table."""
    n_rows = max(min(MAX_EVAL_ROWS, MAX_EVAL_CELLS // c), GOLD_SAMPLE_ROWS)
    return np.sort(sample_order(n)[:n_rows])


def represent_rows(data: Dataset, networks: NetworkStage) -> FloatArray:
    """Return each row as the first network represents it [n, width]; without networks, standardised features."""
    model = Model(data.classes, data.encoding, networks.models, calibration={})
    return model.features(data.features)


def cross_fit_eval_rows(
    data: Dataset, representation: FloatArray, eval_rows: IntArray, context: Context
) -> CrossFitScores:
    """Return scores of the evaluated rows on which a row's own set had no influence."""
    features = representation[eval_rows]
    if data.are_pictures:
        features = data.plain_features(eval_rows)
    sets = data.candidates.mask[eval_rows]
    kernel = with_best_gamma(features, sets)
    return cross_fit_scores(features, sets, kernel, map_folds=context.resources.map)


def choose_independent_scores(
    learners: Sequence[FittedLearner], weights: FloatArray, cross_fitted: CrossFitScores, eval_rows: IntArray
) -> FloatArray:
    """Return scores of the evaluated rows [m, c] on which a row's own set had no influence.

    They are the predictions of the learner with the largest weight, if it is nested, else the kernel's. Where only trees can learn from
    the features, the kernel's scores alone would suggest that nothing was learned.
    """
    heaviest = learners[int(weights.argmax())]
    if heaviest.is_nested:
        return heaviest.oof.mean[eval_rows]
    return cross_fitted.from_resolved


class Trust(NamedTuple):
    """How far the learners' predictions for the rows of the table can be trusted."""

    in_labels: float = 1.0  # probability that the learners' choice within a set can be believed
    independence: float = 1.0  # of the learners' mistakes from those in counts or probabilities
    warnings: Sequence[str] = ()


def estimate_trust(data: Dataset, labels: IntArray) -> Trust:
    """Estimate the trust from how well features predict which wrong labels are in the sets, or how probable, on a sample of the rows.

    It is full with single votes, which tell more than sets do, and for too few rows or sets of several labels.
    """
    rows = np.sort(sample_order(len(data))[:MAX_ROWS])
    mask = data.candidates.mask[rows]
    n_ambiguous = int((mask.sum(1) > 1).sum())
    if data.has_single_votes or len(rows) < MIN_HELD_OUT or n_ambiguous < MIN_AMBIGUOUS:
        return Trust()
    features = data.plain_features(rows)
    if data.has_prior:
        share = explained_share_of_prior(features, data.prior[rows], labels[rows])
        return Trust(independence=independence_of_prior(share), warnings=describe_share_of_prior(share))
    share = explained_share(features, mask, labels[rows])
    return Trust(in_labels=trust_in_labels(share), warnings=describe_share(share))


def describe_rows(
    data: Dataset,
    learners: Sequence[FittedLearner],
    resolved: ResolvedRows,
    representation: FloatArray,
    context: Context,
) -> pa.Table:
    """Return the purified table, a row per example: its label with the evidence, removals, similar rows and the gain of reviewing it."""
    trained = trained_networks(learners)
    neighbours, gain = neighbours_and_gain(
        representation, resolved.distribution, resolved.ask, context.resources.device, context.resources.map
    )
    other_columns = {
        "removed": removals_table(trained, data.reviewed_sets, data.classes),
        "trained": training_counts(trained, len(data)),
        "neighbours": neighbours,
        "gain": pa.array(gain),
    }
    return purified_table(data, resolved, other_columns)


def with_positive_weight(learners: Sequence[FittedLearner], weights: FloatArray) -> list[FittedLearner]:
    """Return the learners whose weight is not 0."""
    weighted = []
    for learner, weight in zip(learners, weights, strict=True):
        if weight > 0:
            weighted.append(learner)
    return weighted


def _learner_rows(model: Model) -> list[Row]:
    """Return a row for rows.jsonl with the weight of each learner, also if it is 0."""
    return [{"stage": "learners", "learner": name, "share": weight} for name, weight in model.learners.items()]
