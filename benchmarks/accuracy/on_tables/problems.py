"""Real tables with made candidate sets, and real sets: what a system learns from and is judged by.

The tables lie in `tables/NAME.csv` of the data folder, with the true label in the column `target`. Seven tenths of the rows are learned from.
Sets are made of the true labels of these rows in one of three ways (`KINDS`), and always hold the true label.
The real sets (`REAL`) come with their candidates, which the pages call kind "real", and are split as in `realworld.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import realworld
from numpy.typing import NDArray
from on_tables.made import MADE
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from oneof_paper.data.catalogue import data_folder, load

# By the number of rows, from few to many. Every second table is to develop on; the others are looked at with reporting seeds only.
TABLES = (
    "glass", "primary.tumor", "arrhythmia", "soybean", "eucalyptus", "anneal",
    "vowel", "segment", "waveform5000", "page.blocks", "optdigits", "nursery",
)  # fmt: skip
DEVELOP = TABLES[::2]
HELD_BACK = TABLES[1::2]
# Tables that the default was developed without, written by `keel_tables.py`, by the number of rows.
KEEL = (
    "zoo", "tae", "automobile", "hayes-roth", "wine", "newthyroid", "cleveland", "ecoli", "dermatology",
    "movement_libras", "led7digit", "balance", "vehicle", "flare", "contraceptive", "yeast", "car", "splice",
    "abalone", "texture", "satimage", "marketing", "penbased", "letter", "kr-vs-k",
)  # fmt: skip
KEEL_DEVELOP = KEEL[::2]
KEEL_HELD_BACK = KEEL[1::2]
REAL = ("lost", "msrcv2", "birdsong")
REAL_KIND = "real"
CHOOSING_SEEDS = range(10)
REPORTING_SEEDS = range(400, 420)

Floats = NDArray[np.floating[Any]]
Mask = NDArray[np.bool_]
Labels = NDArray[np.intp]


class Table(NamedTuple):
    """A table with true labels, and with candidate sets where it comes with them."""

    columns: Any  # frame [n, k] or array [n, k]: features as people have them
    numbers: Floats  # [n, d] the same as numbers, without gaps
    labels: Labels  # [n]
    n_classes: int
    sets: Mask | None  # [n, c]


class Problem(NamedTuple):
    """Training rows with candidate sets, and test rows with true labels."""

    train: Any  # features of training rows, as people have them
    test: Any
    x_train: Floats  # [n, d] the same as numbers
    x_test: Floats  # [m, d]
    sets: Mask  # [n, c]
    labels_train: Labels  # [n] for ceilings and to report; no other system may see them
    labels_test: Labels  # [m]


@cache
def load_table(name: str, data_dir: str | None = None) -> Table:
    """Make a table of `made.py`, or load a table of the suite or one of the real sets from `data_dir` or the folder that ONEOF_DATA names."""
    if name in REAL:
        data = load(name, data_dir)
        return Table(data.x, data.x, data.labels, len(data.classes), data.candidates)
    if name in MADE:
        made = MADE[name]()
        return Table(made.x, made.x, made.labels, made.n_classes, None)
    frame = pd.read_csv(table_file(name, data_dir))
    labels, classes = pd.factorize(frame.pop("target"), sort=True)
    return Table(frame, to_numbers(frame), labels.astype(np.intp), len(classes), None)


def table_file(name: str, data_dir: str | None = None) -> Path:
    """Find the file of a table, in the data folder or in its subfolder `tables`."""
    folder = data_folder(data_dir)
    if folder is None:
        raise ValueError("--data-dir or ONEOF_DATA must name the folder that holds tables/; neither does.")
    for path in (folder / "tables" / f"{name}.csv", folder / f"{name}.csv"):
        if path.is_file():
            return path
    raise ValueError(f"table {name!r} must lie in {folder / 'tables'}; there is no {name}.csv.")


def to_numbers(frame: pd.DataFrame) -> Floats:
    """Return numbers [n, d]: an indicator for every value of a text column, the median for a gap, 0 in a column without a value."""
    numbers = pd.get_dummies(frame).astype(float)
    filled = numbers.fillna(numbers.median())
    return filled.fillna(0.0).to_numpy()


def split_table(n: int, seed: int) -> tuple[Labels, Labels]:
    """Return the numbers of the training rows (seven tenths) and of the test rows, both in random order."""
    order = np.random.default_rng(7000 + seed).permutation(n)
    n_train = int(0.7 * n)
    return order[:n_train], order[n_train:]


def make_problem(name: str, kind: str, seed: int, data_dir: str | None = None) -> Problem:
    """Split a table and make the candidate sets of its training rows."""
    table = load_table(name, data_dir)
    if table.sets is None:
        train, test = split_table(len(table.labels), seed)
        rng = np.random.default_rng(seed)
        sets = KINDS[kind](table.numbers[train], table.labels[train], table.n_classes, rng)
    else:
        train, test = realworld.split(len(table.labels), seed)
        sets = table.sets[train]
    return Problem(
        take_rows(table.columns, train),
        take_rows(table.columns, test),
        table.numbers[train],
        table.numbers[test],
        sets,
        table.labels[train],
        table.labels[test],
    )


def take_rows(columns: Any, rows: Labels) -> Any:
    """Return rows of a frame or of an array."""
    if isinstance(columns, pd.DataFrame):
        return columns.iloc[rows].reset_index(drop=True)
    return columns[rows]


def one_hot(labels: Labels, n_classes: int) -> Mask:
    """Return a mask [n, c] that is true at each row's label."""
    return labels[:, None] == np.arange(n_classes)


def uniform_sets(x: Floats, labels: Labels, n_classes: int, rng: np.random.Generator) -> Mask:
    """Let every wrong label in with the same chance."""
    rate = min(0.3, 3 / n_classes)
    return one_hot(labels, n_classes) | (rng.random((len(x), n_classes)) < rate)


def doubts_sets(x: Floats, labels: Labels, n_classes: int, rng: np.random.Generator) -> Mask:
    """Let wrong labels in by how probable a weak classifier finds them, relative to the most probable wrong one."""
    truth = one_hot(labels, n_classes)
    sample = rng.choice(len(x), max(4 * n_classes, len(x) // 8), replace=False)
    weak = make_pipeline(StandardScaler(), LogisticRegression(max_iter=100, C=0.03))
    weak.fit(x[sample], labels[sample])
    wrong = np.where(truth, 0.0, all_classes(weak, x, n_classes))
    largest = np.maximum(wrong.max(1, keepdims=True), 1e-9)
    return truth | (rng.random(wrong.shape) < 0.7 * wrong / largest)


def people_sets(x: Floats, labels: Labels, n_classes: int, rng: np.random.Generator) -> Mask:
    """Let in what three annotators name: each has learned from a few rows, is unsure, and prefers the truth."""
    truth = one_hot(labels, n_classes)
    sets = truth.copy()
    for _ in range(3):
        sample = rng.choice(len(x), max(3 * n_classes, len(x) // 15), replace=False)
        annotator = make_pipeline(StandardScaler(), GaussianNB(var_smoothing=0.1))
        annotator.fit(x[sample], labels[sample])
        chance = all_classes(annotator, x, n_classes) ** 0.3 + 1e-6
        chance[truth] *= 4
        chance /= chance.sum(1, keepdims=True)
        named = (chance.cumsum(1) > rng.random((len(x), 1))).argmax(1)
        sets |= one_hot(named, n_classes)
    return sets


def all_classes(model: Any, x: Floats, n_classes: int) -> Floats:
    """Return probabilities [n, c] of a fitted classifier, 0 for classes that it has not seen."""
    probabilities = np.zeros((len(x), n_classes))
    probabilities[:, model.classes_] = model.predict_proba(x)
    return probabilities


KINDS: dict[str, Callable[[Floats, Labels, int, np.random.Generator], Mask]] = {
    "doubts": doubts_sets,
    "people": people_sets,
    "uniform": uniform_sets,
}
