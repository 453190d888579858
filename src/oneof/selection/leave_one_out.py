"""Which candidate is right, by what all *other* rows say: kernel ridge regression that leaves the row itself out.

A network that is asked about a row it was trained on repeats what it was told. Kernel regression has the answer of a machine
that never saw the row in closed form, so candidates can be weighed by it, round after round, in seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular
from scipy.sparse import csr_array
from torch import Tensor

Floats = NDArray[np.floating[Any]]
BLOCK, LARGE_BLOCK = 512, 2**16  # rows at a time: what lies in a processor's cache, and what a GPU is busy with
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
    rounds: int = 20  # 0: weights are those of the sets as they are given


USUAL = Kernel()


class Machine(NamedTuple):
    """A fitted regression, for new rows."""

    landmarks: Floats  # [m, d]
    coefficients: Floats  # [m, c]
    mean: Floats  # [c]
    gamma: float

    def __call__(self, x: Floats | Tensor) -> Floats:
        """Scores [n, c] of rows x [n, d] that are scaled as the landmarks are; of a tensor, worked out where it lies."""
        rows = torch.as_tensor(x)
        landmarks, coefficients, mean = (torch.as_tensor(part).to(rows) for part in self[:3])
        said = [part @ coefficients + mean for part in _similar(rows, landmarks, self.gamma)]
        return torch.cat(said).cpu().numpy()


class Opinion(NamedTuple):
    """What the other rows say of each row."""

    weights: Floats  # [n, c] probability of each candidate, zero off the set
    scores: Floats  # [n, c] the regression's prediction for every label
    machine: Machine


def ask_others(
    x: Floats | Tensor,
    mask: NDArray[np.bool_],
    kernel: Kernel = USUAL,
    *,
    prior: Floats | None = None,
    rows: int = 5000,
    seed: int = 0,
    groups: Any = None,
) -> Opinion:
    """Weigh the candidates [n, c] of rows with scaled features x [n, d]; above so many `rows` a sample is asked about all others.

    A prior [n, c], in logs, is added to what the rows say. Scores leave out whole groups [n] where there are any.

    >>> x = np.array([[0.0], [0.1], [0.2], [1.0], [1.1], [1.2]])
    >>> mask = np.array([[1, 0], [1, 1], [1, 0], [0, 1], [1, 1], [0, 1]], dtype=bool)
    >>> ask_others(x, mask, Kernel(width=3.0)).weights.argmax(1)
    array([0, 0, 0, 1, 1, 1])
    """
    order = np.random.default_rng(seed).permutation(len(x))
    sample = np.sort(order[:rows])
    hat = _hat(_taken(x, sample), _taken(x, order[: kernel.landmarks]), kernel.ridge, kernel.width, x)
    weights, asked = _rounds(hat, mask[sample], None if prior is None else prior[sample], kernel)
    mean, machine = asked.mean(0), _machine(hat, asked)
    scores = machine(x) if len(sample) < len(x) else np.empty(mask.shape)
    scores[sample] = _left_out(hat, asked, None if groups is None else np.asarray(groups)[sample])
    if len(sample) < len(x):
        weights = _weights_of_all(scores, mask, prior, mean, kernel, x.device if isinstance(x, Tensor) else None)
    return Opinion(weights, scores, machine)


def _taken(x: Floats | Tensor, rows: NDArray[np.intp]) -> Floats:
    return x[torch.as_tensor(rows, device=x.device)].cpu().numpy() if isinstance(x, Tensor) else x[rows]


class _Hat(NamedTuple):
    """A ridge regression on n rows as a matrix: what it says of them is H y with H = left left^T."""

    left: Floats  # [n, m]
    upper: Floats  # [m, m] Cholesky factor of the normal equations
    landmarks: Floats
    gamma: float

    @property
    def own(self) -> Floats:
        """How much of a prediction is the row's own weight, [n, 1]."""
        return np.asarray(np.minimum((self.left**2).sum(1, keepdims=True), 1 - 1e-6))


def _hat(x: Floats, landmarks: Floats, ridge: float, width: float, everything: Floats | Tensor) -> _Hat:
    """The regression on the span of the landmarks (Nyström)."""
    gamma = _gamma(width, everything)
    return _solved(_similarity(x, landmarks, gamma), _similarity(landmarks, landmarks, gamma), ridge, landmarks, gamma)


def _gamma(width: float, everything: Floats | Tensor) -> float:
    return width / max(float((everything * everything).sum(1).mean()), 1e-12)


def _solved(features: Floats, corner: Floats, ridge: float, landmarks: Floats, gamma: float) -> _Hat:
    """From similarities to landmarks, of rows [n, m] and among themselves [m, m]: no eigenvalue is needed, one factorisation is enough."""
    normal = features.T @ features + ridge * corner
    normal[np.diag_indices(len(normal))] += 1e-9 * np.trace(normal)  # landmarks may coincide
    upper = cholesky(normal)
    return _Hat(solve_triangular(upper, features.T, trans="T").T, upper, landmarks, gamma)


def _machine(hat: _Hat, weights: Floats) -> Machine:
    mean = weights.mean(0)
    return Machine(hat.landmarks, solve_triangular(hat.upper, hat.left.T @ (weights - mean)), mean, hat.gamma)


def _similarity(a: Floats, b: Floats, gamma: float) -> Floats:
    return torch.cat(list(_similar(torch.as_tensor(a), torch.as_tensor(b), gamma))).numpy()


def _similar(a: Tensor, b: Tensor, gamma: float) -> Iterator[Tensor]:
    """exp(-gamma |a - b|^2), some rows of a at a time and in place: memory, not arithmetic, is what takes time here."""
    ends = (b * b).sum(1)
    for block in torch.split(a, BLOCK if a.device.type == "cpu" else LARGE_BLOCK):
        squares = torch.addmm((block * block).sum(1)[:, None] + ends, block, b.T, alpha=-2)
        yield squares.clamp_min_(0).mul_(-gamma).exp_()


class _Sets(NamedTuple):
    """The candidates of a mask [n, c] one by one, row after row: with many classes they are few."""

    shape: tuple[int, ...]
    row: NDArray[np.intp]
    label: NDArray[np.intp]
    first: NDArray[np.intp]  # [n] where each row begins
    prior: Floats | float

    @classmethod
    def of(cls, mask: NDArray[np.bool_], prior: Floats | None) -> _Sets:
        row, label = np.nonzero(mask)
        first = np.searchsorted(row, np.arange(len(mask)))
        return cls(mask.shape, row, label, first, 0.0 if prior is None else prior[mask])

    def softmax(self, logs: Floats) -> Floats:
        weights = np.exp(logs - np.maximum.reduceat(logs, self.first)[self.row])
        return np.asarray(weights / np.add.reduceat(weights, self.first)[self.row])

    def dense(self, values: Floats) -> Floats:
        whole = np.zeros(self.shape)
        whole[self.row, self.label] = values
        return whole


def _rounds(hat: _Hat, mask: NDArray[np.bool_], prior: Floats | None, kernel: Kernel) -> tuple[Floats, Floats]:
    """Weights [n, c] after so many rounds, and those that the last round was asked with."""
    sets, own, left = _Sets.of(mask, prior), hat.own[:, 0], hat.left.astype(np.float32)  # half the time, and as good
    before = weights = sets.softmax(np.zeros(len(sets.row)) + sets.prior)
    of_one = hat.left @ hat.left.sum(0)  # what it says where all weights are one
    for _ in range(kernel.rounds):
        before, mean = weights, np.bincount(sets.label, weights, mask.shape[1]) / len(mask)
        said = _said(left, sets, weights) - of_one[sets.row] * mean[sets.label]
        centred, mine = weights - mean[sets.label], own[sets.row]
        scores = (said - mine * centred) / (1 - mine) + mean[sets.label]
        weights = (weights + _weights(scores, sets, mean, kernel)) / 2  # half a step: whole ones swing
    return sets.dense(weights), sets.dense(before)


def _said(left: Floats, sets: _Sets, weights: Floats) -> Floats:
    """H w at the candidates; where these are few among many classes, for them alone."""
    if 20 * len(weights) > np.prod(sets.shape):
        return np.asarray((left @ (left.T @ sets.dense(weights).astype(left.dtype)))[sets.row, sets.label])
    inside = csr_array((weights.astype(left.dtype), (sets.label, sets.row)), shape=sets.shape[::-1]) @ left  # [c, m]
    blocks = [slice(start, start + BLOCK) for start in range(0, len(weights), BLOCK)]
    return np.concatenate([np.einsum("em,em->e", left[sets.row[at]], inside[sets.label[at]]) for at in blocks])


def _weights(scores: Floats, sets: _Sets, mean: Floats, kernel: Kernel) -> Floats:
    held_back = kernel.balance * np.log(np.maximum(mean, 1e-4))
    return sets.softmax(kernel.sharpness * scores - held_back[sets.label] + sets.prior)


def _weights_of_all(
    scores: Floats, mask: NDArray[np.bool_], prior: Floats | None, mean: Floats, kernel: Kernel, device: Any
) -> Floats:
    """The weights of rows that the rounds did not go over."""
    if device is None:
        sets = _Sets.of(mask, prior)
        return sets.dense(_weights(scores[sets.row, sets.label], sets, mean, kernel))
    held_back = kernel.balance * np.log(np.maximum(mean, 1e-4)) - (0.0 if prior is None else prior)
    said, less, inside = (torch.as_tensor(part, device=device) for part in (scores, held_back, mask))
    return (kernel.sharpness * said - less).masked_fill(~inside, -torch.inf).softmax(1).cpu().numpy()


def _left_out(hat: _Hat, weights: Floats, groups: NDArray[Any] | None = None) -> Floats:
    """What the regression on all other rows, or on all other groups [n], says of each row's weights [n, c]."""
    mean = weights.mean(0)
    centred = weights - mean
    rest = centred - hat.left @ (hat.left.T @ centred)
    if groups is None:
        return np.asarray(weights - rest / (1 - hat.own))
    _, number, size = np.unique(groups, return_inverse=True, return_counts=True)
    for rows in np.split(np.argsort(number, kind="stable"), np.cumsum(size)[:-1]):  # of every group
        matrix = np.eye(len(rows)) - hat.left[rows] @ hat.left[rows].T
        rest[rows] = np.linalg.solve(matrix + 1e-6 * np.eye(len(rows)), rest[rows])
    return np.asarray(weights - rest)


def ask_strangers(
    x: Floats, mask: NDArray[np.bool_], kernel: Kernel = USUAL, parts: int = 3, seed: int = 0
) -> tuple[Floats, Floats]:
    """What rows say that saw nothing of a row, not even by way of others' weights: scores [n, c] by weights after the rounds, and by the sets as given.

    `ask_others` leaves a row out of each regression, but its set has moved the weights of its neighbours in the round before.
    """
    x = np.asarray(x, dtype=np.float64)
    order = np.random.default_rng(seed).permutation(len(x))
    scores, first, gamma = np.zeros((len(x), 2 * mask.shape[1])), order[: kernel.landmarks], _gamma(kernel.width, x)
    near = _similarity(x, x[first], gamma)
    for part in np.array_split(order, min(parts, len(x))):
        rest = np.setdiff1d(order, part)
        if len(rest):
            hat = _solved(near[rest], near[first], kernel.ridge, x[first], gamma)
            given = mask[rest] / mask[rest].sum(1, keepdims=True)
            machine = _machine(hat, np.hstack([_rounds(hat, mask[rest], None, kernel)[1], given]))
            scores[part] = near[part] @ machine.coefficients + machine.mean
    return scores[:, : mask.shape[1]], scores[:, mask.shape[1] :]


def left_out_regression(x: Floats, kernel: Kernel = USUAL, seed: int = 0) -> Callable[[float, Floats], Floats]:
    """Kernel regression as a function: from a ridge and weights [n, c] to what all *other* rows say of each row's [n, c]."""
    landmarks = x[np.random.default_rng(seed).permutation(len(x))[: kernel.landmarks]]
    with_ridge = cache(lambda ridge: _hat(x, landmarks, ridge, kernel.width, x))
    return lambda ridge, weights: _left_out(with_ridge(ridge), weights)


def influence(x: Floats, rows: NDArray[np.intp], kernel: Kernel = USUAL, seed: int = 0) -> Floats:
    """How far what the regression on all other rows says of some row moves with the weight of another one, [m, m] for m rows."""
    order = np.random.default_rng(seed).permutation(len(x))
    some, landmarks = x[order[:_ENOUGH]], x[order[: kernel.landmarks]]
    share = len(some) / len(x)  # the others crowd the same places
    hat = _hat(some, landmarks, share * kernel.ridge, kernel.width, x)
    own = solve_triangular(hat.upper, _similarity(x[rows], landmarks, hat.gamma).T, trans="T").T.astype(np.float32)
    moved = share * (own @ own.T)
    return np.asarray(moved / (1 - moved.diagonal().clip(max=1 - 1e-6))[:, None])
