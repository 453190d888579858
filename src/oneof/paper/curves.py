"""Curves of a training run: accuracy, set size and threshold by epoch, one line per system."""

from collections.abc import Mapping
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from torch import Tensor

from oneof.training.state import Record

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#555555")  # told apart by colour-blind readers
PANELS = (("accuracy", "test accuracy"), ("set_size", "labels per set"), ("threshold", "threshold"))


def draw_curves(histories: Mapping[str, Record], path: Path, *, title: str) -> None:
    """Write a picture with one panel per quantity: the mean over trials, shaded by one standard deviation."""
    figure, axes = plt.subplots(1, len(PANELS), figsize=(12, 3.8), layout="constrained")
    for axis, (name, label) in zip(axes, PANELS, strict=True):
        for (system, history), colour in zip(histories.items(), COLOURS, strict=False):
            column = getattr(history, name)
            if column is not None:
                _band(axis, column, system, colour)
        axis.set(xlabel="epoch", title=label)
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _band(axis: Axes, column: Tensor, label: str, colour: str) -> None:
    """A line for the mean of [epochs, t] over trials, and a band of one deviation around it."""
    values = column.cpu().double().numpy()
    mean, spread = values.mean(1), values.std(1)
    at = range(1, len(mean) + 1)
    dashes = "--" if "POP" not in label else "-"
    axis.plot(at, mean, dashes, color=colour, label=label)
    axis.fill_between(at, mean - spread, mean + spread, color=colour, alpha=0.15, linewidth=0)
