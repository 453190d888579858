"""The pictures of docs/research/findings.md from the rows on images: accuracy by difficulty, gain by true labels lost, sensitivity to POP's numbers, seconds by system.

python benchmarks/accuracy/image_figures.py
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
    """Mean accuracy over seeds against how the sets were drawn; bars reach from the lowest seed to the highest."""
    figure, axes = plt.subplots(1, len(SETS), figsize=(13, 4.2), layout="constrained")
    for axis, dataset in zip(axes, SETS, strict=True):
        for place, (name, (colour, marker)) in enumerate(STYLES.items()):
            for x, difficulty in enumerate(HARDNESS):
                own = [100 * r["accuracy"] for r in rows if (r["dataset"], r["difficulty"], name_of(r)) == (dataset, difficulty, name)]  # fmt: skip
                if own:
                    at, mean = x + 0.1 * (place - len(STYLES) / 2), float(np.mean(own))
                    reach = [[mean - min(own)], [max(own) - mean]]
                    axis.errorbar(at, mean, reach, color=colour, fmt=marker, markersize=6, capsize=2, label=name)
        axis.set_xticks(range(len(HARDNESS)), list(HARDNESS.values()))
        axis.set(title=NAMED[dataset].title, xlim=(-0.5, len(HARDNESS) - 0.5))
        _plain(axis)
    axes[0].set_ylabel("test accuracy at the last epoch, %")
    return _with_legend(figure, axes, 7)


def by_loss_of_truth(rows: list[Row]) -> Figure:
    """Gain of POP over PRODEN with the same weights, on the same sets, views and seed, against the true labels it removed."""
    figure, axes = plt.subplots(1, 2, figsize=(10.5, 4.2), layout="constrained", sharey=True)
    for axis, (title, wanted) in zip(axes, _GROUPS.items(), strict=True):
        for dataset, colour, marker in zip(SETS, COLOURS, "osD^", strict=False):
            pairs = [pair for pair in _gains(rows) if pair[0]["dataset"] == dataset and wanted(pair[0])]
            for difficulty, style in (("20", "full"), ("saturated", "none")):
                x = [100 * row["true_labels_removed"] for row, _ in pairs if row["difficulty"] == difficulty]
                y = [gain for row, gain in pairs if row["difficulty"] == difficulty]
                label = f"{NAMED[dataset].title}, {'hard' if difficulty == '20' else 'saturated'}"
                axis.plot(x, y, marker, fillstyle=style, color=colour, markersize=6, label=label if x else None)
        axis.axhline(0, color="#999999", linewidth=0.8)
        axis.set(title=title, xlabel="true labels removed, %")
        _plain(axis)
    axes[0].set_ylabel("accuracy against PRODEN, points")
    return _with_legend(figure, axes, 4)


def by_threshold(rows: list[Row]) -> Figure:
    """The paper's sensitivity figure on CIFAR-10: POP's first and last threshold, one seed."""
    found = {r["variant"]: r["accuracy"] for r in rows if r["plan"] == "sensitivity"}
    usual, shown = SCHEDULES["last"], {}
    for title, prefix, name in (("first threshold", "first", "first"), ("last threshold", "end", "last")):
        tried = {"last": usual} | {variant: one for variant, one in SENSITIVE.items() if variant.startswith(prefix)}
        points = sorted((getattr(one, name), found[variant]) for variant, one in tried.items())
        values, accuracies = zip(*points, strict=True)
        shown[title] = (values, np.array(accuracies)[:, None], getattr(usual, name))
    return draw_sensitivity(shown, found[""])


def by_seconds(rows: list[Row]) -> Figure:
    """Seconds of the card for an epoch, a point per row; of several in a line the lowest had the card alone."""
    rows = [row for row in rows if row.get("programs", 1) == 1]  # how many shared the card; None: some did
    lines = sorted({(r["dataset"], r["system"]) for r in rows}, key=lambda one: (SETS.index(one[0]), one[1]))
    figure, axis = plt.subplots(figsize=(8, 0.25 * len(lines) + 1), layout="constrained")
    for y, (dataset, system) in enumerate(lines):
        own = [r["seconds"] / r["epochs"] for r in rows if (r["dataset"], r["system"]) == (dataset, system)]
        axis.plot(own, [y] * len(own), "o", markersize=4, alpha=0.6, color=COLOURS[SETS.index(dataset)])
        axis.annotate(f"{min(own):.2g}", (min(own), y), (-28, -4), textcoords="offset points", fontsize="small")
    axis.set_yticks(range(len(lines)), [f"{NAMED[dataset].title}, {system}" for dataset, system in lines])
    axis.set(xscale="log", xlabel="seconds for an epoch", title="One H200; first compilations included")
    ticks = (0.1, 0.2, 0.5, 1, 2, 5)
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.minorticks_off()
    axis.invert_yaxis()
    _plain(axis)
    return figure


def name_of(row: Row) -> str:
    """System and variant; that characters are upright goes without saying."""
    return " ".join([row["system"], row["variant"].removeprefix("upright").strip("-")]).strip()


def _gains(rows: list[Row]) -> list[tuple[Row, float]]:
    same = ("dataset", "difficulty", "seed", "epochs")
    plain = {(r["variant"], *(r[name] for name in same)): r["accuracy"] for r in rows if r["system"] == "PRODEN"}
    found = []
    for row in rows:
        if row["system"] == "POP":
            key = ("-".join(bases_of(row["variant"])), *(row[name] for name in same))
            found += [(row, 100 * (row["accuracy"] - plain[key]))] if key in plain else []
    return found


_GROUPS: dict[str, Callable[[Row], bool]] = {
    "seeds from 100 on": lambda row: row["seed"] >= 100,
    "seed 0: all schedules that were tried": lambda row: row["seed"] < 100,
}


def _plain(axis: Axes) -> None:
    axis.spines[["top", "right"]].set_visible(False)


def _with_legend(figure: Figure, axes: np.ndarray, columns: int) -> Figure:
    handles = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(
        handles.values(), handles.keys(), loc="outside lower center", ncols=min(columns, len(handles)), frameon=False
    )
    return figure


def draw(rows: list[Row], folder: Path) -> None:
    save(by_difficulty(reported(rows)), folder / "images-difficulty")
    save(by_loss_of_truth(rows), folder / "images-gain")
    save(by_threshold(rows), folder / "images-sensitivity")
    save(by_seconds(rows), folder / "images-seconds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=Path, default=Path("results/images.jsonl"))
    parser.add_argument("--out", type=Path, default=Path("docs/figures"))
    given = parser.parse_args()
    draw(read(given.rows), given.out)


if __name__ == "__main__":
    main()
