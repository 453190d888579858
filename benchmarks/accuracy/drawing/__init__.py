"""How the paper's figures are drawn: purified region by epoch, sensitivity to POP's numbers, warm-up, and ranks of systems."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy import stats

from oneof_paper.ablation import COLOURS

Numbers = NDArray[np.float64]


class Ranks(NamedTuple):
    """Mean rank of each system over blocks, and how far two must lie apart (Friedman and Nemenyi)."""

    mean: Numbers  # [systems], 1 is best
    p: float  # of Friedman's test that all are alike
    critical: float  # the critical difference at 0.05
    blocks: int


def ranks(accuracies: Numbers, level: float = 0.05) -> Ranks:
    """Rank systems within each block of accuracies [blocks, systems].

    >>> ranks(np.array([[0.9, 0.8, 0.7], [0.8, 0.7, 0.6], [0.9, 0.7, 0.8]])).mean.round(2)
    array([1.  , 2.33, 2.67])
    """
    blocks, systems = accuracies.shape
    mean = stats.rankdata(-accuracies, axis=1).mean(0)
    p = float(stats.friedmanchisquare(*accuracies.T).pvalue)
    q = stats.studentized_range.ppf(1 - level, systems, np.inf) / math.sqrt(2)
    return Ranks(mean, p, float(q * math.sqrt(systems * (systems + 1) / (6 * blocks))), blocks)


def save(figure: Figure, path: Path) -> None:
    """Write a figure twice: PNG to look at, SVG to print. The SVG carries no date, so that the same rows give the same file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path.with_suffix(".png"), dpi=130)
    with matplotlib.rc_context({"svg.hashsalt": path.stem}):
        figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    plt.close(figure)


def draw_region(panels: Mapping[str, Mapping[str, Numbers]]) -> Figure:
    """For each panel the share of rows in the pure level set [epochs, trials] of each system."""
    figure, axes = plt.subplots(1, len(panels), figsize=(5.2 * len(panels), 3.8), layout="constrained", squeeze=False)
    for axis, (title, systems) in zip(axes[0], panels.items(), strict=True):
        for (system, region), colour in zip(systems.items(), COLOURS, strict=False):
            at = np.arange(1, len(region) + 1)
            mean, spread = 100 * region.mean(1), 100 * region.std(1)
            axis.plot(at, mean, color=colour, label=system)
            axis.fill_between(at, mean - spread, mean + spread, color=colour, alpha=0.15, linewidth=0)
        axis.set(xlabel="epoch", title=title)
        _plain(axis)
    axes[0, 0].set_ylabel("rows in the purified region, %")
    axes[0, 0].legend(frameon=False)
    return figure


def draw_sensitivity(panels: Mapping[str, tuple[Sequence[float], Numbers, float]], baseline: float) -> Figure:
    """One panel for each number of POP: its values, accuracies [values, seeds] and the value that stays elsewhere; a line without POP."""
    figure, axes = plt.subplots(1, len(panels), figsize=(3.4 * len(panels), 3.4), layout="constrained", sharey=True)
    for axis, (name, (values, accuracies, usual)) in zip(axes, panels.items(), strict=True):
        mean = 100 * accuracies.mean(1)
        seeds = accuracies.shape[1]
        error = 100 * accuracies.std(1, ddof=1) / np.sqrt(seeds) if seeds > 1 else None
        axis.errorbar(range(len(values)), mean, error, marker="o", markersize=4, color=COLOURS[0], capsize=2)
        axis.axhline(100 * baseline, linestyle="--", color=COLOURS[4], label="without POP")
        if usual in values:
            at = list(values).index(usual)
            axis.plot(at, mean[at], "o", markersize=9, fillstyle="none", color=COLOURS[1], label="elsewhere")
        axis.set_xticks(range(len(values)), [f"{value:g}" for value in values], rotation=45)
        axis.set(title=name)
        _plain(axis)
    axes[0].set_ylabel("test accuracy, %" + (" (standard error)" if error is not None else ""))
    axes[0].legend(frameon=False)
    return figure


def draw_sizes(lines: Mapping[str, tuple[Sequence[float], Numbers]]) -> Figure:
    """For each system the labels per set, and accuracies [sizes, seeds] with standard errors."""
    figure, axis = plt.subplots(figsize=(6.4, 4), layout="constrained")
    for (system, (at, accuracies)), colour in zip(lines.items(), COLOURS, strict=True):
        error = 100 * accuracies.std(1, ddof=1) / np.sqrt(accuracies.shape[1])
        style = "o-" if "POP" in system else "s--"
        axis.errorbar(
            at, 100 * accuracies.mean(1), error, fmt=style, markersize=4, color=colour, capsize=2, label=system
        )
    axis.set(xlabel="labels per set", ylabel="test accuracy, % (standard error)")
    axis.legend(frameon=False)
    _plain(axis)
    return figure


def draw_warm_up(
    lines: Mapping[str, tuple[Sequence[int], Sequence[float], Sequence[float], Sequence[float]]],
) -> Figure:
    """For each data set: epochs of warm-up, our means and standard errors, and the paper's points, in percent."""
    figure, axes = plt.subplots(1, len(lines), figsize=(2.9 * len(lines), 3.4), layout="constrained", squeeze=False)
    for axis, (title, (epochs, ours, errors, paper)) in zip(axes[0], lines.items(), strict=True):
        axis.errorbar(epochs, ours, errors, marker="o", markersize=4, color=COLOURS[0], capsize=2, label="ours")
        axis.plot(epochs, paper, "s--", markersize=4, color=COLOURS[1], label="paper")
        axis.set(title=title, xlabel="epochs of warm-up")
        _plain(axis)
    axes[0, 0].set_ylabel("test accuracy, %")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    return figure


def draw_ranks(systems: Sequence[str], ranks: Ranks) -> Figure:
    """Mean ranks on a line, best on the left; a bar as long as the critical difference, and one over systems that it does not part."""
    figure, axis = plt.subplots(figsize=(8.5, 0.24 * len(systems) + 1.6), layout="constrained")
    order = np.argsort(ranks.mean)
    for level, at in enumerate(order):
        axis.plot([ranks.mean[at]] * 2, [0, -level - 1], color="#bbbbbb", linewidth=0.8)
        axis.plot(ranks.mean[at], 0, "o", color=COLOURS[0], markersize=4)
        words = f"{systems[at]}  {ranks.mean[at]:.2f}"
        axis.annotate(words, (ranks.mean[at], -level - 1), (4, 0), textcoords="offset points", va="center", fontsize=8)
    for level, (first, last) in enumerate(cliques(ranks.mean[order], ranks.critical)):
        height = 0.6 + 0.45 * level
        axis.plot([ranks.mean[order[first]], ranks.mean[order[last]]], [height] * 2, color=COLOURS[1], linewidth=3)
    axis.set(title=f"mean rank over {ranks.blocks} blocks; critical difference {ranks.critical:.2f} (Nemenyi, 0.05)")
    axis.set_yticks([])
    axis.spines[["left", "right", "top"]].set_visible(False)
    axis.set_xlim(ranks.mean.min() - 0.3, ranks.mean.max() + 2.2)
    return figure


def cliques(ordered: Numbers, critical: float) -> list[tuple[int, int]]:
    """The longest runs of ordered mean ranks that lie within the critical difference.

    >>> cliques(np.array([1.0, 1.5, 2.6, 3.0]), 1.2)
    [(0, 1), (1, 2), (2, 3)]
    """
    runs: list[tuple[int, int]] = []
    for first in range(len(ordered)):
        last = int(np.flatnonzero(ordered - ordered[first] <= critical)[-1])
        if last > first and (not runs or last > runs[-1][1]):
            runs.append((first, last))
    return runs


def _plain(axis: Axes) -> None:
    axis.spines[["top", "right"]].set_visible(False)
