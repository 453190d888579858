"""Audit the results: class balance before and after, groups, pairs of labels that were confused, and gold labels.

Nobody knows how many rows truly belong to a class, but the candidate sets give limits: at least the rows where it is the only
candidate, at most the rows where it is one of them. In between lies its even share: what it would get if every row were
divided equally among its candidates. A class that ends far below its even share, or with no row at all, may have been lost,
or it may have been a wrong candidate most of the time.
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
from oneof.report.plots import ACCENT, INK, LINE, PAPER, Drawing, placeholder, plot
from oneof.runs.purified import UNKNOWN, Purified

_SHRUNK = 0.5  # a class that keeps less than this part of its even share is flagged
_MAX_PLOTTED = 20  # classes in the plot: half of them the largest, half the smallest
_MAX_LISTED = 20  # classes in the table beside the plot: the smallest, since these are the ones that may vanish
_MAX_FOLDED = 200  # further classes, in a table that is folded
_MAX_PAIRS = 12
_MAX_GROUPS = 20
_MIN_EVEN_SHARE = 5  # rows of a class in a group, below which its absence there may well be chance
_N_BINS = 10  # of the calibration plot


def audit_classes(table: Purified, votes: Any = None) -> SimpleNamespace:
    """Compare each class that is a candidate somewhere with its even share, smallest even share first.

    With votes [n, c], the even share of a class is its share of the votes on each row.
    """
    row, label = table.original.nonzero()
    even_share = np.bincount(label, 1 / table.sizes[row], len(table.names)).astype(float)
    if votes is not None:
        per_row = np.maximum(np.asarray(votes.sum(1)).ravel(), 1e-12)
        even_share = np.asarray(votes.T @ (1 / per_row)).ravel()
    only_candidate = np.asarray(table.original[table.sizes == 1].sum(0))
    classes = []
    order = []
    for j in np.argsort(even_share, kind="stable").tolist():
        if not table.label_counts[j] or not even_share[j]:
            continue
        order.append(j)
        resolved = int(table.resolved[j])
        audited = SimpleNamespace(
            name=table.names[j],
            even_share=float(even_share[j]),
            resolved=resolved,
            change=float(resolved / even_share[j] - 1),
            min_rows=int(only_candidate[j]),
            max_rows=int(table.label_counts[j]),
            verdict=_verdict(resolved, even_share[j]),
        )
        classes.append(audited)
    plotted = order
    if len(order) > _MAX_PLOTTED:
        plotted = order[: _MAX_PLOTTED // 2] + order[-_MAX_PLOTTED // 2 :]
    return SimpleNamespace(
        classes=classes[:_MAX_LISTED],
        more=classes[_MAX_LISTED : _MAX_LISTED + _MAX_FOLDED],
        occurring=len(classes),
        gone=[audited.name for audited in classes if audited.verdict == "gone"],
        shrunk=[audited.name for audited in classes if audited.verdict == "shrunk"],
        drawing=_draw_balance(table, np.asarray(plotted), only_candidate, even_share),
        plotted=len(plotted),
    )


def _verdict(resolved: int, even_share: float) -> str:
    """Return "gone", "shrunk" or, for a class that needs no attention, an empty string."""
    if resolved == 0:
        return "gone"
    if resolved < _SHRUNK * even_share:
        return "shrunk"
    return ""


def _draw_balance(
    table: Purified, classes: NDArray[Any], only_candidate: NDArray[Any], even_share: NDArray[Any]
) -> Drawing:
    """Draw for each class a line over the possible numbers of rows, a ring at its even share and a dot at its result."""

    def draw(axes: Axes) -> None:
        height = np.arange(len(classes))
        axes.hlines(height, only_candidate[classes], table.label_counts[classes], color=LINE, linewidth=5)
        axes.plot(
            even_share[classes],
            height,
            "o",
            color=INK,
            markerfacecolor=PAPER,
            markersize=5.5,
            label="before: even share",
        )
        axes.plot(table.resolved[classes], height, "o", color=ACCENT, markersize=5.5, label="after: resolved")
        axes.set_yticks(height, [placeholder(label, table.names[label]) for label in classes])
        axes.set(xlabel="rows", xlim=(0, None), ylim=(-0.7, len(classes) - 0.3))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
        axes.grid(visible=False, axis="y")
        axes.spines["left"].set_visible(False)

    return plot("balance", draw, table.names, (4.8, 1.1 + 0.24 * len(classes)))


def count_pairs(table: Purified) -> list[SimpleNamespace]:
    """Count what became of the rows that have both labels of a pair, for the pairs that share most sets.

    Of each pair, the label that was chosen more often comes first.
    """
    shared_sets = triu(table.original.T @ table.original, k=1).tocoo()
    pairs = []
    for k in np.argsort(-shared_sets.data, kind="stable")[:_MAX_PAIRS]:
        pair = [int(shared_sets.row[k]), int(shared_sets.col[k])]
        rows = np.flatnonzero(np.asarray(table.original[:, pair].sum(1) == 2))
        settled = table.label[rows[~table.ask[rows]]]
        first, second = pair
        to_first = int((settled == first).sum())
        to_second = int((settled == second).sum())
        if to_second > to_first:
            first, second = second, first
            to_first, to_second = to_second, to_first
        counted = SimpleNamespace(
            first=table.names[first],
            second=table.names[second],
            together=len(rows),
            to_first=to_first,
            to_second=to_second,
            to_third=len(settled) - to_first - to_second,
            to_review=len(rows) - len(settled),
        )
        pairs.append(counted)
    return pairs


def audit_groups(table: Purified) -> SimpleNamespace | None:
    """Return the groups with the lowest mean probability and the classes missing from groups; None for a run without groups."""
    if "group" not in table.cells.column_names:
        return None
    encoded = pc.fill_null(table.cells["group"], "(none)").combine_chunks().dictionary_encode()
    names = encoded.dictionary.to_pylist()
    group = encoded.indices.to_numpy().astype(np.int64)
    mean_probability = np.bincount(group, table.probability) / np.bincount(group)
    shown = []
    for g in np.argsort(mean_probability, kind="stable")[:_MAX_GROUPS]:
        shown.append(_audit_group(table, names[g], group == g))
    return SimpleNamespace(shown=shown, total=len(names), missing=_missing_classes(table, names, group))


def _audit_group(table: Purified, name: str, members: NDArray[np.bool_]) -> SimpleNamespace:
    """Return the figures of one group, whose rows are `members` [n]."""
    has_gold = np.zeros_like(members)
    if table.gold is not None:
        has_gold = members & (table.gold != UNKNOWN)
    n_gold = int(has_gold.sum())
    right = int((has_gold & (table.label == table.gold)).sum())
    low = 0.0
    high = 1.0
    if n_gold:
        low, high = wilson(right, n_gold)
    return SimpleNamespace(
        name=name,
        rows=int(members.sum()),
        to_review=int((members & table.ask).sum()),
        probability=table.probability[members].mean(),
        before=float(table.sizes[members].mean()),  # candidates per row
        after=float(table.kept_sizes[members].mean()),
        gold=n_gold,
        right=right,
        low=low,  # 95 % interval of the share that is right
        high=high,
    )


def _missing_classes(table: Purified, names: list[str], group: NDArray[np.int64]) -> list[SimpleNamespace]:
    """Return the classes with a notable even share of a group's rows but none of its labels, largest share first.

    Only the pairs (group, class) that occur are counted, since there may be many groups and many classes.
    """
    c = len(table.names)
    row, label = table.original.nonzero()
    pairs, pair_index = np.unique(group[row] * c + label, return_inverse=True)
    even_share = np.bincount(pair_index, 1 / table.sizes[row])
    resolved_pairs = group * c + table.label
    missing = np.flatnonzero((even_share >= _MIN_EVEN_SHARE) & ~np.isin(pairs, resolved_pairs))
    largest_first = missing[np.argsort(-even_share[missing], kind="stable")]
    absent = []
    for k in largest_first[:_MAX_GROUPS]:
        g, j = divmod(pairs[k], c)
        absent.append(SimpleNamespace(label=table.names[j], group=names[g], even_share=float(even_share[k])))
    return absent


def compare_gold(table: Purified) -> SimpleNamespace | None:
    """Compare resolved labels and their probabilities with gold labels; None if there are no gold labels."""
    if table.gold is None:
        return None
    has_gold = table.gold != UNKNOWN
    if not has_gold.any():
        return None
    rows = np.flatnonzero(has_gold)
    gold = table.gold[rows]
    probability = table.probability[rows]
    right = table.label[rows] == gold
    was_candidate = np.asarray(table.original[rows, gold]).ravel() > 0
    is_candidate = np.asarray(table.kept[rows, gold]).ravel() > 0
    bin_index = np.minimum((probability * _N_BINS).astype(int), _N_BINS - 1)
    bins = []
    for k in np.unique(bin_index):
        in_bin = bin_index == k
        bins.append(_calibration_bin(probability[in_bin], right[in_bin]))
    weighted_errors = 0.0
    for each in bins:
        weighted_errors += each.rows * abs(each.predicted - each.observed)
    return SimpleNamespace(
        rows=len(rows),
        right=int(right.sum()),
        accuracy=float(right.mean()),
        measured=measure_labels(table.label == table.gold, has_gold),  # None unless some rows are a random sample
        outside=int((~was_candidate).sum()),
        removed=int((was_candidate & ~is_candidate).sum()),
        calibration_error=float(weighted_errors / len(rows)),
        bins=bins,
        drawing=_draw_calibration(bins),
    )


def _calibration_bin(probability: NDArray[np.float64], right: NDArray[np.bool_]) -> SimpleNamespace:
    """Return the mean predicted probability of a bin and the observed accuracy with its 95 % interval."""
    low, high = wilson(right.sum(), len(right))
    return SimpleNamespace(
        rows=len(right),
        predicted=float(probability.mean()),
        observed=float(right.mean()),
        low=float(low),
        high=float(high),
    )


def _draw_calibration(bins: list[SimpleNamespace]) -> Drawing:
    """Draw observed accuracy against predicted probability, with intervals and the number of rows in each bin."""

    def draw(axes: Axes) -> None:
        axes.plot([0, 1], [0, 1], color=INK, linewidth=1, linestyle=(0, (1, 3)))
        predicted = [each.predicted for each in bins]
        observed = [each.observed for each in bins]
        low = [each.low for each in bins]
        high = [each.high for each in bins]
        axes.vlines(predicted, low, high, color=ACCENT, alpha=0.35, linewidth=4)
        axes.plot(predicted, observed, "o", color=ACCENT, markersize=5.5)
        for each in bins:
            axes.annotate(
                f"{each.rows:,}",
                (each.predicted, each.low),
                xytext=(0, -9),
                textcoords="offset points",
                ha="center",
                fontsize=7,
            )
        axes.set(xlabel="probability of the resolved label", ylabel="share that is right")
        axes.set(xlim=(0, 1.02), ylim=(-0.09, 1.02))
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(PercentFormatter(1, decimals=0))

    return plot("calibration", draw, size=(4.6, 3.6))
