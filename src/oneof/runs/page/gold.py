"""What the gold labels say, where a run has some: accuracy and calibration of the resolved labels. Nothing is said without them."""

from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray

from oneof.metrics import wilson
from oneof.runs.accuracy import random_sample, share_limits
from oneof.runs.page.plots import ACCENT, INK, plot
from oneof.runs.purified import NOBODY, Purified

_BINS = 10


class Gold(NamedTuple):
    """Resolved labels against gold labels."""

    rows: int
    right: int
    drawn: int  # of these rows were drawn at random; 0: a person chose which to label
    low: float  # of the share of all rows that were resolved rightly, by the drawn ones, 95 %
    high: float
    outside: int  # gold label not in the original set
    removed: int  # gold label in the original set, and removed
    error: float  # expected calibration error
    drawing: Markup

    @property
    def accuracy(self) -> float:
        """Share of gold rows that were resolved to their gold label."""
        return self.right / self.rows


def compare_gold(table: Purified) -> Gold | None:
    """Compare where there is a gold label; None where there is none."""
    if table.gold is None or not (known := table.gold != NOBODY).any():
        return None
    rows = np.flatnonzero(known)
    truth = table.gold[rows]
    right = table.label[rows] == truth
    at_first = np.asarray(table.original[rows, truth]).ravel() > 0
    at_last = np.asarray(table.kept[rows, truth]).ravel() > 0
    drawn = random_sample(np.where(known, table.gold, -1))[rows] >= 0
    low, high = share_limits(int(right[drawn].sum()), int(drawn.sum())) if drawn.any() else (0.0, 1.0)
    bins = _bins(table.probability[rows], right)
    return Gold(
        rows=len(rows),
        right=int(right.sum()),
        drawn=int(drawn.sum()),
        low=low,
        high=high,
        outside=int((~at_first).sum()),
        removed=int((at_first & ~at_last).sum()),
        error=float(sum(each.rows * abs(each.said - each.found) for each in bins) / len(rows)),
        drawing=_draw(bins),
    )


class _Bin(NamedTuple):
    rows: int
    said: float  # mean probability
    found: float  # share that was right
    low: float
    high: float


def _bins(probability: NDArray[np.float64], right: NDArray[np.bool_]) -> list[_Bin]:
    place = np.minimum((probability * _BINS).astype(int), _BINS - 1)
    found = []
    for k in np.unique(place):
        inside = place == k
        rows, hits = int(inside.sum()), int(right[inside].sum())
        found.append(_Bin(rows, float(probability[inside].mean()), hits / rows, *wilson(hits, rows)))
    return found


def _draw(bins: list[_Bin]) -> Markup:
    def draw(axes: Axes) -> None:
        axes.plot([0, 1], [0, 1], color=INK, linewidth=1, linestyle=(0, (1, 3)))
        said = [each.said for each in bins]
        low, high = [each.low for each in bins], [each.high for each in bins]
        axes.vlines(said, low, high, color=ACCENT, alpha=0.35, linewidth=4)
        axes.plot(said, [each.found for each in bins], "o", color=ACCENT, markersize=5.5)
        for each in bins:
            beside: dict[str, Any] = {"xytext": (0, -9), "textcoords": "offset points", "ha": "center", "fontsize": 7}
            axes.annotate(f"{each.rows:,}", (each.said, each.low), **beside)
        axes.set(xlabel="probability of the resolved label", ylabel="share that is right")
        axes.set(xlim=(0, 1.02), ylim=(-0.09, 1.02))
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(PercentFormatter(1, decimals=0))

    read = "; ".join(f"said {each.said:.0%}, right {each.found:.0%} of {each.rows:,}" for each in bins)
    return plot("calibration", draw, says=f"Calibration on gold labels: {read}.", size=(4.6, 3.6))
