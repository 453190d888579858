"""Estimate how many of a run's labels are right, and how far people agree, from what they decided.

The accuracy follows from rows drawn at random, in the order of `sample.csv`, with an exact interval, whatever else was decided.
The sample is the beginning of that order, up to the last row that a person answered as a random one. A row in it that was decided
because it was doubtful counts as well, since chance put it there.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from oneof.ensemble.accuracy import binomial_interval, sample_order
from oneof.review.ports import run_id
from oneof.runs.decisions import Decision, gold_decisions, resolve_decisions
from oneof.runs.folder import Run


class Accuracy(NamedTuple):
    """The share of labels that are right, with its exact 95 % interval."""

    rows: int
    right: int
    unsure: int  # answers without a label: the interval allows that all are wrong, and that all are right
    low: float
    high: float


def accuracy_of_labels(
    order: NDArray[np.intp], labels: Sequence[str], decisions: Sequence[Decision], run: str = ""
) -> Accuracy | None:
    """Estimate how many labels are right, from the answers about a random sample; None if there are none.

    Parameters
    ----------
    order : array
        Rows in random order.
    labels : sequence [n]
        The labels to judge.
    decisions : sequence of Decision
        All active decisions.
    run : str
        The run whose random rows count; those drawn for another run are no sample of this order.
    """
    resolved = resolve_decisions(decisions)
    answered = {decision.row for decision in decisions if decision.drawn != "repeat"}
    random_rows = []
    for decision in decisions:
        if decision.drawn == "random" and decision.run == run:
            random_rows.append(decision.row)
    positions = np.flatnonzero(np.isin(order, random_rows))
    if not len(positions):
        return None
    beginning = order[: positions[-1] + 1].tolist()
    sample = [row for row in beginning if row in answered]
    right = 0
    unsure = 0
    for row in sample:
        if row not in resolved or resolved[row].label is None:
            unsure += 1
        elif resolved[row].label == labels[row]:
            right += 1
    low, _ = binomial_interval(right, len(sample))
    _, high = binomial_interval(right + unsure, len(sample))
    return Accuracy(len(sample), right, unsure, low, high)


def audit_order(run: Run) -> NDArray[np.intp]:
    """Return the rows whose labels a run was not given, in random order: the rows to measure its labels by."""
    order = sample_order(run.metadata["n"])
    known = [*gold_decisions(run.purified), *run.metadata.get("taught", ())]
    return np.asarray(order[~np.isin(order, known)])


def accuracy_in_review(run: Run) -> Accuracy | None:
    """Estimate how many labels of a run are right, by what people answered in its review; None if nobody did."""
    decisions = run.log.active_decisions
    if not decisions:
        return None
    return accuracy_of_labels(audit_order(run), run.purified["label"].to_pylist(), decisions, run_id(run.folder))


def accuracy_curve_point(
    order: NDArray[np.intp], labels: Sequence[str], decisions: Sequence[Decision], run: str
) -> tuple[int, float, float, float]:
    """Return the number of decisions, and the accuracy of the labels as these left them with its interval."""
    corrected = list(labels)
    for decision in decisions:
        if decision.drawn == "queue" and decision.label:
            corrected[decision.row] = decision.label
    estimate = accuracy_of_labels(order, corrected, decisions, run)
    limits = (0.5, 0.0, 1.0)
    if estimate is not None:
        limits = (estimate.right / estimate.rows, estimate.low, estimate.high)
    share_estimated = len(order) / len(labels)  # the other rows were trained on with the right label
    value, low, high = [1 - share_estimated * (1 - share) for share in limits]
    return len(decisions), value, low, high


def agreement(decisions: Iterable[Decision]) -> tuple[int, int]:
    """Count the second labels of rows, by another person or at a blind repeat: how many equal the first, and how many there are."""
    first_by_row: dict[int, Decision] = {}
    n_equal = 0
    n_pairs = 0
    for decision in decisions:
        if decision.label is None:
            continue
        first = first_by_row.setdefault(decision.row, decision)
        if first is decision:
            continue
        if decision.drawn == "repeat" or first.who != decision.who:
            n_pairs += 1
            n_equal += first.label == decision.label
    return n_equal, n_pairs
