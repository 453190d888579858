"""Kernel regression as a learner: candidate sets rank the scalings of the features, and the best regressions predict together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax

from oneof.data.dataset import BoolArray, Dataset, FloatArray
from oneof.data.with_ranks import QuantileNormalizer
from oneof.learners.base import Context, FittedLearner, Predictions
from oneof.learners.kernel import (
    KernelConfig,
    KernelScores,
    leave_one_out_scores,
    with_best_gamma,
)
from oneof.learners.scaling import append_ranks, scale
from oneof.learners.smoother import KernelModel
from oneof.metrics import criteria, with_means
from oneof.storage.rows import Row


class ScaledKernel(NamedTuple):
    """A kernel regression with the scaling of its features."""

    shift: NDArray[np.float64]  # [2d]
    scale: NDArray[np.float64]  # [2d]; 0 hides a column
    model: KernelModel

    def __call__(self, ranked: NDArray[np.float64]) -> FloatArray:
        """Return scores [n, c] of features with their ranks [n, 2d]."""
        scaled = (ranked - self.shift) * self.scale
        return self.model(scaled[:, self.scale != 0])


@dataclass(frozen=True, eq=False)
class KernelEnsemble:
    """Kernel regressions on differently scaled features; predicts their mean probability."""

    ranks: QuantileNormalizer
    kernels: tuple[ScaledKernel, ...]
    inverse_temperature: float

    kind: ClassVar = "kernel"

    def __call__(self, x: NDArray[Any]) -> NDArray[np.float32]:
        """Return probabilities [n, c] of features x [n, d]."""
        ranked = self.ranks(x)
        scores = [kernel(ranked) for kernel in self.kernels]
        return mean_probability(scores, self.inverse_temperature)


def mean_probability(scores: Sequence[FloatArray], inverse_temperature: float) -> NDArray[np.float32]:
    """Return the mean over regressions of the softmax of their scores [n, c]."""
    probabilities = [softmax(inverse_temperature * score, axis=1) for score in scores]
    return np.asarray(np.mean(probabilities, axis=0), dtype=np.float32)


class ScalingScore(NamedTuple):
    """Leave-one-out predictions with one scaling, and how well they agree with the rows' own sets."""

    scaling: str
    criteria: dict[str, float]
    soft_labels: FloatArray  # [n, c] weight of each candidate, zero outside the set
    scores: NDArray[np.float32]  # [n, c]
    kernel: ScaledKernel

    @property
    def row(self) -> Row:
        """Return a row for the run's record of what was tried."""
        rounded = {name: round(value, 6) for name, value in self.criteria.items()}
        return {"stage": "scalings", "scaling": self.scaling, **rounded}


class KernelFit(NamedTuple):
    """Kernel regressions with every scaling that was tried, best first."""

    ranks: QuantileNormalizer
    config: KernelConfig
    ranked: list[ScalingScore]

    @property
    def scalings(self) -> list[str]:
        """Return the scalings, best first."""
        return [score.scaling for score in self.ranked]

    @property
    def soft_labels(self) -> FloatArray:
        """Return the mean weight of each candidate over all scalings, [n, c]."""
        return np.asarray(np.mean([score.soft_labels for score in self.ranked], axis=0))

    def learner(self, n_scalings: int, candidates: BoolArray) -> FittedLearner:
        """Return the regressions with the best scalings as a learner, which predicts each row without its own set."""
        best = self.ranked[:n_scalings]
        kernels = tuple(score.kernel for score in best)
        model = KernelEnsemble(self.ranks, kernels, self.config.inverse_temperature)
        probabilities = mean_probability([score.scores for score in best], self.config.inverse_temperature)
        return FittedLearner("kernel", model, Predictions.from_single_model(probabilities, candidates))


def fit_kernels(
    data: Dataset,
    sets: BoolArray,
    scalings: Sequence[str],
    context: Context,
    *,
    config: KernelConfig | None = None,
    known_scores: KernelScores | None = None,
) -> KernelFit:
    """Regress the candidate weights of each row on the other rows, with every scaling, and rank the scalings.

    Parameters
    ----------
    sets
        Labels that may be right, [n, c].
    config
        In place of that of the context.
    known_scores
        Of features scaled as "both", where they have been computed before.
    """
    ensemble = context.config.ensemble
    config = config or ensemble.kernel or KernelConfig()
    ranks, ranked_features = append_ranks(data.features, torch.device(context.resources.device))
    log_prior = np.log(np.maximum(data.prior, 1e-12)) if data.has_prior else None
    score = partial(_score_scaling, data, sets, ranked_features, config, log_prior, context)
    jobs: list[tuple[str, KernelScores | None]] = []
    for scaling in scalings:
        if scaling == "both":
            jobs.append((scaling, known_scores))
        else:
            jobs.append((scaling, None))
    results = context.resources.map(score, jobs)
    results.sort(key=lambda result: -result.criteria[context.criterion])
    return KernelFit(ranks, config, results)


def _score_scaling(
    data: Dataset,
    sets: BoolArray,
    ranked_features: Any,
    config: KernelConfig,
    log_prior: FloatArray | None,
    context: Context,
    job: tuple[str, KernelScores | None],
) -> ScalingScore:
    """Regress with one scaling, unless its scores are known."""
    scaling, scores = job
    scaled, (shift, factor) = scale(ranked_features, scaling)
    if scores is None:
        scores = leave_one_out_scores(
            scaled,
            sets,
            with_best_gamma(scaled, sets, config),
            log_prior=log_prior,
            max_rows=context.config.ensemble.max_kernel_rows,
            seed=context.config.seed,
            groups=data.groups if data.has_groups else None,
        )
    agreement = _agreement_with_sets(scores, sets, config, context)
    kernel = ScaledKernel(shift.numpy(), factor.numpy(), scores.model)
    return ScalingScore(scaling, agreement, scores.weights, scores.scores.astype(np.float32), kernel)


def refit_on_raw_sets(
    data: Dataset, sets: BoolArray, kernels: KernelFit, inverse_temperature: float, context: Context
) -> KernelFit:
    """Return the best regressions fitted on uniform weights over the sets, in place of resolved candidates."""
    scalings = kernels.scalings[: context.config.ensemble.n_scalings]
    config = replace(kernels.config, rounds=0, inverse_temperature=inverse_temperature)
    refitted = fit_kernels(data, sets, scalings, context, config=config)
    in_old_order = sorted(refitted.ranked, key=lambda score: scalings.index(score.scaling))
    return refitted._replace(ranked=in_old_order)


def _agreement_with_sets(
    scores: KernelScores, sets: BoolArray, config: KernelConfig, context: Context
) -> dict[str, float]:
    """Return the criteria without truth of the predictions, and their accuracy on gold labels that may choose."""
    logits = torch.as_tensor(config.inverse_temperature * scores.scores)
    by_name = criteria(logits, torch.as_tensor(sets))
    agreement = with_means({name: value.item() for name, value in by_name.items()})
    gold = context.selection_gold
    if (gold >= 0).any():
        is_right = scores.scores.argmax(1) == gold
        agreement["gold"] = float(is_right[gold >= 0].mean())
    return agreement
