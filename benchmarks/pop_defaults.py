"""Which numbers should POP start from? Tried on digits (seeds 0-9), judged without true labels by the sets of held-out rows.

    python benchmarks/pop_defaults.py [--rows results/pop_defaults.jsonl]

Every setting is a row per seed; settings whose rows are there are not run again. Ranked by covering rate, then by approximated
accuracy (which alone rewards confidence, right or wrong); the accuracy column is for the reader and chooses nothing.
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path

import numpy as np
import torch

from oneof.demo import TRAINING, System, digits, run
from oneof.methods import Proden
from oneof.purify import Pop, PopRatio, Purify
from oneof.results import append, plain_value, read

SEEDS = range(10)
MARGIN = [
    Pop(warm_up=warm_up, window=window, e0=e0, e_end=e_end, e_s=e_s, every_round=every_round)
    for (warm_up, window), (e0, e_end, e_s), every_round in product(
        [(10, 5), (10, 1), (20, 5)],
        [(0.95, 0.3, 0.05), (0.99, 0.3, 0.03), (0.9, 0.1, 0.1), (0.95, 0.6, 0.05)],
        [True, False],
    )
]
RATIO = [
    PopRatio(warm_up=warm_up, theta=theta, inc=inc, theta_end=theta_end, every_round=every_round)
    for warm_up, (theta, inc, theta_end), every_round in product(
        [10, 20], [(1e-3, 0.5, 0.4), (1e-3, 0.5, 0.1), (1e-2, 0.3, 0.4), (1e-3, 1e-3, 0.4)], [True, False]
    )
]


def main(path: Path) -> None:
    data = digits(SEEDS)
    settings: list[Purify | None] = [None, *MARGIN, *RATIO]
    done = [row["purify"] for row in read(path)] if path.exists() else []
    for number, purify in enumerate(settings, 1):
        if plain_value(purify) not in done:
            append(path, run(data, System("PRODEN + POP" if purify else "PRODEN", Proden(), purify), TRAINING)[1])
        print(f"{number} of {len(settings)} settings", flush=True)
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
