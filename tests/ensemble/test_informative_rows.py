"""Unlabelled rows, whose set holds every label: they are not trained on, and predicted as new rows are."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.ensemble import ExtraTreesClassifier

from oneof import PartialLabelClassifier
from oneof.candidates.mask import Candidates
from oneof.data.dataset import Dataset
from oneof.data.encode import Encoding
from oneof.ensemble.accuracy import sample_order
from oneof.ensemble.informative_rows import MIN_INFORMATIVE, informative_rows
from oneof.ensemble.pipeline import fit
from oneof.learners.config import FitConfig


@pytest.fixture(scope="module")
def few_labels():
    """A table with one large class, of whose rows one in ten has a label: features, labels, sets."""
    x, labels = make_classification(
        700, 12, n_informative=6, n_classes=4, weights=[0.85, 0.05, 0.05, 0.05], class_sep=1.3, random_state=0
    )
    rng = np.random.default_rng(0)
    sets = np.eye(4, dtype=bool)[labels] | (rng.random(700) > 0.1)[:, None]
    for label in range(4):
        sets[np.flatnonzero(labels == label)[:3]] = np.eye(4, dtype=bool)[label]
    return x, labels, sets


def dataset(x, sets, **more):
    names = tuple(f"x{j}" for j in range(x.shape[1]))
    encoding = Encoding(names, (0.0,) * len(names), (), {}, ())
    return Dataset.build(x, Candidates(sets, np.array([f"k{j}" for j in range(sets.shape[1])])), encoding, **more)


@pytest.fixture(scope="module")
def fitted(few_labels):
    x, _, sets = few_labels
    return fit(dataset(x, sets), FitConfig(seed=0))


def test_unlabelled_rows_of_a_large_class_do_not_ruin_the_labels(few_labels):
    x, labels, sets = few_labels
    is_labelled = ~sets.all(1)
    forest = ExtraTreesClassifier(100, random_state=0).fit(x[is_labelled], labels[is_labelled])
    by_forest = (forest.predict(x[~is_labelled]) == labels[~is_labelled]).mean()
    found = PartialLabelClassifier(random_state=0).fit(x, sets).transduction_
    assert (found == labels)[~is_labelled].mean() > by_forest - 0.02


def test_unlabelled_rows_are_trained_on_by_no_network_and_held_out(few_labels, fitted):
    x, _, sets = few_labels
    is_full = sets.all(1)
    trained = fitted.purified["trained"].to_numpy()
    assert (trained[is_full] == 0).all()
    assert (trained[~is_full] > 0).all()
    removed = np.array([len(labels) for labels in fitted.purified["removed"].to_pylist()])
    assert not removed[is_full].any()
    alone = fit(dataset(x[~is_full], sets[~is_full]), FitConfig(seed=0))
    np.testing.assert_allclose(fitted.model.probabilities(x[:20]), alone.model.probabilities(x[:20]), atol=1e-6)
    kept_labels = fitted.purified["label"].to_numpy(zero_copy_only=False)
    assert (kept_labels[~is_full] == alone.purified["label"].to_numpy(zero_copy_only=False)).all()


def test_rows_are_learned_from_where_anything_is_known_of_them(few_labels):
    x, labels, sets = few_labels
    full = np.flatnonzero(sets.all(1))
    gold = np.full(len(x), -1)
    gold[full[:5]] = labels[full[:5]]
    data = dataset(x, sets, gold=gold)
    assert not set(full) & set(informative_rows(data))
    rows = informative_rows(data, train_on_gold=True)
    assert set(full[:5]) <= set(rows)
    assert not set(full[5:]) & set(rows)
    prior = np.ones(sets.shape)
    prior[0, 0] = 2.0
    assert len(informative_rows(dataset(x, sets, prior=prior))) == len(x)  # counts say more than sets


def test_with_next_to_no_labels_all_rows_are_learned_from(few_labels):
    x, _, sets = few_labels
    sets = np.ones_like(sets)
    sets[: MIN_INFORMATIVE - 1, 0] = False
    assert len(informative_rows(dataset(x, sets))) == len(x)


def test_the_accuracy_is_measured_on_unlabelled_rows_too(few_labels, fitted):
    """Rows that a person labels to measure by are drawn from all rows; their labels teach nothing."""
    x, labels, sets = few_labels
    gold = np.full(len(x), -1)
    sample = sample_order(len(x))[:60]
    gold[sample] = labels[sample]
    measured = fit(dataset(x, sets, gold=gold), FitConfig(seed=0))
    assert measured.accuracy.by == "gold labels"
    n_measured = int(measured.accuracy.reason.split()[0])
    assert n_measured > 50  # but for rows that all networks were trained on
    assert measured.purified["probability"] == fitted.purified["probability"]
