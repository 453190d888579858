"""A stand-in for the unknown class: held-out guesses of a small classifier that learns from the sets alone."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

_FOLDS = 5
_ROUNDS = 6  # of guessing and fitting again; the guesses move little after five
_COMPONENTS = 64  # principal components kept
_WAVES = 128  # random Fourier features: what is not linear in x
_RIDGE = 0.01  # penalty per row; with 0.0003 the tests on curved classes found dependence that was not there
_FLOOR = 1e-3  # least-squares estimates of a probability may fall below zero


class CrossFit(NamedTuple):
    """Ridge regression on fixed features, each row predicted by a fit to the other folds.

    Only the targets change between calls, so everything that depends on x is solved once.
    """

    basis: Floats  # [n, features]
    folds: list[slice]  # the rows are already in random order
    inverses: list[Floats]  # of each fold's normal equations, [features, features]

    def predict(self, targets: Floats) -> Floats:
        """Held-out predictions of targets [n, k]."""
        moments = self.basis.T @ targets
        parts = []
        for fold, inverse in zip(self.folds, self.inverses, strict=True):
            inside = self.basis[fold]
            parts.append(inside @ (inverse @ (moments - inside.T @ targets[fold])))
        return np.concatenate(parts)


def cross_fit(x: NDArray[np.floating], seed: int) -> CrossFit:
    """Prepare the regressions on x [n, d], finite and with no constant column, in the order of its rows."""
    basis = _basis(x, seed)
    n = len(basis)
    edges = np.linspace(0, n, _FOLDS + 1).astype(int).tolist()
    folds = [slice(start, end) for start, end in pairwise(edges)]
    normal = basis.T @ basis
    penalty = np.eye(basis.shape[1]) * (_RIDGE * n)
    penalty[0, 0] = 1e-6 * n  # the intercept is free
    inverses = [np.linalg.inv(normal - basis[f].T @ basis[f] + penalty).astype(np.float32) for f in folds]
    return CrossFit(basis.astype(np.float32), folds, inverses)


def _basis(x: NDArray[np.floating], seed: int) -> NDArray[np.float64]:
    """An intercept, the leading principal components, and random Fourier features of these, [n, features]."""
    from sklearn.decomposition import PCA
    from sklearn.kernel_approximation import RBFSampler

    scaled = np.asarray(x, dtype=np.float64)
    scaled = (scaled - scaled.mean(0)) / scaled.std(0)
    kept = min(_COMPONENTS, *scaled.shape)
    scaled = PCA(kept, random_state=seed).fit_transform(scaled)
    left, right = np.random.default_rng(seed).integers(len(x), size=(2, 500))
    distance = np.median(((scaled[left] - scaled[right]) ** 2).sum(1)) or 1.0  # of a typical pair
    waves = RBFSampler(gamma=1 / distance, n_components=_WAVES, random_state=seed).fit_transform(scaled)
    return np.hstack([np.ones((len(x), 1)), scaled / np.sqrt(distance / 2), waves - waves.mean(0)])


def guess(fit: CrossFit, sets: Floats) -> tuple[Floats, Floats]:
    """Posterior [n, c] of a held-out classifier from the features alone, and weights, the same restricted to the sets [n, c].

    Labels are identified by turns: fit the weights, restrict the held-out estimates to the sets, fit these. The same turns
    as PRODEN's, by least squares, because the test has to run them a hundred times.
    """
    weights = sets / sets.sum(1, keepdims=True)
    for _ in range(_ROUNDS):
        posterior = np.maximum(fit.predict(weights), _FLOOR)
        posterior /= posterior.sum(1, keepdims=True)
        weights = posterior * sets
        weights /= weights.sum(1, keepdims=True)
    return posterior, weights
