"""Networks on tables as a learner: an ensemble trained as one stack, each network with held-out rows of its own.

Why these defaults: docs/decisions/0006-default-estimator.md. `oneof.ensemble.tune` searches other settings.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oneof.data.dataset import BoolArray, Dataset, FloatArray
from oneof.data.splits import Split, split_rows
from oneof.learners.base import Context, FittedLearner, Resources, Targets
from oneof.learners.config import EnsembleConfig, NetworkConfig
from oneof.learners.network_models import TableNetworks, predict_held_out
from oneof.learners.scaling import SCALINGS_WITH_RANKS, RankedFeatures
from oneof.networks import MLP
from oneof.purify import Removals
from oneof.training.fit import fit
from oneof.training.parallel import count_workers
from oneof.training.processes import current_group
from oneof.training.state import Fit, join_fits
from oneof.training.trials import Training, Trial

LINEAR_BATCH_FACTOR = 4  # steps of linear models are mostly overhead
MIN_USEFUL_EPOCHS = 5  # a network that was trained for fewer predicts too poorly to be of use


class TrainingInputs(NamedTuple):
    """Inputs and settings that all networks of a fit have in common."""

    sets: BoolArray  # [n, c]
    prior: FloatArray | None  # [n, c]
    config: EnsembleConfig
    resources: Resources
    epochs: int
    purify: bool


@dataclass(frozen=True, eq=False)
class NetworkLearner:
    """Trains networks with one shape of hidden layers, in turn with each of the configs."""

    configs: tuple[NetworkConfig, ...]
    features: RankedFeatures
    first_removals: FloatArray  # [n, c] lead by which labels were removed before training; 0 where they were not
    beside_mlps: bool = False  # linear models trained in addition to MLPs: larger batches, a checkpoint of their own

    @property
    def hidden(self) -> tuple[int, ...]:
        """Return the widths of the hidden layers."""
        return self.configs[0].hidden

    def fit(self, data: Dataset, targets: Targets, context: Context) -> FittedLearner:
        """Train the networks on the sets of the targets."""
        (fitted,) = fit_network_learners([self], data, targets, context)
        return fitted

    def from_training(self, trained: Fit, data: Dataset, resources: Resources) -> FittedLearner:
        """Return trained networks as a learner, with their predictions for the rows that they held out."""
        trained = replace(trained, removals=_prepend_removals(trained, self.first_removals))
        networks = TableNetworks.from_fit(trained)
        oof = predict_held_out(networks, data.features, data.candidates.mask, trained.rows, resources.map)
        kind = "networks" if self.hidden else "linear"
        return FittedLearner(kind, networks, oof, n_models=networks.stack.t, training=trained)

    def affordable_epochs(self, data: Dataset, targets: Targets, context: Context) -> int:
        """Return how many epochs fit in half of the time that is left, by timing one; 0 if they are too few to be of use.

        The other half is for the other learners and for resolving labels.
        """
        epochs = context.config.ensemble.epochs
        assert epochs is not None
        seconds_left = context.resources.seconds_left
        if math.isinf(seconds_left):
            return epochs
        begin = time.monotonic()
        without_progress = replace(context.resources, progress=None)
        context_of_epoch = context._replace(resources=without_progress)
        _train_learners([self], data, targets.sets, context_of_epoch, 1, purify=False)
        seconds_per_epoch = max(time.monotonic() - begin, 1e-3)
        affordable = int(min(epochs, (seconds_left / 2) // seconds_per_epoch))
        affordable = current_group(context.resources.n_jobs).broadcast_int(affordable)  # every process trains as long
        return affordable if affordable >= min(epochs, MIN_USEFUL_EPOCHS) else 0

    def train(self, trials: Sequence[Trial], inputs: TrainingInputs) -> Fit:
        """Train the networks of some trials as one stack."""
        config = inputs.config
        resources = inputs.resources
        x, median = _centre_on_device(self.features.values)
        trained = fit(
            x,
            inputs.sets,
            trials=trials,
            method=config.method,
            purify=config.purify if inputs.purify else None,
            network=MLP(self.hidden),
            training=self._training(config, inputs.epochs),
            prior=inputs.prior,
            device=resources.device,
            progress=resources.progress,
            memory=resources.memory,
            checkpoint=resources.checkpoint_of(self.checkpoint_name),
            n_jobs=resources.n_jobs,
        )
        origin = trained.origin if median is None else median
        return replace(trained, ranks=self.features.ranks, origin=origin)

    @property
    def checkpoint_name(self) -> str:
        """Return the name of the folder that keeps the checkpoint."""
        return "linear-0" if self.beside_mlps else "ensemble-0"

    def _training(self, config: EnsembleConfig, epochs: int) -> Training:
        batch_size = config.batch_size
        assert batch_size is not None  # `EnsembleConfig.for_size` set it
        if self.beside_mlps:
            batch_size *= LINEAR_BATCH_FACTOR
        return make_training(config, epochs, batch_size)

    def trials(self, data: Dataset, context: Context) -> list[Trial]:
        """Return a trial for each network, the configs in turn, each with the held-out rows of its fold."""
        config = context.config.ensemble
        seed = context.config.seed
        n_networks = config.n_networks
        splits = split_rows(np.arange(len(data)), config.n_folds or n_networks, data.groups, seed + 1)
        start_weights: Sequence[Any] = context.warm_start.weights.get(self.hidden) or [None] * n_networks
        trials = []
        for i in range(n_networks):
            network_seed = derive_seed(seed, len(self.configs), i)
            trial = make_trial(self.configs[i % len(self.configs)], network_seed, splits[i % len(splits)])
            trials.append(replace(trial, start=start_weights[i]))
        return trials


def fit_network_learners(
    learners: Sequence[NetworkLearner], data: Dataset, targets: Targets, context: Context
) -> list[FittedLearner]:
    """Train the networks of all learners; with `n_jobs`, dealt out to worker processes together."""
    epochs = context.config.ensemble.epochs
    assert epochs is not None  # `EnsembleConfig.for_size` set it
    trainings = _train_learners(learners, data, targets.sets, context, epochs)
    fitted = []
    for learner, trained in zip(learners, trainings, strict=True):
        fitted.append(learner.from_training(trained, data, context.resources))
    return fitted


class _StackJob(NamedTuple):
    """Networks of a learner that are trained as one stack."""

    learner: NetworkLearner
    trials: list[Trial]
    resources: Resources


def _train_learners(
    learners: Sequence[NetworkLearner],
    data: Dataset,
    sets: BoolArray,
    context: Context,
    epochs: int,
    *,
    purify: bool = True,
) -> list[Fit]:
    """Return the training of each learner."""
    prior = data.prior if data.has_prior else None
    inputs = TrainingInputs(sets, prior, context.config.ensemble, context.resources, epochs, purify)
    if not context.resources.maps_jobs:
        return [learner.train(learner.trials(data, context), inputs) for learner in learners]
    jobs = []
    n_jobs_of_learner = []
    for learner in learners:
        stacks = split_into_stacks(learner.trials(data, context), context.resources.n_jobs)
        n_jobs_of_learner.append(len(stacks))
        for number, trials in enumerate(stacks):
            jobs.append(_StackJob(learner, trials, _resources_of_stack(context.resources, number, len(stacks))))
    fits = context.resources.map(partial(_train_stack, inputs), jobs)
    joined = []
    for count in n_jobs_of_learner:
        joined.append(join_fits(fits[:count]))
        fits = fits[count:]
    return joined


def split_into_stacks(trials: list[Trial], n_jobs: int | None) -> list[list[Trial]]:
    """Return the trials as one stack for each job, with two or more networks each.

    Every network of a stack of two or more is trained by the same arithmetic, so that its bits do not depend on how many jobs there
    are; a network alone is multiplied by another routine.

    >>> [len(stack) for stack in split_into_stacks([Trial(seed=seed) for seed in range(5)], 4)]
    [2, 3]
    """
    n_stacks = count_workers(n_jobs, max(1, len(trials) // 2))
    bounds = [len(trials) * number // n_stacks for number in range(n_stacks + 1)]
    return [trials[start:end] for start, end in itertools.pairwise(bounds)]


def _resources_of_stack(resources: Resources, number: int, n_stacks: int) -> Resources:
    """Return what one of several stacks may use: a share of the memory, a checkpoint of its own; the first shows its progress."""
    checkpoint = resources.checkpoint
    memory = resources.memory
    if checkpoint is not None and n_stacks > 1:
        checkpoint = checkpoint / f"stack-{number}-of-{n_stacks}"
    if memory is not None:
        memory //= n_stacks
    progress = resources.progress if number == 0 else None
    return replace(resources, n_jobs=1, checkpoint=checkpoint, memory=memory, progress=progress)


def _train_stack(inputs: TrainingInputs, job: _StackJob) -> Fit:
    return job.learner.train(job.trials, inputs._replace(resources=job.resources))


def make_trial(config: NetworkConfig, seed: int, split: Split) -> Trial:
    """Return a trial that trains on one side of a split and is evaluated on the other."""
    training_rows, held_out_rows = split
    return Trial(
        seed=seed,
        rows=training_rows,
        held_out=held_out_rows,
        lr=config.lr,
        weight_decay=config.weight_decay,
        scaling=SCALINGS_WITH_RANKS[config.scaling],
    )


def make_training(config: EnsembleConfig, epochs: int, batch_size: int) -> Training:
    """Return how the networks of a config are trained."""
    return Training(epochs=epochs, batch=batch_size, optimizer=config.optimizer, mixup=config.mixup, noise=config.noise)


def derive_seed(*numbers: int) -> int:
    """Return a seed that is determined by these numbers."""
    return int(np.random.default_rng(numbers).integers(2**31 - 1))


def check_converged(learners: Sequence[FittedLearner], lrs: Sequence[float]) -> None:
    """Raise ValueError if a network has weights that are not finite."""
    n_networks = 0
    n_diverged = 0
    for learner in learners:
        if learner.training is None:
            continue
        stack = learner.training.stack
        for t in range(stack.t):
            n_networks += 1
            is_finite = all(bool(weight[t].isfinite().all()) for weight in stack.weights.values())
            n_diverged += not is_finite
    if n_diverged:
        rates = ", ".join(str(lr) for lr in lrs)
        counts = f"{n_diverged} of {n_networks}"
        raise ValueError(f"training diverged in {counts} networks. Lower lr (now {rates}), or scale the features.")


def _centre_on_device(values: NDArray[np.float64] | Tensor) -> tuple[Any, NDArray[np.float64] | None]:
    """Return features less their median, and the median, if they are on a device; `fit` does the same to arrays."""
    if not isinstance(values, Tensor):
        return values, None
    n = len(values)
    middle_rows = [(n - 1) // 2, n // 2]
    median = values.sort(0).values[middle_rows].mean(0)
    return values - median, median.cpu().numpy()


def _prepend_removals(trained: Fit, lead: FloatArray) -> Removals | None:
    """Return the log of removals with those before training as round 0."""
    if trained.removals is None:
        return None
    leads = torch.as_tensor(lead, dtype=trained.history["loss"].dtype, device=trained.rows.device)
    removed = leads[trained.rows]  # [t, m, c]
    trial, row, label = (removed > 0).nonzero(as_tuple=True)
    before = Removals(trial, row, label, torch.zeros_like(label), removed[removed > 0])
    joined = [torch.cat(pair) for pair in zip(before, trained.removals, strict=True)]
    return Removals(*joined)
