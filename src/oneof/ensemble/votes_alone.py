"""Resolve a table that has votes and no features: nothing is trained, and the votes decide."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from oneof.data.dataset import Dataset
from oneof.ensemble.accuracy import AccuracyEstimate
from oneof.ensemble.model import Model
from oneof.ensemble.records import FitResult, describe_fit, purified_table, removals_table, training_record
from oneof.ensemble.resolve import allowed_labels, resolve_labels
from oneof.learners.base import Predictions


def decided_by_votes(data: Dataset) -> Dataset:
    """Return the data set with evidence by which votes alone decide: their posterior, or counts as they were given."""
    if data.votes is None:
        raise ValueError("a table without features must have votes; got none. Add columns to learn from, or votes.")
    probabilities = data.votes.likelihood if data.votes.posterior is None else data.votes.posterior
    return replace(data, votes=data.votes._replace(likelihood=probabilities, neighbours=None, held_out=None))


def resolve_votes_alone(data: Dataset, seed: int) -> FitResult:
    """Give every row the label that the votes find most probable.

    The model has no learners, so it predicts nothing. A row without votes gets the most frequent label, and is to be reviewed.
    """
    data = decided_by_votes(data)
    n, c = data.candidates.mask.shape
    predictions = Predictions.uninformative(n, c)
    resolved = resolve_labels(data, predictions, allowed_labels(data, [], data.candidates.mask))

    reason = "the run was fitted to votes alone, so it predicts no new rows"
    accuracy = AccuracyEstimate("bound", None, 0.0, 1.0, 1.0, 1.0, "votes", reason)
    calibration = {"by": "nothing", "reason": reason, "rows": 0, "accuracy": [], "scores": []}
    columns = {
        "removed": removals_table([], data.candidates.mask, data.classes),
        "trained": pa.array(np.zeros(n, dtype=np.int32)),
        "neighbours": pa.array([[]] * n, pa.list_(pa.int64())),
        "gain": pa.array((1 - resolved.margin) / 2),  # about the probability that an answer changes the label
    }
    model = Model(data.classes, data.encoding, (), calibration)
    return FitResult(
        model=model,
        purified=purified_table(data, resolved, columns),
        training=training_record([]),
        tried=[],
        accuracy=accuracy,
        metadata=describe_fit(data, seed, [], model, "votes", accuracy, sampled_rows={}),
        warnings=[],
    )
