"""What came out: the balance of classes before and after, what groups lost, which of two labels was taken, and what gold labels say.

Nobody knows how many rows of a class there are, but the sets bound it: at least the rows where it is the only candidate, at
most the rows where it is one. Between them lies its even share, where every set splits its row evenly among its labels. A class
that ends far below its even share, or with no row at all, may have been erased, or was rarely right to begin with.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.compute as pc
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, PercentFormatter
from numpy.typing import NDArray
from scipy.sparse import triu

from oneof.ensemble.accuracy import measure_labels
from oneof.metrics import wilson
from oneof.runs.page.plots import ACCENT, INK, LINE, PAPER, Drawing, plot, stand_in
from oneof.runs.purified import NOBODY, Purified

_SHRUNK = 0.5  # of the even share: below it the audit names the class
_PLOTTED = 20  # classes in the plot: half of them the largest, half the smallest
_LISTED = 40  # classes in the table: the smallest, as it is these that may vanish
_PAIRS = 12
_GROUPS = 20
_MISSED = 5  # even share of a class in a group above which it is missed
_BINS = 10  # of probabilities


def audit_classes(table: Purified) -> SimpleNamespace:
    """Audit every class that is a candidate somewhere, smallest even share first."""
    row, label = table.original.nonzero()
    even = np.bincount(label, 1 / table.sizes[row], len(table.names)).astype(float)
    alone, held, after = np.asarray(table.original[table.sizes == 1].sum(0)), table.held, table.resolved
    order = [int(j) for j in np.argsort(even, kind="stable") if held[j]]
    verdict = np.where(after == 0, "gone", np.where(after < _SHRUNK * even, "shrunk", ""))
    classes = [
        SimpleNamespace(
            name=table.names[j], share=float(even[j]), resolved=int(after[j]), change=float(after[j] / even[j] - 1),
            least=int(alone[j]), most=int(held[j]),  # rows where it is the only candidate, and where it is one
            verdict=str(verdict[j]),
        )
        for j in order
    ]  # fmt: skip
    ends = order if len(order) <= _PLOTTED else order[: _PLOTTED // 2] + order[-_PLOTTED // 2 :]
    named = {kind: [each.name for each in classes if each.verdict == kind] for kind in ("gone", "shrunk")}
    drawn = {"drawing": _draw_balance(table, np.asarray(ends), alone, even), "plotted": len(ends)}
    return SimpleNamespace(classes=classes[:_LISTED], occurring=len(classes), **drawn, **named)


def _draw_balance(table: Purified, shown: NDArray[Any], alone: NDArray[Any], even: NDArray[Any]) -> Drawing:
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

    return plot("balance", draw, table.names, (4.8, 1.1 + 0.24 * len(shown)))


def count_pairs(table: Purified) -> list[SimpleNamespace]:
    """The pairs of labels that share most sets, most first, and which of them was taken; the one that won more often comes first."""
    together, pairs = triu(table.original.T @ table.original, k=1).tocoo(), []
    for k in np.argsort(-together.data, kind="stable")[:_PAIRS]:
        both = [int(together.row[k]), int(together.col[k])]
        rows = np.flatnonzero(np.asarray(table.original[:, both].sum(1) == 2))
        settled = table.label[rows[~table.ask[rows]]]
        one, other = sorted(both, key=lambda label: -(settled == label).sum())
        taken = {"to_one": int((settled == one).sum()), "to_other": int((settled == other).sum())}
        third, asked = len(settled) - sum(taken.values()), len(rows) - len(settled)
        names = {"one": table.names[one], "other": table.names[other]}
        pairs.append(SimpleNamespace(**names, together=len(rows), **taken, elsewhere=third, open=asked))
    return pairs


def audit_groups(table: Purified) -> SimpleNamespace | None:
    """The groups with the least mean probability, and the classes that groups lost; None for a run without groups."""
    if "group" not in table.cells.column_names:
        return None
    encoded = pc.fill_null(table.cells["group"], "(none)").combine_chunks().dictionary_encode()
    names, place = encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)
    mean = np.bincount(place, table.probability) / np.bincount(place)
    shown = [_group(table, names[g], place == g) for g in np.argsort(mean, kind="stable")[:_GROUPS]]
    return SimpleNamespace(shown=shown, total=len(names), lost=_lost(table, names, place))


def _group(table: Purified, name: str, own: NDArray[np.bool_]) -> SimpleNamespace:
    known = own & (table.gold != NOBODY) if table.gold is not None else np.zeros_like(own)
    right = int((known & (table.label == table.gold)).sum())
    low, high = wilson(right, int(known.sum())) if known.any() else (0.0, 1.0)
    return SimpleNamespace(
        name=name, rows=int(own.sum()), asked=int((own & table.ask).sum()), probability=table.probability[own].mean(),
        before=float(table.sizes[own].mean()), after=float(table.kept_sizes[own].mean()),  # labels per set
        gold=int(known.sum()), right=right, low=low, high=high,  # with gold labels; the share that is right, 95 %
    )  # fmt: skip


def _lost(table: Purified, names: list[str], place: NDArray[np.int64]) -> list[SimpleNamespace]:
    """Classes that had an even share of some rows in a group, and were given none of them, largest share first.

    Cells (group, class) are counted where they occur, since both may be many.
    """
    c = len(table.names)
    row, label = table.original.nonzero()
    cells, at = np.unique(place[row] * c + label, return_inverse=True)
    even = np.bincount(at, 1 / table.sizes[row])
    lost = np.flatnonzero((even >= _MISSED) & ~np.isin(cells, place * c + table.label))
    worst = lost[np.argsort(-even[lost], kind="stable")][:_GROUPS]
    found = ((*divmod(cells[k], c), float(even[k])) for k in worst)
    return [SimpleNamespace(label=table.names[j], group=names[group], share=share) for group, j, share in found]


def compare_gold(table: Purified) -> SimpleNamespace | None:
    """Resolved labels against gold labels; None where there is none."""
    if table.gold is None or not (known := table.gold != NOBODY).any():
        return None
    rows = np.flatnonzero(known)
    truth = table.gold[rows]
    right = table.label[rows] == truth
    at_first, at_last = (np.asarray(sets[rows, truth]).ravel() > 0 for sets in (table.original, table.kept))
    measured = measure_labels(table.label == table.gold, known)
    place = np.minimum((table.probability[rows] * _BINS).astype(int), _BINS - 1)
    bins = [_bin(table.probability[rows][place == k], right[place == k]) for k in np.unique(place)]
    return SimpleNamespace(
        rows=len(rows), right=int(right.sum()), accuracy=float(right.mean()), drawing=_draw_calibration(bins), bins=bins,
        measured=measured,  # by rows drawn at random; None where there is no such sample
        outside=int((~at_first).sum()), removed=int((at_first & ~at_last).sum()),  # from the set
        error=float(sum(each.rows * abs(each.said - each.found) for each in bins) / len(rows)),  # of calibration
    )  # fmt: skip


def _bin(probability: NDArray[np.float64], right: NDArray[np.bool_]) -> SimpleNamespace:
    """Rows of about one probability: its mean `said`, and the share `found` to be right, with its interval."""
    low, high = wilson(right.sum(), len(right))
    said, found = float(probability.mean()), float(right.mean())
    return SimpleNamespace(rows=len(right), said=said, found=found, low=float(low), high=float(high))


def _draw_calibration(bins: list[SimpleNamespace]) -> Drawing:
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

    return plot("calibration", draw, size=(4.6, 3.6))
