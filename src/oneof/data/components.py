"""Replace very many columns of numbers, such as embeddings or counts of words, by principal components.

The cost of distances and networks grows with the number of columns. Where a few hundred components explain nearly all of the variance of
held-out rows, learners get the components in place of the columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_COLUMNS = 1024  # above which components are tried
N_COMPONENTS = 512  # at most, of dense columns
N_SPARSE_COMPONENTS = 256  # at most, of sparse columns such as counts of words
MIN_HELD_OUT_VARIANCE = 0.9  # share of the variance of held-out rows that the components must explain
MAX_ROWS = 5000  # from which components are computed
ARRAYS = ("axes", "offset")


@dataclass(frozen=True, eq=False)
class Components:
    """A linear map from columns of numbers, missing values imputed, to fewer features."""

    axes: NDArray[np.float32]  # [w, k]
    offset: NDArray[np.float32]  # [k], subtracted from the product

    @property
    def width(self) -> int:
        """Return the number of features."""
        return int(self.axes.shape[1])

    def __call__(self, numbers: Any) -> NDArray[np.float32]:
        """Return the features [n, k] of numbers [n, w], an array or a sparse matrix."""
        return np.asarray(numbers @ self.axes, dtype=np.float32) - self.offset


def learn_components(numbers: NDArray[np.float32], seed: int = 0) -> Components | None:
    """Compute the principal components of standardised columns; None if they are few or poorly explained.

    The components of one half of the rows must explain the other half. For columns that are independent of each other, components explain
    only the rows from which they were computed.

    Parameters
    ----------
    numbers
        Columns [n, w] without missing values.
    seed
        Seed of the sample of rows and of the decomposition.

    Returns
    -------
    Components or None
    """
    from sklearn.utils.extmath import randomized_svd  # here: it takes a while to load, and few tables are that wide

    n, n_columns = numbers.shape
    if n_columns <= MAX_COLUMNS:
        return None
    order = np.random.default_rng(seed).permutation(n)[:MAX_ROWS]
    mean = numbers[order].mean(0, dtype=np.float64)
    deviation = numbers[order].std(0, dtype=np.float64)
    scale = np.where(deviation > 0, deviation, 1.0)
    standardised = ((numbers[order] - mean) / scale).astype(np.float32)
    n_components = min(N_COMPONENTS, len(order) // 2)
    first, second = standardised[::2], standardised[1::2]
    _, _, directions = randomized_svd(first, n_components, n_iter=2, random_state=seed)
    explained = np.square(second @ directions.T).sum()
    if explained < MIN_HELD_OUT_VARIANCE * np.square(second).sum():
        return None
    _, _, directions = randomized_svd(standardised, n_components, n_iter=2, random_state=seed)
    axes = directions.T / scale[:, None]
    return Components(axes.astype(np.float32), (mean @ axes).astype(np.float32))


def learn_sparse_components(numbers: Any, seed: int = 0) -> Components:
    """Compute a truncated SVD of a sparse matrix [n, w]; columns are not centred, since the matrix would become dense."""
    from sklearn.decomposition import TruncatedSVD

    n_components = min(N_SPARSE_COMPONENTS, *(size - 1 for size in numbers.shape))
    decomposition = TruncatedSVD(n_components, random_state=seed).fit(numbers)
    axes = np.ascontiguousarray(decomposition.components_.T, dtype=np.float32)
    return Components(axes, np.zeros(axes.shape[1], dtype=np.float32))
