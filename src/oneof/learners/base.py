"""Define what every learner takes and returns: the one protocol of tables, votes and pictures."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oneof.data.dataset import BoolArray, Dataset, FloatArray, IntArray
from oneof.learners.config import FitConfig, NetworkConfig
from oneof.learners.forest import Forest
from oneof.training.parallel import limit_threads, map_here, map_jobs
from oneof.training.state import Fit


@dataclass(frozen=True)
class Resources:
    """The devices, processes, memory and time that a fit may use.

    They change nothing about the result but rounding, except for a deadline, which shortens the training.
    """

    # "cpu", "cuda"; "auto": the GPU, if there is one, for pictures and large tables
    device: str | torch.device = "auto"
    # worker processes of a table, ranks that train on pictures; None: those that torchrun or SLURM started, else one
    n_jobs: int | None = None
    are_ranks: bool = False  # whether `n_jobs` are ranks, which start no workers of their own
    threads: int | None = None  # of torch, to train on pictures; None: by the size of a step and the idle cores
    memory: int | None = None  # bytes that training may take; None: half of what is free
    deadline: float | None = None  # by `time.monotonic`
    checkpoint: Path | None = None  # folder from which a fit that was stopped goes on
    progress: str | None = None  # title of a progress bar; None: none is shown

    @property
    def seconds_left(self) -> float:
        """Return the seconds until the deadline."""
        return math.inf if self.deadline is None else self.deadline - time.monotonic()

    @property
    def maps_jobs(self) -> bool:
        """Return whether the work on a table is mapped over `n_jobs` workers, each with one thread; never on a GPU."""
        return self.n_jobs is not None and not self.are_ranks and torch.device(self.device).type == "cpu"

    @property
    def n_workers(self) -> int:
        """Return the number of worker processes; 1: this process does all work."""
        if not self.maps_jobs:
            return 1
        return self.n_jobs or 1

    def map(self, function: Callable[[Any], Any], jobs: Sequence[Any]) -> list[Any]:
        """Return function(job) for every job, by the workers if there are any; see `oneof.training.parallel.map_jobs`."""
        if self.maps_jobs:
            return map_jobs(function, jobs, self.n_jobs)
        return map_here(function, jobs)

    @contextmanager
    def limited_threads(self) -> Iterator[None]:
        """Compute by one thread inside the block where jobs are mapped: sums by several threads differ in the last bits."""
        if not self.maps_jobs:
            yield
            return
        with limit_threads(1):
            yield

    def checkpoint_of(self, name: str) -> Path | None:
        """Return the folder in which a learner keeps its checkpoint."""
        return None if self.checkpoint is None else self.checkpoint / name


@dataclass(frozen=True, eq=False)
class WarmStart:
    """Results of an earlier fit of the same rows, from which learners start."""

    networks: tuple[NetworkConfig, ...] = ()  # settings to take as they are
    weights: Mapping[tuple[int, ...], Sequence[Mapping[str, Tensor]]] = field(default_factory=dict)  # by hidden layers
    forests: Mapping[str, Forest] = field(default_factory=dict)  # by learner; a third of the trees is grown anew
    noisy_sets: BoolArray | None = None  # [n] sets that are not trained on; None: to be found


class Context(NamedTuple):
    """What all learners of one fit share."""

    config: FitConfig
    resources: Resources
    warm_start: WarmStart
    selection_gold: IntArray  # [n] gold labels that may choose settings; UNKNOWN elsewhere
    evaluation_sets: BoolArray  # [n, c] by which learners are compared: the candidates, or the gold label for selection

    @property
    def criterion(self) -> str:
        """Return what ranks settings: gold labels where there are enough, else what the config names."""
        return "gold" if (self.selection_gold >= 0).any() else self.config.criterion


class Targets(NamedTuple):
    """The targets of a learner: the candidate sets, and how probable each candidate is."""

    sets: BoolArray  # [n, c]
    soft_labels: FloatArray  # [n, c] a distribution over each row's set

    @classmethod
    def uniform(cls, sets: BoolArray) -> Targets:
        """Return targets in which all labels of a set are equally probable."""
        return cls(sets, sets / sets.sum(1, keepdims=True))

    @property
    def label(self) -> IntArray:
        """Return the most probable label of each row [n]."""
        return np.asarray(self.soft_labels.argmax(1))

    @property
    def confidence(self) -> FloatArray:
        """Return the probability of that label [n], rounded, so that trees do not depend on the last bits of a sum."""
        return np.asarray(self.soft_labels.max(1).round(3))


class Predictions(NamedTuple):
    """Probabilities of n rows by models that were not trained on them."""

    mean: NDArray[np.float32]  # [n, c] over the models that did not train on the row; over all where all did
    held_out: BoolArray  # [n] whether any model held the row out
    # [n, c] share of all models, also those trained on the row, whose best candidate it is
    top_share: NDArray[np.float32]

    @classmethod
    def from_single_model(cls, probabilities: NDArray[np.float32], candidates: BoolArray) -> Predictions:
        """Return the predictions of one cross-fitted model for every row."""
        best = np.where(candidates, probabilities, -1).argmax(1)
        top_share = best[:, None] == np.arange(candidates.shape[1])
        held_out = np.ones(len(probabilities), dtype=bool)
        return cls(probabilities, held_out, top_share.astype(np.float32))

    @classmethod
    def uninformative(cls, n: int, c: int) -> Predictions:
        """Return predictions that give every label the same probability, where there is no model."""
        uniform = np.full((n, c), 1 / c, dtype=np.float32)
        return cls(uniform, np.zeros(n, dtype=bool), np.ones((n, c), dtype=np.float32))

    def mask_unobserved(self, observed: BoolArray) -> Predictions:
        """Return the predictions with uniform probabilities in rows [n] that are not observed."""
        uniform = np.float32(1 / self.mean.shape[1])
        mean = np.where(observed[:, None], self.mean, uniform)
        top_share = np.where(observed[:, None], self.top_share, uniform)
        return Predictions(mean, self.held_out & observed, top_share)


class FittedLearner(NamedTuple):
    """A fitted learner: its model for new rows, and its predictions for rows that it was not trained on."""

    name: str  # one of `oneof.learners.config.LEARNERS`, or the class of a scikit-learn classifier
    model: Any  # networks (`oneof.learners.network_models`), a forest, boosted trees, kernels, or a classifier of the user's own
    oof: Predictions
    n_models: int = 1
    training: Fit | None = None  # of networks: history, removals, rows trained on
    # Whether a row's own set had no influence on its `oof`, not even through other rows' labels.
    is_nested: bool = False


class Learner(Protocol):
    """A learner that can be fitted: NetworkLearner, ImageLearner, TreeLearner, BoostingLearner or SklearnLearner.

    The kernel is fitted by `oneof.learners.kernel_ensemble.fit_kernels`, since it also ranks the scalings.
    """

    def fit(self, data: Dataset, targets: Targets, context: Context) -> FittedLearner:
        """Fit on the rows of `data` with these targets, every row held out by some model."""
        ...


def trained_networks(learners: Sequence[FittedLearner]) -> list[Fit]:
    """Return the trainings of those learners that are networks."""
    trained = []
    for learner in learners:
        if learner.training is not None:
            trained.append(learner.training)
    return trained
