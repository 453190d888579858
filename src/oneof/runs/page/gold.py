"""What the gold labels say, where a run has some: accuracy and calibration of the resolved labels. Nothing is said without them."""

from types import SimpleNamespace
from typing import Any

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


def compare_gold(table: Purified) -> SimpleNamespace | None:
    """Resolved labels against gold labels; None where there is none."""
    if table.gold is None or not (known := table.gold != NOBODY).any():
        return None
    rows = np.flatnonzero(known)
    truth = table.gold[rows]
    right = table.label[rows] == truth
    at_first, at_last = (np.asarray(sets[rows, truth]).ravel() > 0 for sets in (table.original, table.kept))
    drawn = random_sample(np.where(known, table.gold, -1))[rows] >= 0
    low, high = share_limits(int(right[drawn].sum()), int(drawn.sum())) if drawn.any() else (0.0, 1.0)
    bins = _bins(table.probability[rows], right)
    return SimpleNamespace(
        rows=len(rows),
        right=int(right.sum()),
        accuracy=float(right.mean()),
        drawn=int(drawn.sum()),  # of these rows were drawn at random; 0: a person chose which to label
        low=low,  # of the share of all rows that were resolved rightly, by the drawn ones, 95 %
        high=high,
        outside=int((~at_first).sum()),  # gold label not in the original set
        removed=int((at_first & ~at_last).sum()),  # gold label in the original set, and removed
        error=float(sum(each.rows * abs(each.said - each.found) for each in bins) / len(rows)),  # of calibration
        drawing=_draw(bins),
    )


def _bins(probability: NDArray[np.float64], right: NDArray[np.bool_]) -> list[SimpleNamespace]:
    """The mean probability `said` and the share `found` to be right, with its interval, of rows with about one probability."""
    place, bins = np.minimum((probability * _BINS).astype(int), _BINS - 1), []
    for k in np.unique(place):
        inside = place == k
        low, high = wilson(right[inside].sum(), inside.sum())
        said, found = float(probability[inside].mean()), float(right[inside].mean())
        bins.append(SimpleNamespace(rows=int(inside.sum()), said=said, found=found, low=float(low), high=float(high)))
    return bins


def _draw(bins: list[SimpleNamespace]) -> Markup:
    def draw(axes: Axes) -> None:
        axes.plot([0, 1], [0, 1], color=INK, linewidth=1, linestyle=(0, (1, 3)))
        said, found, low, high = ([getattr(each, name) for each in bins] for name in ("said", "found", "low", "high"))
        axes.vlines(said, low, high, color=ACCENT, alpha=0.35, linewidth=4)
        axes.plot(said, found, "o", color=ACCENT, markersize=5.5)
        beside: dict[str, Any] = {"xytext": (0, -9), "textcoords": "offset points", "ha": "center", "fontsize": 7}
        for each in bins:
            axes.annotate(f"{each.rows:,}", (each.said, each.low), **beside)
        axes.set(xlabel="probability of the resolved label", ylabel="share that is right")
        axes.set(xlim=(0, 1.02), ylim=(-0.09, 1.02))
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(PercentFormatter(1, decimals=0))

    read = "; ".join(f"said {each.said:.0%}, right {each.found:.0%} of {each.rows:,}" for each in bins)
    return plot("calibration", draw, says=f"Calibration on gold labels: {read}.", size=(4.6, 3.6))
