"""Draw a square table of shares as a map, with readable numbers in both colour schemes of the page."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from oneof.report.plots import ACCENT, PAPER, TEXT, Drawing, placeholder, plot


def draw_heat_map(
    name: str,
    shares: NDArray[np.float64],
    labels: NDArray[np.int64],
    names: Sequence[str],
    *,
    diagonal: bool = False,
) -> Drawing:
    """Draw shares [k, k] of k labels, in per cent.

    Parameters
    ----------
    name : str
        Prefix of the ids in the SVG.
    shares : array [k, k]
        Shares from 0 to 1.
    labels : array [k]
        The indices of the labels in `names`.
    names : sequence of str
        The names of all labels.
    diagonal : bool
        Whether the diagonal is drawn.
    """
    k = len(labels)

    def draw(axes: Axes) -> None:
        for i in range(k):
            for j in range(k):
                if i != j or diagonal:
                    _draw_cell(axes, i, j, float(shares[i, j]))
        texts = [placeholder(label, names[label]) for label in labels]
        axes.set(xlim=(0, k), ylim=(k, 0), aspect="equal")
        axes.set_xticks(np.arange(k) + 0.5, texts, rotation=45, ha="right", rotation_mode="anchor")
        axes.set_yticks(np.arange(k) + 0.5, texts)
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)

    side = 2.2 + 0.26 * k
    return plot(name, draw, names, (side, side))


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
