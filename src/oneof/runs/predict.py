"""Predictions as a table: label and probability; on request the distribution, abstention by wished accuracy, and sets."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from oneof.runs.calibrate import prediction_sets, threshold
from oneof.storage.sheets import lists_of


def prediction_table(
    probabilities: NDArray[np.floating[Any]],
    classes: Sequence[str],
    calibration: dict[str, Any],
    *,
    distribution: bool = False,  # a column `p(LABEL)` for every label
    accuracy: float
    | None = None,  # abstain (no label, `abstained` true) where predictions are right less often than this
    sets: float | None = None,  # a column `set` of labels that hold the true one in this share of new rows
) -> pa.Table:
    """Of probabilities [n, c] by a model of these classes, one row each: label, probability, and what else is asked for.

    >>> table = prediction_table(np.array([[0.7, 0.3], [0.4, 0.6]]), ["cat", "dog"], {}, distribution=True)
    >>> table.to_pylist()[1]
    {'label': 'dog', 'probability': 0.6, 'p(cat)': 0.4, 'p(dog)': 0.6}
    """
    names = pa.array(classes, pa.string())
    best, sure = probabilities.argmax(1), probabilities.max(1)
    columns: dict[str, Any] = {"label": names.take(pa.array(best)), "probability": pa.array(sure)}
    if accuracy is not None:
        silent = sure < threshold(calibration, accuracy)
        columns["label"] = names.take(pa.array(best, mask=silent))
        columns["abstained"] = pa.array(silent)
    if sets is not None:
        columns["set"] = _lists(prediction_sets(calibration, probabilities, sets), probabilities, names)
    if distribution:
        shares = zip(classes, np.asarray(probabilities).T, strict=True)
        columns |= {f"p({name})": pa.array(column) for name, column in shares}
    return pa.table(columns)


def _lists(mask: NDArray[np.bool_], probabilities: NDArray[np.floating[Any]], names: pa.Array) -> pa.ListArray:
    """The labels of each set, the most probable first."""
    order = np.argsort(-np.where(mask, probabilities, -1), axis=1, kind="stable")
    inside = np.take_along_axis(mask, order, axis=1)
    return lists_of(inside.nonzero()[0], len(mask), names.take(pa.array(order[inside])))
