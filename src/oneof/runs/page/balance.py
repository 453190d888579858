"""Class balance before and after, and the audit: did purification erase a class?

Nobody knows how many rows of a class there are, but the sets bound it: at least the rows where it is the only candidate, at
most the rows where it is one. Between them lies its even share, where every set splits its row evenly among its labels. A class
that ends far below its even share, or with no row at all, may have been erased, or was rarely right to begin with.
"""

from typing import NamedTuple

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from oneof.runs.page.plots import ACCENT, INK, LINE, PAPER, plot, stand_in
from oneof.runs.purified import Purified

_SHRUNK = 0.5  # of the even share: below it the audit names the class
_PLOTTED = 20  # classes in the plot: half of them the largest, half the smallest
_LISTED = 40  # classes in the table: the smallest, as it is these that may vanish


class Class(NamedTuple):
    """One line of the audit."""

    name: str
    least: int  # rows where it is the only candidate
    share: float  # rows, when every set is split evenly
    most: int  # rows where it is a candidate
    resolved: int
    verdict: str  # "gone", "shrunk" or ""

    @property
    def change(self) -> float:
        """Rows after, relative to the even share."""
        return self.resolved / self.share - 1 if self.share else 0.0


class Balance(NamedTuple):
    """The classes that occur, smallest even share first."""

    drawing: Markup
    plotted: int
    classes: list[Class]  # at most _LISTED of them
    occurring: int
    gone: list[str]
    shrunk: list[str]


def audit_classes(table: Purified) -> Balance:
    """Audit every class that is a candidate somewhere."""
    alone = table.original[table.sizes == 1].sum(0)
    share = (1 / table.sizes[table.original.nonzero()[0]]).astype(float)
    even = np.asarray(np.bincount(table.original.nonzero()[1], share, len(table.names)), dtype=np.float64)
    held, after = table.held, table.resolved
    order = [int(j) for j in np.argsort(even, kind="stable") if held[j]]
    verdict = np.where(after == 0, "gone", np.where(after < _SHRUNK * even, "shrunk", ""))
    classes = [
        Class(table.names[j], int(alone[j]), float(even[j]), int(held[j]), int(after[j]), str(verdict[j]))
        for j in order
    ]
    ends = order if len(order) <= _PLOTTED else order[: _PLOTTED // 2] + order[-_PLOTTED // 2 :]
    return Balance(
        drawing=_draw(table, np.asarray(ends), np.asarray(alone), even),
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
