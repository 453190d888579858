"""Extremely randomised trees as a learner: grown on the labels or soft labels of rows, every row held out by some of them."""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from oneof.data.dataset import Dataset, FloatArray
from oneof.data.splits import cross_fit_splits
from oneof.learners.base import Context, FittedLearner, Predictions, Targets
from oneof.learners.config import TreesConfig
from oneof.learners.forest import Forest, concatenate, from_sklearn, load_forest, save_forest
from oneof.version import __version__

MAX_SPLIT_FEATURES = 64  # that a split of a regression tree compares, where there are more
REFRESH_EVERY = 3  # with a warm start, one tree in so many is grown anew


class GrownTrees(NamedTuple):
    """Trees of scikit-learn, and the label [k] of each of their outputs."""

    trees: list[Any]
    labels: NDArray[Any]


Grow = Callable[[NDArray[np.float32], Targets, int, int, int | None], GrownTrees]
"""(features [n, d], targets, number of trees, seed, n_jobs) -> trees. Its `repr` tells its settings."""


@dataclass(frozen=True)
class GrowOnLabels:
    """Grows trees on the most probable label of each row, weighted by its probability."""

    def __call__(
        self, x: NDArray[np.float32], targets: Targets, n_trees: int, seed: int, n_jobs: int | None = None
    ) -> GrownTrees:
        """Grow trees for features x [n, d]."""
        from sklearn.ensemble import ExtraTreesClassifier  # here, as it takes a second, which pictures need not wait

        d = x.shape[1]
        classifier = ExtraTreesClassifier(
            n_estimators=n_trees,
            max_features=max(math.isqrt(d), min(math.ceil(d / 2), 32)),
            random_state=seed,
            n_jobs=n_jobs,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of many classes, which may be all that there is
            classifier.fit(x, targets.label, targets.confidence)
        return GrownTrees([estimator.tree_ for estimator in classifier.estimators_], classifier.classes_)


def grow_on_soft_labels(
    x: NDArray[np.float32], targets: Targets, n_trees: int, seed: int, n_jobs: int | None = None
) -> GrownTrees:
    """Grow regression trees on the soft labels of each row; a leaf stands for its most probable label."""
    forest = fit_regression_forest(x, targets.soft_labels, n_trees, seed, n_jobs=n_jobs)
    return GrownTrees([estimator.tree_ for estimator in forest.estimators_], np.arange(targets.sets.shape[1]))


def fit_regression_forest(
    x: NDArray[np.float32],
    soft_labels: FloatArray,
    n_trees: int,
    seed: int,
    *,
    out_of_bag: bool = False,
    n_jobs: int | None = None,
) -> Any:
    """Fit extremely randomised regression trees to soft labels [n, c]; with `out_of_bag`, each on a bootstrap sample."""
    from sklearn.ensemble import ExtraTreesRegressor

    forest = ExtraTreesRegressor(
        n_estimators=n_trees,
        max_features=min(x.shape[1], max(MAX_SPLIT_FEATURES, math.isqrt(x.shape[1]))),
        bootstrap=out_of_bag,
        oob_score=out_of_bag,
        random_state=seed % 2**32,
        n_jobs=n_jobs,
    )
    with warnings.catch_warnings():
        # In a table of few rows, some may be left out by no tree, which scikit-learn warns about.
        warnings.simplefilter("ignore", UserWarning)
        return forest.fit(x, soft_labels)


@dataclass(frozen=True)
class TreeLearner:
    """Grows trees that predict, each on the rows outside of one fold."""

    config: TreesConfig = TreesConfig()  # noqa: RUF009 - frozen
    # whether the predictions [n, c] of the first trees help; zero where no tree has held a row out yet
    is_useful: Callable[[NDArray[np.float32]], bool] = lambda probabilities: True
    grow: Grow = GrowOnLabels()
    name: str = "trees"
    is_nested: bool = False  # whether `grow` uses only the sets of the rows that it is given

    def fit(self, data: Dataset, targets: Targets, context: Context) -> FittedLearner:
        """Grow the trees fold by fold; give up after a few folds if they do not help.

        With the forest of an earlier fit, the oldest third of the trees of each fold is grown anew. Folds that lie in the checkpoint, grown from the
        same data, are not grown again.
        """
        n, c = targets.soft_labels.shape
        seed = context.config.seed
        device = context.resources.device
        n_threads: int | None = -1  # while a GPU does the rest, trees may grow on all cores
        if torch.device(device).type == "cpu":
            n_threads = context.resources.n_jobs
        previous = context.warm_start.forests.get(self.name)
        if previous is not None and len(previous.root) != self.config.per_fold(c) * self.config.folds:
            previous = None  # of another number of trees
        grower = _FoldGrower(
            config=self.config,
            grow_trees=self.grow,
            features=data.features,
            targets=targets,
            origin=column_means(data.features),
            previous=previous,
            seed=seed,
            n_jobs=n_threads,
        )
        checkpoint = context.resources.checkpoint_of(self.name)
        digest = None if checkpoint is None else grower.digest(data.groups)
        out_of_fold = np.zeros((n, c), dtype=np.float32)
        forests = []
        for number, (train, held_out) in enumerate(cross_fit_splits(data.groups, self.config.folds, seed)):
            path = None if checkpoint is None else checkpoint / f"{digest}-{number}.npz"
            forest = grower.load_or_grow(number, train, path)
            forests.append(forest)
            out_of_fold[held_out] = forest(data.features[held_out], device)
            if number + 1 == self.config.trial_folds and not self.is_useful(out_of_fold):
                break  # the zeros of the remaining folds give these trees weight 0
        oof = Predictions.from_single_model(out_of_fold, context.evaluation_sets)
        forest = replace(concatenate(forests), kind=self.name)
        return FittedLearner(self.name, forest, oof, is_nested=self.is_nested)


@dataclass(frozen=True, eq=False)
class _FoldGrower:
    """Grows the trees of one fold at a time."""

    config: TreesConfig
    grow_trees: Grow
    features: NDArray[Any]  # [n, d]
    targets: Targets
    origin: NDArray[np.float64]  # [d], subtracted before features are rounded to single precision
    previous: Forest | None
    seed: int
    n_jobs: int | None  # threads; the trees are the same for any number

    def load_or_grow(self, number: int, train: NDArray[np.intp], path: Path | None) -> Forest:
        """Return the trees that hold out fold `number`, from the file if it has them."""
        if path is None:
            return self.grow(number, train)
        forest = load_forest(path, self.features.shape[1], self.targets.soft_labels.shape[1])
        if forest is None:
            forest = self.grow(number, train)
            save_forest(forest, path)
        return forest

    def grow(self, number: int, train: NDArray[np.intp]) -> Forest:
        """Grow the trees that hold out fold `number`, on the rows `train`."""
        c = self.targets.soft_labels.shape[1]
        n_trees = self.config.per_fold(c)
        n_fresh = n_trees
        seed_offset = 0
        if self.previous is not None:
            n_fresh = math.ceil(n_trees / REFRESH_EVERY)
            seed_offset = len(self.previous.right)  # number of nodes: differs from fit to fit, so that new trees differ
        rows = train[: self.config.max_rows]
        x = (self.features[rows] - self.origin).astype(np.float32)
        targets = Targets(self.targets.sets[rows], self.targets.soft_labels[rows])
        tree_seed = (self.seed + seed_offset) % 2**20 * self.config.folds + number
        grown = self.grow_trees(x, targets, n_fresh, tree_seed, self.n_jobs)
        trees = []
        if self.previous is not None:
            trees.append(self.previous.take(number * n_trees + n_fresh, (number + 1) * n_trees))
        for tree in grown.trees:
            trees.append(from_sklearn(tree, grown.labels, self.origin, c))
        return concatenate(trees)

    def digest(self, groups: NDArray[Any]) -> str:
        """Compute a checksum of everything that the trees depend on."""
        settings = (__version__, self.config, repr(self.grow_trees), self.seed, [str(group) for group in groups])
        checksum = hashlib.sha256(repr(settings).encode())
        arrays = [self.features, self.targets.soft_labels]
        if self.previous is not None:
            arrays += [self.previous.right, self.previous.feature, self.previous.threshold]
        for array in arrays:
            checksum.update(np.ascontiguousarray(array).data)
        return checksum.hexdigest()[:16]


def column_means(features: NDArray[Any]) -> NDArray[np.float64]:
    """Return the column means [d] of features in double precision, else zeros."""
    if features.dtype == np.float64:
        return np.asarray(features.mean(0, dtype=np.float64))
    return np.zeros(features.shape[1])
