"""What people write by hand for candidate sets, in ten lines of scikit-learn; and what true labels give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from on_tables.problems import Floats, Labels, Mask, Problem, all_classes
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

N_FOLDS = 3
SMALLEST = 1e-3  # added to held-out probabilities, so that no candidate is ruled out by a few rows
Make = Callable[[], Any]  # returns an unfitted classifier


class Outcome(NamedTuple):
    """What a system predicts."""

    test: Floats  # [m, c] probabilities of test rows
    train: Floats | None = None  # [n, c] of training rows
    labels: Labels | None = None  # [n] resolved labels of training rows; None: the best candidates by `train`
    covering: float | None = (
        None  # share of held-out training rows whose best label is a candidate, where the system reports it
    )


def extra_trees() -> ExtraTreesClassifier:
    return ExtraTreesClassifier(200, random_state=0)


def boosting() -> HistGradientBoostingClassifier:
    return HistGradientBoostingClassifier(max_iter=100, random_state=0)


def logistic() -> Pipeline:
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=200))


def fit_weighted(model: Any, x: Floats, labels: Any, weights: Floats) -> Any:
    """Fit a classifier, or a pipeline that ends in one, to weighted rows."""
    key = "sample_weight"
    if isinstance(model, Pipeline):
        key = f"{model.steps[-1][0]}__sample_weight"
    return model.fit(x, labels, **{key: weights})


def fit_candidates(make: Make, problem: Problem, rounds: int = 0) -> Outcome:
    """Fit every candidate as a row of weight 1/|S|; each round computes the weights anew from held-out probabilities."""
    x = problem.x_train
    sets = problem.sets
    n_classes = sets.shape[1]
    row, label = np.nonzero(sets)
    weights = 1 / sets.sum(1)[row]
    within = None
    for _ in range(rounds):
        within = held_out_probabilities(make, x, sets, weights)
        within = (within + SMALLEST) * sets
        within /= within.sum(1, keepdims=True)
        weights = within[row, label]
    model = fit_weighted(make(), x[row], label, weights + 1e-9)
    train = all_classes(model, x, n_classes) if within is None else within
    return Outcome(all_classes(model, problem.x_test, n_classes), train)


def held_out_probabilities(make: Make, x: Floats, sets: Mask, weights: Floats) -> Floats:
    """Return probabilities [n, c] of each row by a model of the other folds; `weights` are of the candidates, row by row."""
    row, label = np.nonzero(sets)
    probabilities = np.zeros(sets.shape)
    for train, held_out in KFold(N_FOLDS, shuffle=True, random_state=0).split(x):
        used = np.isin(row, train)
        model = fit_weighted(make(), x[row[used]], label[used], weights[used])
        probabilities[held_out] = all_classes(model, x[held_out], sets.shape[1])
    return probabilities


def fit_true_labels(make: Make, problem: Problem) -> Outcome:
    """Fit the true labels: what a classifier could reach if the sets left no doubt."""
    model = make().fit(problem.x_train, problem.labels_train)
    return Outcome(all_classes(model, problem.x_test, problem.sets.shape[1]))
