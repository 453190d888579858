"""Predictions as a table: label and probability; on request the distribution, abstention by wished accuracy, and sets."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from oneof.ensemble.calibrate import prediction_sets, threshold
from oneof.storage.sheets import lists_of


def prediction_table(
    probabilities: NDArray[np.floating[Any]],
    classes: Sequence[str],
    calibration: dict[str, Any],
    *,
    distribution: bool = False,  # a column `p(LABEL)` for every label
    accuracy: float | None = None,  # abstain (no label, `abstained` true) where fewer predictions are right
    sets: float | None = None,  # a column `set` of labels that hold the true one in this share of new rows
) -> pa.Table:
    """Of probabilities [n, c] by a model of these classes, one row each: label, probability, and what else is asked for."""
    names = pa.array(classes, pa.string())
    best, sure = probabilities.argmax(1), probabilities.max(1)
    columns: dict[str, Any] = {"label": names.take(pa.array(best)), "probability": pa.array(sure)}
    if accuracy is not None:
        silent = sure < threshold(calibration, accuracy)
        columns["label"] = names.take(pa.array(best, mask=silent))
        columns["abstained"] = pa.array(silent)
    if sets is not None:
        mask = prediction_sets(calibration, probabilities, sets)
        order = np.argsort(-np.where(mask, probabilities, -1), axis=1, kind="stable")  # the most probable first
        inside = np.take_along_axis(mask, order, axis=1)
        columns["set"] = lists_of(inside.nonzero()[0], len(mask), names.take(pa.array(order[inside])))
    if distribution:
        columns |= {f"p({name})": pa.array(column) for name, column in zip(classes, probabilities.T, strict=True)}
    return pa.table(columns)
