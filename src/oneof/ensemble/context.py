"""Prepare a fit: adapt the settings to the data, choose the device, and decide what each gold label is used for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from oneof.data.dataset import UNKNOWN, Dataset, IntArray, replace_by_gold
from oneof.ensemble.accuracy import MIN_GOLD, gold_of_random_sample
from oneof.ensemble.informative_rows import informative_rows
from oneof.learners.base import Context, Resources, WarmStart
from oneof.learners.config import EnsembleConfig, FitConfig
from oneof.metrics import CRITERIA, MEANS
from oneof.training.device import device_for, device_for_pictures
from oneof.training.processes import check_rows, current_group


def make_context(
    data: Dataset, config: FitConfig, resources: Resources, warm_start: WarmStart
) -> tuple[Context, IntArray]:
    """Return what all learners of a fit share, and the gold labels [n] that measure its accuracy."""
    known = (*MEANS, *CRITERIA)
    if config.criterion not in known:
        raise ValueError(f"criterion must be one of {', '.join(known)}; got {config.criterion!r}.")
    selection_gold, evaluation_gold = split_gold(data)
    if data.are_pictures:
        check_rows(len(data), resources.n_jobs or 1)  # before any process is started
    seed = current_group(resources.n_jobs).broadcast_int(config.seed)  # processes that were started together share one
    ensemble = adapt_settings(config.ensemble, data, train_on_gold=config.train_on_gold)
    device = choose_device(data, resources)
    context = Context(
        config=replace(config, ensemble=ensemble, seed=seed),
        resources=replace(resources, device=device, are_ranks=data.are_pictures),
        warm_start=warm_start,
        selection_gold=selection_gold,
        evaluation_sets=replace_by_gold(data.candidates.mask, selection_gold),
    )
    return context, evaluation_gold


def split_gold(data: Dataset) -> tuple[IntArray, IntArray]:
    """Return the gold labels [n] that choose settings, and those that measure the accuracy; UNKNOWN elsewhere.

    Labels from the review's random sample measure the accuracy; without them, gold labels of a random sample do. The other gold labels,
    if there are MIN_GOLD or more, choose settings.
    """
    evaluation_gold = gold_of_random_sample(data.gold)
    if (data.audit_labels != UNKNOWN).any():
        evaluation_gold = data.audit_labels
    selection_gold = np.where(evaluation_gold != UNKNOWN, UNKNOWN, data.gold)
    if (selection_gold != UNKNOWN).sum() < MIN_GOLD:
        selection_gold = np.full(len(data), UNKNOWN)
    return selection_gold, evaluation_gold


def adapt_settings(ensemble: EnsembleConfig, data: Dataset, *, train_on_gold: bool) -> EnsembleConfig:
    """Return the settings that suit the kind of the data and its size."""
    if data.votes is not None and not data.has_single_votes:
        ensemble = ensemble.for_prior()
    if data.are_pictures:
        return replace(ensemble, learners=("networks",), kernel=None)  # other learners cannot use single pixels
    n_rows = len(informative_rows(data, train_on_gold))
    return ensemble.for_size(n_rows, len(data.classes)).for_shape(n_rows, data.features.shape[1])


def choose_device(data: Dataset, resources: Resources) -> torch.device:
    """Return the device to train on, which for "auto" depends on the data."""
    if data.are_pictures:
        return device_for_pictures(resources.device)
    return device_for(resources.device, *data.features.shape)
