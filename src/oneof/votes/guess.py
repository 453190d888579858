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
_SAMPLE = 200  # distinct values of a column that are looked at, where there are many
_MAX_SUM_ERROR = 0.02  # of a row of probabilities, or of the usual sum of a row of counts
_MIN_CONSTANT_SUMS = 0.95  # of the rows: what tells counts of labels from labels that are numbers

TRUTH_NAMES = {
    "gold", "gold_label", "truth", "true_label", "ground_truth", "groundtruth", "target", "y_true", "y", "label", "consensus",
    "majority", "majority_vote", "final", "final_label", "adjudicated",
}  # fmt: skip
"""Names of columns that hold true or agreed labels, so that they are no annotator beside others."""

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
        sample = list(islice(distinct, _SAMPLE))
        if classes is not None:
            n_named = sum(meaning_of(text, classes) is not None for text in sample)
            if sample and n_named >= _MIN_MEANINGS * len(sample):
                labels_of[name] = {fold(label) for label in classes}
            continue
        labels = {fold(final_answer(text)) for text in sample}
        n_seen = min(n_rows[name], len(sample)) if len(distinct) > _SAMPLE else n_rows[name]
        has_few_labels = n_seen < _MIN_ROWS or len(labels) <= _MAX_DISTINCT * n_seen
        if sample and has_few_labels:
            labels_of[name] = labels
    group = _largest_group(labels_of)
    truth = [name for name in group if name.casefold() in TRUTH_NAMES]
    annotators = [name for name in group if name not in truth]
    return WideColumns(annotators, truth) if len(annotators) > 1 else WideColumns([], [])


def _largest_group(labels_of: Mapping[str, set[str]]) -> list[str]:
    """Return the largest group of columns that share most of their labels with the others of the group."""
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
    members: list[str] = max(groups, key=len, default=[])
    kept = []
    for name in members:
        others: set[str] = set()
        for other in members:
            if other != name:
                others |= labels_of[other]
        if len(labels_of[name] & others) >= _MIN_SHARED * len(labels_of[name]):
            kept.append(name)
    return [name for name in labels_of if name in kept]


def _share_labels(first: set[str], second: set[str]) -> bool:
    """Return whether half of the labels of the column with fewer are in the other."""
    return 2 * len(first & second) >= min(len(first), len(second))


def are_counts(rows: Iterable[Sequence[float | None]]) -> bool:
    """Return whether rows of numbers, a column per label, are counts or probabilities: nearly all have the same positive sum."""
    sums = []
    has_several_values = False
    for row in rows:
        numbers = [0.0 if value is None else value for value in row]
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
    found = []
    for name, cells in columns.items():
        if name.casefold() in _NOT_LABELS:
            continue
        texts = ["" if cell is None else str(cell) for cell in cells]
        distinct = set(texts) - {""}
        has_few_values = len(texts) < _MIN_ROWS or len(distinct) <= _MAX_DISTINCT * len(texts)
        if len(distinct) < 2 or len(distinct) == len(texts) or not has_few_values:
            continue
        first_of: dict[Any, str] = {}
        differs = False
        for item, text in zip(items, texts, strict=True):
            differs = differs or first_of.setdefault(item, text) != text
        if differs:
            found.append(name)
    return found
