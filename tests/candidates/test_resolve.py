"""The most probable candidate of each row."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import cross_val_predict

import oneof


def test_the_label_lies_in_the_set_and_its_share_is_within_it():
    generator = np.random.default_rng(0)
    mask = generator.random((50, 5)) < 0.4
    mask[np.arange(50), generator.integers(0, 5, 50)] = True
    probabilities = generator.dirichlet(np.ones(5), 50)
    labels, shares = oneof.resolve(mask, torch.tensor(probabilities))
    for i in range(50):
        inside = [probabilities[i, j] if mask[i, j] else 0 for j in range(5)]
        assert labels[i] == int(np.argmax(inside))
        assert shares[i] == pytest.approx(max(inside) / sum(inside))


def test_a_row_whose_probability_lies_outside_its_set_gets_a_uniform_share():
    labels, shares = oneof.resolve(np.array([[False, True, True]]), [[1.0, 0.0, 0.0]])
    assert (labels.tolist(), shares.tolist()) == ([1], [0.5])


@pytest.mark.parametrize(
    ("pred_probs", "words"),
    [
        ([[0.5, 0.5]], r"\[1, 3\].*\[1, 2\]"),
        ([[2.0, -1.0, 0.0]], "column 0.*softmax"),
        ([[0.1, np.nan, 0.1]], "column 1"),
    ],
)
def test_what_is_no_probability_is_refused(pred_probs, words):
    with pytest.raises(ValueError, match=words):
        oneof.resolve(np.array([[False, True, True]]), pred_probs)


def test_predictions_that_are_too_good_on_their_own_sets_are_told():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(200, 5))
    labels = generator.integers(3, size=200)  # x says nothing about them
    sets = np.eye(3, dtype=bool)[labels]
    sets[np.arange(200), generator.integers(3, size=200)] = True
    drawn = np.array([generator.choice(np.flatnonzero(row)) for row in sets])
    forest = RandomForestClassifier(20, random_state=0)
    with pytest.warns(UserWarning, match=r"pred_probs name a candidate in (199|200) of 200 rows.*out-of-fold"):
        oneof.resolve(sets, forest.fit(x, drawn).predict_proba(x))
    out_of_fold = cross_val_predict(forest, x, drawn, cv=5, method="predict_proba")
    oneof.resolve(sets, out_of_fold)  # warnings are errors
    oneof.resolve(sets[:40], forest.predict_proba(x[:40]))  # too few rows to tell
    oneof.resolve(np.ones((60, 3), dtype=bool), forest.predict_proba(x[:60]))  # full sets say nothing
