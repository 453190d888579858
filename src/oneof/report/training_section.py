"""Plot the training of the networks epoch by epoch, and list the settings that were tried."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray

from oneof.metrics import CRITERIA, MEANS
from oneof.report.plots import ACCENT, INK, plot

Floats = NDArray[np.float64]


class _LineStyle(NamedTuple):
    name: str  # in captions
    colour: str
    dashes: Any  # matplotlib's linestyle


_LINE_STYLES = (
    _LineStyle("solid", ACCENT, "-"),
    _LineStyle("dashed", INK, (0, (4, 2))),
    _LineStyle("dotted", INK, (0, (1, 1.5))),
)
_PANELS = ("set_size", "threshold", "removed", "loss")
_PANEL_SIZE = (3.6, 2.5)  # in inches; three fit side by side
_MAX_SETTINGS = 15  # settings that are listed
_SCORES = (*MEANS, *CRITERIA)  # need no true labels; settings are sorted by the first one present
_NOT_SETTINGS = {"stage", "seconds", "device", "oneof", "torch", "commit", "seed", "epoch", "loss", "set_size"}


def draw_training(record: Mapping[str, Any]) -> SimpleNamespace:
    """Draw the columns [epochs, networks] of training.json; panels of columns that the run lacks are left out."""
    columns = {}
    for name, values in record["columns"].items():
        columns[name] = np.asarray(values, dtype=float)
    chosen_epochs = sorted(map(int, record["chosen"]))
    criteria = []
    for name in CRITERIA:
        if name in columns and not _is_trivial(columns[name]):
            criteria.append(name)
    estimates = None
    if criteria:
        estimates = _draw_estimates(criteria, columns, chosen_epochs)
    panels = {}
    for name in _PANELS:
        if name in columns:
            panels[name] = _draw_panel(name, columns[name], chosen_epochs)
    return SimpleNamespace(
        estimates=estimates,
        panels=panels,
        networks=record["trials"],
        epochs=record["epochs"],
        chosen=chosen_epochs,
    )


def _draw_estimates(criteria: list[str], columns: Mapping[str, Floats], chosen_epochs: list[int]) -> SimpleNamespace:
    """Draw criteria that need no true labels in one panel: they diverge when a network is confident but wrong."""
    styles = dict(zip(criteria, cycle(_LINE_STYLES), strict=False))

    def draw(axes: Axes) -> None:
        for name, style in styles.items():
            _draw_band(axes, columns[name], style.colour, style.dashes)
        _mark_epochs(axes, chosen_epochs)
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))

    indices = [epoch - 1 for epoch in chosen_epochs]
    lines = []
    for name, style in styles.items():
        at_chosen_epochs = float(np.ma.filled(_over_networks(columns[name][indices]).mean(), np.nan))
        lines.append((name, style.name, CRITERIA[name].caption, at_chosen_epochs))
    return SimpleNamespace(drawing=plot("estimates", draw, size=_PANEL_SIZE), lines=lines)


def _is_trivial(column: Floats) -> bool:
    """Return whether a criterion is 1 throughout, as the covering rate is where every label is a candidate."""
    return bool(np.nanmin(column) == 1.0)


def _draw_panel(name: str, column: Floats, chosen_epochs: list[int]) -> SimpleNamespace:
    """Draw a column by epoch, and return its mean over networks at the first and last epoch and in total."""
    mean = _over_networks(column).mean(1).filled(np.nan)

    def draw(axes: Axes) -> None:
        if name == "removed":
            axes.bar(np.arange(1, len(mean) + 1), mean, width=max(1.0, len(mean) / 60), color=ACCENT, linewidth=0)
            axes.set(xlabel="epoch", xlim=(0.5, len(mean) + 0.5))
            axes.grid(visible=False, axis="x")
        else:
            _draw_band(axes, column)
        _mark_epochs(axes, chosen_epochs)
        if name == "set_size":
            finite = column[np.isfinite(column)]
            axes.set_ylim(bottom=float(finite.min(initial=1.0)))

    drawing = plot(name.replace("_", "-"), draw, size=_PANEL_SIZE)
    return SimpleNamespace(drawing=drawing, first=mean[0], last=mean[-1], total=mean.sum())


def _over_networks(column: Floats) -> Any:
    """Return a column with its gaps masked: epochs without any number have no mean, which is no reason for a warning."""
    return np.ma.masked_invalid(column)


def _draw_band(axes: Axes, column: Floats, colour: str = ACCENT, dashes: Any = "-") -> None:
    """Draw the mean over networks, and a band from the lowest to the highest."""
    epochs = np.arange(1, len(column) + 1)
    values = _over_networks(column)
    axes.fill_between(epochs, values.min(1), values.max(1), color=colour, alpha=0.18, linewidth=0)
    axes.plot(epochs, values.mean(1), color=colour, linewidth=1.6, linestyle=dashes)
    axes.set(xlabel="epoch", xlim=(1, max(len(column), 2)))


def _mark_epochs(axes: Axes, chosen_epochs: list[int]) -> None:
    """Draw a short tick above the axis at every epoch whose weights were kept for a network."""
    height = [0.03] * len(chosen_epochs)
    axes.plot(chosen_epochs, height, "|", color=INK, markersize=7, transform=axes.get_xaxis_transform())


def list_settings(results: Sequence[Mapping[str, Any]], chosen: Sequence[Mapping[str, Any]]) -> SimpleNamespace:
    """List the settings that were tried, best first, and the values of those that were chosen.

    Only columns in which the results differ are shown, followed by the scores.
    """
    scores = []
    for name in _SCORES:
        if any(name in result for result in results):
            scores.append(name)
    columns = [*_varying_settings(results), *scores]

    def sort_key(result: Mapping[str, Any]) -> float:
        score = result.get(scores[0])
        if isinstance(score, int | float):
            return -score
        return float("inf")

    best_first = list(results)
    if scores:
        best_first.sort(key=sort_key)
    shown = []
    for result in best_first[:_MAX_SETTINGS]:
        shown.append([_format_value(result.get(name)) for name in columns])
    return SimpleNamespace(columns=columns, shown=shown, tried=len(results), chosen=_merge_settings(chosen))


def _varying_settings(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of the settings that are not the same in all results, in order of appearance."""
    values_of: dict[str, set[str]] = {}
    for result in results:
        for name in result:
            if name not in _NOT_SETTINGS and name not in _SCORES:
                values_of[name] = set()
    for name, values in values_of.items():
        for result in results:
            values.add(str(result.get(name)))
    return [name for name, values in values_of.items() if len(values) > 1]


def _merge_settings(settings: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return each setting's name with its distinct values, in order of appearance."""
    values_of: dict[str, list[str]] = {}
    for setting in settings:
        for name, value in setting.items():
            text = _format_value(value)
            values = values_of.setdefault(name, [])
            if text not in values:
                values.append(text)
    return [(name, "; ".join(values)) for name, values in values_of.items()]


def _format_value(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        items = ", ".join(_format_value(item) for item in value)
        return f"({items})"
    return str(value)
