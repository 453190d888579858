"""Summarise the input: the use of each column, the sizes of the candidate sets, and which labels occur together."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from oneof.report.heat_map import draw_heat_map
from oneof.report.plots import ACCENT, Drawing, plot
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
        size_histogram=draw_sizes(rows_by_size),
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


def draw_sizes(rows_by_size: NDArray[Any], unit: str = "candidates per row") -> Drawing:
    """Draw a histogram of the sizes of the sets."""

    def draw(axes: Axes) -> None:
        axes.bar(range(len(rows_by_size)), rows_by_size, width=0.75, color=ACCENT, alpha=0.85)
        axes.set(xlabel=unit, ylabel="rows", xlim=(0.4, max(len(rows_by_size), 5) - 0.4))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,.0f}"))
        axes.grid(visible=False, axis="x")

    return plot("sizes", draw)


def _draw_cooccurrence(table: Purified, labels: NDArray[np.int64]) -> Drawing:
    """Draw how often the sets with one label (row) also contain another (column), in per cent."""
    columns: Any = table.original[:, labels]
    counts = np.asarray((columns.T @ columns).todense())
    share = counts / np.maximum(counts.diagonal(), 1)[:, None]
    return draw_heat_map("together", share, labels, table.names)
