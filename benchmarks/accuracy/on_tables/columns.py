"""Columns of a table as numbers for one learner or another; everything is learned from training rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from on_tables.problems import Floats

LARGEST = 4.0  # of a z-score: a few far values must not decide all distances
N_BINS = 16


class Columns(NamedTuple):
    """Columns of numbers without gaps, and indicators of categories and gaps."""

    numbers: Floats  # [n, k]
    indicators: Floats  # [n, l]


class Features(NamedTuple):
    """The same features of training and test rows."""

    train: Floats  # [n, d]
    test: Floats  # [m, d]


def read_columns(train: Any, test: Any) -> tuple[Columns, Columns]:
    """Fill gaps with medians of training rows, and give every category, and gaps, an indicator."""
    train = pd.DataFrame(train)
    test = pd.DataFrame(test)
    numbers: list[Floats] = []
    numbers_test: list[Floats] = []
    indicators: list[Floats] = []
    indicators_test: list[Floats] = []
    for name in train.columns:
        column = train[name]
        column_test = test[name]
        if column.isna().any():
            indicators.append(column.isna().to_numpy(float))
            indicators_test.append(column_test.isna().to_numpy(float))
        if pd.api.types.is_numeric_dtype(column):
            median = column.median()
            filling = 0.0 if pd.isna(median) else median
            numbers.append(column.fillna(filling).to_numpy(float))
            numbers_test.append(column_test.fillna(filling).to_numpy(float))
            continue
        for value in sorted(column.dropna().unique()):
            indicators.append((column == value).to_numpy(float))
            indicators_test.append((column_test == value).to_numpy(float))
    return (
        Columns(_stack(numbers, len(train)), _stack(indicators, len(train))),
        Columns(_stack(numbers_test, len(test)), _stack(indicators_test, len(test))),
    )


def _stack(columns: list[Floats], n: int) -> Floats:
    return np.stack(columns, axis=1) if columns else np.zeros((n, 0))


def tree_features(train: Any, test: Any) -> Features:
    """Return numbers beside indicators."""
    known, new = read_columns(train, test)
    return Features(np.hstack(known), np.hstack(new))


def distance_features(train: Any, test: Any) -> Features:
    """Return z-scores and normalised ranks of numbers beside indicators, so that every column counts alike in distances."""
    known, new = read_columns(train, test)
    mean = known.numbers.mean(0)
    deviation = known.numbers.std(0)
    deviation[deviation == 0] = 1.0
    parts = []
    for columns in (known, new):
        z = np.clip((columns.numbers - mean) / deviation, -LARGEST, LARGEST)
        ranks = (_shares_below(known.numbers, columns.numbers) - 0.5) * np.sqrt(12)
        parts.append(np.hstack([z / np.sqrt(2), ranks / np.sqrt(2), columns.indicators]))
    return Features(*parts)


def _shares_below(known: Floats, values: Floats) -> Floats:
    """Return the share of known values below each value, column by column; equal values count half."""
    shares = np.empty(values.shape)
    for j in range(values.shape[1]):
        order = np.sort(known[:, j])
        below = np.searchsorted(order, values[:, j], side="left")
        up_to = np.searchsorted(order, values[:, j], side="right")
        shares[:, j] = (below + up_to) / (2 * len(order))
    return shares


def piecewise_features(train: Any, test: Any) -> Features:
    """Return numbers in piecewise-linear encoding between quantiles, beside indicators."""
    known, new = read_columns(train, test)
    parts: tuple[list[Floats], list[Floats]] = ([known.indicators], [new.indicators])
    for j in range(known.numbers.shape[1]):
        edges = np.unique(np.quantile(known.numbers[:, j], np.linspace(0, 1, N_BINS + 1)))
        if len(edges) < 2:
            continue
        for columns, encoded in zip((known, new), parts, strict=True):
            position = (columns.numbers[:, j, None] - edges[:-1]) / np.diff(edges)
            encoded.append(np.clip(position, 0.0, 1.0))
    return Features(np.hstack(parts[0]), np.hstack(parts[1]))
