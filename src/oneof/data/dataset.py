"""Hold the examples of a fit: features, candidate sets, and everything else that is known about each row."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from oneof.candidates.mask import Candidates
from oneof.data.encode import Encoding
from oneof.data.images import downsample

BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.floating[Any]]
IntArray = NDArray[np.intp]

UNKNOWN = -1  # in arrays of labels: no label is known
UNNAMED_PRIOR = 1e-6  # prior of a label that annotators could not vote for, such as one that only gold labels have


class VoteScorer(Protocol):
    """Scores predictions by held-out votes."""

    def log_probabilities(self, logs: NDArray[np.float64], power: float, scale: float = 1.0) -> NDArray[np.float64]:
        """Return the log-probabilities of the held-out votes [h] under predictions in logs [n, c], raised to a power.

        The likelihood of the other votes on the same rows is raised to `scale`.
        """
        ...

    def with_classes(self, columns: Sequence[int], c: int) -> VoteScorer:
        """Return the same over c classes, of which these columns could be voted for."""
        ...


class VoteModel(Protocol):
    """Combines votes with predictions from features."""

    def posterior(self, predictions: Sequence[FloatArray]) -> FloatArray:
        """Return the probabilities of the labels of all rows [n, c], given predictions [n, c]; NaN where nobody voted."""
        ...

    def with_classes(self, columns: Sequence[int]) -> VoteModel:
        """Return the same over more classes, of which these columns could be voted for."""
        ...


class VoteEvidence(NamedTuple):
    """Evidence of annotators' votes on each row, for resolving its label."""

    likelihood: FloatArray  # [n, c] of the row's votes given each label; or the counts or probabilities of the input
    posterior: FloatArray | None = None  # [n, c] of the labels by votes alone; None without single votes
    neighbours: FloatArray | None = None  # [n, c] predictions from the votes on other rows; NaN where there are none
    held_out: VoteScorer | None = None  # held-out votes, which weight the predictions; None without single votes
    vote_model: VoteModel | None = None  # combines votes and predictions; None without features
    learners_repeat_votes: bool = False  # rules read features that learners learn from; `neighbours` come from others
    counts: FloatArray | None = None  # [n, c] votes for each label
    vote_accuracy: float = 1.0  # how often a single vote is right
    correlation: float = 0.0  # rho, of the errors of two votes on a row

    def with_classes(self, columns: Sequence[int], c: int) -> VoteEvidence:
        """Return the same over c classes, of which these columns could be voted for."""
        evidence = self._replace(likelihood=scatter_columns(self.likelihood, columns, c, UNNAMED_PRIOR))
        if self.posterior is not None:
            evidence = evidence._replace(posterior=scatter_columns(self.posterior, columns, c, UNNAMED_PRIOR))
        if self.neighbours is not None:
            evidence = evidence._replace(neighbours=scatter_columns(self.neighbours, columns, c, 0.0))
        if self.counts is not None:
            evidence = evidence._replace(counts=scatter_columns(self.counts, columns, c, 0.0))
        if self.held_out is not None:
            evidence = evidence._replace(held_out=self.held_out.with_classes(columns, c))
        if self.vote_model is not None:
            evidence = evidence._replace(vote_model=self.vote_model.with_classes(columns))
        return evidence


@dataclass(frozen=True, eq=False)
class Dataset:
    """n examples to learn from. Every field has a value for every row.

    Where nothing is known the value is neutral (prior 1, gold UNKNOWN, a group of its own), so that learners need not check for votes, gold
    labels or groups. `Dataset.build` fills in these values.
    """

    features: NDArray[Any]  # [n, d] encoded columns, or the pixels of pictures
    candidates: Candidates  # the sets [n, c] of the input, with the names of the classes; never overwritten
    encoding: Encoding  # turns the columns of new rows into features
    prior: FloatArray  # [n, c] relative weight of each label by votes, counts or probabilities; 1 without any
    gold: IntArray  # [n] true labels, which choose settings and measure accuracy; UNKNOWN where there is none
    groups: NDArray[Any]  # [n] rows of one group stay on one side of every split
    observed: BoolArray  # [n] False where features hold nothing: an unreadable picture; with votes, also an empty row
    reviewed_sets: BoolArray  # [n, c] the sets after a review; the candidates where nobody decided
    # [n] labels from the review of rows drawn at random, which measure accuracy; UNKNOWN elsewhere
    audit_labels: IntArray
    votes: VoteEvidence | None  # votes, counts or probabilities, which resolve labels together with the learners
    ballots: pa.Array | None  # [n] the votes on each row, as they are shown to a person

    @classmethod
    def build(
        cls,
        features: NDArray[Any],
        candidates: Candidates,
        encoding: Encoding,
        *,
        prior: FloatArray | None = None,
        gold: IntArray | None = None,
        groups: Sequence[str] | None = None,
        observed: BoolArray | None = None,
    ) -> Self:
        """Return a data set in which everything that is left out has a neutral value."""
        n, c = candidates.mask.shape
        votes = None
        if prior is None:
            prior = np.broadcast_to(np.float64(1.0), (n, c))
        else:
            votes = VoteEvidence(prior)
        if gold is None:
            gold = np.full(n, UNKNOWN)
        if groups is None:
            row_groups: NDArray[Any] = np.arange(n)
        else:
            row_groups = np.asarray(groups)
        if observed is None:
            observed = np.ones(n, dtype=bool)
        return cls(
            features=features,
            candidates=candidates,
            encoding=encoding,
            prior=prior,
            gold=gold,
            groups=row_groups,
            observed=observed,
            reviewed_sets=candidates.mask,
            audit_labels=np.full(n, UNKNOWN),
            votes=votes,
            ballots=None,
        )

    def __len__(self) -> int:
        return len(self.features)

    @property
    def classes(self) -> list[str]:
        """Return the names of the classes."""
        return [str(name) for name in self.candidates.classes.tolist()]

    @cached_property
    def has_prior(self) -> bool:
        """Return whether votes, counts or probabilities prefer any label to another."""
        return not bool((self.prior == 1).all())

    @property
    def has_single_votes(self) -> bool:
        """Return whether votes of single annotators are known, not only counts or probabilities."""
        return self.votes is not None and self.votes.held_out is not None

    @cached_property
    def has_groups(self) -> bool:
        """Return whether any rows belong together."""
        return len(np.unique(self.groups)) < len(self)

    @property
    def has_gold(self) -> bool:
        """Return whether any row has a true label."""
        return bool((self.gold != UNKNOWN).any())

    @property
    def are_pictures(self) -> bool:
        """Return whether the features are pixels."""
        return bool(self.encoding.pixels)

    def plain_features(self, rows: Any = slice(None)) -> FloatArray:
        """Return features [m, d] for learners that compare columns: of pictures, a few average pixels."""
        if self.are_pictures:
            return downsample(self.features[rows], self.encoding.pixels[0])
        return np.asarray(self.features[rows])

    def take(self, rows: IntArray) -> Self:
        """Return a data set of some rows, without their votes."""
        return replace(
            self,
            features=self.features[rows],
            candidates=Candidates(self.candidates.mask[rows], self.candidates.classes),
            prior=self.prior[rows],
            gold=self.gold[rows],
            groups=self.groups[rows],
            observed=self.observed[rows],
            reviewed_sets=self.reviewed_sets[rows],
            audit_labels=self.audit_labels[rows],
            votes=None,
            ballots=None,
        )

    def contiguous(self) -> Self:
        """Return the same with C-contiguous features, since rounding of sums depends on the memory layout."""
        return replace(self, features=np.require(self.features, requirements="C"))

    @property
    def fingerprint(self) -> str:
        """Return a checksum of features and candidate sets."""
        checksum = hashlib.sha256(np.ascontiguousarray(self.features).data)
        checksum.update(np.ascontiguousarray(self.candidates.mask).data)
        return checksum.hexdigest()


def scatter_columns(values: NDArray[Any], columns: Sequence[int], c: int, fill: Any) -> NDArray[Any]:
    """Return values [n, k] in the given columns of an array [n, c] that is `fill` elsewhere."""
    scattered = np.full((len(values), c), fill, dtype=values.dtype)
    scattered[:, columns] = values
    return scattered


def replace_by_gold(sets: BoolArray, gold: IntArray) -> BoolArray:
    """Return the sets [n, c] with the gold label alone where it is known."""
    is_gold = np.arange(sets.shape[1]) == gold[:, None]
    return np.where((gold != UNKNOWN)[:, None], is_gold, sets)
