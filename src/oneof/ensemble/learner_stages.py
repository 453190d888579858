"""Fit the learners of an ensemble in the order in which they need each other: kernel, networks, then trees, boosting and the user's classifiers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from oneof.data.dataset import BoolArray, Dataset, FloatArray, IntArray
from oneof.ensemble.set_likelihood import choose_raw_set_temperature
from oneof.ensemble.stacking import combine_within_sets, significantly_better, weigh_learners
from oneof.learners.base import Context, FittedLearner, Predictions, Targets
from oneof.learners.boosting import BoostingLearner
from oneof.learners.config import NetworkConfig
from oneof.learners.images import ImageLearner, plan_for_time, plan_images
from oneof.learners.kernel import CrossFitScores, KernelScores
from oneof.learners.kernel_ensemble import KernelFit, fit_kernels, refit_on_raw_sets
from oneof.learners.networks import NetworkLearner, check_converged, fit_network_learners
from oneof.learners.scaling import append_ranks
from oneof.learners.set_trees import GrowOnSets
from oneof.learners.sklearn_classifier import SklearnLearner
from oneof.learners.trees import TreeLearner
from oneof.storage.rows import Row


def network_kinds(context: Context) -> set[str]:
    """Return which of "networks" and "linear" are among the learners."""
    kinds = set()
    for learner in context.config.ensemble.learners:
        if isinstance(learner, str) and learner in ("networks", "linear"):
            kinds.add(learner)
    return kinds


class KernelStage(NamedTuple):
    """Kernel regressions, if any were needed."""

    fitted: KernelFit | None
    purifies: bool  # whether they weight candidates and may predict; else they only rank the scalings
    evaluation_sets: BoolArray  # [n, c]
    n_scalings: int

    @property
    def learner(self) -> FittedLearner | None:
        """Return the regressions with the best scalings as a learner; None if they only rank scalings."""
        if self.fitted is None or not self.purifies:
            return None
        return self.fitted.learner(self.n_scalings, self.evaluation_sets)

    @property
    def soft_labels(self) -> FloatArray | None:
        """Return the weight of each candidate [n, c]; None if the regressions only rank scalings."""
        if self.fitted is None or not self.purifies:
            return None
        return self.fitted.soft_labels

    @property
    def best_scalings(self) -> list[str]:
        """Return the scalings that networks are trained with; empty if there was no choice."""
        if self.fitted is None:
            return []
        return self.fitted.scalings[: self.n_scalings]

    @property
    def tried(self) -> list[Row]:
        """Return a row for each scaling, best first."""
        if self.fitted is None:
            return []
        return [score.row for score in self.fitted.ranked]


class NetworkStage(NamedTuple):
    """Networks and linear models."""

    learners: list[FittedLearner]
    best: list[FittedLearner]  # those that are combined with other learners
    configs: list[Any]  # a NetworkConfig each; of pictures an ImagePlan
    sets: BoolArray  # [n, c] that they were trained on
    warnings: list[str]

    @property
    def models(self) -> tuple[Any, ...]:
        """Return the trained networks."""
        return tuple(learner.model for learner in self.learners)


class LabelStage(NamedTuple):
    """Trees and classifiers of the user's own, and the kernel if it is one of the learners."""

    learners: list[FittedLearner]
    warnings: list[str]


def fit_kernel_stage(
    data: Dataset, sets: BoolArray, known_scores: KernelScores | None, context: Context
) -> KernelStage:
    """Fit a kernel regression with every scaling, where they weight the candidates or rank the scalings.

    `known_scores` are those of the default kernel on these sets, if they were computed before.
    """
    config = context.config.ensemble
    has_networks = bool(network_kinds(context))
    scalings = _scalings(context)
    purifies = config.kernel is not None or not has_networks
    fitted = None
    if not data.are_pictures and (purifies or len(scalings) > config.n_scalings):
        fitted = fit_kernels(data, sets, scalings, context, known_scores=known_scores)
    return KernelStage(fitted, purifies and fitted is not None, context.evaluation_sets, config.n_scalings)


def choose_kernel_targets(
    data: Dataset,
    sets: BoolArray,
    kernels: KernelStage,
    eval_rows: IntArray,
    cross_fitted: CrossFitScores,
    context: Context,
) -> KernelStage:
    """Choose what the kernel that predicts is fitted on: resolved candidates, or the sets as they are, if these become likelier.

    Noisy sets are left out of the comparison, since they are unlikely under either. The soft labels stay as they are.
    """
    if kernels.fitted is None or not kernels.purifies or data.has_prior:
        return kernels
    candidates = data.candidates.mask[eval_rows]
    is_clean = ~(sets[eval_rows] & ~candidates).any(1)
    if not is_clean.any():
        return kernels
    scores = (cross_fitted.from_resolved[is_clean], cross_fitted.from_raw_sets[is_clean])
    inverse_temperature = choose_raw_set_temperature(scores, candidates[is_clean])
    if not inverse_temperature:
        return kernels
    refitted = refit_on_raw_sets(data, sets, kernels.fitted, inverse_temperature, context)
    return kernels._replace(fitted=replace_predictors(kernels.fitted, refitted))


def replace_predictors(ranked: KernelFit, refitted: KernelFit) -> KernelFit:
    """Return the ranking and soft labels of the first, with the regressions of the second for its best scalings."""
    n_refitted = len(refitted.ranked)
    scores = []
    for old, new in zip(ranked.ranked, refitted.ranked, strict=False):
        scores.append(old._replace(scores=new.scores, kernel=new.kernel))
    return KernelFit(refitted.ranks, refitted.config, [*scores, *ranked.ranked[n_refitted:]])


def fit_networks(data: Dataset, sets: BoolArray, kernels: KernelStage, context: Context) -> NetworkStage:
    """Remove candidates that another one clearly dominates by the kernel's weights, and train networks and linear models on the rest."""
    config = context.config.ensemble
    kinds = network_kinds(context)
    if not kinds:
        return NetworkStage([], [], [], sets, [])
    kept, lead = remove_dominated_labels(sets, kernels.soft_labels, config.margin)
    targets = Targets.uniform(kept)
    configs = _network_configs(kinds, kernels, context)
    features = append_ranks(data.features, torch.device(context.resources.device))
    epochs = NetworkLearner(tuple(configs), features, lead).affordable_epochs(data, targets, context)
    if epochs == 0 and kernels.purifies:  # the kernel can do without networks
        return NetworkStage([], [], [], sets, ["--time-limit: there was no time for networks."])
    epochs = max(epochs, 1)
    warnings = []
    if epochs != config.epochs:
        warnings.append(f"--time-limit: networks had {epochs} of {config.epochs} epochs.")

    context = context._replace(config=replace(context.config, ensemble=replace(config, epochs=epochs)))
    chosen = list(context.warm_start.networks) or configs  # those of an earlier fit, if there are any
    to_train = [NetworkLearner(tuple(chosen), features, lead)]
    have_layers = any(network.hidden for network in configs)
    if "linear" in kinds and have_layers:
        linear_configs = tuple(dict.fromkeys(network._replace(hidden=()) for network in chosen))
        to_train.append(NetworkLearner(linear_configs, features, lead, beside_mlps=True))
    learners = fit_network_learners(to_train, data, targets, context)
    check_converged(learners, [network.lr for network in chosen])
    # With votes both kinds are kept: the sets then hold nearly all labels, so they cannot show which kind is better.
    best = learners
    if not data.has_single_votes:
        best = _best_kind(learners, context)
    return NetworkStage(learners, best, chosen, kept, warnings)


def _network_configs(kinds: Collection[str], kernels: KernelStage, context: Context) -> list[NetworkConfig]:
    """Return the settings of a network for each scaling that the kernel ranked best; linear models if there are to be no others."""
    config = context.config.ensemble
    hidden: tuple[int, ...] = ()
    if "networks" in kinds:
        hidden = config.hidden
    scalings = kernels.best_scalings or _scalings(context)
    return [NetworkConfig(hidden, scaling, config.lr, config.weight_decay) for scaling in scalings]


def fit_image_networks(data: Dataset, sets: BoolArray, context: Context) -> NetworkStage:
    """Train networks on pictures."""
    device = torch.device(context.resources.device)
    n_readable = int(data.observed.sum())
    plan = plan_images(context.config.images, context.config.ensemble, n_readable, data.encoding.pixels[0], device)
    targets = Targets.uniform(sets)
    learner, warnings = plan_for_time(ImageLearner(plan), data, targets, context)
    fitted = learner.fit(data, targets, context)
    check_converged([fitted], [plan.lr])
    return NetworkStage([fitted], [fitted], [learner.plan], sets, warnings)


def make_soft_labels(
    data: Dataset, sets: BoolArray, networks: Sequence[FittedLearner], kernel_weights: FloatArray | None
) -> FloatArray:
    """Return how probable each label of each row is, [n, c], as targets for learners that need one label per row.

    They are the mean of what networks and the kernel predict within the set. With a prior they are the prior alone: predictions depend on the
    priors of other rows, by which a row's own prior would reach its out-of-fold predictions.
    """
    if data.has_prior:
        return combine_within_sets(sets, [], data.prior + 1e-9)
    if kernel_weights is not None and not networks:
        return kernel_weights
    shares = combine_within_sets(sets, [learner.oof.mean for learner in networks])
    if kernel_weights is None:
        return shares
    return np.asarray((shares + kernel_weights) / 2)


def fit_label_learners(
    data: Dataset, targets: Targets, networks: list[FittedLearner], kernels: KernelStage, context: Context
) -> LabelStage:
    """Fit trees and classifiers of the user's own on the targets.

    "trees" and classifiers are fitted on the most probable label of each row, "set_trees" and boosted trees on the sets. The kernel is added
    if it is one of the learners, or if there is no other.
    """
    config = context.config.ensemble
    kernel = kernels.learner
    kernel_is_learner = kernel is not None and "kernel" in config.learners
    fitted_before = list(networks)
    if kernel is not None and kernel_is_learner:
        fitted_before.append(kernel)

    learners = []
    warnings = []
    for tree_learner in _tree_learners(data, targets, fitted_before, context):
        if context.resources.seconds_left <= 0 and kernels.soft_labels is not None:
            warnings.append("--time-limit: there was no time for trees.")
            break
        learners.append(tree_learner.fit(data, targets, context))
    for classifier in config.learners:
        if not isinstance(classifier, str):
            learners.append(SklearnLearner(classifier).fit(data, targets, context))
    if kernel is not None and (kernel_is_learner or not (networks or learners)):
        learners.append(kernel)
    return LabelStage(learners, warnings)


def _tree_learners(
    data: Dataset, targets: Targets, fitted_before: list[FittedLearner], context: Context
) -> list[TreeLearner | BoostingLearner]:
    """Return those kinds of trees that are among the learners and affordable.

    Forests are grown to the end only if their first few trees get any weight beside the learners that were fitted before.
    """
    config = context.config.ensemble
    shape = targets.soft_labels.shape

    def is_useful(probabilities: Any) -> bool:
        """Return whether trees with these predictions get any weight, by the rows that were held out so far."""
        if not fitted_before:
            return True
        oof = Predictions.from_single_model(probabilities, context.evaluation_sets)
        oof = oof._replace(held_out=np.asarray(probabilities.any(1)))
        weights = weigh_learners([*fitted_before, FittedLearner("trees", None, oof)], data, context)
        return bool(weights[-1] > 0)

    learners: list[TreeLearner | BoostingLearner] = []
    if "trees" in config.learners and config.trees.is_affordable(*shape):
        learners.append(TreeLearner(config.trees, is_useful))
    forest_config = config.set_trees.trees
    if "set_trees" in config.learners and forest_config.is_affordable(*shape) and not data.has_prior:
        grow = GrowOnSets(config.set_trees)
        learners.append(TreeLearner(forest_config, is_useful, grow, name="set_trees", is_nested=True))
    if "boosting" in config.learners and config.boosting.is_affordable(*shape) and not data.has_prior:
        learners.append(BoostingLearner(config.boosting))
    return learners


def remove_dominated_labels(sets: BoolArray, weights: FloatArray | None, margin: float) -> tuple[BoolArray, FloatArray]:
    """Return the sets without labels whose weight is below the largest of the row by the margin or more, and that lead [n, c].

    The lead is 0 where no label was removed.
    """
    if weights is None:
        return sets, np.zeros(sets.shape)
    lead = weights.max(1, keepdims=True) - weights
    is_removed = sets & (lead >= margin)
    return sets & ~is_removed, np.where(is_removed, lead, 0.0)


def _scalings(context: Context) -> list[str]:
    """Return the scalings to try: those of an earlier fit, or of the config."""
    earlier = [config.scaling for config in context.warm_start.networks]
    return list(dict.fromkeys(earlier)) or list(context.config.ensemble.scalings)


def _best_kind(learners: list[FittedLearner], context: Context) -> list[FittedLearner]:
    """Return the MLPs, or the linear models where these are significantly better; their average with MLPs would be worse than they are."""
    linear = []
    nonlinear = []
    for learner in learners:
        if learner.name == "linear":
            linear.append(learner)
        else:
            nonlinear.append(learner)
    if not linear or not nonlinear:
        return learners
    rows = np.all([learner.oof.held_out for learner in learners], axis=0)
    if not rows.any():
        return learners
    by_linear = np.mean([learner.oof.mean[rows] for learner in linear], axis=0)
    by_nonlinear = np.mean([learner.oof.mean[rows] for learner in nonlinear], axis=0)
    sets = context.evaluation_sets[rows]
    if significantly_better(by_linear, by_nonlinear, sets, context.config.criterion):
        return linear
    return nonlinear
