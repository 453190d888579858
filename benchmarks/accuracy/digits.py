"""Does POP help on digits? Paired over seeds, with and without mixup: the project's first claim, and where it does not hold.

    python benchmarks/accuracy/digits.py --seeds 0-9      # to develop on
    python benchmarks/accuracy/digits.py --seeds 100-109  # to report; look once

Instance-dependent sets, rate form 0.4; the last epoch is taken, so that no label chooses anything. Writes a row per trial.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from scipy.stats import ttest_rel

from oneof.methods import Proden
from oneof.purify import PopPrinted
from oneof.storage.rows import Row, append, read
from oneof_paper.ablation import SYSTEMS as SHOWN
from oneof_paper.ablation import TRAINING, digits, run
from oneof_paper.experiments import System

SYSTEMS = (*SHOWN[:2], System("PRODEN + POP as printed", Proden(), PopPrinted()), *SHOWN[2:])
PAIRS = [("PRODEN + POP", "PRODEN"), ("PRODEN + POP as printed", "PRODEN"), ("CC + POP", "CC")]


def main(seeds: range, path: Path) -> None:
    done = {(row["system"], row["training"]["mixup"], row["seed"]) for row in read(path)} if path.exists() else set()
    data = digits(seeds)
    for mixup in (0.0, 1.0):
        for system in SYSTEMS:
            if (system.title, mixup, seeds[0]) not in done:
                append(path, run(data, system, replace(TRAINING, mixup=mixup))[1])
    print(table([row for row in read(path) if row["seed"] in seeds]))


def table(rows: list[Row]) -> str:
    """The Markdown table of docs/research/results.md."""
    lines = [
        "| mixup | system | accuracy % | labels per set | true labels removed % | against plain | p |",
        "|---|---|---|---|---|---|---|",
    ]
    for mixup in (0.0, 1.0):
        for system in SYSTEMS:
            own = column(rows, system.title, mixup, "accuracy")
            plain = dict(PAIRS).get(system.title)
            gain, p = ("", "")
            if plain:
                base = column(rows, plain, mixup, "accuracy")
                gain, p = f"{100 * (own - base).mean():+.2f}", f"{ttest_rel(own, base).pvalue:.2g}"
            size, removed = (
                column(rows, system.title, mixup, name).mean() for name in ("set_size", "true_labels_removed")
            )
            figure = f"{100 * own.mean():.2f} ± {100 * own.std(ddof=1):.2f}"
            cells = [f"{mixup:g}", system.title, figure, f"{size:.2f}", f"{100 * removed:.1f}", gain, p]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def column(rows: list[Row], system: str, mixup: float, name: str) -> np.ndarray:
    chosen = [row for row in rows if row["system"] == system and row["training"]["mixup"] == mixup]
    return np.array([row[name] for row in sorted(chosen, key=lambda row: row["seed"])])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0-9", help="first-last")
    parser.add_argument("--rows", type=Path, default=Path("results/digits.jsonl"))
    chosen = parser.parse_args()
    first, last = map(int, chosen.seeds.split("-"))
    torch.set_num_threads(1)
    main(range(first, last + 1), chosen.rows)
