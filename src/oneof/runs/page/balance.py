"""What became of the classes: their balance before and after, which were erased, and which of two that stood together was taken.

Nobody knows how many rows of a class there are, but the sets bound it: at least the rows where it is the only candidate, at
most the rows where it is one. Between them lies its even share, where every set splits its row evenly among its labels. A class
that ends far below its even share, or with no row at all, may have been erased, or was rarely right to begin with.
"""

from types import SimpleNamespace

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray
from scipy.sparse import triu

from oneof.runs.page.plots import ACCENT, INK, LINE, PAPER, plot, stand_in
from oneof.runs.purified import Purified

_SHRUNK = 0.5  # of the even share: below it the audit names the class
_PLOTTED = 20  # classes in the plot: half of them the largest, half the smallest
_LISTED = 40  # classes in the table: the smallest, as it is these that may vanish
_PAIRS = 12


def audit_classes(table: Purified) -> SimpleNamespace:
    """Audit every class that is a candidate somewhere, smallest even share first."""
    row, label = table.original.nonzero()
    even = np.bincount(label, 1 / table.sizes[row], len(table.names)).astype(float)
    alone, held, after = np.asarray(table.original[table.sizes == 1].sum(0)), table.held, table.resolved
    order = [int(j) for j in np.argsort(even, kind="stable") if held[j]]
    verdict = np.where(after == 0, "gone", np.where(after < _SHRUNK * even, "shrunk", ""))
    classes = [
        SimpleNamespace(
            name=table.names[j],
            least=int(alone[j]),  # rows where it is the only candidate
            share=float(even[j]),  # rows, when every set is split evenly
            most=int(held[j]),  # rows where it is a candidate
            resolved=int(after[j]),
            change=float(after[j] / even[j] - 1),
            verdict=str(verdict[j]),
        )
        for j in order
    ]
    ends = order if len(order) <= _PLOTTED else order[: _PLOTTED // 2] + order[-_PLOTTED // 2 :]
    return SimpleNamespace(
        drawing=_draw(table, np.asarray(ends), alone, even),
        plotted=len(ends),
        classes=classes[:_LISTED],
        occurring=len(classes),
        gone=[each.name for each in classes if each.verdict == "gone"],
        shrunk=[each.name for each in classes if each.verdict == "shrunk"],
    )


def _draw(table: Purified, shown: NDArray[np.int64], alone: NDArray[np.int64], even: NDArray[np.float64]) -> Markup:
    """Per class a line from the least to the most rows it can have, a ring at the even share, a dot at what it got."""

    def draw(axes: Axes) -> None:
        at = np.arange(len(shown))
        axes.hlines(at, alone[shown], table.held[shown], color=LINE, linewidth=5)
        axes.plot(even[shown], at, "o", color=INK, markerfacecolor=PAPER, markersize=5.5, label="before: even share")
        axes.plot(table.resolved[shown], at, "o", color=ACCENT, markersize=5.5, label="after: resolved")
        axes.set_yticks(at, [stand_in(j, table.names[j]) for j in shown])
        axes.set(xlabel="rows", xlim=(0, None), ylim=(-0.7, len(shown) - 0.3))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
        axes.grid(visible=False, axis="y")
        axes.spines["left"].set_visible(False)

    says = "Rows of each class before and after; the table below has the numbers."
    return plot("balance", draw, says=says, labels=table.names, size=(4.8, 1.1 + 0.24 * len(shown)))


def count_pairs(table: Purified) -> list[SimpleNamespace]:
    """The pairs of labels that share most sets, most first, and which of them was taken."""
    together = triu(table.original.T @ table.original, k=1).tocoo()
    most = np.argsort(-together.data, kind="stable")[:_PAIRS]
    return [_pair(table, int(together.row[k]), int(together.col[k])) for k in most]


def _pair(table: Purified, one: int, other: int) -> SimpleNamespace:
    rows = np.flatnonzero(np.asarray(table.original[:, [one, other]].sum(1) == 2))
    settled = table.label[rows[~table.ask[rows]]]
    if (settled == other).sum() > (settled == one).sum():
        one, other = other, one  # the one that won more often comes first
    return SimpleNamespace(
        one=table.names[one],
        other=table.names[other],
        together=len(rows),
        to_one=int((settled == one).sum()),
        to_other=int((settled == other).sum()),
        elsewhere=int((~np.isin(settled, (one, other))).sum()),  # resolved to a third label
        open=len(rows) - len(settled),  # to ask about
    )
