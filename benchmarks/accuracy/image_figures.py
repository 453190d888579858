"""Draw the figures of docs/research/findings.md from the rows on images.

    python benchmarks/accuracy/image_figures.py

They show accuracy by difficulty, gain by true labels removed, sensitivity to POP's numbers, and seconds by system.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from drawing import draw_sensitivity, save
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from on_images.plans import CHOSEN, SCHEDULES, SENSITIVE, bases_of
from on_images.report import reported

from oneof.storage.rows import Row, read
from oneof_paper.ablation import COLOURS
from oneof_paper.data.catalogue import NAMED

SETS = ("mnist", "kmnist", "fashion-mnist", "cifar10")
HARDNESS = {"20": "hard", "saturated": "saturated", "clean": "true labels"}
STYLES = {
    "PRODEN": (COLOURS[0], "o"),
    "POP last": (COLOURS[1], "D"),
    "PRODEN fair": (COLOURS[0], "x"),
    f"POP {CHOSEN}": (COLOURS[1], "v"),
    "RCR": (COLOURS[2], "s"),
    "PiCO": (COLOURS[3], "^"),
    "VALEN": (COLOURS[3], "P"),
    "supervised": (COLOURS[4], "*"),
}


def by_difficulty(rows: list[Row]) -> Figure:
    """Draw the mean accuracy over seeds against how the sets were drawn; bars reach from the lowest seed to the highest."""
    figure, axes = plt.subplots(1, len(SETS), figsize=(13, 4.2), layout="constrained")
    for axis, dataset in zip(axes, SETS, strict=True):
        for number, (name, (colour, marker)) in enumerate(STYLES.items()):
            offset = 0.1 * (number - len(STYLES) / 2)
            for x, difficulty in enumerate(HARDNESS):
                accuracies = []
                for row in rows:
                    if (row["dataset"], row["difficulty"], name_of(row)) == (dataset, difficulty, name):
                        accuracies.append(100 * row["accuracy"])
                if not accuracies:
                    continue
                mean = float(np.mean(accuracies))
                reach = [[mean - min(accuracies)], [max(accuracies) - mean]]
                axis.errorbar(x + offset, mean, reach, color=colour, fmt=marker, markersize=6, capsize=2, label=name)
        axis.set_xticks(range(len(HARDNESS)), list(HARDNESS.values()))
        axis.set(title=NAMED[dataset].title, xlim=(-0.5, len(HARDNESS) - 0.5))
        _plain(axis)
    axes[0].set_ylabel("test accuracy at the last epoch, %")
    return _with_legend(figure, axes, 7)


def by_loss_of_truth(rows: list[Row]) -> Figure:
    """Draw POP's gain over PRODEN with the same weights, sets, views and seed against the true labels that it removed."""
    all_gains = _gains(rows)
    figure, axes = plt.subplots(1, 2, figsize=(10.5, 4.2), layout="constrained", sharey=True)
    for axis, (title, wanted) in zip(axes, _GROUPS.items(), strict=True):
        for dataset, colour, marker in zip(SETS, COLOURS, "osD^", strict=False):
            for difficulty, style in (("20", "full"), ("saturated", "none")):
                removed = []
                gains = []
                for row, gain in all_gains:
                    if wanted(row) and (row["dataset"], row["difficulty"]) == (dataset, difficulty):
                        removed.append(100 * row["true_labels_removed"])
                        gains.append(gain)
                label = f"{NAMED[dataset].title}, {HARDNESS[difficulty]}" if removed else None
                axis.plot(removed, gains, marker, fillstyle=style, color=colour, markersize=6, label=label)
        axis.axhline(0, color="#999999", linewidth=0.8)
        axis.set(title=title, xlabel="true labels removed, %")
        _plain(axis)
    axes[0].set_ylabel("accuracy against PRODEN, points")
    return _with_legend(figure, axes, 4)


def by_threshold(rows: list[Row]) -> Figure:
    """Draw the paper's sensitivity figure on CIFAR-10: POP's first and last threshold, one seed."""
    accuracies = {row["variant"]: row["accuracy"] for row in rows if row["plan"] == "sensitivity"}
    usual = SCHEDULES["last"]
    panels = {}
    for title, prefix, name in (("first threshold", "first", "first"), ("last threshold", "end", "last")):
        points = [(getattr(usual, name), accuracies["last"])]
        for variant, schedule in SENSITIVE.items():
            if variant.startswith(prefix):
                points.append((getattr(schedule, name), accuracies[variant]))
        points.sort()
        thresholds = tuple(threshold for threshold, _ in points)
        column = np.array([[accuracy] for _, accuracy in points])
        panels[title] = (thresholds, column, getattr(usual, name))
    return draw_sensitivity(panels, accuracies[""])


def by_seconds(rows: list[Row]) -> Figure:
    """Draw the seconds of the card for an epoch, a point per row; of several in a line the lowest had the card alone."""
    seconds: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        is_alone = row.get("programs", 1) == 1  # how many shared the card; None: some did
        if is_alone and row["dataset"] in SETS:
            seconds.setdefault((row["dataset"], row["system"]), []).append(row["seconds"] / row["epochs"])
    lines = sorted(seconds, key=lambda line: (SETS.index(line[0]), line[1]))
    figure, axis = plt.subplots(figsize=(8, 0.25 * len(lines) + 1), layout="constrained")
    for y, line in enumerate(lines):
        values = seconds[line]
        fastest = min(values)
        axis.plot(values, [y] * len(values), "o", markersize=4, alpha=0.6, color=COLOURS[SETS.index(line[0])])
        axis.annotate(f"{fastest:.2g}", (fastest, y), (-28, -4), textcoords="offset points", fontsize="small")
    axis.set_yticks(range(len(lines)), [f"{NAMED[dataset].title}, {system}" for dataset, system in lines])
    axis.set(xscale="log", xlabel="seconds for an epoch", title="One H200; first compilations included")
    ticks = (0.1, 0.2, 0.5, 1, 2, 5)
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.minorticks_off()
    axis.invert_yaxis()
    _plain(axis)
    return figure


def name_of(row: Row) -> str:
    """Return system and variant; that characters are upright goes without saying."""
    return " ".join([row["system"], row["variant"].removeprefix("upright").strip("-")]).strip()


def _gains(rows: list[Row]) -> list[tuple[Row, float]]:
    """Return the rows of POP that have one of PRODEN beside them, each with its gain in points."""
    accuracies = {}
    for row in rows:
        if row["system"] == "PRODEN":
            accuracies[_same_trial(row, row["variant"])] = row["accuracy"]
    gains = []
    for row in rows:
        key = _same_trial(row, "-".join(bases_of(row["variant"])))
        if row["system"] == "POP" and key in accuracies:
            gains.append((row, 100 * (row["accuracy"] - accuracies[key])))
    return gains


def _same_trial(row: Row, base: str) -> tuple[object, ...]:
    return base, row["dataset"], row["difficulty"], row["seed"], row["epochs"]


_GROUPS: dict[str, Callable[[Row], bool]] = {
    "seeds from 100 on": lambda row: row["seed"] >= 100,
    "seed 0: all schedules that were tried": lambda row: row["seed"] < 100,
}


def _plain(axis: Axes) -> None:
    axis.spines[["top", "right"]].set_visible(False)


def _with_legend(figure: Figure, axes: np.ndarray, columns: int) -> Figure:
    """Add a legend below the axes that names every label once."""
    handles = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            handles[label] = handle
    n_columns = min(columns, len(handles))
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=n_columns, frameon=False)
    return figure


def draw(rows: list[Row], folder: Path) -> None:
    """Write all figures to a folder."""
    save(by_difficulty(reported(rows)), folder / "images-difficulty")
    save(by_loss_of_truth(rows), folder / "images-gain")
    save(by_threshold(rows), folder / "images-sensitivity")
    save(by_seconds(rows), folder / "images-seconds")


def main() -> None:
    """Draw the figures from a file of rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=Path, default=Path("results/images.jsonl"))
    parser.add_argument("--out", type=Path, default=Path("docs/figures"))
    options = parser.parse_args()
    draw(read(options.rows), options.out)


if __name__ == "__main__":
    main()
