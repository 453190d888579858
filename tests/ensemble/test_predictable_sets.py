"""Probabilities are lowered where features predict which wrong labels are in the sets."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from oneof import PartialLabelClassifier
from oneof.ensemble.predictable_sets import describe_share, explained_share, trust_in_labels

N = 400


def blurred_classes(seed=0):
    """Six classes along a line. Two fifths of the rows lie in the half of another class that is next to their own."""
    rng = np.random.default_rng(seed)
    position = rng.random(N) * 6
    looks_like = position.astype(int)
    next_class = (looks_like + np.where(position % 1 > 0.5, 1, -1)) % 6
    labels = np.where(rng.random(N) < 0.4, next_class, looks_like)
    features = np.column_stack([np.cos(position * np.pi / 3), np.sin(position * np.pi / 3)])
    return rng, features, labels, looks_like, next_class


def one_hot(labels):
    return np.arange(6) == labels[:, None]


def sets_by_people(rng, labels, looks_like, next_class):
    """Return sets of the true label, what the row looks like, and mostly the class that is next to it."""
    return one_hot(labels) | one_hot(looks_like) | one_hot(np.where(rng.random(N) < 0.9, next_class, labels))


def sets_by_chance(rng, labels):
    return one_hot(labels) | (rng.random((N, 6)) < 0.3)


def test_chance_is_trusted_and_what_features_predict_is_not():
    rng, features, labels, looks_like, next_class = blurred_classes()
    by_people = explained_share(features, sets_by_people(rng, labels, looks_like, next_class), looks_like)
    by_chance = explained_share(features, sets_by_chance(rng, labels), labels)
    assert trust_in_labels(by_chance) == 1
    assert trust_in_labels(by_people) < 0.7
    assert describe_share(by_chance) == []
    (warning,) = describe_share(by_people)
    assert "probabilities are lowered" in warning
    assert "sample.csv" in warning


def test_what_depends_on_the_label_alone_is_trusted():
    rng, features, labels, *_ = blurred_classes(1)
    other = np.where(rng.random(N) < 0.8, 5 - labels, labels)
    sets = one_hot(labels) | one_hot(other)
    assert trust_in_labels(explained_share(features, sets, labels)) == 1


@pytest.mark.parametrize(
    "sets", [np.ones((N, 4), dtype=bool), np.ones((N, 1), dtype=bool), np.eye(4, dtype=bool)[np.arange(N) % 4]]
)
def test_sets_that_leave_nothing_open_are_trusted(sets):
    features = np.random.default_rng(0).normal(size=(N, 3))
    labels = sets.argmax(1)
    assert trust_in_labels(explained_share(features, sets, labels)) == 1


def test_a_fit_is_not_sure_of_mistakes_that_features_show(caplog):
    rng, features, labels, looks_like, next_class = blurred_classes(2)
    settings = {"learners": ("kernel",), "random_state": 0}
    misled = PartialLabelClassifier(**settings).fit(features, sets_by_people(rng, labels, looks_like, next_class))
    sure = PartialLabelClassifier(**settings).fit(features, sets_by_chance(rng, labels))
    right = (misled.transduction_ == labels).mean()
    assert misled.label_probability_.mean() < right + 0.05
    assert sure.label_probability_.mean() > 0.5
    assert (misled.label_probability_ >= 1 / 3).all()
    assert caplog.text.count("Their probabilities are lowered") == 1
    _, new_rows, *_ = blurred_classes(3)
    assert misled.predict_proba(new_rows).max(1).mean() <= misled.label_probability_.mean() + 0.03
    assert sure.predict_proba(new_rows).max(1).mean() > 0.5


def gaussian_classes(seed=0):
    """Three classes in the plane that overlap a little."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(3, size=N)
    centres = np.array([[0.0, 2.0], [-1.7, -1.0], [1.7, -1.0]])
    return rng, centres[labels] + rng.normal(size=(N, 2)), labels


def test_probabilities_of_a_model_of_the_same_features_stay_as_given(caplog):
    """The model learned from twelve rows, and learners would repeat its mistakes with much confidence."""
    _, features, labels = gaussian_classes()
    sample = np.concatenate([np.flatnonzero(labels == label)[:4] for label in range(3)])
    model = LogisticRegression(C=0.1).fit(features[sample], labels[sample])
    numbers = model.predict_proba(features)
    clf = PartialLabelClassifier(learners=("kernel",), random_state=0).fit(features, numbers)
    np.testing.assert_array_equal(clf.transduction_, numbers.argmax(1))
    np.testing.assert_allclose(clf.label_probability_, numbers.max(1), atol=1e-4)
    assert "no second opinion" in caplog.text


def test_probabilities_by_chance_are_corrected():
    """A quarter of the rows are given a wrong label with probability 0.8."""
    rng, features, labels = gaussian_classes()
    named = np.where(rng.random(N) < 0.75, labels, rng.integers(3, size=N))
    noise = rng.dirichlet([1.0, 1.0, 1.0], size=N)
    numbers = 0.7 * np.eye(3)[named] + 0.3 * noise
    clf = PartialLabelClassifier(learners=("kernel",), random_state=0).fit(features, numbers)
    right = (clf.transduction_ == labels).mean()
    assert right > (numbers.argmax(1) == labels).mean() + 0.03
    assert clf.label_probability_.mean() < right + 0.06
    assert not any("no second opinion" in warning for warning in clf.result_.warnings)
