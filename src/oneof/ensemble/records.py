"""Describe a fit: its result, a row for every example, and the history of the training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch

from oneof.data.dataset import UNKNOWN, BoolArray, Dataset, FloatArray
from oneof.ensemble.accuracy import AccuracyEstimate
from oneof.ensemble.model import Model
from oneof.ensemble.resolve import ResolvedRows
from oneof.ensemble.review_order import neighbours_and_gain
from oneof.learners.base import FittedLearner, Resources, trained_networks
from oneof.metrics import CRITERIA
from oneof.storage.rows import Row
from oneof.storage.settings import to_serializable
from oneof.storage.sheets import list_array
from oneof.training.state import Fit
from oneof.version import RUN_FORMAT, __version__

REMOVAL = pa.struct([("label", pa.string()), ("round", pa.int32()), ("margin", pa.float32()), ("trials", pa.int32())])


class FitResult(NamedTuple):
    """Everything that a run holds."""

    model: Model
    purified: pa.Table  # a row for every example
    training: dict[str, Any]  # the history of the networks, epoch by epoch
    tried: list[Row]  # scalings and learners with their scores
    accuracy: AccuracyEstimate  # on new rows
    metadata: dict[str, Any]  # for run.json: all of it that does not depend on where the data came from
    warnings: list[str]


def describe_rows(
    data: Dataset,
    learners: Sequence[FittedLearner],
    resolved: ResolvedRows,
    representation: FloatArray,
    resources: Resources,
) -> pa.Table:
    """Return the purified table, a row per example: its label with the evidence, removals, similar rows and the gain of reviewing it."""
    trained = trained_networks(learners)
    neighbours, gain = neighbours_and_gain(
        representation, resolved.distribution, resolved.ask, resources.device, resources.map
    )
    other_columns = {
        "removed": removals_table(trained, data.reviewed_sets, data.classes),
        "trained": training_counts(trained, len(data)),
        "neighbours": neighbours,
        "gain": pa.array(gain),
    }
    return purified_table(data, resolved, other_columns)


def purified_table(data: Dataset, resolved: ResolvedRows, other_columns: Mapping[str, pa.Array]) -> pa.Table:
    """Return the rows of purified.parquet, one per example, in the order of the data."""
    original = data.candidates.mask
    names = pa.array(data.classes, pa.string())
    original_lists = _label_lists(original, names)
    columns: dict[str, Any] = {
        "row": pa.array(np.arange(len(original))),
        "original": original_lists,
        "kept": _label_lists(resolved.kept, names),
        "label": names.take(pa.array(resolved.label)),
        "probability": pa.array(resolved.probability),
        "margin": pa.array(resolved.margin),
        "agreement": pa.array(resolved.agreement),
        "ask": pa.array(resolved.ask),
        "outside": names.take(pa.array(resolved.outside, mask=resolved.outside < 0)),
        **other_columns,
        "distribution": pa.ListArray.from_arrays(original_lists.offsets, pa.array(resolved.distribution[original])),
    }
    if data.has_groups:
        columns["group"] = pa.array([str(group) for group in data.groups.tolist()], pa.string())
    if data.ballots is not None:
        columns["votes"] = data.ballots
    if data.has_gold:
        columns["gold"] = names.take(pa.array(data.gold, mask=data.gold == UNKNOWN))
    return pa.table(columns)


def training_counts(trained: Sequence[Fit], n: int) -> pa.Array:
    """Return the number of networks that were trained on each of the n rows [n]."""
    counts = np.zeros(n, dtype=np.int32)
    for fitted in trained:
        for rows in fitted.rows.cpu().numpy():
            counts += np.isin(np.arange(n), rows)
    return pa.array(counts)


def removals_table(trained: Sequence[Fit], sets: BoolArray, classes: Sequence[str]) -> pa.ListArray:
    """Return for each row a list of the labels that were removed from its set [n, c].

    Each is with the median of the rounds in which networks removed it, the mean margin, and the number of networks that did. Noisy sets are
    trained on with all labels; of these, labels outside the set are left out.
    """
    row_parts = [np.empty(0, dtype=int)]  # each with an empty part, so that there is something to concatenate
    label_parts = [np.empty(0, dtype=int)]
    round_parts = [np.empty(0, dtype=int)]
    margin_parts = [np.empty(0, dtype=np.float32)]
    for fitted in trained:
        if fitted.removals is None:
            continue
        trial, position, label, round_number, margin = [column.cpu() for column in fitted.removals]
        row_parts.append(fitted.rows.cpu()[trial, position].numpy())
        label_parts.append(label.numpy())
        round_parts.append(round_number.numpy())
        margin_parts.append(margin.numpy())
    row = np.concatenate(row_parts)
    label_index = np.concatenate(label_parts)
    rounds = np.concatenate(round_parts)
    margins = np.concatenate(margin_parts)

    # Sort removals by row, label and round, so that those of one label of one row are neighbours.
    inside = np.flatnonzero(sets[row, label_index])
    row_and_label = row * sets.shape[1] + label_index
    sort_key = row_and_label * (rounds.max(initial=0) + 1) + rounds
    order = inside[np.argsort(sort_key[inside], kind="stable")]
    starts = np.flatnonzero(np.diff(row_and_label[order], prepend=-1))
    counts = np.diff(np.append(starts, len(order)))
    median = order[starts + (counts - 1) // 2]
    mean_margin = np.add.reduceat(margins[order], starts) / counts

    names = pa.array(classes, pa.string())
    columns = (names.take(pa.array(label_index[median])), rounds[median], mean_margin, counts)
    arrays = []
    for column, field in zip(columns, REMOVAL, strict=True):
        arrays.append(pa.array(column).cast(field.type))
    return list_array(row[median], len(sets), pa.StructArray.from_arrays(arrays, fields=list(REMOVAL)))


def describe_fit(
    data: Dataset,
    seed: int,
    configs: Sequence[Any],
    model: Model,
    rule: str,
    accuracy: AccuracyEstimate,
    sampled_rows: Mapping[str, int],
) -> dict[str, Any]:
    """Return what run.json stores about any fit, of files or arrays.

    Parameters
    ----------
    configs
        Settings of the networks.
    rule
        What chose the settings.
    sampled_rows
        Number of rows of learners that were fitted on a sample.
    """
    sampled_of_learners = {}
    for name, count in sampled_rows.items():
        if name in model.learners:
            sampled_of_learners[name] = count
    return {
        "format": RUN_FORMAT,
        "oneof": __version__,
        "torch": torch.__version__,
        "seed": seed,
        "n": len(data),
        "d": len(data.encoding.names),
        "classes": data.classes,
        "features": data.encoding.names,
        "chosen": to_serializable([config._asdict() for config in configs]),
        "learners": model.learners,
        "sampled_rows": sampled_of_learners,
        "rule": rule,
        "estimate": asdict(accuracy),
    }


def learner_rows(weights: Mapping[str, float]) -> list[Row]:
    """Return a row for rows.jsonl with the weight of each learner, also if it is 0."""
    rows: list[Row] = []
    for name, weight in weights.items():
        rows.append({"stage": "learners", "learner": name, "share": weight})
    return rows


def training_record(trained: Sequence[Fit]) -> dict[str, Any]:
    """Return the history of all networks for training.json.

    `columns` has a list [epochs][networks] for each name, with None after a network's last epoch; `chosen` has the epoch whose weights are
    kept, of each network.
    """
    n_epochs = max((len(fitted.history["loss"]) for fitted in trained), default=0)
    columns: dict[str, list[Any]] = {}
    for name in ("loss", "set_size", "threshold", "removed", *CRITERIA):
        if not trained or not all(name in fitted.history for fitted in trained):
            continue
        by_epoch: list[list[Any]] = [[] for _ in range(n_epochs)]
        for fitted in trained:
            values = fitted.history[name].tolist()  # [epochs][t]
            missing = [None] * len(values[0])
            for epoch in range(n_epochs):
                if epoch < len(values):
                    by_epoch[epoch] += values[epoch]
                else:
                    by_epoch[epoch] += missing
        columns[name] = by_epoch
    chosen = []
    for fitted in trained:
        chosen += fitted.epoch.tolist()
    return {"trials": len(chosen), "epochs": n_epochs, "columns": columns, "chosen": chosen}


def _label_lists(mask: BoolArray, names: pa.Array) -> pa.ListArray:
    """Return the names of the labels of each row of a mask [n, c]."""
    rows, labels = np.nonzero(mask)
    return list_array(rows, len(mask), names.take(pa.array(labels)))
