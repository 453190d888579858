"""The default beside what people do by hand with candidate sets: accuracy and seconds on real and made tables.

    python benchmarks/accuracy/rivals.py --seeds 0-9 --data-dir DIR --jobs 2

Rivals: a random candidate per row, or every candidate as a row of weight 1/|S|; gradient boosting or a forest learns them; then three
rounds of self-training, in which the classifier's best candidate becomes the label. "true labels" is what there is to reach.
Made tables have sets that depend on the row: labels get in by how probable a forest on true labels finds them.
Writes a row per trial and runs only what is missing.
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from realworld import split
from sklearn.datasets import load_digits, make_classification
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.model_selection import cross_val_predict

from oneof import PartialLabelClassifier
from oneof.storage.rows import Row, append, read
from oneof_paper.data.catalogue import load
from oneof_paper.results import origin

REAL, MADE = ("lost", "msrcv2", "birdsong"), ("digits", "ten classes", "five classes")
LEARNERS = {
    "boosting": lambda seed: HistGradientBoostingClassifier(random_state=seed, max_iter=60),
    "forest": lambda seed: RandomForestClassifier(300, random_state=seed),
}
DEFAULT, TRUE = "default", "true labels"
SYSTEMS = (
    DEFAULT,
    *(f"{labels}, {name}" for labels, name in product(("random", "weighted", "random, self-trained", TRUE), LEARNERS)),
)


class Table(NamedTuple):
    x: np.ndarray
    labels: np.ndarray
    sets: np.ndarray


def table_of(name: str, folder: str) -> Table:
    if name in REAL:
        data = load(name, folder)
        return Table(data.x, data.labels, data.candidates)
    if name == "digits":
        x, labels = load_digits(return_X_y=True)
    else:
        c = 10 if name == "ten classes" else 5
        x, labels = make_classification(2000, 20, n_informative=12, n_classes=c, n_clusters_per_class=2, random_state=c)
    return Table(x, labels, instance_dependent(x, labels))


def instance_dependent(x: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Sets that hold the true label, and others by how probable held-out trees find them, at most nine times in ten."""
    p = cross_val_predict(ExtraTreesClassifier(100, random_state=0), x, labels, cv=5, method="predict_proba")
    wrong = np.where(np.eye(p.shape[1], dtype=bool)[labels], 0, p)
    chance = 0.9 * wrong / np.maximum(wrong.max(1, keepdims=True), 1e-9)
    return np.eye(p.shape[1], dtype=bool)[labels] | (np.random.default_rng(0).random(p.shape) < chance)


def predict(system: str, given: Table, new: np.ndarray, seed: int) -> np.ndarray:
    """Labels of new rows by a system that learned from the given ones."""
    if system == DEFAULT:
        return PartialLabelClassifier(random_state=seed).fit(given.x, given.sets).predict_proba(new).argmax(1)
    labels, kind = system.rsplit(", ", 1)
    make: Any = LEARNERS[kind]
    if labels == "weighted":
        row, label = np.nonzero(given.sets)
        return make(seed).fit(given.x[row], label, 1 / given.sets.sum(1)[row]).predict(new)
    drawn = np.where(given.sets, np.random.default_rng(seed).random(given.sets.shape), -1).argmax(1)
    learned = make(seed).fit(given.x, given.labels if labels == TRUE else drawn)
    for _ in range(3 if labels.endswith("self-trained") else 0):
        said = np.zeros(given.sets.shape)
        said[:, learned.classes_] = learned.predict_proba(given.x)
        learned = make(seed).fit(given.x, np.where(given.sets, said, -1).argmax(1))
    return learned.predict(new)


def run(name: str, folder: str, system: str, seed: int) -> Row:
    torch.set_num_threads(1)
    table = table_of(name, folder)
    train, test = split(len(table.x), seed)
    begun = time.process_time()
    predicted = predict(system, Table(*(part[train] for part in table)), table.x[test], seed)
    return {
        "dataset": name,
        "system": system,
        "seed": seed,
        "accuracy": round(float((predicted == table.labels[test]).mean()), 6),
        "seconds": round(time.process_time() - begun, 2),
        **origin("cpu"),
    }


def main(seeds: range, folder: str, path: Path, names: list[str], jobs: int) -> None:
    done = {(row["dataset"], row["system"], row["seed"]) for row in read(path)} if path.exists() else set()
    wanted = [task for task in product(names, SYSTEMS, seeds) if task not in done]
    with ProcessPoolExecutor(jobs) as pool:
        for task in as_completed([pool.submit(run, name, folder, system, seed) for name, system, seed in wanted]):
            append(path, [task.result()])
    print(report([row for row in read(path) if row["seed"] in seeds], names))


def report(rows: list[Row], names: list[str]) -> str:
    """Mean accuracy and processor seconds of every system, as Markdown."""
    lines = [f"| | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    for system in SYSTEMS:
        cells = []
        for name in names:
            own = [row for row in rows if (row["dataset"], row["system"]) == (name, system)]
            mean, seconds = (np.mean([row[key] for row in own]) if own else np.nan for key in ("accuracy", "seconds"))
            cells.append(f"{100 * mean:.1f} ({seconds:.1f} s)" if own else "")
        lines.append(f"| {system} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0-2", help="first-last")
    parser.add_argument("--data-dir", default="", help="for the real sets")
    parser.add_argument("--names", nargs="*", default=[*REAL, *MADE])
    parser.add_argument("--rows", type=Path, default=Path("results/rivals.jsonl"))
    parser.add_argument("--jobs", type=int, default=1)
    asked = parser.parse_args()
    first, last = map(int, asked.seeds.split("-"))
    main(range(first, last + 1), asked.data_dir, asked.rows, asked.names, asked.jobs)
