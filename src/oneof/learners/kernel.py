"""Weight the candidates of each row by kernel ridge regression on all other rows.

A network that is evaluated on a row it was trained on reproduces that row's target. For kernel ridge regression the prediction of the
model fitted without the row is known in closed form (`oneof.learners.smoother`), so that candidates can be weighted by it, round after
round, in seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from oneof.learners.smoother import (
    CPU_BLOCK,
    KernelModel,
    RidgeSmoother,
    absolute_gamma,
    fit_smoother,
    mean_squared_norm,
    similarities_at,
    similarity_matrix,
    solve_smoother,
    squared_distances,
)
from oneof.training.parallel import Map, map_here

FloatArray = NDArray[np.floating[Any]]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.intp]

INFLUENCE_SAMPLE = 5000  # rows from which `influence` estimates how densely the rows lie
GAMMAS = (1.0, 3.0)  # values of `relative_gamma` that are tried in addition to that of the config
GAMMA_SAMPLE = 1500  # rows by which gamma is chosen
MIN_GAMMA_GAIN = 0.06  # in the mean log-likelihood of the sets, below which the gamma of the config is kept
MIN_SHARE = 1e-4  # of a label in `_positive_shares`, so that the likelihood of a set is not 0
SMOOTHING = 1e-3  # added to the weight of every candidate after the round of `_likelihood_after_one_round`
# If the mask has more cells than this per candidate, products with the listed candidates alone are faster than dense ones.
SPARSE_FACTOR = 20


@dataclass(frozen=True)
class KernelConfig:
    r"""Settings of the kernel ridge regression on candidate weights.

        w_ij  <-  exp(a g_ij) / m_j^b  on S_i, normalised;     m_j = mean_i w_ij
        g = leave-one-out prediction of w by  k(x, z) = exp(-relative_gamma |x - z|^2 / mean |x|^2)

    Dividing by m^b keeps frequent labels from absorbing the labels they occur with: without it each round makes them more frequent.
    The kernel is restricted to the span of a few landmark rows (Nyström), so that the cost grows linearly in n.
    """

    # The inverse squared bandwidth of the kernel. `with_best_gamma` takes a larger one where the sets are clearly likelier under it.
    relative_gamma: float = 0.3
    ridge: float = 0.1
    inverse_temperature: float = 6.0  # a
    balance: float = 0.5  # b; 0 turns it off
    landmarks: int = 600
    rounds: int = 20  # 0: regress on uniform weights over the sets


DEFAULT_KERNEL = KernelConfig()


class KernelScores(NamedTuple):
    """Leave-one-out predictions for n rows."""

    weights: FloatArray  # [n, c] weight of each candidate, zero outside the set
    scores: FloatArray  # [n, c] predicted weight of every label
    model: KernelModel  # fitted on all rows, for new ones


def leave_one_out_scores(
    x: FloatArray | Tensor,
    candidates: BoolArray,
    config: KernelConfig = DEFAULT_KERNEL,
    *,
    log_prior: FloatArray | None = None,
    max_rows: int = 5000,
    seed: int = 0,
    groups: Any = None,
) -> KernelScores:
    """Return the weight of each candidate by regression on all other rows, with the scores of all labels and the model.

    Parameters
    ----------
    x
        Scaled features [n, d].
    candidates
        Mask [n, c].
    log_prior
        Added to the scores within each set, [n, c].
    max_rows
        Above this number of rows the regression is fitted on a sample and evaluated on the others.
    groups
        Group of each row [n]; scores then leave out the whole group.

    Examples
    --------
    >>> x = np.array([[0.0], [0.1], [0.2], [1.0], [1.1], [1.2]])
    >>> candidates = np.array([[1, 0], [1, 1], [1, 0], [0, 1], [1, 1], [0, 1]], dtype=bool)
    >>> leave_one_out_scores(x, candidates, KernelConfig(relative_gamma=3.0)).weights.argmax(1)
    array([0, 0, 0, 1, 1, 1])
    """
    n = len(x)
    order = np.random.default_rng(seed).permutation(n)
    sample = np.sort(order[:max_rows])
    sample_prior = None
    if log_prior is not None:
        sample_prior = log_prior[sample]
    sample_groups = None
    if groups is not None:
        sample_groups = np.asarray(groups)[sample]

    landmarks = _take_rows(x, order[: config.landmarks])
    gamma = absolute_gamma(config.relative_gamma, x)
    smoother = fit_smoother(_take_rows(x, sample), landmarks, config.ridge, gamma)
    weights, last_targets = _iterate_weights(smoother, candidates[sample], sample_prior, config)
    model = smoother.model(last_targets)
    sample_scores = smoother.leave_one_out(last_targets, sample_groups)
    if len(sample) == n:
        return KernelScores(weights, sample_scores, model)

    scores = model(x)
    scores[sample] = sample_scores
    label_mass = last_targets.mean(0)
    device = None
    if isinstance(x, Tensor):
        device = x.device
    weights = _weights_outside_sample(scores, candidates, log_prior, label_mass, config, device)
    return KernelScores(weights, scores, model)


def with_best_gamma(
    x: FloatArray | Tensor, candidates: BoolArray, config: KernelConfig = DEFAULT_KERNEL, seed: int = 0
) -> KernelConfig:
    """Return the config with the gamma under which the sets [n, c] of rows x [n, d] are likeliest.

    Values are compared by the mass that leave-one-out predictions put on the sets of a sample, after one round of weighting. Where a
    class lies in many small clusters, only a narrow kernel, with a large gamma, tells the classes apart. Elsewhere values close to the
    best one do as well, so that of the config is kept unless another one gains MIN_GAMMA_GAIN.

    >>> x = np.linspace(-1, 1, 300)[:, None]
    >>> labels = np.arange(300) // 38 % 2  # eight clusters, in turn of one class and of the other
    >>> with_best_gamma(x, labels[:, None] == np.arange(2)).relative_gamma
    3.0
    """
    order = np.random.default_rng(seed).permutation(len(x))
    rows = np.sort(order[:GAMMA_SAMPLE])
    sample = _take_rows(x, rows).astype(np.float64)
    sample_sets = candidates[rows]
    landmarks = _take_rows(x, order[: min(config.landmarks, GAMMA_SAMPLE)]).astype(np.float64)
    # Distances are computed once for all gammas: with many columns they take most of the time.
    distances = squared_distances(sample, landmarks)
    among_landmarks = squared_distances(landmarks, landmarks)
    squared_norm = mean_squared_norm(x)
    likelihood = {}
    for relative_gamma in (config.relative_gamma, *GAMMAS):
        gamma = relative_gamma / squared_norm
        smoother = solve_smoother(
            similarities_at(distances, gamma), similarities_at(among_landmarks, gamma), config.ridge, landmarks, gamma
        )
        likelihood[relative_gamma] = _likelihood_after_one_round(smoother, sample_sets)
    best = max(likelihood, key=likelihood.__getitem__)
    if likelihood[best] - likelihood[config.relative_gamma] < MIN_GAMMA_GAIN:
        return config
    return replace(config, relative_gamma=best)


def _likelihood_after_one_round(smoother: RidgeSmoother, candidates: BoolArray) -> float:
    """Return the mean log of the mass that leave-one-out predictions put on the sets [n, c]."""
    targets = candidates / candidates.sum(1, keepdims=True)
    weights = _positive_shares(smoother.leave_one_out(targets)) * candidates + SMOOTHING * candidates
    targets = weights / weights.sum(1, keepdims=True)
    mass = (_positive_shares(smoother.leave_one_out(targets)) * candidates).sum(1)
    return float(np.log(mass).mean())


def _positive_shares(scores: FloatArray) -> FloatArray:
    """Return scores [n, c] as positive shares that sum to one in each row."""
    positive = np.maximum(scores, MIN_SHARE)
    return np.asarray(positive / positive.sum(1, keepdims=True))


class CrossFitScores(NamedTuple):
    """Scores of m rows on which a row's own set has no influence."""

    from_resolved: FloatArray  # [m, c] predicted from weights after all rounds
    from_raw_sets: FloatArray  # [m, c] predicted from uniform weights over the sets


class _CrossFit(NamedTuple):
    """What all folds of `cross_fit_scores` share."""

    similarities: FloatArray  # [n, m] of rows to landmarks
    landmarks: FloatArray  # [m, d]
    landmark_rows: IntArray  # [m]
    candidates: BoolArray  # [n, c]
    gamma: float
    config: KernelConfig


def cross_fit_scores(
    x: FloatArray,
    candidates: BoolArray,
    config: KernelConfig = DEFAULT_KERNEL,
    folds: int = 3,
    seed: int = 0,
    map_folds: Map = map_here,
) -> CrossFitScores:
    """Return scores on which a row's own set has no influence, not even through the weights of other rows.

    `leave_one_out_scores` leaves a row out of each regression, but its set has changed the weights of its neighbours in the round
    before. Here whole folds are left out; `map_folds` computes them, perhaps in worker processes.
    """
    x = np.asarray(x, dtype=np.float64)
    n, c = candidates.shape
    order = np.random.default_rng(seed).permutation(n)
    landmark_rows = order[: config.landmarks]
    gamma = absolute_gamma(config.relative_gamma, x)
    similarities = similarity_matrix(x, x[landmark_rows], gamma)
    shared = _CrossFit(similarities, x[landmark_rows], landmark_rows, candidates, gamma, config)
    held_out = np.array_split(order, min(folds, n))
    scores = np.zeros((n, 2 * c))
    for fold, fold_scores in zip(held_out, map_folds(partial(_score_fold, shared), held_out), strict=True):
        scores[fold] = fold_scores
    return CrossFitScores(scores[:, :c], scores[:, c:])


def _score_fold(shared: _CrossFit, fold: IntArray) -> FloatArray:
    """Return the scores of the rows of a fold by regression on all others: from resolved weights and from raw sets, side by side [k, 2c]."""
    n, c = shared.candidates.shape
    rest = np.setdiff1d(np.arange(n), fold)
    if len(rest) == 0:
        return np.zeros((len(fold), 2 * c))
    among_landmarks = shared.similarities[shared.landmark_rows]
    smoother = solve_smoother(
        shared.similarities[rest], among_landmarks, shared.config.ridge, shared.landmarks, shared.gamma
    )
    sets = shared.candidates[rest]
    _, resolved_targets = _iterate_weights(smoother, sets, None, shared.config)
    uniform_targets = sets / sets.sum(1, keepdims=True)
    model = smoother.model(np.hstack([resolved_targets, uniform_targets]))
    return np.asarray(shared.similarities[fold] @ model.coefficients + model.mean)


def leave_one_out_regression(
    x: FloatArray, config: KernelConfig = DEFAULT_KERNEL, seed: int = 0
) -> Callable[[float, FloatArray], FloatArray]:
    """Return a function (ridge, targets [n, c]) -> leave-one-out predictions [n, c] for rows x [n, d]."""
    landmarks = x[np.random.default_rng(seed).permutation(len(x))[: config.landmarks]]
    gamma = absolute_gamma(config.relative_gamma, x)

    @cache
    def smoother_for(ridge: float) -> RidgeSmoother:
        return fit_smoother(x, landmarks, ridge, gamma)

    def predict(ridge: float, targets: FloatArray) -> FloatArray:
        return smoother_for(ridge).leave_one_out(targets)

    return predict


def influence(x: FloatArray, rows: IntArray, config: KernelConfig = DEFAULT_KERNEL, seed: int = 0) -> FloatArray:
    """Return how much the leave-one-out prediction of each of m rows changes with the target of each other one, [m, m]."""
    order = np.random.default_rng(seed).permutation(len(x))
    sample = x[order[:INFLUENCE_SAMPLE]]
    landmarks = x[order[: config.landmarks]]
    sampled_share = len(sample) / len(x)  # rows outside the sample are assumed to be distributed as those inside
    gamma = absolute_gamma(config.relative_gamma, x)
    smoother = fit_smoother(sample, landmarks, sampled_share * config.ridge, gamma)
    left = smoother.left_of(similarity_matrix(x[rows], landmarks, gamma)).astype(np.float32)
    hat = sampled_share * (left @ left.T)
    return np.asarray(hat / (1 - hat.diagonal().clip(max=1 - 1e-6))[:, None])


def _take_rows(x: FloatArray | Tensor, rows: IntArray) -> FloatArray:
    """Return some rows as an array, also from a tensor on a device."""
    if isinstance(x, Tensor):
        return x[torch.as_tensor(rows, device=x.device)].cpu().numpy()
    return x[rows]


class _CandidateList(NamedTuple):
    """The candidates of a mask [n, c] as a flat list, row after row; with many classes it is much shorter than the mask."""

    shape: tuple[int, ...]
    row: IntArray
    label: IntArray
    first: IntArray  # [n] position of each row's first candidate
    log_prior: FloatArray | float

    @classmethod
    def from_mask(cls, candidates: BoolArray, log_prior: FloatArray | None) -> _CandidateList:
        """Return the candidates of a mask [n, c], with their log priors [n, c]."""
        row, label = np.nonzero(candidates)
        first = np.searchsorted(row, np.arange(len(candidates)))
        listed_prior: FloatArray | float = 0.0
        if log_prior is not None:
            listed_prior = log_prior[candidates]
        return cls(candidates.shape, row, label, first, listed_prior)

    def softmax(self, logits: FloatArray) -> FloatArray:
        """Return the softmax of listed logits within each row."""
        weights = np.exp(logits - np.maximum.reduceat(logits, self.first)[self.row])
        return np.asarray(weights / np.add.reduceat(weights, self.first)[self.row])

    def to_dense(self, values: FloatArray) -> FloatArray:
        """Return listed values as an array [n, c], zero outside the sets."""
        dense = np.zeros(self.shape)
        dense[self.row, self.label] = values
        return dense


def _iterate_weights(
    smoother: RidgeSmoother, candidates: BoolArray, log_prior: FloatArray | None, config: KernelConfig
) -> tuple[FloatArray, FloatArray]:
    """Return the weights [n, c] after all rounds, and those that were the targets of the last round."""
    listed = _CandidateList.from_mask(candidates, log_prior)
    leverage = smoother.leverage[:, 0][listed.row]
    left = smoother.left.astype(np.float32)  # half the time, and accurate enough
    smoothed_ones = smoother.left @ smoother.left.sum(0)
    weights = listed.softmax(np.zeros(len(listed.row)) + listed.log_prior)
    targets = weights
    for _ in range(config.rounds):
        targets = weights
        label_mass = np.bincount(listed.label, weights, candidates.shape[1]) / len(candidates)
        label_mean = label_mass[listed.label]
        fitted = _smooth_candidates(left, listed, weights) - smoothed_ones[listed.row] * label_mean
        centred = weights - label_mean
        scores = (fitted - leverage * centred) / (1 - leverage) + label_mean
        updated = _weights_from_scores(scores, listed, label_mass, config)
        weights = (weights + updated) / 2  # full steps oscillate
    return listed.to_dense(weights), listed.to_dense(targets)


def _smooth_candidates(left: FloatArray, listed: _CandidateList, weights: FloatArray) -> FloatArray:
    """Return H w at the listed candidates; if they are few among many classes, only these entries are computed."""
    if SPARSE_FACTOR * len(weights) > np.prod(listed.shape):
        dense = listed.to_dense(weights).astype(left.dtype)
        return np.asarray((left @ (left.T @ dense))[listed.row, listed.label])
    shape = (listed.shape[1], listed.shape[0])
    by_label = csr_array((weights.astype(left.dtype), (listed.label, listed.row)), shape=shape) @ left  # [c, m]
    products = []
    for start in range(0, len(weights), CPU_BLOCK):
        block = slice(start, start + CPU_BLOCK)
        products.append(np.einsum("em,em->e", left[listed.row[block]], by_label[listed.label[block]]))
    return np.concatenate(products)


def _label_penalty(label_mass: FloatArray, config: KernelConfig) -> FloatArray:
    """Return b log m_j [c], which is subtracted from the scaled scores."""
    return config.balance * np.log(np.maximum(label_mass, 1e-4))


def _weights_from_scores(
    scores: FloatArray, listed: _CandidateList, label_mass: FloatArray, config: KernelConfig
) -> FloatArray:
    """Return the weights of the listed candidates by the rule of `KernelConfig`, from their scores."""
    penalty = _label_penalty(label_mass, config)[listed.label]
    return listed.softmax(config.inverse_temperature * scores - penalty + listed.log_prior)


def _weights_outside_sample(
    scores: FloatArray,
    candidates: BoolArray,
    log_prior: FloatArray | None,
    label_mass: FloatArray,
    config: KernelConfig,
    device: torch.device | None,
) -> FloatArray:
    """Return weights [n, c] by scores [n, c] of a model that was fitted on a sample; on a GPU where one is given."""
    if device is None:
        listed = _CandidateList.from_mask(candidates, log_prior)
        weights = _weights_from_scores(scores[listed.row, listed.label], listed, label_mass, config)
        return listed.to_dense(weights)
    penalty = _label_penalty(label_mass, config)
    if log_prior is not None:
        penalty = penalty - log_prior
    scaled_scores = config.inverse_temperature * torch.as_tensor(scores, device=device)
    logits = scaled_scores - torch.as_tensor(penalty, device=device)
    mask = torch.as_tensor(candidates, device=device)
    return logits.masked_fill(~mask, -torch.inf).softmax(1).cpu().numpy()
