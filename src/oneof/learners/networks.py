"""Networks on tables as a learner: an ensemble trained as one stack, each network with held-out rows of its own.

Why these defaults: docs/decisions/0006-default-estimator.md. `oneof.ensemble.tune` searches other settings.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oneof.data.dataset import BoolArray, Dataset, FloatArray
from oneof.data.splits import Split, split_rows
from oneof.learners.base import Context, FittedLearner, Targets
from oneof.learners.config import EnsembleConfig, NetworkConfig
from oneof.learners.network_models import TableNetworks, predict_held_out
from oneof.learners.scaling import SCALINGS_WITH_RANKS, RankedFeatures
from oneof.networks import MLP
from oneof.purify import Removals
from oneof.training.fit import fit
from oneof.training.processes import current_group
from oneof.training.state import Fit
from oneof.training.trials import Training, Trial

LINEAR_BATCH_FACTOR = 4  # steps of linear models are mostly overhead
MIN_EPOCHS = 5  # a network that was trained for fewer predicts too poorly to be of use


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
        config = context.config.ensemble
        assert config.epochs is not None  # `EnsembleConfig.for_size` set it
        trained = self._train(data, targets.sets, context, config.epochs)
        trained = replace(trained, removals=_prepend_removals(trained, self.first_removals))
        networks = TableNetworks.from_fit(trained)
        oof = predict_held_out(networks, data.features, data.candidates.mask, trained.rows)
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
        self._train(data, targets.sets, context._replace(resources=without_progress), 1, purify=False)
        seconds_per_epoch = max(time.monotonic() - begin, 1e-3)
        affordable = int(min(epochs, (seconds_left / 2) // seconds_per_epoch))
        affordable = current_group(context.resources.n_jobs).broadcast_int(affordable)  # every process trains as long
        return affordable if affordable >= min(epochs, MIN_EPOCHS) else 0

    def _train(self, data: Dataset, sets: BoolArray, context: Context, epochs: int, *, purify: bool = True) -> Fit:
        config = context.config.ensemble
        resources = context.resources
        x, median = _centre_on_device(self.features.values)
        trained = fit(
            x,
            sets,
            trials=self._trials(data, context),
            method=config.method,
            purify=config.purify if purify else None,
            network=MLP(self.hidden),
            training=self._training(config, epochs),
            prior=data.prior if data.has_prior else None,
            device=resources.device,
            progress=resources.progress,
            memory=resources.memory,
            checkpoint=resources.checkpoint_of("linear-0" if self.beside_mlps else "ensemble-0"),
            n_jobs=resources.n_jobs,
        )
        origin = trained.origin if median is None else median
        return replace(trained, ranks=self.features.ranks, origin=origin)

    def _training(self, config: EnsembleConfig, epochs: int) -> Training:
        batch_size = config.batch_size
        assert batch_size is not None  # `EnsembleConfig.for_size` set it
        if self.beside_mlps:
            batch_size *= LINEAR_BATCH_FACTOR
        return make_training(config, epochs, batch_size)

    def _trials(self, data: Dataset, context: Context) -> list[Trial]:
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
        raise ValueError(f"training diverged in {counts} networks. Lower lr ({rates} now), or scale the features.")


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
