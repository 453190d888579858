"""Kernel ridge regression on landmark rows, as a linear smoother with leave-one-out predictions in closed form.

The kernel is k(x, z) = exp(-gamma |x - z|^2). The regression is restricted to the span of m landmarks (Nyström), so that its cost grows
linearly in the number of rows. `oneof.learners.kernel` uses it to weight candidates.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular
from torch import Tensor

FloatArray = NDArray[np.floating[Any]]

CPU_BLOCK = 512  # rows per block: fits in a processor's cache
GPU_BLOCK = 2**16  # rows per block that keep a GPU busy


class KernelModel(NamedTuple):
    """A fitted kernel ridge regression."""

    landmarks: FloatArray  # [m, d]
    coefficients: FloatArray  # [m, c]
    mean: FloatArray  # [c]
    gamma: float

    def __call__(self, x: FloatArray | Tensor) -> FloatArray:
        """Return scores [n, c] of rows x [n, d], scaled as the landmarks are; a tensor is processed on its device."""
        rows = torch.as_tensor(x)
        landmarks = torch.as_tensor(self.landmarks).to(rows)
        coefficients = torch.as_tensor(self.coefficients).to(rows)
        mean = torch.as_tensor(self.mean).to(rows)
        scores = []
        for similarities in _similarity_blocks(rows, landmarks, self.gamma):
            scores.append(similarities @ coefficients + mean)
        return torch.cat(scores).cpu().numpy()


class RidgeSmoother(NamedTuple):
    """A ridge regression on n rows as a linear smoother: fitted values are H y with H = left left^T."""

    left: FloatArray  # [n, m]
    upper: FloatArray  # [m, m] Cholesky factor of the normal equations
    landmarks: FloatArray  # [m, d]
    gamma: float

    @property
    def leverage(self) -> FloatArray:
        """Return the share of each fitted value that is the row's own target, [n, 1]."""
        return np.asarray(np.minimum((self.left**2).sum(1, keepdims=True), 1 - 1e-6))

    def left_of(self, similarities: FloatArray) -> FloatArray:
        """Return `left` for k other rows, given their similarities to the landmarks [k, m]."""
        return np.asarray(solve_triangular(self.upper, similarities.T, trans="T").T)

    def model(self, targets: FloatArray) -> KernelModel:
        """Return the regression that is fitted to targets [n, c], for new rows."""
        mean = targets.mean(0)
        coefficients = solve_triangular(self.upper, self.left.T @ (targets - mean))
        return KernelModel(self.landmarks, coefficients, mean, self.gamma)

    def leave_one_out(self, targets: FloatArray, groups: NDArray[Any] | None = None) -> FloatArray:
        """Return predictions [n, c] of the targets by the regression on all other rows, or on all other groups [n]."""
        centred = targets - targets.mean(0)
        residuals = centred - self.left @ (self.left.T @ centred)
        if groups is None:
            return np.asarray(targets - residuals / (1 - self.leverage))
        _, group_of_row, sizes = np.unique(groups, return_inverse=True, return_counts=True)
        rows_by_group = np.argsort(group_of_row, kind="stable")
        for rows in np.split(rows_by_group, np.cumsum(sizes)[:-1]):
            identity = np.eye(len(rows))
            matrix = identity - self.left[rows] @ self.left[rows].T
            residuals[rows] = np.linalg.solve(matrix + 1e-6 * identity, residuals[rows])
        return np.asarray(targets - residuals)


def fit_smoother(x: FloatArray, landmarks: FloatArray, ridge: float, gamma: float) -> RidgeSmoother:
    """Fit the smoother of rows x [n, d]."""
    similarities = similarity_matrix(x, landmarks, gamma)
    among_landmarks = similarity_matrix(landmarks, landmarks, gamma)
    return solve_smoother(similarities, among_landmarks, ridge, landmarks, gamma)


def solve_smoother(
    similarities: FloatArray, among_landmarks: FloatArray, ridge: float, landmarks: FloatArray, gamma: float
) -> RidgeSmoother:
    """Factorise the normal equations, given similarities to the landmarks of rows [n, m] and among themselves [m, m]."""
    normal = similarities.T @ similarities + ridge * among_landmarks
    normal[np.diag_indices(len(normal))] += 1e-9 * np.trace(normal)  # landmarks may coincide
    upper = cholesky(normal)
    left = solve_triangular(upper, similarities.T, trans="T").T
    return RidgeSmoother(left, upper, landmarks, gamma)


def absolute_gamma(relative_gamma: float, x: FloatArray | Tensor) -> float:
    """Return gamma of the kernel, which is relative to the mean squared norm of the rows."""
    return relative_gamma / mean_squared_norm(x)


def mean_squared_norm(x: FloatArray | Tensor) -> float:
    """Return the mean squared norm of rows x [n, d], above 0."""
    return max(float((x * x).sum(1).mean()), 1e-12)


def similarity_matrix(a: FloatArray, b: FloatArray, gamma: float) -> FloatArray:
    """Return exp(-gamma |a - b|^2) of rows a [n, d] and b [m, d], [n, m]."""
    blocks = list(_similarity_blocks(torch.as_tensor(a), torch.as_tensor(b), gamma))
    return torch.cat(blocks).numpy()


def squared_distances(a: FloatArray, b: FloatArray) -> Tensor:
    """Return |a - b|^2 of rows a [n, d] and b [m, d], [n, m], for `similarities_at` with several gammas."""
    return torch.cat(list(_distance_blocks(torch.as_tensor(a), torch.as_tensor(b))))


def similarities_at(distances: Tensor, gamma: float) -> FloatArray:
    """Return exp(-gamma |a - b|^2), given the squared distances."""
    return (distances * -gamma).exp_().numpy()


def _similarity_blocks(a: Tensor, b: Tensor, gamma: float) -> Iterator[Tensor]:
    """Yield exp(-gamma |a - b|^2) for blocks of rows of a, computed in place: memory traffic dominates the cost."""
    for distances in _distance_blocks(a, b):
        yield distances.mul_(-gamma).exp_()


def _distance_blocks(a: Tensor, b: Tensor) -> Iterator[Tensor]:
    """Yield |a - b|^2 for blocks of rows of a."""
    squared_norms = (b * b).sum(1)
    block_size = CPU_BLOCK if a.device.type == "cpu" else GPU_BLOCK
    for block in torch.split(a, block_size):
        distances = torch.addmm((block * block).sum(1)[:, None] + squared_norms, block, b.T, alpha=-2)
        yield distances.clamp_min_(0)
