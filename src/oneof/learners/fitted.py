"""Learners beside the networks: trees, the kernel regression, a classifier of the user's own.

Each gives what it says of every training row without having learned from it, and what it says of new rows.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import isqrt
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax

from oneof.data.with_ranks import Ranks
from oneof.learners.forest import Forest, concatenate, from_sklearn, load_forest, save_forest
from oneof.learners.kernel import KernelModel
from oneof.version import __version__

Floats = NDArray[np.floating[Any]]
LEARNERS = ("networks", "linear", "trees", "kernel")
ANEW = 3  # learning again, one tree in so many is grown anew


@dataclass(frozen=True)
class Trees:
    """Extremely randomised trees on resolved labels."""

    count: int = 150  # fewer above 50 classes, down to a third: the cost grows as their number
    parts: int = 10  # of the rows, each held out by a tenth of the trees
    first: int = 3  # parts that say whether trees are of any use
    rows: int = 20_000  # a tree learns from at most
    cells: int = 2_000_000  # rows x classes above which trees are left out: their cost grows as both

    def each(self, c: int) -> int:
        """Trees that hold out a part."""
        return max(1, round(self.count / self.parts * min(1, max(50 / c, 1 / 3))))

    def affordable(self, n: int, c: int) -> bool:
        return min(n, self.rows) * c <= self.cells


@dataclass(frozen=True, eq=False)
class Lesson:
    """What learners beside the networks are taught."""

    x: NDArray[Any]  # [n, d]
    beliefs: Floats  # [n, c] share of each candidate
    groups: Any = None
    seed: int = 0

    @property
    def label(self) -> NDArray[np.intp]:
        return np.asarray(self.beliefs.argmax(1))

    @property
    def sure(self) -> Floats:
        """The label's share, rounded: a tree would tell the last bits of a sum apart."""
        return np.asarray(self.beliefs.max(1).round(3))

    def folds(self, k: int) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Rows to learn from, in random order, and rows held out, each once; groups together. One group alone is not held out."""
        rng = np.random.default_rng(self.seed)
        names = np.arange(len(self.x)) if self.groups is None else np.asarray(self.groups)
        _, group = np.unique(names, return_inverse=True)
        order = rng.permutation(group.max() + 1)
        fold = (order * min(k, len(order)) // len(order))[group]
        for number in range(fold.max() + 1):
            train, held = fold != number, fold == number
            yield rng.permutation(np.flatnonzero(train if train.any() else held)), np.flatnonzero(held)


# -------------------------------------------------------------------------------------------------------------------- trees


def grow_trees(
    lesson: Lesson,
    classes: int,
    trees: Trees = Trees(),  # noqa: B008 - frozen
    before: Forest | None = None,
    device: Any = "cpu",
    useful: Callable[[Floats], bool] = lambda left_out: True,
    checkpoint: Path | None = None,
) -> Taught:
    """Grow trees on the rows' most probable labels, sure ones weighing more; every row is held out by a part of them.

    Of a forest that was grown before on the same rows and parts, the oldest third of each part is grown anew.
    If what the first trees say of rows left out, zero elsewhere, is of no use, no more are grown.
    Parts that lie in the folder `checkpoint`, grown from the same data, are not grown again; others are added to it.
    """
    if before is not None and len(before.root) != trees.each(classes) * trees.parts:
        before = None  # of a version that grew other numbers
    origin = lesson.x.mean(0, dtype=np.float64) if lesson.x.dtype == np.float64 else np.zeros(lesson.x.shape[1])
    grow = partial(_grow_part, lesson, classes, trees, before, device, origin)
    digest = None if checkpoint is None else _tree_digest(lesson, classes, trees, before)
    left_out = np.zeros(lesson.beliefs.shape, dtype=np.float32)
    forests = []
    for number, (train, held) in enumerate(lesson.folds(trees.parts)):
        path = None if checkpoint is None else checkpoint / f"{digest}-{number}.npz"
        forest = None if path is None else load_forest(path, lesson.x.shape[1], classes)
        if forest is None:
            forest = grow(number, train)
            if path is not None:
                save_forest(forest, path)
        forests.append(forest)
        left_out[held] = forest(lesson.x[held], device)
        if number + 1 == trees.first and not useful(left_out):
            break
    return Taught(concatenate(forests), left_out)


def _grow_part(
    lesson: Lesson,
    classes: int,
    trees: Trees,
    before: Forest | None,
    device: Any,
    origin: NDArray[np.float64],
    number: int,
    train: NDArray[np.intp],
) -> Forest:
    """Grow the trees that hold out part `number` of the rows, on the other rows `train`."""
    from sklearn.ensemble import ExtraTreesClassifier  # here, as it takes a second, which pictures need not wait

    each = trees.each(classes)
    fresh, turn = (each, 0) if before is None else (-(-each // ANEW), len(before.right))
    d = lesson.x.shape[1]
    seed = (lesson.seed + turn) % 2**20 * trees.parts + number
    max_features = max(isqrt(d), min(-(-d // 2), 32))
    jobs = None if torch.device(device).type == "cpu" else -1  # beside a GPU all cores
    grown = ExtraTreesClassifier(fresh, max_features=max_features, random_state=seed, n_jobs=jobs)
    rows = train[: trees.rows]
    x = (lesson.x[rows] - origin).astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of many classes, which may be all that there is
        grown.fit(x, lesson.label[rows], lesson.sure[rows])
    kept = [] if before is None else [before.take(number * each + fresh, (number + 1) * each)]
    new = [from_sklearn(one.tree_, grown.classes_, origin, classes) for one in grown.estimators_]
    return concatenate([*kept, *new])


def _tree_digest(lesson: Lesson, classes: int, trees: Trees, before: Forest | None) -> str:
    """Compute a checksum of everything that the trees depend on."""
    groups = None if lesson.groups is None else list(map(str, lesson.groups))
    digest = hashlib.sha256(repr((__version__, classes, trees, lesson.seed, groups)).encode())
    arrays = [lesson.x, lesson.beliefs]
    if before is not None:
        arrays += [before.right, before.feature, before.threshold]
    for array in arrays:
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:16]


# --------------------------------------------------------------------------------------------------------------- the kernel


class Seen(NamedTuple):
    """A kernel machine, and how it sees features that stand beside their ranks."""

    shift: NDArray[np.float64]  # [2d]
    scale: NDArray[np.float64]  # [2d]; 0: not seen
    machine: KernelModel

    def __call__(self, wide: NDArray[np.float64]) -> Floats:
        return self.machine(((wide - self.shift) * self.scale)[:, self.scale != 0])


@dataclass(frozen=True, eq=False)
class Regression:
    """Kernel regressions for several ways to see the features; their mean probability."""

    ranks: Ranks
    ways: tuple[Seen, ...]
    sharpness: float

    kind: ClassVar = "kernel"

    def __call__(self, x: NDArray[Any]) -> NDArray[np.float32]:
        """Probabilities [n, c] of features x [n, d]."""
        wide = self.ranks(x)
        return sharpened([way(wide) for way in self.ways], self.sharpness)


def sharpened(scores: Sequence[Floats], sharpness: float) -> NDArray[np.float32]:
    """Scores [n, c] of several regressions as one distribution per row."""
    return np.asarray(np.mean([softmax(sharpness * one, axis=1) for one in scores], axis=0), dtype=np.float32)


# ------------------------------------------------------------------------------------------------------------ the user's own


@dataclass(frozen=True, eq=False)
class Own:
    """Fitted classifiers of the user's own kind, one per fold; their mean probability."""

    fitted: tuple[Any, ...]
    classes: int

    kind: ClassVar = "own"

    def __call__(self, x: NDArray[Any]) -> NDArray[np.float32]:
        """Probabilities [n, c] of features x [n, d]."""
        return np.asarray(np.mean([_of_all(one, x, self.classes) for one in self.fitted], axis=0), dtype=np.float32)


def teach_own(lesson: Lesson, classifier: Any, classes: int, parts: int = 5) -> Taught:
    """Fit clones of a scikit-learn classifier on the rows' most probable labels, weighed by how probable they are."""
    from sklearn.base import clone

    left_out, fitted = np.zeros(lesson.beliefs.shape, dtype=np.float32), []
    for train, held in lesson.folds(parts):
        own = clone(classifier).fit(lesson.x[train], lesson.label[train], sample_weight=lesson.sure[train])
        left_out[held] = _of_all(own, lesson.x[held], classes)
        fitted.append(own)
    return Taught(Own(tuple(fitted), classes), left_out)


def _of_all(fitted: Any, x: NDArray[Any], classes: int) -> Floats:
    whole = np.zeros((len(x), classes))
    whole[:, fitted.classes_] = fitted.predict_proba(x)
    return whole


Learner = Forest | Regression | Own


class Taught(NamedTuple):
    """A learner, and what it says of each training row without having learned from it."""

    learner: Learner
    left_out: NDArray[np.float32]  # [n, c]
