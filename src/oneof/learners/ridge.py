"""Linear ridge regression that leaves each row out, in closed form."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.floating[Any]]


def leave_one_out_ridge(x: FloatArray) -> Callable[[float, FloatArray], FloatArray]:
    """Return a function (ridge, targets [n, c]) -> leave-one-out predictions [n, c] for rows x [n, d], whose columns are standardised.

    The ridge is relative to the number of rows: 1 halves the coefficient of a direction with the variance of a column.

    >>> x = np.arange(8.0)[:, None]
    >>> leave_one_out_ridge(x)(1e-9, 2 * x).round(3).ravel().tolist()
    [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0]
    """
    n = len(x)
    centred = x - x.mean(0)
    deviation = centred.std(0)
    standardised = centred / np.where(deviation > 0, deviation, 1.0)
    eigenvalues, directions = np.linalg.eigh(standardised.T @ standardised / n)  # [d]
    projected = standardised @ directions  # [n, d]

    def predict(ridge: float, targets: FloatArray) -> FloatArray:
        mean = targets.mean(0)
        shrinkage = 1 / (n * (np.maximum(eigenvalues, 0) + ridge))
        coefficients = shrinkage[:, None] * (projected.T @ (targets - mean))
        leverage = np.minimum((projected**2) @ shrinkage + 1 / n, 1 - 1e-6)[:, None]
        return np.asarray(mean + (projected @ coefficients - leverage * (targets - mean)) / (1 - leverage))

    return predict
