"""What came in: what each column became, how large the sets were, and which labels stood in them together."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from oneof.runs.page.plots import ACCENT, INK, PAPER, Drawing, plot, stand_in
from oneof.runs.purified import Purified

_LARGEST = 14  # labels in the map of co-occurrence
_MAX_COLUMNS = 60  # in the list of columns


def look_at_sets(table: Purified) -> SimpleNamespace:
    """Numbers and plots of the original sets."""
    sizes, labels = table.sizes, len(table.names)
    rows = np.bincount(sizes)
    counted = [(size, count) for size, count in enumerate(rows[:20].tolist()) if count]
    shown = np.argsort(-table.held, kind="stable")[:_LARGEST]
    singletons, full = int((sizes == 1).sum()), int((sizes == labels).sum())
    drawn = {"sizes": _sizes(rows), "counted": counted, "together": _map(table, shown), "mapped": len(shown)}
    return SimpleNamespace(average=float(sizes.mean()), singletons=singletons, full=full, labels=labels, **drawn)


def list_columns(columns: Mapping[str, Mapping[str, str]]) -> SimpleNamespace:
    """Return what each column became and why, at most _MAX_COLUMNS of them: plain numbers, which need no word, come last."""
    in_order = sorted(columns, key=lambda name: columns[name]["use"] == "number")
    shown = [(name, columns[name]["use"], columns[name]["reason"]) for name in in_order[:_MAX_COLUMNS]]
    return SimpleNamespace(shown=shown, total=len(columns))


def _sizes(rows: NDArray[np.int64]) -> Drawing:
    def draw(axes: Axes) -> None:
        axes.bar(range(len(rows)), rows, width=0.75, color=ACCENT, alpha=0.85)
        axes.set(xlabel="labels in the set", ylabel="rows", xlim=(0.4, max(len(rows), 5) - 0.4))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,.0f}"))
        axes.grid(visible=False, axis="x")

    return plot("sizes", draw)


def _map(table: Purified, shown: NDArray[np.int64]) -> Drawing:
    columns: Any = table.original[:, shown]
    together = np.asarray((columns.T @ columns).todense())
    share = together / np.maximum(together.diagonal(), 1)[:, None]

    def draw(axes: Axes) -> None:
        k = len(shown)
        for i, j in zip(*np.nonzero(~np.eye(k, dtype=bool)), strict=True):
            strength = 0.06 + 0.94 * float(share[i, j])  # a square as strong as the share, with its hundredths
            axes.add_patch(Rectangle((j + 0.03, i + 0.03), 0.94, 0.94, facecolor=ACCENT, alpha=strength, linewidth=0))
            if share[i, j] >= 0.005:
                colour, number = PAPER if share[i, j] > 0.5 else INK, f"{100 * share[i, j]:.0f}"
                axes.text(j + 0.5, i + 0.53, number, ha="center", va="center", color=colour, fontsize=7)
        names = [stand_in(j, table.names[j]) for j in shown]
        axes.set(xlim=(0, k), ylim=(k, 0), aspect="equal")
        axes.set_xticks(np.arange(k) + 0.5, names, rotation=45, ha="right", rotation_mode="anchor")
        axes.set_yticks(np.arange(k) + 0.5, names)
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)

    side = 2.2 + 0.26 * len(shown)
    return plot("together", draw, table.names, (side, side))
