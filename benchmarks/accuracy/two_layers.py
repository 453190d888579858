"""How deep the default's networks should be, and how strong their decay: the rows behind the table of docs/research/default.md.

    python benchmarks/accuracy/two_layers.py --data-dir DIR --rows /tmp/two_layers.jsonl
    python benchmarks/accuracy/two_layers.py --report

Development seeds 0 to 3 of the real sets, and two made tables of ten classes and 3,000 rows. It shows test accuracy, and what is in the
default was chosen by it: other seeds judge. In the stored rows `commit` is the tree that ran; the last two settings ran on a later one.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from realworld import DATASETS
from sklearn.datasets import make_classification

from oneof import PartialLabelClassifier
from oneof.candidates.generate import Flip, generate
from oneof.storage.rows import Row, append, read
from oneof_paper.data.catalogue import load
from oneof_paper.results import origin

TEN = "ten classes"
CASES = [(name, seed) for seed in range(4) for name in DATASETS] + [(TEN, 0), (TEN, 1)]
SETTINGS = [
    {"hidden": [256], "weight_decay": 1e-3},
    {"hidden": [256], "weight_decay": 3e-4},
    {"hidden": [256, 256], "weight_decay": 1e-3},
    {"hidden": [256, 256], "weight_decay": 3e-4},
    {"hidden": [128, 128], "weight_decay": 3e-4},
    {"hidden": [256, 128], "weight_decay": 3e-4},
]


def run(name: str, seed: int, setting: Row, folder: str) -> Row:
    if name == TEN:
        x, labels = make_classification(
            7000, 20, n_informative=12, n_classes=10, n_clusters_per_class=2, class_sep=1.2, flip_y=0, random_state=seed
        )
        x, sets = x.astype(np.float32), generate(labels, 10, Flip(0.3), seed=0)
        train, test = np.arange(3000), np.arange(3000, 7000)
    else:
        data = load(name, folder)
        x, labels, sets = data.x, data.labels, data.candidates
        order = np.random.default_rng(seed).permutation(len(x))
        train, test = order[: round(0.8 * len(x))], order[round(0.8 * len(x)) :]
    begun = time.process_time()
    layer_sizes = tuple(setting["hidden"])
    clf = PartialLabelClassifier(
        hidden_layer_sizes=layer_sizes, weight_decay=setting["weight_decay"], random_state=seed
    )
    clf.fit(x[train], sets[train])
    seconds = round(time.process_time() - begun, 1)
    right = float((clf.predict_proba(x[test]).argmax(1) == labels[test]).mean())
    return {
        "dataset": name,
        "seed": seed,
        **setting,
        "accuracy": round(right, 4),
        "cpu_seconds": seconds,
        **origin("cpu"),
    }


def report(rows: list[Row]) -> str:
    """Differences to one layer of 256 with decay 0.001 in points, and the processor time on ten classes relative to it."""
    found = {(row["dataset"], row["seed"], tuple(row["hidden"]), row["weight_decay"]): row for row in rows}
    lines = ["| hidden, decay | Lost | MSRCv2 | BirdSong | ten classes |", "|---|---|---|---|---|"]
    for setting in SETTINGS[1:]:
        cells = []
        for name in (*DATASETS, TEN):
            pairs = [
                [found[one, seed, tuple(each["hidden"]), each["weight_decay"]] for each in (setting, SETTINGS[0])]
                for one, seed in CASES
                if one == name
            ]
            cells.append(f"{100 * np.mean([ours['accuracy'] - base['accuracy'] for ours, base in pairs]):+.1f}")
        cells[-1] += f" ({np.mean([ours['cpu_seconds'] / base['cpu_seconds'] for ours, base in pairs]):.1f})"
        widths = " and ".join(map(str, setting["hidden"]))
        lines.append(f"| {widths}, {setting['weight_decay']:g} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", default="")
    parser.add_argument("--rows", type=Path, default=Path("results/two_layers.jsonl"))
    parser.add_argument("--report", action="store_true", help="run nothing")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    for name, seed in () if asked.report else CASES:
        append(asked.rows, [run(name, seed, setting, asked.data_dir) for setting in SETTINGS])
    print(report(read(asked.rows)))
