"""Summarise the input: the use of each column, the sizes of the candidate sets, and which labels occur together."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from oneof.report.plots import ACCENT, PAPER, TEXT, Drawing, placeholder, plot
from oneof.runs.purified import Purified

_MAX_LABELS = 14  # in the co-occurrence map
_MAX_COLUMNS = 60  # in the list of columns
_MAX_SIZES = 20  # set sizes named in the description of the histogram


def summarise_sets(table: Purified) -> SimpleNamespace:
    """Return figures and plots of the candidate sets before purification."""
    n_labels = len(table.names)
    rows_by_size = np.bincount(table.sizes)
    size_counts = []
    for size, count in enumerate(rows_by_size[:_MAX_SIZES].tolist()):
        if count:
            size_counts.append((size, count))
    most_frequent = np.argsort(-table.label_counts, kind="stable")[:_MAX_LABELS]
    return SimpleNamespace(
        average=float(table.sizes.mean()),
        singletons=int((table.sizes == 1).sum()),
        full=int((table.sizes == n_labels).sum()),
        n_labels=n_labels,
        size_counts=size_counts,
        size_histogram=_draw_sizes(rows_by_size),
        cooccurrence=_draw_cooccurrence(table, most_frequent),
        mapped=len(most_frequent),
    )


def list_columns(columns: Mapping[str, Mapping[str, str]]) -> SimpleNamespace:
    """Return how each column is used and why, at most _MAX_COLUMNS of them.

    Plain numbers come last, as they are the least surprising.
    """
    in_order = sorted(columns, key=lambda name: columns[name]["use"] == "number")
    shown = []
    for name in in_order[:_MAX_COLUMNS]:
        shown.append((name, columns[name]["use"], columns[name]["reason"]))
    return SimpleNamespace(shown=shown, total=len(columns))


def _draw_sizes(rows_by_size: NDArray[np.int64]) -> Drawing:
    """Draw a histogram of the sizes of the sets."""

    def draw(axes: Axes) -> None:
        axes.bar(range(len(rows_by_size)), rows_by_size, width=0.75, color=ACCENT, alpha=0.85)
        axes.set(xlabel="candidates per row", ylabel="rows", xlim=(0.4, max(len(rows_by_size), 5) - 0.4))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,.0f}"))
        axes.grid(visible=False, axis="x")

    return plot("sizes", draw)


def _draw_cooccurrence(table: Purified, labels: NDArray[np.int64]) -> Drawing:
    """Draw how often the sets with one label (row) also contain another (column), in per cent."""
    columns: Any = table.original[:, labels]
    counts = np.asarray((columns.T @ columns).todense())
    share = counts / np.maximum(counts.diagonal(), 1)[:, None]
    k = len(labels)

    def draw(axes: Axes) -> None:
        for i in range(k):
            for j in range(k):
                if i != j:
                    _draw_cell(axes, i, j, float(share[i, j]))
        names = [placeholder(label, table.names[label]) for label in labels]
        axes.set(xlim=(0, k), ylim=(k, 0), aspect="equal")
        axes.set_xticks(np.arange(k) + 0.5, names, rotation=45, ha="right", rotation_mode="anchor")
        axes.set_yticks(np.arange(k) + 0.5, names)
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)

    side = 2.2 + 0.26 * k
    return plot("together", draw, table.names, (side, side))


def cell_style(share: float) -> tuple[float, str]:
    """Return the opacity of a square and the colour of the number in it.

    Opacities between 0.50 and 0.88 are left out: there, neither dark nor light numbers have a contrast of 4.5 to 1 in both
    colour schemes of the page.
    """
    if share < 0.5:
        return 0.06 + 0.88 * share, TEXT
    return 0.88 + 0.24 * (share - 0.5), PAPER


def _draw_cell(axes: Axes, i: int, j: int, share: float) -> None:
    """Draw a square whose opacity follows the share, with the share in per cent unless it rounds to zero."""
    opacity, colour = cell_style(share)
    axes.add_patch(Rectangle((j + 0.03, i + 0.03), 0.94, 0.94, facecolor=ACCENT, alpha=opacity, linewidth=0))
    if share >= 0.005:
        axes.text(j + 0.5, i + 0.53, f"{100 * share:.0f}", ha="center", va="center", color=colour, fontsize=7)
