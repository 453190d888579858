"""Build the table of predictions: labels and probabilities, with abstention and prediction sets on request."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from oneof.ensemble.calibrate import prediction_sets, threshold
from oneof.storage.sheets import list_array


def prediction_table(
    probabilities: NDArray[np.floating[Any]],
    classes: Sequence[str],
    calibration: dict[str, Any],
    *,
    distribution: bool = False,
    accuracy: float | None = None,
    sets: float | None = None,
) -> pa.Table:
    """Return a table with a label and its probability for every row.

    Parameters
    ----------
    probabilities : array [n, c]
        Predicted by the model for every row and class.
    classes : sequence [c]
        Names of the classes.
    calibration : dict
        The calibration stored with the model.
    distribution : bool
        Add a column `p(LABEL)` for every class.
    accuracy : float, optional
        Abstain on the least certain rows so that this share of the remaining predictions is right. Rows without a
        prediction have no label, and `abstained` is true.
    sets : float, optional
        Add a column `set` with prediction sets that contain the true label for this share of new rows.
    """
    names = pa.array(classes, pa.string())
    predicted = probabilities.argmax(1)
    confidence = probabilities.max(1)
    columns: dict[str, Any] = {
        "label": names.take(pa.array(predicted)),
        "probability": pa.array(confidence),
    }
    if accuracy is not None:
        abstained = confidence < threshold(calibration, accuracy)
        columns["label"] = names.take(pa.array(predicted, mask=abstained))
        columns["abstained"] = pa.array(abstained)
    if sets is not None:
        in_set = prediction_sets(calibration, probabilities, sets)
        columns["set"] = _label_lists(in_set, probabilities, names)
    if distribution:
        for name, column in zip(classes, probabilities.T, strict=True):
            columns[f"p({name})"] = pa.array(column)
    return pa.table(columns)


def _label_lists(in_set: NDArray[np.bool_], probabilities: NDArray[np.floating[Any]], names: pa.Array) -> pa.ListArray:
    """Return the labels in each row's set, most probable first."""
    order = np.argsort(-np.where(in_set, probabilities, -1), axis=1, kind="stable")
    sorted_in_set = np.take_along_axis(in_set, order, axis=1)
    rows = sorted_in_set.nonzero()[0]
    labels = names.take(pa.array(order[sorted_in_set]))
    return list_array(rows, len(in_set), labels)
