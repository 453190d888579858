"""The picture of an inspection: a histogram of set sizes beside a heat map of labels that occur together."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from oneof.inspect.identify import Counts, Identity
from oneof.storage.files import written_beside

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_TICKS = 40  # labels written beside the heat map; with more classes every second, third, ...
_MOST_CELLS = 13  # classes up to which every cell shows its number
_BLUE = "#0072B2"  # Okabe and Ito's palette; the map's cividis is safe for colour-blind readers as well


def draw(counts: Counts, identity: Identity) -> Figure:
    """Both panels as a matplotlib figure that no window belongs to."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    side = float(np.clip(2.5 + 0.24 * len(counts.classes), 4.5, 12))
    figure = Figure(figsize=(5 + side + 1, side), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, width_ratios=[5, side])
    _histogram(left, counts)
    _heat_map(right, counts, identity)
    return figure


def save_picture(counts: Counts, identity: Identity, path: Path) -> None:
    with written_beside(path) as file:
        draw(counts, identity).savefig(file, format="png", dpi=150)


def _histogram(axes: Axes, counts: Counts) -> None:
    sizes = np.flatnonzero(counts.sizes)
    span = np.arange(sizes[0], sizes[-1] + 1)
    bars = axes.bar(span, np.asarray(counts.sizes)[span], color=_BLUE, width=0.85)
    if len(span) <= _MOST_CELLS:
        axes.bar_label(bars, fontsize=8)
    axes.set(xlabel=f"labels in the set, of {len(counts.classes)}", ylabel="rows")
    axes.set_title(f"Set sizes of {counts.rows:,} rows, {counts.average:.2f} on average")
    axes.locator_params(axis="x", integer=True)
    axes.spines[["top", "right"]].set_visible(False)


def _heat_map(axes: Axes, counts: Counts, identity: Identity) -> None:
    """P(column in S | row in S), grey on the diagonal and where the row's label is in no set."""
    together = np.asarray(identity.together, dtype=float)
    held = together.diagonal().copy()
    probability = together / np.where(held > 0, held, np.nan)[:, None]
    np.fill_diagonal(probability, np.nan)
    axes.set_facecolor("lightgrey")
    image = axes.imshow(probability, cmap="cividis", vmin=0, vmax=1)
    places = range(0, len(held), -(-len(held) // _MOST_TICKS))
    short = [name if len(name) <= 16 else name[:15] + "…" for name in (str(counts.classes[j]) for j in places)]
    axes.set_xticks(places, short, rotation=90, fontsize=8)
    axes.set_yticks(places, short, fontsize=8)
    if len(held) <= _MOST_CELLS:
        for (row, column), value in np.ndenumerate(probability):
            if not np.isnan(value):
                shown, colour = f"{value:.2f}".removeprefix("0"), "white" if value < 0.5 else "black"
                axes.text(column, row, shown, ha="center", va="center", color=colour, fontsize=7)
    axes.set(xlabel="... how often it holds this one", ylabel="of the sets that hold this label ...")
    axes.set_title("Labels that occur together")
    axes.figure.colorbar(image, ax=axes, shrink=0.8, label="P(column in set | row in set)")
