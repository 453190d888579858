"""From examples to a classifier and the label of every row: the one path of tables, votes and pictures.

1. Sets that seem to miss the truth are found and not learned from.
2. A kernel regression that leaves each row out weighs its candidates, once for every scaling of the features. The agreement with the
   sets ranks the scalings; labels that another candidate clearly leads are removed.
3. Networks and linear models learn from the sets, with the best scalings; trees and classifiers of the user's own learn from the soft
   labels that these find. Every learner predicts rows that it was not trained on.
4. Held-out sets weigh the learners; their mean, and the votes where there are any, resolve the label of every row.
5. Held-out rows show what may be said about the accuracy.

No true label is used, unless it is given as gold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from oneof.data.dataset import UNKNOWN, Dataset, replace_by_gold
from oneof.ensemble.accuracy import (
    MIN_GOLD,
    SAMPLE,
    AccuracyEstimate,
    HeldOutEval,
    estimate_accuracy,
    gold_of_random_sample,
    sample_order,
)
from oneof.ensemble.calibrate import calibrate
from oneof.ensemble.learner_stages import (
    NetworkStage,
    choose_kernel_targets,
    fit_image_networks,
    fit_kernel_stage,
    fit_label_learners,
    fit_networks,
)
from oneof.ensemble.model import Model
from oneof.ensemble.noisy_sets import find_noisy_sets
from oneof.ensemble.records import FitResult, purified_table, removals_table, training_counts, training_record
from oneof.ensemble.resolve import Resolved, allowed_labels, resolve_labels, soft_labels
from oneof.ensemble.review_order import find_evidence
from oneof.ensemble.stacking import combine_predictions, weigh_learners
from oneof.ensemble.votes_alone import resolve_votes_alone
from oneof.learners.base import BoolArray, Context, FittedLearner, FloatArray, IntArray, Resources, Targets, WarmStart
from oneof.learners.config import FitConfig
from oneof.learners.kernel import KernelConfig, KernelScores, cross_fit_scores
from oneof.metrics import CRITERIA, MEANS
from oneof.storage.rows import Row
from oneof.storage.settings import plain_value
from oneof.training.device import device_for, device_for_pictures
from oneof.version import RUN_FORMAT, __version__

MAX_EVAL_ROWS = 4000  # rows by which the accuracy is estimated,
MAX_EVAL_CELLS = 2**21  # and cells [m, c] of them


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
    training_sets, kernel_scores = choose_training_sets(data, context)

    kernels = fit_kernel_stage(data, training_sets, kernel_scores, context)
    if data.are_pictures:
        networks = fit_image_networks(data, training_sets, context)
    else:
        networks = fit_networks(data, training_sets, kernels, context)
    representation = Model(data.classes, data.encoding, networks.models, {}).features(data.features)
    eval_rows = choose_eval_rows(*training_sets.shape)
    cross_fitted = cross_fit_eval_rows(data, representation, eval_rows)
    kernels = choose_kernel_targets(data, training_sets, kernels, eval_rows, cross_fitted, context)
    targets = Targets(training_sets, soft_labels(data, training_sets, networks.learners, kernels.soft_labels))
    label_learners = fit_label_learners(data, targets, networks.best, kernels, context)

    learners = [*networks.best, *label_learners.learners]
    weights = weigh_learners(learners, data, context)
    counted = [learner for learner, weight in zip(learners, weights, strict=True) if weight > 0]
    predictions = combine_predictions(learners, weights).mask_unobserved(data.observed)
    resolved = resolve_labels(data, predictions, allowed_labels(data, counted, networks.sets))

    evaluated = HeldOutEval(
        predictions.mean[eval_rows],
        data.candidates.mask[eval_rows],
        evaluation_gold[eval_rows],
        cross_fitted[0],
        data.has_prior,
    ).where(predictions.held_out[eval_rows])
    accuracy = estimate_accuracy(evaluated)
    model = Model(data.classes, data.encoding, (), calibrate(evaluated, accuracy)).with_fitted(learners, weights)
    return FitResult(
        model=model.counted().on_cpu(),
        purified=describe_rows(data, counted, resolved, representation, context),
        training=training_record([learner.training for learner in counted if learner.training is not None]),
        tried=[*kernels.tried, *_learner_rows(model)],
        accuracy=accuracy,
        metadata=describe_fit(data, model.counted(), networks, accuracy, context),
        warnings=[*networks.warnings, *label_learners.warnings],
    )


def make_context(
    data: Dataset, config: FitConfig, resources: Resources, warm_start: WarmStart
) -> tuple[Context, IntArray]:
    """Adapt the settings to the data; return what the learners share, and the gold labels [n] that measure accuracy.

    Gold labels of rows that were drawn at random measure. Of the others, MIN_GOLD or more choose settings.
    """
    known = (*MEANS, *CRITERIA)
    if config.criterion not in known:
        raise ValueError(f"rule must be one of {', '.join(known)}; got {config.criterion!r}.")
    evaluation_gold = data.audit if (data.audit != UNKNOWN).any() else gold_of_random_sample(data.gold)
    selection_gold = np.where(evaluation_gold != UNKNOWN, UNKNOWN, data.gold)
    if (selection_gold != UNKNOWN).sum() < MIN_GOLD:
        selection_gold = np.full(len(data), UNKNOWN)

    ensemble = config.ensemble
    if data.votes is not None and data.votes.held_out is None:
        ensemble = ensemble.for_prior()
    if data.are_pictures:
        device = device_for_pictures(resources.device)
        ensemble = replace(ensemble, learners=("networks",), kernel=None)  # single pixels say too little for others
    else:
        device = device_for(resources.device, *data.features.shape)
        ensemble = ensemble.for_size(*data.candidates.mask.shape)
    context = Context(
        config=replace(config, ensemble=ensemble),
        resources=replace(resources, device=device),
        warm_start=warm_start,
        selection_gold=selection_gold,
        evaluation_sets=replace_by_gold(data.candidates.mask, selection_gold),
    )
    return context, evaluation_gold


def choose_training_sets(data: Dataset, context: Context) -> tuple[BoolArray, KernelScores | None]:
    """Return the sets [n, c] to learn from: full where a set seems to miss the truth, a gold label where it is to be trained on.

    Also return the kernel scores that this took, if the kernel learner would compute the same.
    """
    config = context.config
    sets = data.reviewed
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
    """Return the rows by which the accuracy is estimated: all, or the first that are drawn of a large table."""
    n_rows = max(min(MAX_EVAL_ROWS, MAX_EVAL_CELLS // c), SAMPLE)
    return np.sort(sample_order(n)[:n_rows])


def cross_fit_eval_rows(
    data: Dataset, representation: FloatArray, eval_rows: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Return scores on which a row's own set had no influence: from resolved candidates, and from the sets as they are."""
    features = data.plain_features(eval_rows) if data.are_pictures else representation[eval_rows]
    return cross_fit_scores(features, data.candidates.mask[eval_rows])


def describe_rows(
    data: Dataset, learners: Sequence[FittedLearner], resolved: Resolved, representation: FloatArray, context: Context
) -> pa.Table:
    """Return a row for every example: its label with the evidence, removals, similar rows and the gain of reviewing it."""
    trained = [learner.training for learner in learners if learner.training is not None]
    neighbours, gain = find_evidence(representation, resolved.distribution, resolved.ask, context.resources.device)
    more = {
        "removed": removals_table(trained, data.reviewed, data.classes),
        "trained": training_counts(trained, len(data)),
        "neighbours": neighbours,
        "gain": pa.array(gain),
    }
    return purified_table(data, resolved, more)


def describe_fit(
    data: Dataset, model: Model, networks: NetworkStage, accuracy: AccuracyEstimate, context: Context
) -> dict[str, Any]:
    """Return what run.json says about any fit."""
    return {
        "format": RUN_FORMAT,
        "oneof": __version__,
        "torch": torch.__version__,
        "seed": context.config.seed,
        "n": len(data),
        "d": len(data.encoding.names),
        "classes": data.classes,
        "features": data.encoding.names,
        "chosen": plain_value([config._asdict() for config in networks.configs]),
        "learners": model.learners,
        "rule": "size and device" if data.are_pictures else context.criterion,
        "estimate": asdict(accuracy),
    }


def _learner_rows(model: Model) -> list[Row]:
    """Return a row with the weight of each learner, also of those that do not count."""
    return [{"stage": "learners", "learner": name, "share": weight} for name, weight in model.learners.items()]
