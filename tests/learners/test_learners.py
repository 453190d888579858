"""Learners beside the networks: what they say of rows that they did not learn from, and how much each counts."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
from sklearn.naive_bayes import GaussianNB
from stages import context_for, hard_targets, make_dataset

import oneof.learners.forest
from oneof.data.splits import cross_fit_splits
from oneof.ensemble.stacking import combine_within_sets, learner_weights, significantly_better
from oneof.learners.base import FittedLearner, Targets, WarmStart
from oneof.learners.config import TreesConfig, check_learners
from oneof.learners.forest import concatenate, from_sklearn
from oneof.learners.sklearn_classifier import SklearnLearner
from oneof.learners.trees import TreeLearner
from oneof_paper.synthetic import mixture

DATA = mixture(n=300, d=3, c=4, separation=6.0, seed=0)
TABLE = make_dataset(DATA.x.astype(np.float32), np.eye(4, dtype=bool)[DATA.labels])
TARGETS = hard_targets(DATA.labels, 4)
FEW = TreesConfig(count=30, folds=5)


def grow_trees(
    data=TABLE, targets=TARGETS, config=FEW, *, seed=3, forest=None, checkpoint=None, **options
) -> FittedLearner:
    context = context_for(
        data,
        seed=seed,
        checkpoint=checkpoint,
        warm_start=WarmStart(forests={} if forest is None else {"trees": forest}),
    )
    return TreeLearner(config, **options).fit(data, targets, context)


def wrong_targets() -> Targets:
    """Targets in which the first five rows have another label."""
    soft_labels = TARGETS.soft_labels.copy()
    soft_labels[:5] = np.roll(soft_labels[:5], 1, axis=1)
    return TARGETS._replace(soft_labels=soft_labels)


def test_arrays_say_what_scikit_learns_trees_say():
    x = TABLE.features.astype(np.float32)
    grown = ExtraTreesClassifier(20, random_state=0).fit(x, DATA.labels)
    forest = concatenate([from_sklearn(one.tree_, grown.classes_, np.zeros(3), 4) for one in grown.estimators_])
    near = np.concatenate([x, np.float32(0.5) * (x[1:] + x[:-1])])
    np.testing.assert_allclose(forest(near), grown.predict_proba(near), atol=1e-6)
    assert not forest.is_malformed(3, 4)


def test_a_subtree_of_one_label_is_one_leaf_and_predicts_the_same():
    x = TABLE.features.astype(np.float32)
    noise = np.random.default_rng(0).random(TARGETS.soft_labels.shape)
    soft_labels = TARGETS.soft_labels + 0.3 * noise  # no two rows are equal: the trees are grown to single rows
    grown = ExtraTreesRegressor(20, random_state=0).fit(x, soft_labels)
    near = np.concatenate([x, np.float32(0.5) * (x[1:] + x[:-1])])
    votes = np.array([tree.predict(near).argmax(1) for tree in grown.estimators_])
    expected = (votes[..., None] == np.arange(4)).mean(0)
    forest = concatenate([from_sklearn(tree.tree_, np.arange(4), np.zeros(3), 4) for tree in grown.estimators_])
    np.testing.assert_allclose(forest(near), expected, atol=1e-6)
    assert not forest.is_malformed(3, 4)
    n_nodes = sum(tree.tree_.node_count for tree in grown.estimators_)
    assert len(forest.right) < n_nodes / 2


def test_trees_of_a_single_label_are_one_node_each():
    x = TABLE.features.astype(np.float32)
    soft_labels = np.random.default_rng(0).dirichlet(np.ones(4), len(x))
    soft_labels[:, 2] += 1
    grown = ExtraTreesRegressor(2, random_state=0).fit(x, soft_labels)
    forest = concatenate([from_sklearn(tree.tree_, np.arange(4), np.zeros(3), 4) for tree in grown.estimators_])
    assert forest.right.tolist() == [0, 0]
    assert forest.feature.tolist() == [2, 2]
    assert not forest.is_malformed(3, 4)
    np.testing.assert_array_equal(forest(x)[:, 2], 1.0)


def test_trees_say_of_a_row_what_those_say_that_did_not_see_it():
    """A row whose label is wrong is named right by trees that were not taught it; taught, they repeat it."""
    taught = grow_trees(targets=wrong_targets())
    truth = DATA.labels[:5]
    assert (taught.oof.mean[:5].argmax(1) == truth).mean() >= 0.8
    assert (taught.model(TABLE.features[:5]).argmax(1) != truth).all()
    assert (taught.oof.mean.argmax(1) == DATA.labels).mean() > 0.9


def test_trees_that_are_of_no_use_are_not_grown():
    asked = []
    taught = grow_trees(is_useful=lambda predicted: asked.append(predicted.any(1).mean()))
    assert asked == [pytest.approx(0.6, abs=0.01)]  # three parts of five
    assert len(taught.model.root) == 18
    assert (taught.oof.mean.any(1).mean()) == asked[0]


def test_same_seed_same_trees():
    first, second, other = (grow_trees(seed=seed).model for seed in (3, 3, 4))
    np.testing.assert_array_equal(first.threshold, second.threshold)
    assert len(first.threshold) != len(other.threshold) or (first.threshold != other.threshold).any()


def count_parts(monkeypatch, interrupt_at=None):
    """Count the parts of a forest that are grown; Ctrl-C comes in the one whose number is given."""
    fit, parts = ExtraTreesClassifier.fit, []

    def counted(self, *arguments):
        parts.append(self.random_state)
        if len(parts) == interrupt_at:
            raise KeyboardInterrupt
        return fit(self, *arguments)

    monkeypatch.setattr(ExtraTreesClassifier, "fit", counted)
    return parts


@pytest.mark.parametrize("damage", [None, b"", b"PK no archive"])
def test_trees_that_were_grown_before_an_interrupt_are_not_grown_again(tmp_path, monkeypatch, damage):
    with monkeypatch.context() as patched:
        count_parts(patched, interrupt_at=4)
        with pytest.raises(KeyboardInterrupt):
            grow_trees(checkpoint=tmp_path)
    if damage is not None:
        min((tmp_path / "trees").iterdir()).write_bytes(damage)
    parts = count_parts(monkeypatch)
    resumed = grow_trees(checkpoint=tmp_path)
    assert len(parts) == (2 if damage is None else 3)
    whole = grow_trees()
    np.testing.assert_array_equal(resumed.model.threshold, whole.model.threshold)
    np.testing.assert_array_equal(resumed.oof.mean, whole.oof.mean)


@pytest.mark.parametrize(
    "changed",
    [
        {"seed": 4},
        {"data": replace(TABLE, features=TABLE.features + 1)},
        {"targets": TARGETS._replace(soft_labels=TARGETS.soft_labels * 0.5)},
    ],
    ids=["seed", "features", "targets"],
)
def test_trees_of_other_data_are_grown_anew(tmp_path, monkeypatch, changed):
    grow_trees(checkpoint=tmp_path)
    parts = count_parts(monkeypatch)
    grow_trees(**changed, checkpoint=tmp_path)
    assert len(parts) == FEW.folds


def test_of_trees_that_were_grown_before_the_oldest_third_of_each_part_is_grown_anew():
    first = grow_trees().model
    again = grow_trees(forest=first).model
    alike = grow_trees(forest=again).model
    assert len(again.root) == len(first.root) == 30
    assert not again.is_malformed(3, 4)
    for part in range(0, 30, 6):  # of six trees the first two go, four stay, two come
        np.testing.assert_array_equal(
            again.take(part, part + 4)(TABLE.features), first.take(part + 2, part + 6)(TABLE.features)
        )
    new = [forest.take(4, 6).threshold for forest in (again, alike)]
    assert len(new[0]) != len(new[1]) or (new[0] != new[1]).any()  # not the same trees round after round


def test_a_forest_of_another_number_of_trees_is_grown_anew():
    other = grow_trees(config=replace(FEW, count=2 * FEW.count)).model
    again, fresh = (grow_trees(forest=before).model for before in (other, None))
    np.testing.assert_array_equal(again.threshold, fresh.threshold)


def test_kept_trees_still_hold_their_rows_out():
    before = grow_trees(targets=wrong_targets())
    again = grow_trees(targets=wrong_targets(), forest=before.model)
    assert (again.oof.mean[:5].argmax(1) == DATA.labels[:5]).mean() >= 0.8


def test_folds_hold_every_row_out_once_and_groups_together():
    groups = np.arange(300) // 7
    held = np.zeros(300, dtype=int)
    for train, out in cross_fit_splits(groups, 10, seed=3):
        held[out] += 1
        assert not set(groups[train]) & set(groups[out])
    assert (held == 1).all()


def test_one_group_alone_is_learned_from():
    (train, held), *more = cross_fit_splits(np.zeros(300), 10, seed=3)
    assert len(train) == len(held) == 300
    assert not more


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("right", lambda a: np.full_like(a, -1)),
        ("right", lambda a: np.where(a > 0, 1, 0)),
        ("right", lambda a: a + len(a)),
        ("feature", lambda a: a + 4),
        ("feature", lambda a: a - 9),
        ("root", lambda a: a + 10**6),
        ("threshold", lambda a: a[1:]),
        ("origin", lambda a: a[1:]),
        ("right", lambda a: a[0]),
        ("feature", lambda a: a[:, None]),
        ("threshold", lambda a: a[:, None]),
        ("root", lambda a: a[None]),
        ("root", lambda a: a[0]),
        ("root", lambda a: a[1:]),  # the first nodes belong to no tree
        ("root", lambda a: a[::-1]),
        (
            "root",
            lambda a: np.insert(a, 1, 1),
        ),  # the first tree ends at its root, whose right child is a node of the second
    ],
)
def test_arrays_that_are_no_trees_are_known(part, change):
    forest = grow_trees().model
    assert replace(forest, **{part: change(getattr(forest, part))}).is_malformed(3, 4)


def test_trees_are_fewer_and_then_left_out_of_many_classes():
    assert [TreesConfig().per_fold(c) for c in (2, 50, 100, 5000)] == [15, 15, 8, 5]
    assert TreesConfig().is_affordable(100_000, 20)
    assert not TreesConfig().is_affordable(5000, 5000)


def test_a_classifier_of_ones_own():
    taught = SklearnLearner(GaussianNB()).fit(TABLE, TARGETS, context_for(TABLE))
    assert (taught.oof.mean.argmax(1) == DATA.labels).mean() > 0.9
    np.testing.assert_allclose(taught.model(TABLE.features).sum(1), 1, atol=1e-6)


def test_beliefs_stay_in_the_set_and_are_weighed_by_the_prior():
    mask, said = np.array([[1, 1, 0]], dtype=bool), np.array([[0.2, 0.2, 0.6]])
    np.testing.assert_allclose(combine_within_sets(mask, [said]), [[0.5, 0.5, 0]])
    np.testing.assert_allclose(combine_within_sets(mask, [said], np.array([[3.0, 1.0, 9.0]])), [[0.75, 0.25, 0]])
    np.testing.assert_allclose(combine_within_sets(mask, []), [[0.5, 0.5, 0]])


def test_shares_are_equal_where_learners_are_and_where_rows_are_few():
    good, sets = np.tile([[0.8, 0.2], [0.2, 0.8]], (300, 1)), np.tile([[True, False], [False, True]], (300, 1))
    np.testing.assert_allclose(learner_weights([good, good], sets), [0.5, 0.5])
    few = learner_weights([good[:4], 1 - good[:4]], sets[:4])
    assert few[0] > few[1] > 0.4
    assert learner_weights([good, 1 - good], sets).tolist() == [1.0, 0.0]


def test_the_prior_says_which_learner_is_right():
    """Sets that hold every label tell nothing; votes do."""
    good = np.tile([[0.9, 0.1], [0.1, 0.9]], (300, 1))
    everything = np.ones((600, 2), dtype=bool)
    np.testing.assert_allclose(learner_weights([good, 1 - good], everything), [0.5, 0.5])
    assert learner_weights([good, 1 - good], everything, good)[0] > 0.9


@pytest.mark.parametrize(
    ("learners", "message"),
    [
        (
            ("tree",),
            r"learners must be some of networks, linear, trees, set_trees, boosting, kernel, or .*; got 'tree'\. Did you mean 'trees'\?",
        ),
        ((), r"learners must be some of networks, .*; got \(\)"),
        (SimpleNamespace(predict_proba=len), "without fit, get_params"),
    ],
)
def test_messages(learners, message):
    with pytest.raises(ValueError, match=message):
        check_learners(learners)


def test_one_learner_may_be_named_alone():
    assert check_learners("trees") == ("trees",)


def test_a_learner_is_clearly_better_only_beyond_the_error_of_the_difference():
    """Ten wrong rows against none are no chance; ten against twelve others are."""
    sets = np.tile([True, False], (100, 1))
    right = np.tile([0.9, 0.1], (100, 1))
    ten_wrong, twelve_wrong = right.copy(), right.copy()
    ten_wrong[:10], twelve_wrong[10:22] = [0.1, 0.9], [0.1, 0.9]
    assert significantly_better(right, ten_wrong, sets, "both")
    assert not significantly_better(ten_wrong, twelve_wrong, sets, "both")
    assert not significantly_better(ten_wrong, right, sets, "covering")
    assert not significantly_better(right, right, sets, "both")


def test_many_rows_are_predicted_as_few_are(monkeypatch):
    forest = grow_trees().model
    rows = np.random.default_rng(0).normal(size=(500, 3)).astype(np.float32) * 3
    rows[0, 0] = np.nan
    few_at_a_time = np.concatenate([forest(part) for part in np.array_split(rows, 20)])
    monkeypatch.setattr(oneof.learners.forest, "CPU_BLOCK", 1)  # so that scikit-learn's trees predict
    monkeypatch.setattr(oneof.learners.forest, "ROWS_BLOCK", 64)
    assert np.array_equal(forest(rows), few_at_a_time)
