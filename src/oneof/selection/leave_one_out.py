"""Which candidate is right, by what all *other* rows say: kernel ridge regression that leaves the row itself out.

A network that is asked about a row it was trained on repeats what it was told. Kernel regression has the answer of a machine
that never saw the row in closed form, so candidates can be weighed by it, round after round, in seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

Floats = NDArray[np.floating[Any]]
_ENOUGH = 5000  # rows that tell how crowded each place is


@dataclass(frozen=True)
class Kernel:
    r"""Kernel ridge regression on candidate weights, each row's own weight left out.

        w_ij  <-  exp(a g_ij) / m_j^b  on S_i, normalised;     m_j = mean_i w_ij
        g = leave-one-out prediction of w by  k(x, z) = exp(-width |x - z|^2 / mean |x|^2)

    Without m^b the classes that are frequent in sets swallow those that come with them: each round makes them more frequent.
    The kernel is cut to the span of some rows (Nyström), so that the cost grows as n.
    """

    width: float = 0.3
    ridge: float = 0.1
    sharpness: float = 6.0  # a
    balance: float = 0.5  # b; 0: none
    landmarks: int = 600
    rounds: int = 20


class Opinion(NamedTuple):
    """What the other rows say of each row."""

    weights: Floats  # [n, c] probability of each candidate, zero off the set
    scores: Floats  # [n, c] the regression's prediction for every label


def ask_others(
    x: Floats,
    mask: NDArray[np.bool_],
    kernel: Kernel = Kernel(),  # noqa: B008 - frozen
    *,
    prior: Floats | None = None,
    rows: int = 5000,
    seed: int = 0,
) -> Opinion:
    """Weigh the candidates [n, c] of rows with scaled features x [n, d]; above so many `rows` a sample is asked about all others.

    A prior [n, c], in logs, is added to what the rows say.

    >>> x = np.array([[0.0], [0.1], [0.2], [1.0], [1.1], [1.2]])
    >>> mask = np.array([[1, 0], [1, 1], [1, 0], [0, 1], [1, 1], [0, 1]], dtype=bool)
    >>> ask_others(x, mask, Kernel(width=3.0)).weights.argmax(1)
    array([0, 0, 0, 1, 1, 1])
    """
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(x))
    sample = np.sort(order[:rows])
    features = _nystrom(x, x[order[: kernel.landmarks]], kernel.width)
    basis = _basis(features(x[sample]))
    logs = np.zeros((1, mask.shape[1])) if prior is None else prior
    weights, scores, coefficients, mean = _rounds(basis, mask[sample], logs if prior is None else logs[sample], kernel)
    if len(sample) == len(x):
        return Opinion(weights, scores)
    everything = np.empty(mask.shape)
    for start in range(0, len(x), rows):
        everything[start : start + rows] = features(x[start : start + rows]) @ coefficients + mean
    everything[sample] = scores
    return Opinion(_weights(everything, mask, logs, mean, kernel), everything)


class _Basis(NamedTuple):
    """Features of the sample in the directions in which they vary: F = left diag(root) right^T."""

    left: Floats  # [n, k]
    root: Floats  # [k]
    right: Floats  # [m, k]


def _nystrom(x: Floats, landmarks: Floats, width: float) -> Any:
    """Features whose inner products are the kernel on the span of the landmarks, as a function of rows."""
    gamma = width / max(float((x * x).sum(1).mean()), 1e-12)
    values, vectors = eigh(_similarity(landmarks, landmarks, gamma))
    whiten = vectors / np.sqrt(np.maximum(values, 1e-6 * values[-1]))
    return lambda rows: _similarity(rows, landmarks, gamma) @ whiten


def _similarity(a: Floats, b: Floats, gamma: float) -> Floats:
    squares = (a * a).sum(1)[:, None] + (b * b).sum(1) - 2 * a @ b.T
    return np.asarray(np.exp(-gamma * np.maximum(squares, 0.0)))


def _basis(features: Floats) -> _Basis:
    values, vectors = eigh(features.T @ features)
    large = values > 1e-9 * values[-1]
    root, right = np.sqrt(values[large]), vectors[:, large]
    return _Basis(features @ (right / root), root, right)


def _rounds(
    basis: _Basis, mask: NDArray[np.bool_], prior: Floats, kernel: Kernel
) -> tuple[Floats, Floats, Floats, Floats]:
    """Weights and left-out predictions after so many rounds, and the regression that gave the last ones."""
    square = basis.root**2
    weights = mask * np.exp(prior - prior.max(1, keepdims=True))
    weights /= weights.sum(1, keepdims=True)
    for _ in range(kernel.rounds):
        mean = weights.mean(0)
        scores = _left_out(basis, kernel.ridge, weights)
        inside = basis.left.T @ (weights - mean)
        weights = (weights + _weights(scores, mask, prior, mean, kernel)) / 2  # half a step: whole ones swing
    coefficients = basis.right @ ((basis.root / (square + kernel.ridge))[:, None] * inside)
    return weights, scores, coefficients, mean


def _left_out(basis: _Basis, ridge: float, weights: Floats) -> Floats:
    """What the regression on all other rows says of each row's weights [n, c]."""
    square = basis.root**2
    shrink = (square / (square + ridge))[:, None]
    own = ((basis.left**2) @ shrink).clip(max=1 - 1e-6)  # [n, 1] how much of a prediction is the row's own weight
    centred = weights - weights.mean(0)
    said = basis.left @ (shrink * (basis.left.T @ centred))
    return np.asarray((said - own * centred) / (1 - own) + weights.mean(0))


def ask_strangers(
    x: Floats,
    mask: NDArray[np.bool_],
    kernel: Kernel = Kernel(),  # noqa: B008 - frozen
    parts: int = 3,
    seed: int = 0,
) -> Floats:
    """What rows say that saw nothing of a row, not even by way of the weights of others: scores [n, c], fold by fold.

    `ask_others` leaves a row out of each regression, but its set has moved the weights of its neighbours in the round before.
    """
    x = np.asarray(x, dtype=np.float64)
    order = np.random.default_rng(seed).permutation(len(x))
    features = _nystrom(x, x[order[: kernel.landmarks]], kernel.width)(x)
    scores, nothing = np.empty(mask.shape), np.zeros((1, mask.shape[1]))
    for part in np.array_split(order, min(parts, len(x))):
        rest = np.setdiff1d(order, part)
        if len(rest):
            *_, coefficients, mean = _rounds(_basis(features[rest]), mask[rest], nothing, kernel)
            scores[part] = features[part] @ coefficients + mean
    return scores


def left_out_regression(
    x: Floats,
    kernel: Kernel = Kernel(),  # noqa: B008 - frozen
    seed: int = 0,
) -> Callable[[float, Floats], Floats]:
    """Kernel regression as a function: from a ridge and weights [n, c] to what all *other* rows say of each row's [n, c]."""
    landmarks = x[np.random.default_rng(seed).permutation(len(x))[: kernel.landmarks]]
    return partial(_left_out, _basis(_nystrom(x, landmarks, kernel.width)(x)))


def influence(
    x: Floats,
    rows: NDArray[np.intp],
    kernel: Kernel = Kernel(),  # noqa: B008 - frozen
    seed: int = 0,
) -> Floats:
    """How far what the regression on all other rows says of some row moves with the weight of another one, [m, m] for m rows."""
    order = np.random.default_rng(seed).permutation(len(x))
    features = _nystrom(x, x[order[: kernel.landmarks]], kernel.width)
    some, own = features(x[order[:_ENOUGH]]), features(x[rows])
    square = some.T @ some * (len(x) / len(some)) + kernel.ridge * np.eye(some.shape[1])
    moved = own @ np.linalg.solve(square, own.T)
    return np.asarray(moved / (1 - moved.diagonal().clip(max=1 - 1e-6))[:, None])


def _weights(scores: Floats, mask: NDArray[np.bool_], prior: Floats, mean: Floats, kernel: Kernel) -> Floats:
    logs = kernel.sharpness * scores - kernel.balance * np.log(np.maximum(mean, 1e-4)) + prior
    logs = np.where(mask, logs, -np.inf)
    weights = np.exp(logs - logs.max(1, keepdims=True))
    return np.asarray(weights / weights.sum(1, keepdims=True))
