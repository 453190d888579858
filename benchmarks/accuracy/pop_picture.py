"""The picture of the guide on POP: real digits whose candidate sets shrink while a network trains on them.

    python benchmarks/accuracy/pop_picture.py [--out docs/figures/pop]

On the left six digits with their candidates, and the epoch in which each label was removed; on the right the mean size of the sets, the share
of sets that still hold the true label, and the threshold of the events. PRODEN + POP on 1,400 digits, each other label a candidate with probability
0.4, seed 0. The digits on the left are the first of five classes whose sets have four labels, and the first such digit whose true label (bold) was
removed. Writes a PNG and an SVG.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from drawing import save
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from sklearn.datasets import load_digits
from torch import nn

import oneof
from oneof.candidates.generate import Flip, generate
from oneof.metrics import true_labels_removed

ROWS, EPOCHS, BATCH = 1400, 40, 64
RULE = oneof.Pop(warm_up=5, interval=5, window=5)
COLOURS = {"kept": "#0b6b74", "removed": "#9aa0a6", "wrong": "#b3261e"}


class Course(NamedTuple):
    """What happened in training, epoch by epoch."""

    size: list[float]  # labels per set
    covered: list[float]  # share of the sets that hold the true label
    threshold: list[float]  # of the next event


def train(x: np.ndarray, labels: np.ndarray, candidates: np.ndarray) -> tuple[oneof.Purifier, Course]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    criterion = oneof.CandidateLoss("proden", candidates)
    purifier = oneof.Purifier(RULE, criterion)
    course = Course([], [], [])
    for _ in range(EPOCHS):
        for index in torch.randperm(ROWS).split(BATCH):
            loss = criterion(net(torch.as_tensor(x)[index]), index)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        course.threshold.append(purifier.threshold)
        purifier.step()
        course.size.append(float(criterion.candidates.sum(1).float().mean()))
        course.covered.append(1 - float(true_labels_removed(criterion.candidates, torch.as_tensor(labels))))
    return purifier, course


def shown_rows(labels: np.ndarray, candidates: np.ndarray, left: np.ndarray) -> list[int]:
    """Return the first row with four candidates of each of five classes, and the first such row that lost its true label."""
    has_four = candidates.sum(1) == 4
    rows = [int(np.flatnonzero(has_four & (labels == digit))[0]) for digit in (1, 3, 5, 6, 8)]
    lost = ~left[np.arange(len(labels)), labels]
    return [*rows, int(np.flatnonzero(has_four & lost)[0])]


def draw_digit(axes: Axes, image: np.ndarray, label: int, candidates: np.ndarray, epochs: dict[int, int]) -> None:
    """Draw a digit, its candidates, and the epoch in which each removed label fell."""
    axes.imshow(image, cmap="gray_r", extent=(0, 1, 0, 1))
    for place, candidate in enumerate(np.flatnonzero(candidates)):
        left = 1.7 + 1.25 * place
        removed = epochs.get(int(candidate))
        colour = COLOURS["kept"] if removed is None else COLOURS["removed"]
        weight = "bold" if candidate == label else "normal"
        axes.text(left, 0.62, str(candidate), fontsize=15, color=colour, ha="center", va="center", fontweight=weight)
        if removed is not None:
            axes.plot([left - 0.2, left + 0.2], [0.42, 0.84], color=COLOURS["wrong"], linewidth=1.4)
            axes.text(left, 0.14, f"epoch {removed}", fontsize=7, color=COLOURS["removed"], ha="center", va="center")
    axes.set_xlim(0, 6.2)
    axes.set_ylim(0, 1)
    axes.axis("off")


def draw_course(axes: Axes, course: Course) -> None:
    epochs = np.arange(1, EPOCHS + 1)
    for epoch in range(EPOCHS):
        if RULE.event(epoch):
            axes.axvline(epoch + 1, color="#e3e6e8", linewidth=1, zorder=0)
            axes.text(epoch + 1, 5.12, f"{course.threshold[epoch]:.1f}", fontsize=7, color="#6a717a", ha="center")
    axes.plot(epochs, course.size, color=COLOURS["kept"])
    axes.text(12, 4.4, "labels per set", color=COLOURS["kept"], fontsize=9)
    axes.set_ylim(0.8, 5.1)
    axes.set_xlabel("epoch; grey lines are events, above them the threshold", fontsize=9)
    axes.set_ylabel("labels per set", fontsize=9)
    other = axes.twinx()
    other.plot(epochs, 100 * np.array(course.covered), color=COLOURS["wrong"], linestyle="--")
    other.text(20, 96.2, "sets that hold the true label", color=COLOURS["wrong"], fontsize=9)
    other.set_ylim(79, 101)
    other.set_ylabel("%", fontsize=9)
    for one in (axes, other):
        one.spines["top"].set_visible(False)
        one.tick_params(labelsize=8)


def main(path: Path) -> None:
    torch.set_num_threads(1)
    x, labels = load_digits(return_X_y=True)
    x = (x[:ROWS] / 16).astype(np.float32)
    labels = labels[:ROWS]
    candidates = generate(labels, 10, Flip(rate=0.4), seed=0)
    purifier, course = train(x, labels, candidates)
    removals = purifier.removals
    figure = plt.figure(figsize=(9.5, 4.2), layout="constrained")
    grid = figure.add_gridspec(6, 2, width_ratios=(1, 1.35))
    left = purifier.criterion.candidates.numpy()
    for place, row in enumerate(shown_rows(labels, candidates, left)):
        own = removals.row == row
        rounds = zip(removals.label[own].tolist(), removals.round[own].tolist(), strict=True)
        epochs = {label: RULE.warm_up + (number - 1) * RULE.interval + 1 for label, number in rounds}
        draw_digit(figure.add_subplot(grid[place, 0]), x[row].reshape(8, 8), int(labels[row]), candidates[row], epochs)
    draw_course(figure.add_subplot(grid[:, 1]), course)
    save(figure, path)
    print(
        f"labels per set {course.size[0]:.2f} -> {course.size[-1]:.2f}, sets with the true label {course.covered[-1]:.3f}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("docs/figures/pop"))
    main(parser.parse_args().out)
