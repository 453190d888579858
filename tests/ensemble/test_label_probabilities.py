"""Labels are as probable as they are right: where sets miss the true label, and where nothing can be learned."""

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_wine

from oneof import PartialLabelClassifier


def wrong_labels(labels: np.ndarray, n_classes: int, rng: np.random.Generator) -> np.ndarray:
    return (labels + rng.integers(1, n_classes, len(labels))) % n_classes


def one_hot(labels: np.ndarray, n_classes: int) -> np.ndarray:
    return np.eye(n_classes, dtype=bool)[labels]


@pytest.mark.parametrize("load", [load_wine, load_digits])
def test_a_sole_candidate_that_may_be_wrong_is_not_certain(load):
    """One label per row, a fifth of them wrong: the mean probability is the share that is right."""
    rng = np.random.default_rng(0)
    x, labels = load(return_X_y=True)
    x, labels = x[:600], labels[:600]
    given = np.where(rng.random(len(x)) < 0.2, wrong_labels(labels, labels.max() + 1, rng), labels)
    fitted = PartialLabelClassifier(quick=True, random_state=0).fit(x, one_hot(given, labels.max() + 1))
    right = fitted.transduction_ == labels
    assert fitted.label_probability_.mean() == pytest.approx(right.mean(), abs=0.05)
    assert fitted.label_probability_[~right].mean() < 0.3
    assert fitted.label_probability_[right].mean() > 0.9
    np.testing.assert_allclose(fitted.label_distributions_.sum(1), 1)


def test_labels_of_pairs_that_miss_the_truth_are_not_certain():
    rng = np.random.default_rng(0)
    x, labels = load_digits(return_X_y=True)
    x, labels = x[:600], labels[:600]
    sets = one_hot(labels, 10) | one_hot(wrong_labels(labels, 10, rng), 10)
    missing = rng.random(600) < 0.2
    sets[missing, labels[missing]] = False
    fitted = PartialLabelClassifier(quick=True, random_state=0).fit(x, sets)
    right = fitted.transduction_ == labels
    assert right.mean() < 0.85
    assert fitted.label_probability_.mean() == pytest.approx(right.mean(), abs=0.05)


def test_where_nothing_is_learned_the_candidates_of_a_row_are_about_equally_probable():
    rng = np.random.default_rng(0)
    labels = rng.choice(4, 400, p=[0.5, 0.3, 0.15, 0.05])
    sets = one_hot(labels, 4) | one_hot(wrong_labels(labels, 4, rng), 4)
    fitted = PartialLabelClassifier(quick=True, random_state=0).fit(rng.normal(size=(400, 6)), sets)
    assert fitted.accuracy_.verdict == "nothing learned"
    assert fitted.label_probability_.max() < 0.6
    assert (fitted.transduction_ == fitted.label_distributions_.argmax(1)).mean() > 0.9


@pytest.mark.parametrize("n", [60, 300])
def test_features_of_noise_neither_refute_labels_nor_predict_new_rows(n, tmp_path):
    """Each row has one label: it stays, however little the features confirm it, and new rows may have any label."""
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=n)
    new_rows = rng.normal(size=(200, 6))
    fitted = PartialLabelClassifier(quick=True, random_state=0).fit(rng.normal(size=(n, 6)), one_hot(labels, 3))
    np.testing.assert_array_equal(fitted.transduction_, labels)
    assert fitted.label_probability_.min() > 0.89
    probabilities = fitted.predict_proba(new_rows)
    assert probabilities.max() < 0.41
    np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-5)

    fitted.save(tmp_path / "run")
    again = PartialLabelClassifier.from_run(tmp_path / "run")
    np.testing.assert_allclose(again.predict_proba(new_rows), probabilities, atol=1e-6)


def test_sets_that_hold_the_true_label_are_hardly_doubted():
    rng = np.random.default_rng(0)
    x, labels = load_digits(return_X_y=True)
    x, labels = x[:600], labels[:600]
    sets = one_hot(labels, 10) | one_hot(wrong_labels(labels, 10, rng), 10)
    table = PartialLabelClassifier(quick=True, random_state=0).fit(x, sets).result_.purified
    holds_truth = [sum(shares) for shares in table["distribution"].to_pylist()]
    assert np.mean(holds_truth) > 0.98
