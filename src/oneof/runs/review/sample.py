"""How often the model's labels are right, by rows drawn at random: an exact interval, whatever else was decided meanwhile.

Rows are drawn in the order of `sample.csv`. The sample is its beginning, up to the last row that a person answered as a
random one; a row of it that was decided because it was hard counts as well, since chance put it there.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from oneof.runs.accuracy import drawn_rows, share_limits
from oneof.runs.review.log import Decision, verdicts


class Accuracy(NamedTuple):
    """The share of labels that are right, with its exact 95 % interval."""

    rows: int
    right: int
    unsure: int  # answers without a label: the interval allows that all are wrong, and that all are right
    low: float
    high: float


def drawn_order(n: int, taught: Iterable[int]) -> NDArray[np.intp]:
    """The rows that the run was not taught, in the random order in which any run of n rows draws them."""
    order = drawn_rows(n)
    return order[~np.isin(order, list(taught))]


def accuracy_of_labels(
    order: NDArray[np.intp], labels: Sequence[str], standing: Sequence[Decision], run: str = ""
) -> Accuracy | None:
    """How many of the run's labels are right, by the answers to its random sample; None before the first."""
    said = verdicts(standing)
    answered = {one.row for one in standing if one.drawn != "repeat"}
    at_random = [one.row for one in standing if one.drawn == "random" and one.run == run]
    places = np.flatnonzero(np.isin(order, at_random))
    if not len(places):
        return None
    sample = [int(row) for row in order[: places[-1] + 1] if int(row) in answered]
    found = [said[row].label if row in said else None for row in sample]
    unsure = sum(label is None for label in found)
    right = sum(label == labels[row] for label, row in zip(found, sample, strict=True))
    low = share_limits(right, len(sample))[0]
    return Accuracy(len(sample), right, unsure, low, share_limits(right + unsure, len(sample))[1])


def agreement(standing: Iterable[Decision]) -> tuple[int, int]:
    """Of the pairs of labels that a row got, by two people or by one at a blind repeat: how many are equal, and how many there are."""
    first: dict[int, Decision] = {}
    equal = pairs = 0
    for one in standing:
        if one.label is None:
            continue
        before = first.setdefault(one.row, one)
        if before is not one and (one.drawn == "repeat" or before.who != one.who):
            equal, pairs = equal + (before.label == one.label), pairs + 1
    return equal, pairs
