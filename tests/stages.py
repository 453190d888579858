"""Data sets of arrays, and the stages of a fit one by one, for tests that look inside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from oneof.candidates.mask import Candidates
from oneof.data.dataset import Dataset
from oneof.data.encode import Encoding
from oneof.ensemble.context import make_context
from oneof.ensemble.learner_stages import KernelStage, NetworkStage, fit_kernel_stage, fit_networks
from oneof.learners.base import Context, Resources, Targets, WarmStart
from oneof.learners.config import EnsembleConfig, FitConfig


def make_dataset(x: Any, mask: Any, **fields: Any) -> Dataset:
    """Return a data set of features [n, d] and a mask [n, c], whose classes are numbers."""
    d = x.shape[1]
    encoding = Encoding(tuple(f"x{j}" for j in range(d)), (0.0,) * d, (), {}, ())
    return Dataset.build(x, Candidates(np.asarray(mask), np.arange(mask.shape[1])), encoding, **fields)


def context_for(
    data: Dataset,
    ensemble: EnsembleConfig = EnsembleConfig(),  # noqa: B008 - frozen
    *,
    seed: int = 0,
    criterion: str = "both",
    checkpoint: Path | None = None,
    warm_start: WarmStart = WarmStart(),  # noqa: B008 - frozen
) -> Context:
    """Return what the learners of a fit on the CPU share."""
    resources = Resources(device="cpu", checkpoint=checkpoint)
    config = FitConfig(ensemble, criterion=criterion, seed=seed)
    context, _ = make_context(data, config, resources, warm_start)
    return context


def fit_stages(data: Dataset, ensemble: EnsembleConfig, **options: Any) -> tuple[KernelStage, NetworkStage]:
    """Fit the kernel, then networks and linear models."""
    context = context_for(data, ensemble, **options)
    sets = data.candidates.mask
    kernels = fit_kernel_stage(data, sets, None, context)
    return kernels, fit_networks(data, sets, kernels, context)


def hard_targets(labels: Any, c: int) -> Targets:
    """Return targets that are certain of one label each."""
    soft_labels = np.eye(c)[labels]
    return Targets(soft_labels > 0, soft_labels)
