r"""Grow trees on candidate sets without other learners: rounds of regression forests, each on the soft labels of the round before.

    w_ij  <-  exp(a g_ij) / m_j^b  on S_i, normalised;     m_j = mean_i w_ij
    g = prediction of w by the trees that were not grown on row i

This is the rule of `oneof.learners.kernel`, with trees in place of the kernel. Unlike distances, trees ignore uninformative columns, and the
unit and skew of the others, so the two fail on different tables.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from oneof.data.dataset import BoolArray, FloatArray
from oneof.learners.base import Targets
from oneof.learners.config import SetTreesConfig
from oneof.learners.trees import GrownTrees, fit_regression_forest, grow_on_soft_labels


@dataclass(frozen=True)
class GrowOnSets:
    """Weights the candidates of some rows by rounds of forests, then grows trees on the resulting soft labels.

    `oneof.learners.trees.TreeLearner` calls it for each fold with the other rows, so that the sets of the fold have no influence on the
    trees that predict it, not even through the soft labels of other rows.
    """

    config: SetTreesConfig = SetTreesConfig()  # noqa: RUF009 - frozen

    def __call__(
        self, x: NDArray[np.float32], targets: Targets, n_trees: int, seed: int, n_jobs: int | None = None
    ) -> GrownTrees:
        """Return trees grown on features x [n, d] and the sets of the targets, whose soft labels are not used."""
        soft_labels = weigh_candidates(x, targets.sets, self.config, seed, n_jobs)
        return grow_on_soft_labels(x, Targets(targets.sets, soft_labels), n_trees, seed, n_jobs)


def weigh_candidates(
    x: NDArray[np.float32], sets: BoolArray, config: SetTreesConfig, seed: int = 0, n_jobs: int | None = None
) -> FloatArray:
    """Return how probable each label of each set is, [n, c], by trees that were not grown on the row.

    >>> x = np.array([[0.0], [0.1], [0.2], [1.0], [1.1], [1.2]] * 3, dtype=np.float32)
    >>> sets = np.array([[1, 0], [1, 1], [1, 0], [0, 1], [1, 1], [0, 1]] * 3, dtype=bool)
    >>> weigh_candidates(x, sets, SetTreesConfig()).argmax(1)[:6]
    array([0, 0, 0, 1, 1, 1])
    """
    weights = Targets.uniform(sets).soft_labels
    for number in range(config.rounds):
        forest_seed = seed * config.rounds + number
        forest = fit_regression_forest(x, weights, config.trees_per_round, forest_seed, out_of_bag=True, n_jobs=n_jobs)
        predictions = forest.oob_prediction_.reshape(sets.shape)
        label_mass = np.maximum(weights.mean(0), 1e-4)
        logits = config.inverse_temperature * predictions - config.balance * np.log(label_mass)
        weights = softmax(np.where(sets, logits, -np.inf), axis=1)
    return np.asarray(weights)
