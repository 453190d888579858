"""How training went: what was tried, what the held-out sets said, and how the sets shrank, epoch by epoch."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from types import SimpleNamespace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray

from oneof.metrics import CRITERIA, MEANS
from oneof.runs.page.plots import ACCENT, INK, plot

_PANELS = ("set_size", "threshold", "removed", "loss")
_SIZE = (3.6, 2.5)  # three beside each other
_STROKES: tuple[tuple[str, str, Any], ...] = (
    ("solid", ACCENT, "-"),
    ("dashed", INK, (0, (4, 2))),
    ("dotted", INK, (0, (1, 1.5))),
)  # how a line is drawn: its name, its colour and its dashes
_TRIED = 15  # settings that are listed
_SCORES = (*MEANS, *CRITERIA)  # truth-free; the first that is there sorts, all are shown last
_APART = {"seconds", "device", "oneof", "torch", "commit", "seed", "epoch", "loss", "set_size"}  # how, not what
Floats = NDArray[np.float64]


def draw_training(record: Mapping[str, Any]) -> SimpleNamespace:
    """Draw what training.json holds; columns that the run does not have leave their panels out."""
    columns = {name: np.asarray(values, dtype=float) for name, values in record["columns"].items()}  # [epochs, t]
    chosen = sorted(int(epoch) for epoch in record["chosen"])
    estimates = _estimates(columns, chosen) if columns.keys() & CRITERIA.keys() else None
    panels = {name: _panel(name, columns[name], chosen) for name in _PANELS if name in columns}
    told = {"trials": record["trials"], "epochs": record["epochs"], "chosen": chosen}
    return SimpleNamespace(estimates=estimates, panels=panels, **told)


def _estimates(columns: Mapping[str, Floats], chosen: list[int]) -> SimpleNamespace:
    """All truth-free signals in one panel: they pull apart when a network is sure of what is wrong."""
    lines = [(name, *stroke) for name, stroke in zip((name for name in CRITERIA if name in columns), cycle(_STROKES))]

    def draw(axes: Axes) -> None:
        for name, _, colour, dashes in lines:
            _band(axes, columns[name], colour, dashes)
        _mark(axes, chosen)
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))

    at = [epoch - 1 for epoch in chosen]
    told = [(name, stroke, CRITERIA[name].says, np.nanmean(columns[name][at])) for name, stroke, *_ in lines]
    return SimpleNamespace(drawing=plot("estimates", draw, size=_SIZE), lines=told)


def _panel(name: str, column: Floats, chosen: list[int]) -> SimpleNamespace:
    """A column by epoch, and its mean over the networks at both ends and in all."""
    mean = np.nanmean(column, 1)

    def draw(axes: Axes) -> None:
        if name == "removed":
            axes.bar(np.arange(1, len(mean) + 1), mean, width=max(1.0, len(mean) / 60), color=ACCENT, linewidth=0)
            axes.set(xlabel="epoch", xlim=(0.5, len(mean) + 0.5))
            axes.grid(visible=False, axis="x")
        else:
            _band(axes, column)
        _mark(axes, chosen)
        if name == "set_size":
            axes.set_ylim(bottom=min(1.0, float(np.nanmin(column))))

    drawing = plot(name.replace("_", "-"), draw, size=_SIZE)
    return SimpleNamespace(drawing=drawing, first=mean[0], last=mean[-1], total=mean.sum())


def _band(axes: Axes, column: Floats, colour: str = ACCENT, dashes: Any = "-") -> None:
    """The mean over networks, and everything between the lowest and the highest."""
    at = np.arange(1, len(column) + 1)
    axes.fill_between(at, np.nanmin(column, 1), np.nanmax(column, 1), color=colour, alpha=0.18, linewidth=0)
    axes.plot(at, np.nanmean(column, 1), color=colour, linewidth=1.6, linestyle=dashes)
    axes.set(xlabel="epoch", xlim=(1, max(len(column), 2)))


def _mark(axes: Axes, chosen: list[int]) -> None:
    """A short tick above the axis at every epoch that a network was taken from."""
    axes.plot(chosen, [0.03] * len(chosen), "|", color=INK, markersize=7, transform=axes.get_xaxis_transform())


def list_settings(results: Sequence[Mapping[str, Any]], chosen: Sequence[Mapping[str, Any]]) -> SimpleNamespace:
    """What was tried, best first by the first truth-free score: only the columns in which the rows differ; and what was chosen."""
    scores = [name for name in _SCORES if any(name in row for row in results)]
    names = [name for name in dict.fromkeys(name for row in results for name in row) if name not in _APART | {*_SCORES}]
    columns = [*(name for name in names if len({str(row.get(name)) for row in results}) > 1), *scores]
    rated = [(row.get(scores[0]) if scores else 0, row) for row in results]
    best = sorted(rated, key=lambda one: -one[0] if isinstance(one[0], int | float) else float("inf"))
    shown = [[_plain(row.get(name)) for name in columns] for _, row in best[:_TRIED]]
    said = {name: [_plain(one[name]) for one in chosen if name in one] for one in chosen for name in one}
    merged = [(name, "; ".join(dict.fromkeys(values))) for name, values in said.items()]
    return SimpleNamespace(columns=columns, shown=shown, tried=len(results), chosen=merged)


def _plain(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return "(" + ", ".join(map(_plain, value)) + ")"
    return str(value)
