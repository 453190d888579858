"""Made tables, of kinds that the real tables of the suite lack: many classes and columns, many clusters, few rows, one large class.

Each is made from a fixed seed, so it is the same table in every split.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class MadeTable(NamedTuple):
    """Features and true labels."""

    x: NDArray[np.float64]  # [n, d]
    labels: NDArray[np.intp]  # [n], every class occurs
    n_classes: int


def words(n: int = 20_000, n_columns: int = 500, n_classes: int = 90, seed: int = 0) -> MadeTable:
    """Make words with binary columns, such as endings and neighbours, and classes as unequal as the frequencies of words.

    The share of the k-th class is proportional to 1/k. A class has three kinds of words, each with a distribution of its own over the
    columns; classes come in groups of six that share half of it. A row has some fourteen of the columns.
    """
    rng = np.random.default_rng(seed)
    n_kinds = 3
    background = rng.dirichlet(np.full(n_columns, 0.5))
    groups = rng.dirichlet(np.full(n_columns, 0.05), size=n_classes // 6 + 1)
    kinds = rng.dirichlet(np.full(n_columns, 0.02), size=(n_classes, n_kinds))
    frequencies = 1 / np.arange(1, n_classes + 1)
    labels = _draw_labels(frequencies, n, rng)
    kind = rng.integers(n_kinds, size=n)
    group = rng.permutation(n_classes) // 6
    x = np.zeros((n, n_columns))
    for label in range(n_classes):
        for number in range(n_kinds):
            shares = 0.4 * background + 0.3 * groups[group[label]] + 0.3 * kinds[label, number]
            rows = np.flatnonzero((labels == label) & (kind == number))
            n_drawn = 1 + rng.poisson(16, size=len(rows))
            columns = rng.choice(n_columns, size=n_drawn.sum(), p=shares)
            x[np.repeat(rows, n_drawn), columns] = 1
    return MadeTable(x, labels, n_classes)


def clusters(n: int = 12_000, n_columns: int = 16, n_classes: int = 26, seed: int = 0) -> MadeTable:
    """Make classes of six clusters each, close to those of other classes, in whole numbers from 0 to 15."""
    rng = np.random.default_rng(seed)
    n_clusters = 6
    centres = rng.normal(7.5, 2.2, size=(n_classes, n_clusters, n_columns))
    spread = rng.uniform(1.2, 2.2, size=(n_classes, n_clusters, n_columns))
    labels = _draw_labels(np.ones(n_classes), n, rng)
    cluster = rng.integers(n_clusters, size=n)
    x = rng.normal(centres[labels, cluster], spread[labels, cluster])
    return MadeTable(np.clip(np.round(x), 0, 15), labels, n_classes)


def few_rows(n: int = 470, n_columns: int = 30, n_classes: int = 20, seed: int = 0) -> MadeTable:
    """Make some two dozen rows for each class, of unequal frequency; a third of the columns tells something."""
    rng = np.random.default_rng(seed)
    labels = _draw_labels(rng.dirichlet(np.full(n_classes, 3.0)), n, rng)
    centres = np.zeros((n_classes, n_columns))
    centres[:, : n_columns // 3] = rng.normal(0, 1.0, size=(n_classes, n_columns // 3))
    return MadeTable(rng.normal(centres[labels], 1.0), labels, n_classes)


def large_class(n: int = 3_000, n_columns: int = 12, n_classes: int = 6, seed: int = 0) -> MadeTable:
    """Make a table with nine tenths of the rows in one class, which surrounds the others."""
    rng = np.random.default_rng(seed)
    frequencies = np.array([0.9, *np.full(n_classes - 1, 0.1 / (n_classes - 1))])
    labels = _draw_labels(frequencies, n, rng)
    centres = rng.normal(0, 1.5, size=(n_classes, n_columns))
    centres[0] = 0
    spread = np.where(labels == 0, 1.6, 0.8)[:, None]
    return MadeTable(rng.normal(centres[labels], spread), labels, n_classes)


def _draw_labels(frequencies: NDArray[np.float64], n: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Draw labels with these frequencies; the first rows hold every class eight times, so that splits do too."""
    n_classes = len(frequencies)
    drawn = rng.choice(n_classes, size=n, p=frequencies / frequencies.sum())
    drawn[: 8 * n_classes] = np.repeat(np.arange(n_classes), 8)
    return drawn.astype(np.intp)


MADE: dict[str, Callable[[], MadeTable]] = {
    "words": words,
    "clusters": clusters,
    "few rows": few_rows,
    "large class": large_class,
}
