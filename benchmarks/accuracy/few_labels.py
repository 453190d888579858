"""The default on tables of which few rows have a label: the sets of all others hold every label.

    python benchmarks/accuracy/few_labels.py --seeds 0-2 --data-dir DIR
    python benchmarks/accuracy/few_labels.py --report

Beside it stand trees and logistic regression on the labelled rows alone, and trees on a copy of every row for each candidate with weight
1 / |S|. `labels` is the share of unlabelled rows whose label is right, `accuracy` that of new rows. *large class* is made: 85 % of its rows
are in one of five classes. Every class keeps two labelled rows. Rows that are there are not computed again.
"""

from __future__ import annotations

import argparse
import logging
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from on_tables.problems import Floats, Labels, Mask, make_problem, one_hot
from on_tables.rivals import extra_trees
from on_tables.trials import one_quiet_thread
from sklearn.datasets import load_breast_cancer, load_digits, load_wine, make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from suite import parse_seeds

from oneof import PartialLabelClassifier
from oneof.storage.rows import Row, append, read
from oneof_paper.results import origin

ROWS = Path("results/few_labels.jsonl")
SHARES = (0.1, 0.3)
MIN_OF_CLASS = 6  # rows; smaller classes are left out
MAX_ROWS = 2500


class Table(NamedTuple):
    """Features and true labels."""

    x: Floats
    labels: Labels


def of_suite(name: str, data_dir: str | None) -> Table:
    """Return a table of the suite, with text columns as indicators."""
    problem = make_problem(name, "uniform", 0, data_dir)
    x = np.vstack([problem.x_train, problem.x_test]).astype(float)
    return Table(np.nan_to_num(x), np.concatenate([problem.labels_train, problem.labels_test]))


def large_class() -> Table:
    weights = [0.85, 0.06, 0.04, 0.03, 0.02]
    made = make_classification(1500, 30, n_informative=8, n_classes=5, weights=weights, class_sep=1.2, random_state=0)
    return Table(*made)


TABLES: dict[str, Callable[[str | None], Table]] = {
    "breast cancer": lambda _: Table(*load_breast_cancer(return_X_y=True)),
    "wine": lambda _: Table(*load_wine(return_X_y=True)),
    "digits": lambda _: Table(*load_digits(return_X_y=True)),
    "large class": lambda _: large_class(),
    "segment": lambda data_dir: of_suite("segment", data_dir),
    "vowel": lambda data_dir: of_suite("vowel", data_dir),
    "page.blocks": lambda data_dir: of_suite("page.blocks", data_dir),
    "glass": lambda data_dir: of_suite("glass", data_dir),
}


class Split(NamedTuple):
    """Rows to learn from with their sets, and new rows."""

    x: Floats
    sets: Mask
    labels: Labels
    x_test: Floats
    labels_test: Labels


def split_table(table: Table, share: float, seed: int) -> Split:
    """Return seven tenths of the rows with sets, of which this share has a label, and the rest as new rows."""
    counts = np.bincount(table.labels)
    rows = np.flatnonzero(counts[table.labels] >= MIN_OF_CLASS)[:MAX_ROWS]
    labels = np.unique(table.labels[rows], return_inverse=True)[1]
    x, x_test, labels, labels_test = train_test_split(
        table.x[rows], labels, test_size=0.3, random_state=seed, stratify=labels
    )
    n_classes = int(labels.max()) + 1
    is_labelled = np.random.default_rng(seed).random(len(labels)) < share
    for label in range(n_classes):
        is_labelled[np.flatnonzero(labels == label)[:2]] = True
    sets = one_hot(labels, n_classes) | ~is_labelled[:, None]
    return Split(x, sets, labels, x_test, labels_test)


Predictions = tuple[Labels, Labels]  # of the rows to learn from and of new rows


def predict_by_default(split: Split, seed: int) -> Predictions:
    estimator = PartialLabelClassifier(random_state=seed).fit(split.x, split.sets)
    return estimator.transduction_, estimator.predict(split.x_test)


def predict_by_labelled(model: Any, split: Split) -> Predictions:
    """Fit a classifier to the labelled rows alone."""
    is_labelled = ~split.sets.all(axis=1)
    model.fit(split.x[is_labelled], split.labels[is_labelled])
    return model.predict(split.x), model.predict(split.x_test)


def predict_by_copies(model: Any, split: Split) -> Predictions:
    """Fit a classifier to a copy of every row for each candidate, with weight 1 / |S|."""
    row, label = np.nonzero(split.sets)
    model.fit(split.x[row], label, sample_weight=1 / split.sets.sum(1)[row])
    return model.predict(split.x), model.predict(split.x_test)


SYSTEMS: dict[str, Callable[[Split, int], Predictions]] = {
    "oneof": predict_by_default,
    "trees, labelled rows": lambda split, _: predict_by_labelled(extra_trees(), split),
    "logistic, labelled rows": lambda split, _: predict_by_labelled(
        make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)), split
    ),
    "trees, all candidates": lambda split, _: predict_by_copies(extra_trees(), split),
}


def compute(seeds: list[int], path: Path, data_dir: str | None, commit: str | None) -> None:
    """Append a row for every table, share, seed and system that has none."""
    known = set()
    if path.exists():
        known = {(row["table"], row["share"], row["seed"], row["system"]) for row in read(path)}
    facts: Row = dict(origin("cpu"))
    if commit:
        facts["commit"] = commit
    for name, load in TABLES.items():
        table = load(data_dir)
        for share in SHARES:
            for seed in seeds:
                split = split_table(table, share, seed)
                for system, predict in SYSTEMS.items():
                    if (name, share, seed, system) in known:
                        continue
                    start = time.perf_counter()
                    with one_quiet_thread(), warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        predicted, predicted_test = predict(split, seed)
                    is_unlabelled = split.sets.all(axis=1)
                    row = {
                        "table": name,
                        "share": share,
                        "seed": seed,
                        "system": system,
                        "n": len(split.x),
                        "n_labelled": int((~is_unlabelled).sum()),
                        "labels": round(float((predicted == split.labels)[is_unlabelled].mean()), 6),
                        "accuracy": round(float((predicted_test == split.labels_test).mean()), 6),
                        "seconds": round(time.perf_counter() - start, 2),
                        **facts,
                    }
                    append(path, [row])
                    print(f"{name}, {share:.0%}, seed {seed}, {system}: labels {row['labels']:.3f}", flush=True)


def report(rows: list[Row]) -> str:
    """Return the share of new rows that are right, in %, as Markdown."""
    lines = [f"| table | rows with a label | {' | '.join(SYSTEMS)} |", "|---" * (2 + len(SYSTEMS)) + "|"]
    for name in TABLES:
        for share in SHARES:
            texts = [name, f"{share:.0%}".replace("%", " %")]
            for system in SYSTEMS:
                values = []
                for row in rows:
                    if (row["table"], row["share"], row["system"]) == (name, share, system):
                        values.append(row["accuracy"])
                texts.append(f"{100 * np.mean(values):.1f}" if values else "")
            lines.append(f"| {' | '.join(texts)} |")
    means = ["mean", ""]
    for system in SYSTEMS:
        means.append(f"{100 * np.mean([row['accuracy'] for row in rows if row['system'] == system]):.1f}")
    return "\n".join([*lines, f"| {' | '.join(means)} |"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0-2", help="such as 0-2 or 5")
    parser.add_argument("--rows", type=Path, default=ROWS)
    parser.add_argument("--data-dir", help="folder with tables/; default: ONEOF_DATA")
    parser.add_argument("--commit", help="of the source, where git cannot say")
    parser.add_argument("--report", action="store_true", help="compute nothing; print the table")
    options = parser.parse_args()
    logging.getLogger("oneof").setLevel(logging.ERROR)
    if not options.report:
        compute(parse_seeds(options.seeds), options.rows, options.data_dir, options.commit)
    print(report(read(options.rows)))


if __name__ == "__main__":
    main()
