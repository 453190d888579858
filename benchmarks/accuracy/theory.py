"""The paper's theorems on trial: rows of every distribution, and the figure of docs/research/theory.md.

python benchmarks/accuracy/theory.py            # trains what has no rows yet (23 s of processor time), then draws
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from drawing import save
from matplotlib.figure import Figure

from oneof.storage.rows import Row, append, read
from oneof_paper import theory
from oneof_paper.ablation import COLOURS
from oneof_paper.results import origin


def draw_theory(rows: Sequence[Row]) -> Figure:
    """The theorems' promises against what was seen: assumptions above, conclusions below; means over seeds."""
    figure, axes = plt.subplots(2, 3, figsize=(13, 7), layout="constrained")
    names = list(dict.fromkeys(row["world"] for row in rows))
    known = {name: [row for row in rows if row["world"] == name and row["kind"] == "constants"] for name in names}
    seen = {name: _by_round([row for row in rows if row["world"] == name and row["kind"] == "round"]) for name in names}
    for name, colour in zip(names, (*COLOURS, "#e69f00"), strict=True):
        first, rounds = known[name][0], range(len(seen[name]["gap"]))
        axes[0, 0].plot(
            ("median", "90 %", "99 %"),
            np.mean([row["flips"] for row in known[name]], 0),
            "o-",
            color=colour,
            label=name,
        )
        axes[0, 1].bar(name, np.mean([row["high"] / row["low"] for row in known[name]]), color=colour)
        axes[0, 2].plot(rounds, [np.nan if a is None else a for a in seen[name]["alpha"]], "o-", color=colour)
        if first["rounds"] is not None:
            axes[1, 0].plot(rounds, seen[name]["e"], "--", color=colour)
        axes[1, 0].plot(rounds, seen[name]["boundary"], color=colour)
        axes[1, 1].plot(rounds, seen[name]["gap"], color=colour)
        axes[1, 2].plot(rounds, seen[name]["agreement"], color=colour)
        axes[1, 2].axhline(np.mean([row["final"] for row in known[name]]), linestyle=":", linewidth=0.8, color=colour)
    titles = (
        "xi / p(j|x): bounded by t?",
        "l: imbalance of the margin's density",
        "smallest alpha of equation 1, by round",
    )
    below = (
        "boundary of the pure set (dashed: promised)",
        "mean gap |f - p|",
        "P(f = h*) (dotted: promised at the end)",
    )
    for axis, title in zip(axes.flat, titles + below, strict=True):
        axis.set(title=title)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0, 0].set_yscale("log")
    axes[0, 1].set_xticks([])
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    return figure


def _by_round(rows: Sequence[Row]) -> dict[str, list[float | None]]:
    """Columns by round, in the mean over seeds; None where a seed has none."""
    by_number = [
        [row for row in rows if row["round"] == number] for number in range(1 + max(row["round"] for row in rows))
    ]
    names = ("e", "boundary", "gap", "agreement", "alpha")
    return {name: [_mean([row[name] for row in group]) for group in by_number] for name in names}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if len(known) == len(values) else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=Path, default=Path("results/theory.jsonl"))
    parser.add_argument("--out", type=Path, default=Path("docs/figures"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    if not given.rows.exists():
        append(given.rows, [row | origin("cpu") for row in theory.rows()])
    found = read(given.rows)
    print(theory.table(found))
    save(draw_theory(found), given.out / "theory")


if __name__ == "__main__":
    main()
