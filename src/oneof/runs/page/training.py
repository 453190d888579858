"""How training went: what the held-out sets said, and how the sets shrank, epoch by epoch."""

from collections.abc import Mapping
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray

from oneof.metrics import CRITERIA
from oneof.runs.page.plots import ACCENT, INK, plot

_SIZE = (3.6, 2.5)  # three beside each other


class Stroke(NamedTuple):
    """How a line is drawn."""

    name: str
    colour: str
    dashes: Any  # as Matplotlib has them


_STROKES = (Stroke("solid", ACCENT, "-"), Stroke("dashed", INK, (0, (4, 2))), Stroke("dotted", INK, (0, (1, 1.5))))

Columns = Mapping[str, NDArray[np.float64]]  # [epochs, t] each


class Panel(NamedTuple):
    """A plot with what it shows."""

    title: str
    drawing: Markup
    caption: str


class Training(NamedTuple):
    """Panels of the second section; columns that the run does not have leave theirs out."""

    trials: int
    epochs: int
    chosen: list[int]  # per network
    panels: list[Panel]


class Line(NamedTuple):
    """A panel with one line: the column that it shows, what it is called and what is said of it."""

    column: str
    title: str
    says: str  # filled in with the mean at the first and at the last epoch
    caption: str


_LINES = (
    Line("set_size", "Labels per set", "Labels per set by epoch: {:.2f} at first, {:.2f} at the end.", "What purification left of the training sets."),
    Line("threshold", "Threshold", "Threshold by epoch, from {:.3g} to {:.3g}.", "The lead that the best candidate needs over another before that one is removed."),
    Line("loss", "Training loss", "Training loss by epoch, from {:.3g} to {:.3g}.", "It says that training converged, not that it is right."),
)  # fmt: skip


def draw_training(record: Mapping[str, Any]) -> Training:
    """Draw what training.json holds."""
    columns = {name: np.asarray(values, dtype=float) for name, values in record["columns"].items()}
    chosen = sorted(int(epoch) for epoch in record["chosen"])
    sizes, threshold, loss = (
        [_line(line, columns[line.column], chosen)] if line.column in columns else [] for line in _LINES
    )
    estimates = [_estimates(columns, chosen)] if columns.keys() & CRITERIA.keys() else []
    removed = [_removed(np.nanmean(columns["removed"], 1), chosen)] if "removed" in columns else []
    panels = estimates + sizes + threshold + removed + loss
    return Training(int(record["trials"]), int(record["epochs"]), chosen, panels)


def _estimates(columns: Columns, chosen: list[int]) -> Panel:
    """All truth-free signals in one panel: they pull apart when a network is sure of what is wrong."""
    names = [name for name in CRITERIA if name in columns]

    def draw(axes: Axes) -> None:
        for name, stroke in zip(names, cycle(_STROKES)):
            _band(axes, columns[name], stroke)
        _mark(axes, chosen)
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))

    at = [epoch - 1 for epoch in chosen]
    last = ", ".join(f"{name} {np.nanmean(columns[name][at]):.1%}" for name in names)
    return Panel(
        "Truth-free estimates",
        plot("estimates", draw, says=f"Truth-free estimates by epoch; at the chosen epochs: {last}.", size=_SIZE),
        f"On rows that a network did not train on. {_legend(names)} Where every set holds the true label, accuracy is not above "
        "covering.",
    )


def _legend(names: list[str]) -> str:
    """Which line is which.

    >>> _legend(["covering"])
    "Solid, covering: its label lies in the row's set."
    """
    lines = zip(cycle(_STROKES), names)
    return " ".join(f"{stroke.name.capitalize()}, {name}: {CRITERIA[name].says}." for stroke, name in lines)


def _line(line: Line, column: NDArray[np.float64], chosen: list[int]) -> Panel:
    def draw(axes: Axes) -> None:
        _band(axes, column)
        _mark(axes, chosen)
        if line.column == "set_size":
            axes.set_ylim(bottom=min(1.0, float(np.nanmin(column))))

    says = line.says.format(np.nanmean(column[0]), np.nanmean(column[-1]))
    return Panel(line.title, plot(line.column.replace("_", "-"), draw, says=says, size=_SIZE), line.caption)


def _removed(removed: NDArray[np.float64], chosen: list[int]) -> Panel:
    def draw(axes: Axes) -> None:
        axes.bar(np.arange(1, len(removed) + 1), removed, width=max(1.0, len(removed) / 60), color=ACCENT, linewidth=0)
        _mark(axes, chosen)
        axes.set(xlabel="epoch", xlim=(0.5, len(removed) + 0.5))
        axes.grid(visible=False, axis="x")

    says = f"Labels removed by epoch: {removed.sum():,.0f} in all per network, on average."
    caption = f"Labels removed at the end of an epoch, mean over the networks: {removed.sum():,.0f} in all."
    return Panel("Removals", plot("removed", draw, says=says, size=_SIZE), caption)


def _band(axes: Axes, column: NDArray[np.float64], stroke: Stroke = _STROKES[0]) -> None:
    """The mean over networks, and everything between the lowest and the highest."""
    at = np.arange(1, len(column) + 1)
    axes.fill_between(at, np.nanmin(column, 1), np.nanmax(column, 1), color=stroke.colour, alpha=0.18, linewidth=0)
    axes.plot(at, np.nanmean(column, 1), color=stroke.colour, linewidth=1.6, linestyle=stroke.dashes)
    axes.set(xlabel="epoch", xlim=(1, max(len(column), 2)))


def _mark(axes: Axes, chosen: list[int]) -> None:
    """A short tick above the axis at every epoch that a network was taken from."""
    axes.plot(chosen, [0.03] * len(chosen), "|", color=INK, markersize=7, transform=axes.get_xaxis_transform())
