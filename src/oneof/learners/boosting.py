r"""Boost regression trees on candidate sets, without other learners.

    p = softmax(F),     q_ij  =  (1 - h) p_ij / sum_{k in S_i} p_ik  +  h / |S_i|     for j in S_i, else 0
    F  <-  F + eta T,   T a regression tree on q - p whose leaves take a Newton step

Without a hedge, q - p is the gradient of log sum_{j in S} p_j, the log-likelihood of the sets, and boosting confirms its own guesses until it
has settled on one label of each set. A hedge h keeps a share of the targets spread evenly over the set. Such boosting learns less where the
sets leave only chance to doubt, and is misled less where features predict which wrong labels are in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import softmax

from oneof.data.dataset import BoolArray, Dataset, FloatArray, IntArray
from oneof.data.splits import cross_fit_splits
from oneof.learners.base import Context, FittedLearner, Predictions, Targets
from oneof.learners.config import BoostingConfig
from oneof.learners.forest import ROWS_BLOCK, Forest, concatenate, with_numbered_leaves
from oneof.learners.trees import column_means

MAX_SPLIT_FEATURES = 32  # that a split compares, where there are more
MAX_STEP = 4.0  # of a leaf, before it is multiplied by the learning rate
MAX_LEAF_ROWS = 5  # that a leaf must hold in a table of many rows
SMALLEST = 1e-3  # added to shares before their logarithm is taken


@dataclass(frozen=True, eq=False)
class BoostedTrees:
    """Boosted trees of several folds; predicts the folds' mean probability."""

    trees: Forest  # of all folds, each with the same number; a leaf's label is its row of `steps`
    steps: NDArray[np.float32]  # [leaves, c] what a leaf adds to the logits
    start: NDArray[np.float32]  # [folds, c] logits before the first tree
    kind: str = "boosting"  # name of the learner

    def __call__(self, x: NDArray[Any], device: Any = "cpu") -> NDArray[np.float32]:
        """Return probabilities [n, c] of features x [n, d]."""
        probabilities = np.empty((len(x), self.start.shape[1]), dtype=np.float32)
        for first in range(0, len(x), ROWS_BLOCK):
            block = slice(first, first + ROWS_BLOCK)
            probabilities[block] = self._mean_probability(self.trees.find_leaf_labels(x[block], device))
        return probabilities

    def _mean_probability(self, leaves: NDArray[np.intp]) -> NDArray[np.float32]:
        """Return probabilities [n, c] of rows that reach these leaves [n, trees]."""
        n_folds, c = self.start.shape
        total = np.zeros((len(leaves), c), dtype=np.float32)
        for start, leaves_of_fold in zip(self.start, np.split(leaves, n_folds, axis=1), strict=True):
            logits = np.tile(start, (len(leaves), 1))
            for leaf in leaves_of_fold.T:
                logits += self.steps[leaf]
            total += softmax(logits, axis=1)
        return total / np.float32(n_folds)

    def with_origin(self, origin: NDArray[np.float64]) -> BoostedTrees:
        """Return the trees for features from which `origin` [d] is to be subtracted."""
        return replace(self, trees=replace(self.trees, origin=origin))

    def is_malformed(self, d: int, c: int) -> bool:
        """Return whether the arrays are not boosted trees over d features and c classes, or their logits may overflow."""
        n_leaves = len(self.steps)
        n_folds = len(self.start)
        if self.steps.shape != (n_leaves, c) or self.start.shape != (n_folds, c) or n_folds == 0:
            return True
        if self.trees.is_malformed(d, n_leaves) or len(self.trees.root) % n_folds != 0:
            return True
        rounds = len(self.trees.root) // n_folds
        largest_logit = float(np.abs(self.start).max()) + rounds * float(np.abs(self.steps).max())
        return largest_logit > float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class BoostingLearner:
    """Boosts trees for each fold on the sets of the other rows."""

    config: BoostingConfig = BoostingConfig()  # noqa: RUF009 - frozen
    name: str = "boosting"

    def fit(self, data: Dataset, targets: Targets, context: Context) -> FittedLearner:
        """Fit on the sets of the targets, whose soft labels are not used; no set has an influence on the predictions of its row."""
        n, c = targets.sets.shape
        seed = context.config.seed
        origin = column_means(data.features)
        jobs = []
        folds = list(cross_fit_splits(data.groups, self.config.folds, seed))
        for number, (train, _) in enumerate(folds):
            rows = train[: self.config.max_rows]
            x = (data.features[rows] - origin).astype(np.float32)
            jobs.append(_Fold(x, targets.sets[rows], self.config, (seed, number)))
        boosted = context.resources.map(_boost, jobs)

        probabilities = np.zeros((n, c), dtype=np.float32)
        for (_, held_out), of_fold in zip(folds, boosted, strict=True):
            probabilities[held_out] = of_fold.with_origin(origin)(data.features[held_out])
        model = replace(_merge(boosted), kind=self.name).with_origin(origin)
        oof = Predictions.from_single_model(probabilities, context.evaluation_sets)
        return FittedLearner(self.name, model, oof, is_nested=True)


class _Fold(NamedTuple):
    """The rows outside of a fold, and how to boost on them."""

    x: NDArray[np.float32]  # [n, d]
    sets: BoolArray  # [n, c]
    config: BoostingConfig
    seed: tuple[int, ...]


def _boost(fold: _Fold) -> BoostedTrees:
    """Return the boosted trees of a fold."""
    return boost(fold.x, fold.sets, fold.config, fold.seed)


def boost(
    x: NDArray[np.float32], sets: BoolArray, config: BoostingConfig, seed: int | Sequence[int] = 0
) -> BoostedTrees:
    """Boost trees on features x [n, d] and candidate sets [n, c].

    >>> x = np.array([[0.0], [0.1], [0.2], [1.0], [1.1], [1.2]] * 3, dtype=np.float32)
    >>> sets = np.array([[1, 0], [1, 1], [1, 0], [0, 1], [1, 1], [0, 1]] * 3, dtype=bool)
    >>> boost(x, sets, BoostingConfig(rounds=20))(x).argmax(1)[:6]
    array([0, 0, 0, 1, 1, 1])
    """
    from sklearn.tree import ExtraTreeRegressor  # here, as it takes a second, which pictures need not wait

    n = len(sets)
    rng = np.random.default_rng(seed)
    even = sets / sets.sum(1, keepdims=True)
    start = np.log(even.mean(0) + SMALLEST)
    logits = np.tile(start, (n, 1))
    n_drawn = min(n, max(10, int(config.row_share * n)))
    origin = np.zeros(x.shape[1])
    trees = []
    steps = []
    n_leaves = 0
    for _ in range(config.rounds):
        probabilities = softmax(logits, axis=1)
        residuals = hedged_targets(probabilities, sets, even, config.hedge) - probabilities
        drawn = rng.permutation(n)[:n_drawn]
        regressor = ExtraTreeRegressor(
            max_leaf_nodes=config.max_leaf_nodes,
            max_features=min(x.shape[1], MAX_SPLIT_FEATURES),
            min_samples_leaf=int(np.clip(n // 100, 1, MAX_LEAF_ROWS)),
            random_state=int(rng.integers(2**31)),
        )
        grown = regressor.fit(x[drawn], residuals[drawn]).tree_
        tree, leaf_of_node = with_numbered_leaves(grown, origin, n_leaves)
        leaf = leaf_of_node[grown.apply(x)] - n_leaves
        step = config.learning_rate * newton_steps(leaf[drawn], residuals[drawn], probabilities[drawn])
        logits += step[leaf]
        trees.append(tree)
        steps.append(step)
        n_leaves = tree.classes
    forest = concatenate(trees)
    return BoostedTrees(forest, np.concatenate(steps).astype(np.float32), start[None].astype(np.float32))


def hedged_targets(probabilities: FloatArray, sets: BoolArray, even: FloatArray, hedge: float) -> FloatArray:
    """Return the targets q [n, c]: probabilities within the set, mixed with a share that is spread evenly over it.

    >>> sets = np.array([[True, True, False]])
    >>> hedged_targets(np.array([[0.6, 0.2, 0.2]]), sets, sets / 2, hedge=0.5).round(3).tolist()
    [[0.625, 0.375, 0.0]]
    """
    within = np.where(sets, probabilities + np.finfo(np.float64).tiny, 0.0)
    within /= within.sum(1, keepdims=True)
    return (1 - hedge) * within + hedge * even


def newton_steps(leaf: IntArray, residuals: FloatArray, probabilities: FloatArray) -> FloatArray:
    """Return the step of each leaf [leaves, c] for rows [n] in these leaves, by the second derivative of the softmax loss.

    It is drawn to zero as if by a few more rows.
    """
    n, c = residuals.shape
    members = csr_array((np.ones(n), (leaf, np.arange(n))))
    curvature = members @ (probabilities * (1 - probabilities)) + 2 / c
    step = (c - 1) / c * (members @ residuals) / curvature
    return np.asarray(np.clip(step, -MAX_STEP, MAX_STEP))


def _merge(boosted: Sequence[BoostedTrees]) -> BoostedTrees:
    """Return the boosted trees of all folds as one model."""
    forests = []
    n_leaves = np.cumsum([0, *(len(of_fold.steps) for of_fold in boosted)])
    for of_fold, (first, end) in zip(boosted, pairwise(n_leaves.tolist()), strict=True):
        forests.append(of_fold.trees.with_labels_from(first, classes=end))
    steps = np.concatenate([of_fold.steps for of_fold in boosted])
    start = np.concatenate([of_fold.start for of_fold in boosted])
    return BoostedTrees(concatenate(forests), steps, start)
