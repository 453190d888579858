"""Trees that learn from candidate sets by themselves."""

from __future__ import annotations

import numpy as np
from stages import context_for, make_dataset

from oneof import PartialLabelClassifier
from oneof.data.splits import cross_fit_splits
from oneof.learners.base import Targets
from oneof.learners.config import SetTreesConfig, TreesConfig
from oneof.learners.set_trees import GrowOnSets, weigh_candidates
from oneof.learners.trees import TreeLearner

TREES = TreesConfig(count=40, folds=4)
CONFIG = SetTreesConfig(trees=TREES, trees_per_round=20)


def stripes(n=300, n_noise=60, seed=0):
    """Rows whose class depends on the size of one column among many: distances tell little, a few splits tell all."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 1 + n_noise))
    labels = np.digitize(abs(x[:, 0]), [0.4, 1.0])
    sets = (rng.random((n, 3)) < 0.3) | (np.arange(3) == labels[:, None])
    return x, labels, sets


def fit_set_trees(x, sets, seed=0):
    data = make_dataset(x, sets)
    learner = TreeLearner(TREES, grow=GrowOnSets(CONFIG), name="set_trees")
    return learner.fit(data, Targets.uniform(sets), context_for(data, seed=seed))


def test_candidates_are_weighed_within_the_sets():
    x, labels, sets = stripes(n_noise=3)
    weights = weigh_candidates(x.astype(np.float32), sets, CONFIG)
    np.testing.assert_allclose(weights.sum(1), 1)
    assert not weights[~sets].any()
    uniform = (sets / sets.sum(1, keepdims=True))[np.arange(len(x)), labels].mean()
    assert weights[np.arange(len(x)), labels].mean() > uniform + 0.1


def test_the_set_of_a_row_has_no_influence_on_its_own_prediction():
    """Not even through the soft labels of other rows, as the rounds of the trees that predict it leave its fold out."""
    x, _, sets = stripes(n_noise=3)
    _, fold = cross_fit_splits(np.arange(len(x)), TREES.folds, seed=0)[0]
    changed = sets.copy()
    changed[fold] = ~changed[fold] | (np.arange(3) == 0)
    before = fit_set_trees(x, sets).oof.mean
    after = fit_set_trees(x, changed).oof.mean
    np.testing.assert_array_equal(before[fold], after[fold])
    others = np.setdiff1d(np.arange(len(x)), fold)
    assert (before[others] != after[others]).any()


def test_they_find_what_distances_hide():
    x, labels, sets = stripes(n=700)
    learners = ("networks", "kernel", "set_trees")
    classifier = PartialLabelClassifier(learners=learners, epochs=10, random_state=0).fit(x[:500], sets[:500])
    assert classifier.model_.learners["set_trees"] > 0.5
    assert classifier.accuracy_.verdict != "nothing learned"
    without = PartialLabelClassifier(learners=learners[:2], epochs=10, random_state=0).fit(x[:500], sets[:500])
    assert classifier.score(x[500:], labels[500:]) > without.score(x[500:], labels[500:]) + 0.15


def test_a_saved_classifier_predicts_by_them(tmp_path):
    x, _, sets = stripes(n=200, n_noise=3)
    classifier = PartialLabelClassifier(learners=("trees", "set_trees"), random_state=0).fit(x, sets)
    assert "set_trees" in classifier.model_.learners
    classifier.save(tmp_path / "run")
    restored = PartialLabelClassifier.from_run(tmp_path / "run")
    np.testing.assert_allclose(restored.predict_proba(x), classifier.predict_proba(x), atol=1e-6)


def test_counts_as_a_prior_leave_them_out():
    """A row's prior would come back in predictions that are meant to be held out."""
    x, labels, sets = stripes(n=120, n_noise=3)
    counts = sets * 1 + 2 * (np.arange(3) == labels[:, None])
    classifier = PartialLabelClassifier(epochs=3, random_state=0).fit(x, counts)
    assert "set_trees" not in classifier.model_.learners
