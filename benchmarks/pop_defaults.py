"""Which numbers should POP start from? Tried on digits (seeds 0-9), judged without true labels by the sets of held-out rows.

    python benchmarks/pop_defaults.py [--rows results/pop_defaults.jsonl]

Settings that differ only in numbers train as one stack. Every setting is a row per seed. Ranked by covering rate, then by approximated
accuracy (which alone rewards confidence, right or wrong); the accuracy column is for the reader and chooses nothing.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import torch

from oneof.demo import TRAINING, digits
from oneof.engine import fit
from oneof.methods import Proden
from oneof.purify import Pop, PopRatio, Purify
from oneof.results import append, plain_value, read, rows_of

SEEDS = range(10)
MARGINS = [(0.95, 0.3, 0.05), (0.99, 0.3, 0.03), (0.9, 0.1, 0.1), (0.95, 0.6, 0.05), (0.95, 0.1, 0.05)]
RATIOS = [(1e-3, 0.5, 0.4), (1e-3, 0.5, 0.1), (1e-2, 0.3, 0.4), (1e-3, 1e-3, 0.4)]
STACKS: list[list[Purify]] = [
    [Pop(warm_up, 5, window, every_round, *numbers) for numbers in MARGINS]
    for (warm_up, window), every_round in product([(10, 5), (10, 1), (20, 5)], [True, False])
] + [
    [PopRatio(warm_up, 5, 5, every_round, theta, theta_end, inc) for theta, inc, theta_end in RATIOS]
    for warm_up, every_round in product([10, 20], [True, False])
]


def main(path: Path) -> None:
    data = digits(SEEDS)
    done = [row["purify"] for row in read(path)] if path.exists() else []
    for number, rules in enumerate([[None], *STACKS], 1):
        if plain_value(rules[0]) in done:
            continue
        start = time.perf_counter()
        trials = [replace(trial, purify=rule) for rule in rules for trial in data.trials]
        sets = np.concatenate([data.candidates] * len(rules))
        fitted = fit(data.x, sets, trials=trials, method=Proden(), training=TRAINING, labels=data.labels)
        common = {"dataset": "digits", "method": Proden(), "training": TRAINING, "selection": "last epoch"}
        seconds = time.perf_counter() - start
        rows = rows_of(fitted, seeds=[trial.seed for trial in trials], seconds=seconds, labels=data.labels, **common)
        append(path, [row | {"purify": plain_value(trial.purify)} for row, trial in zip(rows, trials, strict=True)])
        print(f"{number} of {len(STACKS) + 1} stacks, {seconds:.0f} s", flush=True)
    report(read(path))


def report(rows: list[dict]) -> None:
    settings = []
    for row in rows:
        if row["purify"] not in settings:
            settings.append(row["purify"])
    mean = lambda setting, name: float(np.mean([row[name] for row in rows if row["purify"] == setting]))  # noqa: E731
    ranked = sorted(settings, key=lambda s: (-mean(s, "covering"), -mean(s, "approximated")))
    print("| rule | covering | approximated | set size | accuracy (chooses nothing) |\n|---|---|---|---|---|")
    for setting in ranked:
        figures = [mean(setting, name) for name in ("covering", "approximated", "set_size", "accuracy")]
        print(f"| {describe(setting)} | {figures[0]:.4f} | {figures[1]:.4f} | {figures[2]:.2f} | {figures[3]:.4f} |")


def describe(setting: dict | None) -> str:
    if setting is None:
        return "none (PRODEN)"
    numbers = [f"{name} {value}" for name, value in setting.items() if name not in ("kind", "interval", "quiet")]
    return f"{setting['kind']}: {', '.join(numbers)}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=Path, default=Path("results/pop_defaults.jsonl"))
    torch.set_num_threads(1)
    main(parser.parse_args().rows)
