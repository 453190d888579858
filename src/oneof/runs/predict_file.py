"""Predict the rows of a file, as `oneof predict` does."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from oneof.data.files.columns import read_columns_of
from oneof.data.images import folder_of
from oneof.data.table import read_columns
from oneof.ensemble.model import Model
from oneof.runs.predict import prediction_table


@dataclass(frozen=True)
class PredictOptions:
    """What to write beside labels and their probabilities, and how to read the file."""

    distribution: bool = False  # add the probability of every label
    accuracy: float | None = None  # abstain on the least certain rows to reach this accuracy on the rest
    sets: float | None = None  # add prediction sets that contain the true label in this share of rows
    copied: Sequence[str] = ()  # columns of the file to copy
    models: Sequence[str] = ()  # embedding models that may be opened
    cache: Path | None = None  # of embeddings; None: the default folder
    unpacked: float = 16.0  # gigabytes that a compressed file may unpack to


def predict_file(model: Model, file: Path, folder: Path | None, options: PredictOptions) -> tuple[pa.Table, list[str]]:
    """Return the predictions for a file, and warnings.

    Parameters
    ----------
    model
        The model of a run.
    file
        A table with the columns of the training table, or a folder of pictures.
    folder
        Where the names of pictures are looked up. None: beside the file.
    options
        What to predict.

    Returns
    -------
    table
        A row per row of the file. One whose picture cannot be read has no values.
    warnings
        Categories that training did not have, and pictures that cannot be read.
    """
    encoding = model.encoding
    columns = read_columns(file, replace(encoding.roles, unpacked=options.unpacked))
    warnings = list(encoding.unseen(columns))
    if folder is None:
        folder = folder_of(file)
    pictures = None
    if encoding.pixels:
        pictures = encoding.pictures(columns, folder)
        features = pictures.levels
    else:
        features = encoding.transform(columns, folder=folder, cache=options.cache, named=list(options.models))
    table = prediction_table(
        model.probabilities(features),
        model.classes,
        model.calibration,
        distribution=options.distribution,
        accuracy=options.accuracy,
        sets=options.sets,
    )
    if pictures is not None and pictures.fault:
        warnings.append(pictures.fault)
        table = table.take(pa.array(range(len(columns)), mask=~pictures.readable))
    for name, cells in read_columns_of(file, list(options.copied), table.column_names).items():
        table = table.append_column(name, [cells])
    return table, warnings


def describe_predictions(table: pa.Table, calibration: dict[str, Any], options: PredictOptions) -> str:
    """Return in words how many rows were predicted, how many were abstained on, and how large the prediction sets are."""
    parts = [f"{table.num_rows:,} rows"]
    grounds = f"by {calibration['by']}"
    if calibration["by"] != "gold labels":
        grounds += f", {calibration['reason']}"
    if options.accuracy is not None:
        n_abstained = sum(table["abstained"].to_pylist())
        parts.append(
            f"abstained on {n_abstained:,} rows to reach {options.accuracy:.0%} accuracy on the rest ({grounds})"
        )
    if options.sets is not None:
        n_labels = sum(len(labels) for labels in table["set"].to_pylist())
        mean_size = n_labels / max(1, table.num_rows)
        parts.append(
            f"sets of {mean_size:.2f} labels that contain the right one in {options.sets:.0%} of rows ({grounds})"
        )
    return "; ".join(parts)
