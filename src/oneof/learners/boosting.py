r"""Boost regression trees on candidate sets, without other learners.

    p = softmax(F),     q_ij  =  p_ij / sum_{k in S_i} p_ik     for j in S_i, else 0
    F  <-  F + eta T,   T a regression tree on q - p whose leaves take a Newton step

q - p is the gradient of log sum_{j in S} p_j, the log-likelihood of the sets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

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
MIN_LEAF_ROWS = 5  # from 500 rows on; below, a hundredth of the rows
SMOOTHING = 1e-3  # added to the shares of the labels before their logarithm is taken


@dataclass(frozen=True, eq=False)
class BoostedTrees:
    """Boosted trees of several folds; predicts the folds' mean probability."""

    trees: Forest  # of all folds, the same number for each; the label of a leaf is its row of `steps`
    steps: NDArray[np.float32]  # [leaves, c] what a leaf adds to the logits
    start: NDArray[np.float32]  # [folds, c] logits before the first tree

    kind: ClassVar = "boosting"

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
        for start, fold_leaves in zip(self.start, np.split(leaves, n_folds, axis=1), strict=True):
            logits = np.tile(start, (len(leaves), 1))
            for leaf in fold_leaves.T:
                logits += self.steps[leaf]
            total += softmax(logits, axis=1)
        return total / np.float32(n_folds)

    def with_origin(self, origin: NDArray[np.float64]) -> BoostedTrees:
        """Return the same trees with another origin [d], which is subtracted from features before they are compared."""
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

    def fit(self, data: Dataset, targets: Targets, context: Context) -> FittedLearner:
        """Fit on the sets of the targets; their soft labels are not used. The set of a row has no influence on its own `oof`."""
        n, c = targets.sets.shape
        seed = context.config.seed
        origin = column_means(data.features)
        folds = list(cross_fit_splits(data.groups, self.config.folds, seed))
        jobs = []
        for number, (train, _) in enumerate(folds):
            rows = train[: self.config.max_rows]
            jobs.append(_FoldJob(data.features, targets.sets, rows, origin, self.config, (seed, number)))
        fold_models = context.resources.map(_boost_fold, jobs)

        probabilities = np.zeros((n, c), dtype=np.float32)
        for (_, held_out), fold_model in zip(folds, fold_models, strict=True):
            probabilities[held_out] = fold_model(data.features[held_out])
        model = _merge(fold_models)
        oof = Predictions.from_single_model(probabilities, context.evaluation_sets)
        return FittedLearner(model.kind, model, oof, is_nested=True)


class _FoldJob(NamedTuple):
    """The rows to boost on for one fold, and how."""

    features: NDArray[Any]  # [n, d] of all rows, which are copied one fold at a time
    sets: BoolArray  # [n, c]
    rows: IntArray  # outside of the fold
    origin: NDArray[np.float64]  # [d], subtracted before features are rounded to single precision
    config: BoostingConfig
    seed: tuple[int, ...]


def _boost_fold(job: _FoldJob) -> BoostedTrees:
    """Return the boosted trees of one fold."""
    x = (job.features[job.rows] - job.origin).astype(np.float32)
    return boost(x, job.sets[job.rows], job.config, job.seed).with_origin(job.origin)


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
    label_shares = Targets.uniform(sets).soft_labels.mean(0)
    start = np.log(label_shares + SMOOTHING)
    logits = np.tile(start, (n, 1))
    sample_size = min(n, max(10, int(config.row_share * n)))
    origin = np.zeros(x.shape[1])
    trees = []
    steps = []
    n_leaves = 0  # of the trees so far
    for _ in range(config.rounds):
        probabilities = softmax(logits, axis=1)
        residuals = targets_within(probabilities, sets) - probabilities
        sample = rng.permutation(n)[:sample_size]
        regressor = ExtraTreeRegressor(
            max_leaf_nodes=config.max_leaf_nodes,
            max_features=min(x.shape[1], MAX_SPLIT_FEATURES),
            min_samples_leaf=int(np.clip(n // 100, 1, MIN_LEAF_ROWS)),
            random_state=int(rng.integers(2**31)),
        )
        grown = regressor.fit(x[sample], residuals[sample]).tree_
        tree, leaf_of_node = with_numbered_leaves(grown, origin, n_leaves)
        leaf = leaf_of_node[grown.apply(x)] - n_leaves
        step = config.learning_rate * newton_steps(leaf[sample], residuals[sample], probabilities[sample])
        logits += step[leaf]
        trees.append(tree)
        steps.append(step)
        n_leaves = tree.classes
    all_steps = np.concatenate(steps).astype(np.float32)
    return BoostedTrees(concatenate(trees), all_steps, start[None].astype(np.float32))


def targets_within(probabilities: FloatArray, sets: BoolArray) -> FloatArray:
    """Return the targets q [n, c]: the probabilities within each set.

    >>> targets_within(np.array([[0.6, 0.2, 0.2]]), np.array([[True, True, False]])).round(3).tolist()
    [[0.75, 0.25, 0.0]]
    """
    within = np.where(sets, probabilities + np.finfo(np.float64).tiny, 0.0)
    return np.asarray(within / within.sum(1, keepdims=True))


def newton_steps(leaf: IntArray, residuals: FloatArray, probabilities: FloatArray) -> FloatArray:
    """Return the Newton step of the softmax loss [leaves, c] for each leaf, of rows [n] that lie in the leaves `leaf`.

    The factor (c - 1) / c is that of LogitBoost (Friedman, Hastie and Tibshirani, 2000), whose logits sum to zero.
    """
    n, c = residuals.shape
    members = csr_array((np.ones(n), (leaf, np.arange(n))))
    curvature = members @ (probabilities * (1 - probabilities))
    curvature += 2 / c  # as of a few more rows with uniform probabilities, so that leaves of few rows take small steps
    step = (c - 1) / c * (members @ residuals) / curvature
    return np.asarray(np.clip(step, -MAX_STEP, MAX_STEP))


def _merge(fold_models: Sequence[BoostedTrees]) -> BoostedTrees:
    """Return the boosted trees of all folds as one model."""
    forests = []
    n_leaves = 0  # of the folds so far
    for model in fold_models:
        end = n_leaves + len(model.steps)
        forests.append(model.trees.with_labels_from(n_leaves, classes=end))
        n_leaves = end
    steps = np.concatenate([model.steps for model in fold_models])
    start = np.concatenate([model.start for model in fold_models])
    return BoostedTrees(concatenate(forests), steps, start)
