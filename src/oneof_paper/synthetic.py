"""Draw data with a known posterior: Gaussian mixtures, on which claims can be checked exactly."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax


class Mixture(NamedTuple):
    """Points of a Gaussian mixture, with their labels, posterior and means."""

    x: NDArray[np.float64]  # [n, d]
    labels: NDArray[np.intp]  # [n]
    posterior: NDArray[np.float64]  # [n, c], exact
    means: NDArray[np.float64]  # [c, d]


def mixture(n: int, d: int, c: int, *, separation: float = 3.0, seed: int = 0) -> Mixture:
    """Draw n points from c unit Gaussians in d dimensions, equally likely, their means drawn at the scale `separation`."""
    rng = np.random.default_rng(seed)
    means = separation * rng.standard_normal((c, d))
    labels = rng.integers(c, size=n)
    x = means[labels] + rng.standard_normal((n, d))
    posterior = softmax(x @ means.T - 0.5 * np.square(means).sum(1), axis=1)  # of - |x - mean_j|^2 / 2
    return Mixture(x, labels, np.asarray(posterior), means)
