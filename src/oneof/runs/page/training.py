"""How training went: what was tried, what the held-out sets said, and how the sets shrank, epoch by epoch."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from types import SimpleNamespace
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray

from oneof.metrics import CRITERIA, MEANS
from oneof.runs.page.plots import ACCENT, INK, plot

_SIZE = (3.6, 2.5)  # three beside each other
_STROKES: tuple[tuple[str, str, Any], ...] = (
    ("solid", ACCENT, "-"),
    ("dashed", INK, (0, (4, 2))),
    ("dotted", INK, (0, (1, 1.5))),
)  # how a line is drawn: its name, its colour and its dashes
_LINES = {
    "set_size": ("Labels per set", "Labels per set by epoch: {:.2f} at first, {:.2f} at the end.", "What purification left of the training sets."),
    "threshold": ("Threshold", "Threshold by epoch, from {:.3g} to {:.3g}.", "The lead that the best candidate needs over another before that one is removed."),
    "loss": ("Training loss", "Training loss by epoch, from {:.3g} to {:.3g}.", "It says that training converged, not that it is right."),
}  # fmt: skip
"""Columns that are shown as one line: what it is called, what is said of its ends, and its caption."""
_TRIED = 15  # settings that are listed
_SCORES = (*MEANS, *CRITERIA)  # truth-free; the first that is there sorts, all are shown last
_APART = {"seconds", "device", "oneof", "torch", "commit", "seed", "epoch", "loss", "set_size"}  # how, not what
Floats = NDArray[np.float64]


def draw_training(record: Mapping[str, Any]) -> SimpleNamespace:
    """Draw what training.json holds; columns that the run does not have leave their panels out."""
    columns = {name: np.asarray(values, dtype=float) for name, values in record["columns"].items()}  # [epochs, t]
    chosen = sorted(int(epoch) for epoch in record["chosen"])
    panels = [_estimates(columns, chosen)] if columns.keys() & CRITERIA.keys() else []
    for name in ("set_size", "threshold", "removed", "loss"):
        if name in columns:
            draw = _removed if name == "removed" else _line
            panels.append(draw(name, columns[name], chosen))
    return SimpleNamespace(trials=record["trials"], epochs=record["epochs"], chosen=chosen, panels=panels)


def _panel(title: str, drawing: Markup, caption: str) -> SimpleNamespace:
    return SimpleNamespace(title=title, drawing=drawing, caption=caption)


def _estimates(columns: Mapping[str, Floats], chosen: list[int]) -> SimpleNamespace:
    """All truth-free signals in one panel: they pull apart when a network is sure of what is wrong."""
    names = [name for name in CRITERIA if name in columns]

    def draw(axes: Axes) -> None:
        for name, (_, colour, dashes) in zip(names, cycle(_STROKES)):
            _band(axes, columns[name], colour, dashes)
        _mark(axes, chosen)
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))

    at = [epoch - 1 for epoch in chosen]
    last = ", ".join(f"{name} {np.nanmean(columns[name][at]):.1%}" for name in names)
    says = f"Truth-free estimates by epoch; at the chosen epochs: {last}."
    about = f"On rows that a network did not train on. {_legend(names)}"
    return _panel(
        "Truth-free estimates",
        plot("estimates", draw, says=says, size=_SIZE),
        f"{about} Where every set holds the true label, accuracy is not above covering.",
    )


def _legend(names: list[str]) -> str:
    """Which line is which.

    >>> _legend(["covering"])
    "Solid, covering: its label lies in the row's set."
    """
    lines = zip(cycle(_STROKES), names)
    return " ".join(f"{stroke[0].capitalize()}, {name}: {CRITERIA[name].says}." for stroke, name in lines)


def _line(name: str, column: Floats, chosen: list[int]) -> SimpleNamespace:
    title, says, caption = _LINES[name]

    def draw(axes: Axes) -> None:
        _band(axes, column)
        _mark(axes, chosen)
        if name == "set_size":
            axes.set_ylim(bottom=min(1.0, float(np.nanmin(column))))

    ends = says.format(np.nanmean(column[0]), np.nanmean(column[-1]))
    return _panel(title, plot(name.replace("_", "-"), draw, says=ends, size=_SIZE), caption)


def _removed(name: str, column: Floats, chosen: list[int]) -> SimpleNamespace:
    removed = np.nanmean(column, 1)

    def draw(axes: Axes) -> None:
        axes.bar(np.arange(1, len(removed) + 1), removed, width=max(1.0, len(removed) / 60), color=ACCENT, linewidth=0)
        _mark(axes, chosen)
        axes.set(xlabel="epoch", xlim=(0.5, len(removed) + 0.5))
        axes.grid(visible=False, axis="x")

    says = f"Labels removed by epoch: {removed.sum():,.0f} in all per network, on average."
    caption = f"Labels removed at the end of an epoch, mean over the networks: {removed.sum():,.0f} in all."
    return _panel("Removals", plot(name, draw, says=says, size=_SIZE), caption)


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
    best = sorted(results, key=lambda row: -_number(row.get(scores[0])) if scores else 0)
    shown = [[_plain(row.get(name)) for name in columns] for row in best[:_TRIED]]
    return SimpleNamespace(columns=columns, shown=shown, tried=len(results), chosen=_merged(chosen))


def _merged(settings: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Every name with the values that it takes.

    >>> _merged([{"lr": 0.1, "scaling": "ranks"}, {"lr": 0.1, "scaling": "root"}])
    [('lr', '0.1'), ('scaling', 'ranks; root')]
    """
    names = dict.fromkeys(name for setting in settings for name in setting)
    values = {name: dict.fromkeys(_plain(setting[name]) for setting in settings if name in setting) for name in names}
    return [(name, "; ".join(found)) for name, found in values.items()]


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else float("-inf")


def _plain(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_plain(inner)}" for name, inner in value.items())
    if isinstance(value, list | tuple):
        return "(" + ", ".join(map(_plain, value)) + ")"
    return str(value)
