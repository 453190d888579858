"""The default on counts of votes and on probabilities of labels as `y`: is it ever worse than the largest number of each row?

    python benchmarks/accuracy/given_probabilities.py --seeds 400-401 --data-dir DIR
    python benchmarks/accuracy/given_probabilities.py --report

Kinds of numbers, made of the true labels:

- *language model*: names a label that is right in three rows of four, and says so. *Sure language model*: the same, and as good as certain.
- *noisy scores*: the truth is raised in random scores.
- *weak classifier*: probabilities of a regularised logistic regression on the same features, fitted to an eighth of the rows. *Sure weak
  classifier*: the same with little regularisation.
- *counts of 3*, *counts of 5*: votes that are right in three cases of five. *Shares of 3*: the same as shares of one.

`labels` is the share of training rows whose label is right, `argmax` that of the largest number, `probability` the mean probability of the
labels. On new rows, `accuracy`, beside `forest`: extremely randomised trees that learn from the largest number of each row.
Rows that are there are not computed again.
"""

from __future__ import annotations

import argparse
import logging
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from few_labels import TABLES as FEW_LABELS_TABLES
from few_labels import Table, of_suite
from on_tables.problems import Floats, Labels, one_hot
from on_tables.rivals import extra_trees
from on_tables.trials import one_quiet_thread
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from suite import parse_seeds

from oneof import PartialLabelClassifier
from oneof.storage.rows import Row, append, read
from oneof_paper.results import origin

ROWS = Path("results/given_probabilities.jsonl")
MAX_ROWS = 1500
MIN_OF_CLASS = 6  # rows; smaller classes are left out
Rng = np.random.Generator


def noise() -> Table:
    rng = np.random.default_rng(0)
    return Table(rng.normal(size=(800, 8)), rng.integers(4, size=800))


TABLES: dict[str, Callable[[str | None], Table]] = {
    **FEW_LABELS_TABLES,
    "primary.tumor": lambda data_dir: of_suite("primary.tumor", data_dir),
    "eucalyptus": lambda data_dir: of_suite("eucalyptus", data_dir),
    "soybean": lambda data_dir: of_suite("soybean", data_dir),
    "noise": lambda _: noise(),
}


def named_label(labels: Labels, c: int, accuracy: float, rng: Rng) -> Labels:
    """Return the true label with this probability, else any label."""
    return np.where(rng.random(len(labels)) < accuracy, labels, rng.integers(c, size=len(labels)))


def language_model(x: Floats, labels: Labels, c: int, rng: Rng, sharpness: int = 1) -> Floats:
    named = named_label(labels, c, 0.75, rng)
    scores = one_hot(named, c) + 0.05 * rng.random((len(labels), c)) + 1e-3
    return normalised(scores**sharpness)


def sure_language_model(x: Floats, labels: Labels, c: int, rng: Rng) -> Floats:
    return language_model(x, labels, c, rng, sharpness=4)


def noisy_scores(x: Floats, labels: Labels, c: int, rng: Rng) -> Floats:
    scores = rng.normal(size=(len(labels), c)) + 1.5 * one_hot(labels, c)
    return normalised(np.exp(1.5 * scores))


def weak_classifier(x: Floats, labels: Labels, c: int, rng: Rng, strength: float = 0.03) -> Floats:
    sample = rng.choice(len(labels), min(len(labels), max(4 * c, len(labels) // 8)), replace=False)
    model = make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=1000))
    model.fit(x[sample], labels[sample])
    probabilities = np.full((len(labels), c), 1e-9)
    probabilities[:, model.classes_] += model.predict_proba(x)
    return normalised(probabilities)


def sure_weak_classifier(x: Floats, labels: Labels, c: int, rng: Rng) -> Floats:
    return weak_classifier(x, labels, c, rng, strength=10.0)


def vote_counts(labels: Labels, c: int, n_votes: int, rng: Rng) -> Floats:
    counts = np.zeros((len(labels), c))
    for _ in range(n_votes):
        counts += one_hot(named_label(labels, c, 0.6, rng), c)
    return counts


KINDS: dict[str, Callable[[Floats, Labels, int, Rng], Floats]] = {
    "language model": language_model,
    "sure language model": sure_language_model,
    "noisy scores": noisy_scores,
    "weak classifier": weak_classifier,
    "sure weak classifier": sure_weak_classifier,
    "counts of 3": lambda x, labels, c, rng: vote_counts(labels, c, 3, rng),
    "counts of 5": lambda x, labels, c, rng: vote_counts(labels, c, 5, rng),
    "shares of 3": lambda x, labels, c, rng: vote_counts(labels, c, 3, rng) / 3,
}


def normalised(values: Floats) -> Floats:
    return values / values.sum(1, keepdims=True)


def run_trial(table: Table, kind: str, seed: int) -> Row:
    """Fit the default to numbers of one kind, and judge it by true labels."""
    is_large_enough = np.bincount(table.labels)[table.labels] >= MIN_OF_CLASS
    rows = np.flatnonzero(is_large_enough)[:MAX_ROWS]
    labels = np.unique(table.labels[rows], return_inverse=True)[1]
    x, x_test, labels, labels_test = train_test_split(
        table.x[rows], labels, test_size=0.3, random_state=seed, stratify=labels
    )
    rng = np.random.default_rng([seed, list(KINDS).index(kind)])
    numbers = KINDS[kind](x, labels, int(labels.max()) + 1, rng)
    largest = numbers.argmax(1)
    start = time.process_time()
    estimator = PartialLabelClassifier(random_state=seed).fit(x, numbers)
    seconds = time.process_time() - start
    forest = extra_trees().fit(x, largest)
    return {
        "n": len(x),
        "c": numbers.shape[1],
        "labels": share_right(estimator.transduction_, labels),
        "argmax": share_right(largest, labels),
        "probability": round(float(estimator.label_probability_.mean()), 6),
        "stated": round(float(normalised(numbers).max(1).mean()), 6),
        "accuracy": share_right(estimator.predict(x_test), labels_test),
        "forest": share_right(forest.predict(x_test), labels_test),
        "cpu_seconds": round(seconds, 2),
    }


def share_right(predicted: Any, labels: Labels) -> float:
    return round(float((np.asarray(predicted) == labels).mean()), 6)


def compute(seeds: list[int], path: Path, data_dir: str | None, commit: str | None) -> None:
    """Append a row for every table, kind and seed that has none."""
    known = set()
    if path.exists():
        known = {(row["table"], row["kind"], row["seed"]) for row in read(path)}
    facts: Row = dict(origin("cpu"))
    if commit:
        facts["commit"] = commit
    for seed in seeds:
        for name, load in TABLES.items():
            table = load(data_dir)
            for kind in KINDS:
                if (name, kind, seed) in known:
                    continue
                with one_quiet_thread(), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    measured = run_trial(table, kind, seed)
                append(path, [{"table": name, "kind": kind, "seed": seed, **measured, **facts}])
                print(f"{name}, {kind}, seed {seed}: labels {measured['labels']:.3f}", flush=True)


def report(rows: list[Row]) -> str:
    """Return means over tables and seeds, and the worst table of each kind, in %, as Markdown."""
    head = ["numbers", "labels right", "argmax", "worst difference", "probability - right", "new rows", "forest"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for kind in KINDS:
        of_kind = [row for row in rows if row["kind"] == kind]
        if not of_kind:
            continue
        means = {
            name: 100 * np.mean([row[name] for row in of_kind]) for name in ("labels", "argmax", "accuracy", "forest")
        }
        differences: dict[str, list[float]] = {}
        for row in of_kind:
            differences.setdefault(row["table"], []).append(100 * (row["labels"] - row["argmax"]))
        by_table = {name: float(np.mean(values)) for name, values in differences.items()}
        worst = min(by_table, key=by_table.__getitem__)
        gap = 100 * np.mean([row["probability"] - row["labels"] for row in of_kind])
        cells = [
            kind,
            f"{means['labels']:.1f}",
            f"{means['argmax']:.1f}",
            f"{by_table[worst]:+.1f} ({worst})",
            f"{gap:+.1f}",
            f"{means['accuracy']:.1f}",
            f"{means['forest']:.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0-1", help="such as 0-2 or 5")
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
