"""Guess which columns hold annotators' answers, or the label of a vote, where no option names them."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from oneof.votes.final_answer import final_answer
from oneof.votes.free_text import fold, meaning_of

_MAX_DISTINCT = 0.5  # of the rows: a column with more distinct values than this share is not taken for an annotator's
_MIN_ROWS = 20  # of a table in which the share above says anything
_MIN_SHARED = 0.5  # of its distinct values that an annotator's column must share with the other annotators' columns
_MIN_MEANINGS = 0.6  # of its distinct values that must name one of the given classes
_MAX_SAMPLED_VALUES = 200  # distinct values of a column that are looked at
_MAX_SUM_ERROR = 0.02  # of a row of probabilities, or of the usual sum of a row of counts
_MIN_CONSTANT_SUMS = 0.95  # of the rows: what tells counts of labels from labels that are numbers

TRUTH_NAMES = {
    "gold", "gold_label", "truth", "true_label", "ground_truth", "groundtruth", "target", "y_true", "y", "label", "consensus",
    "majority", "majority_vote", "final", "final_label", "adjudicated",
}  # fmt: skip
"""Names of columns that hold true or agreed labels, so that they are not taken for annotators."""

_NOT_LABELS = {
    "created_at", "updated_at", "lead_time", "annotation_id", "timestamp", "time", "date", "duration", "seconds", "agreement",
    "confidence", "score", "cost", "tokens", "latency",
}  # fmt: skip


class WideColumns(NamedTuple):
    """The columns of a wide table that are taken for annotators'."""

    annotators: list[str]
    truth: list[str]  # columns with the same labels, whose names say that they hold the truth


def annotator_columns(
    values: Mapping[str, set[str]], n_rows: Mapping[str, int], classes: Sequence[str] | None
) -> WideColumns:
    """Return the columns whose values are labels: of the given classes, or such as other columns have too.

    `values` are the distinct values of each column. Two columns are needed, or none is taken.
    """
    labels_of: dict[str, set[str]] = {}
    for name, distinct in values.items():
        labels = _labels_in(distinct, n_rows[name], classes)
        if labels:
            labels_of[name] = labels
    annotators = []
    truth = []
    for name in _largest_group(labels_of):
        if name.casefold() in TRUTH_NAMES:
            truth.append(name)
        else:
            annotators.append(name)
    if len(annotators) < 2:
        return WideColumns([], [])
    return WideColumns(annotators, truth)


def _labels_in(distinct: set[str], n_rows: int, classes: Sequence[str] | None) -> set[str]:
    """Return the labels, in one spelling each, that a column of these distinct values may hold; none if they are too many or unknown."""
    sample = list(islice(distinct, _MAX_SAMPLED_VALUES))
    if classes is not None:
        n_named = sum(meaning_of(text, classes) is not None for text in sample)
        if sample and n_named >= _MIN_MEANINGS * len(sample):
            return {fold(label) for label in classes}
        return set()
    labels = {fold(final_answer(text)) for text in sample}
    n_sampled = n_rows
    if len(distinct) > _MAX_SAMPLED_VALUES:
        n_sampled = min(n_rows, _MAX_SAMPLED_VALUES)
    if n_sampled >= _MIN_ROWS and len(labels) > _MAX_DISTINCT * n_sampled:
        return set()
    return labels


def _largest_group(labels_of: Mapping[str, set[str]]) -> list[str]:
    """Return the largest group of columns that share most of their labels with the others of the group."""
    members = max(_groups(labels_of), key=len, default=[])
    is_member = {}
    for name in members:
        others: set[str] = set()
        for other in members:
            if other != name:
                others |= labels_of[other]
        n_shared = len(labels_of[name] & others)
        is_member[name] = n_shared >= _MIN_SHARED * len(labels_of[name])
    return [name for name in labels_of if is_member.get(name, False)]


def _groups(labels_of: Mapping[str, set[str]]) -> list[list[str]]:
    """Return groups of columns such that any two which share labels are in the same group."""
    groups: list[list[str]] = []
    for name, labels in labels_of.items():
        joined = [name]
        apart = []
        for group in groups:
            if any(_share_labels(labels, labels_of[member]) for member in group):
                joined = [*group, *joined]
            else:
                apart.append(group)
        groups = [*apart, joined]
    return groups


def _share_labels(first: set[str], second: set[str]) -> bool:
    """Return whether half of the labels of the column with fewer are in the other."""
    return 2 * len(first & second) >= min(len(first), len(second))


def are_counts(rows: Iterable[Sequence[float | None]]) -> bool:
    """Return whether rows of numbers, a column per label, are counts or probabilities: nearly all have the same positive sum."""
    sums = []
    has_several_values = False
    for row in rows:
        numbers = [value or 0.0 for value in row]
        if min(numbers) < 0:
            return False
        sums.append(sum(numbers))
        has_several_values = has_several_values or len(set(numbers)) > 1
    if not sums or not has_several_values:
        return False
    usual = sorted(sums)[len(sums) // 2]
    n_usual = sum(abs(total - usual) <= _MAX_SUM_ERROR * usual for total in sums)
    return usual > 0 and n_usual >= _MIN_CONSTANT_SUMS * len(sums)


def label_columns(items: Sequence[Any], columns: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return the columns of a long table that may hold the label: few values, which differ between votes on one item."""
    candidates = []
    for name, cells in columns.items():
        if name.casefold() in _NOT_LABELS:
            continue
        texts = [_cell_text(cell) for cell in cells]
        distinct = set(texts) - {""}
        has_few_values = len(texts) < _MIN_ROWS or len(distinct) <= _MAX_DISTINCT * len(texts)
        if len(distinct) < 2 or len(distinct) == len(texts) or not has_few_values:
            continue
        if _differ_within_items(items, texts):
            candidates.append(name)
    return candidates


def _cell_text(cell: Any) -> str:
    return "" if cell is None else str(cell)


def _differ_within_items(items: Sequence[Any], texts: Sequence[str]) -> bool:
    """Return whether two rows of one item have different texts."""
    pairs = set(zip(items, texts, strict=True))
    return len(pairs) > len(set(items))
