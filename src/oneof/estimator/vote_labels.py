"""Resolve votes, and features where there are any, into one label per item: `oneof.votes.resolve`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oneof.candidates.mask import Candidates
from oneof.data.dataset import Dataset
from oneof.data.encode import Encoding
from oneof.ensemble.resolve import resolve_labels
from oneof.ensemble.votes_alone import decided_by_votes
from oneof.ensemble.with_votes import dataset_with_votes
from oneof.estimator.classifier import PartialLabelClassifier
from oneof.estimator.votes import read_and_log, split_items
from oneof.learners.base import Predictions
from oneof.learners.config import EnsembleConfig
from oneof.votes.ballots import Votes


class VoteLabels(NamedTuple):
    """The labels of n items, and what is known about the annotators."""

    items: list[Any]  # [n] ids: of the votes, or of the rows of X
    labels: NDArray[Any]  # [n]
    probabilities: NDArray[np.float64]  # [n] of the labels
    distribution: NDArray[np.float64]  # [n, c] of all labels
    classes: list[str]  # [c]
    annotators: list[dict[str, Any]]  # name, number of votes and accuracy, most votes first


def resolve(source: Any, X: Any = None, *, items: Any = None, seed: int = 0, **settings: Any) -> VoteLabels:
    """Return the most probable label of every item, as `oneof fit --votes` finds it.

    Parameters
    ----------
    source
        Votes, or anything that `read_votes` reads: a frame with the columns `item`, `annotator` and `label`, a file, a wide table.
    X
        Features of the items, as for `PartialLabelClassifier.fit`, which learns from them and from the votes. None: the votes alone decide.
    items
        With X: the item of each row, or the name of the column that holds it. None: the column `item` of a frame, else the
        index of a pandas frame, else the numbers of the rows.
    seed
        Seed of all random choices.
    settings
        How to read the votes: fields of `oneof.votes.read.VotesFile`, such as `label`, `classes` or `normalise`.

    Returns
    -------
    VoteLabels
        In the order of the rows of X, or without X in the order in which items first appear in the votes.

    Examples
    --------
    >>> import pyarrow as pa
    >>> rows = [(i, a, "cat" if (i + (a == "z")) % 2 else "dog") for i in range(6) for a in "wxyz"]
    >>> item, annotator, label = zip(*rows)
    >>> resolved = resolve(pa.table({"item": item, "annotator": annotator, "label": label}))
    >>> resolved.labels.tolist()
    ['dog', 'cat', 'dog', 'cat', 'dog', 'cat']
    """
    ids = None
    if X is not None:
        _, ids = split_items(X, items)
    votes = read_and_log(source, rows_are_numbered=X is not None and ids is None, **settings)
    if X is None:
        if items is not None:
            raise ValueError("items must be left out without X, whose rows they are. Pass X, or drop items.")
        return _resolve_alone(votes, seed)
    fitted = PartialLabelClassifier(random_state=seed).fit(X, votes=votes, items=items)
    if ids is None:
        ids = list(range(len(fitted.transduction_)))
    return VoteLabels(
        items=ids,
        labels=fitted.transduction_,
        probabilities=np.asarray(fitted.label_probability_, dtype=np.float64),
        distribution=fitted.label_distributions_,
        classes=[str(name) for name in fitted.classes_],
        annotators=fitted.annotators_,
    )


def _resolve_alone(votes: Votes, seed: int) -> VoteLabels:
    """Return the labels by the votes alone, of items in the order in which they first appear."""
    n = len(votes.items)
    c = len(votes.labels)
    every_label = Candidates(np.ones((n, c), dtype=bool), np.array(votes.labels))
    data = Dataset.build(np.zeros((n, 0)), every_label, Encoding((), (), (), {}, ()))
    data, _, about = dataset_with_votes(data, votes, np.arange(n), EnsembleConfig(), seed)
    resolved = resolve_labels(decided_by_votes(data), Predictions.uninformative(n, c), data.candidates.mask)
    return VoteLabels(
        items=votes.items.to_pylist(),
        labels=np.array(votes.labels)[resolved.label],
        probabilities=resolved.probability.astype(np.float64),
        distribution=resolved.distribution.astype(np.float64),
        classes=list(votes.labels),
        annotators=about["annotators"],
    )
