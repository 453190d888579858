"""Draw an inspection: a histogram of set sizes and a heat map of labels that occur together."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from oneof.inspect.identify import Counts, Identifiability
from oneof.storage.files import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MAX_TICKS = 40  # with more classes only every second, third, ... has a tick
_MAX_ANNOTATED = 13  # classes or bars up to which each shows its number
_MAX_NAME_LENGTH = 16  # characters of a class name at a tick
_BLUE = "#0072B2"  # from Okabe and Ito's palette, which like cividis is safe for colour-blind readers


def draw(counts: Counts, identity: Identifiability) -> Figure:
    """Return both panels as a matplotlib figure without a window."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    side = float(np.clip(2.5 + 0.24 * len(counts.classes), 4.5, 12))
    figure = Figure(figsize=(5 + side + 1, side), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, width_ratios=[5, side])
    _draw_histogram(left, counts)
    _draw_heat_map(right, counts, identity)
    return figure


def save_picture(counts: Counts, identity: Identifiability, path: Path) -> None:
    """Write both panels to a PNG file."""
    with atomic_write(path) as file:
        draw(counts, identity).savefig(file, format="png", dpi=150)


def _draw_histogram(axes: Axes, counts: Counts) -> None:
    """Draw how many rows have sets of each size, from the smallest size that occurs to the largest."""
    occurring = np.flatnonzero(counts.sizes)
    sizes = np.arange(occurring[0], occurring[-1] + 1)
    bars = axes.bar(sizes, np.asarray(counts.sizes)[sizes], color=_BLUE, width=0.85)
    if len(sizes) <= _MAX_ANNOTATED:
        axes.bar_label(bars, fontsize=8)
    axes.set(xlabel=f"labels in the set, of {len(counts.classes)}", ylabel="rows")
    axes.set_title(f"Set sizes of {counts.rows:,} rows, {counts.average:.2f} on average")
    axes.locator_params(axis="x", integer=True)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_heat_map(axes: Axes, counts: Counts, identity: Identifiability) -> None:
    """Draw P(column in S | row in S), grey on the diagonal and where the row's label is in no set."""
    cooccurrence = np.asarray(identity.together, dtype=float)
    label_counts = cooccurrence.diagonal().copy()
    n_classes = len(label_counts)
    probability = cooccurrence / np.where(label_counts > 0, label_counts, np.nan)[:, None]
    np.fill_diagonal(probability, np.nan)
    axes.set_facecolor("lightgrey")
    image = axes.imshow(probability, cmap="cividis", vmin=0, vmax=1)
    tick_step = -(-n_classes // _MAX_TICKS)  # rounded up
    ticks = range(0, n_classes, tick_step)
    tick_labels = [_shorten_name(str(counts.classes[tick])) for tick in ticks]
    axes.set_xticks(ticks, tick_labels, rotation=90, fontsize=8)
    axes.set_yticks(ticks, tick_labels, fontsize=8)
    if n_classes <= _MAX_ANNOTATED:
        _annotate_cells(axes, probability)
    axes.set(xlabel="... how often it holds this one", ylabel="of the sets that hold this label ...")
    axes.set_title("Labels that occur together")
    axes.figure.colorbar(image, ax=axes, shrink=0.8, label="P(column in set | row in set)")


def _shorten_name(name: str) -> str:
    if len(name) <= _MAX_NAME_LENGTH:
        return name
    return name[: _MAX_NAME_LENGTH - 1] + "…"


def _annotate_cells(axes: Axes, probability: NDArray[np.float64]) -> None:
    """Write each probability into its cell, in a colour that contrasts with the cell."""
    for (row, column), value in np.ndenumerate(probability):
        if np.isnan(value):
            continue
        text = f"{value:.2f}".removeprefix("0")
        color = "black"
        if value < 0.5:
            color = "white"
        axes.text(column, row, text, ha="center", va="center", color=color, fontsize=7)
