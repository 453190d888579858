"""Boosted trees that learn from candidate sets."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load, save
from scipy.special import softmax
from stages import context_for, make_dataset

from oneof import PartialLabelClassifier
from oneof.data.splits import cross_fit_splits
from oneof.learners.base import Targets
from oneof.learners.boosting import BoostingLearner, boost, newton_steps, targets_within
from oneof.learners.config import BoostingConfig
from oneof.runs.stored_model import checksum, load_model

CONFIG = BoostingConfig(rounds=30, folds=3)


def stripes(n=400, rate=0.3, seed=0):
    """Rows whose class depends on two columns, with sets that hold each wrong label with the same chance."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 4))
    labels = 2 * (x[:, 0] > 0) + (x[:, 1] > 0)
    sets = (rng.random((n, 4)) < rate) | (np.arange(4) == labels[:, None])
    return x, labels, sets


def fit_boosting(x, sets, config=CONFIG, n_jobs=None):
    data = make_dataset(x, sets)
    context = context_for(data)
    context = context._replace(resources=replace(context.resources, n_jobs=n_jobs))
    return BoostingLearner(config).fit(data, Targets.uniform(sets), context)


def test_residuals_are_the_gradient_of_the_log_likelihood_of_the_sets():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(20, 5))
    sets = rng.random((20, 5)) < 0.5
    sets[:, 0] = True

    def log_likelihood(logits):
        return np.log((softmax(logits, axis=1) * sets).sum(1))

    residuals = targets_within(softmax(logits, axis=1), sets) - softmax(logits, axis=1)
    for j in range(5):
        nudge = np.zeros(5)
        nudge[j] = 1e-6
        slope = (log_likelihood(logits + nudge) - log_likelihood(logits - nudge)) / 2e-6
        np.testing.assert_allclose(residuals[:, j], slope, atol=1e-8)


def test_targets_are_distributions_over_the_sets():
    rng = np.random.default_rng(1)
    sets = rng.random((30, 6)) < 0.4
    sets[:, 2] = True
    probabilities = softmax(50 * rng.normal(size=(30, 6)), axis=1)  # some are zero on the whole set
    targets = targets_within(probabilities, sets)
    np.testing.assert_allclose(targets.sum(1), 1)
    assert not targets[~sets].any()


def test_a_step_sums_over_the_rows_of_its_leaf():
    rng = np.random.default_rng(2)
    leaf = np.array([0, 1, 1, 0, 1])
    probabilities = softmax(rng.normal(size=(5, 3)), axis=1)
    residuals = np.eye(3)[[0, 1, 1, 0, 2]] - probabilities
    steps = newton_steps(leaf, residuals, probabilities)
    for number, j in product(range(2), range(3)):
        rows = leaf == number
        curvature = (probabilities * (1 - probabilities))[rows, j].sum() + 2 / 3
        assert steps[number, j] == pytest.approx(2 / 3 * residuals[rows, j].sum() / curvature)


def test_it_learns_the_labels_from_sets():
    x, labels, sets = stripes()
    x_new, labels_new, _ = stripes(seed=1)
    fitted = fit_boosting(x, sets)
    assert (fitted.oof.mean.argmax(1) == labels).mean() > 0.9
    assert (fitted.model(x_new).argmax(1) == labels_new).mean() > 0.9


def test_the_set_of_a_row_has_no_influence_on_its_own_prediction():
    x, _, sets = stripes()
    _, fold = cross_fit_splits(np.arange(len(x)), CONFIG.folds, seed=0)[0]
    changed = sets.copy()
    changed[fold] = ~changed[fold] | (np.arange(4) == 0)
    before = fit_boosting(x, sets).oof.mean
    after = fit_boosting(x, changed).oof.mean
    np.testing.assert_array_equal(before[fold], after[fold])
    assert (np.delete(before, fold, axis=0) != np.delete(after, fold, axis=0)).any()


def test_the_model_is_the_mean_of_the_boosted_trees_of_the_folds():
    x, _, sets = stripes()
    model = fit_boosting(x, sets).model
    origin = x.mean(0)
    expected = []
    for number, (train, _) in enumerate(cross_fit_splits(np.arange(len(x)), CONFIG.folds, seed=0)):
        centred = (x - origin).astype(np.float32)
        expected.append(boost(centred[train], sets[train], CONFIG, (0, number))(centred))
    np.testing.assert_allclose(model(x), np.mean(expected, axis=0), atol=1e-6)


def test_few_and_many_rows_are_predicted_alike():
    """Few rows go through torch, many through scikit-learn's compiled trees."""
    x, _, sets = stripes(n=3500)
    model = fit_boosting(x, sets, BoostingConfig(rounds=30, folds=3)).model
    together = model(x)
    np.testing.assert_allclose(together[:50], model(x[:50]), atol=1e-6)
    assert len(x) * 90 > 2**18 > 50 * 90


def test_workers_change_nothing():
    x, _, sets = stripes(n=120)
    alone = fit_boosting(x, sets)
    shared = fit_boosting(x, sets, n_jobs=2)
    np.testing.assert_array_equal(alone.oof.mean, shared.oof.mean)
    np.testing.assert_array_equal(alone.model(x), shared.model(x))


def test_a_large_table_does_without():
    config = BoostingConfig(max_cells=100)
    assert config.is_affordable(25, 4)
    assert not config.is_affordable(26, 4)
    assert BoostingConfig().is_affordable(10**6, 20)  # it is boosted on a sample


def test_tiny_tables_and_classes_of_no_set_are_predicted():
    rng = np.random.default_rng(0)
    singletons = np.eye(3, dtype=bool)
    absent = singletons[rng.integers(2, size=40)]  # the third class is in no set
    tables = [
        (rng.normal(size=(2, 2)), singletons[:2]),
        (np.ones((30, 2)), singletons[rng.integers(3, size=30)]),
        (rng.normal(size=(40, 1)), np.eye(2, dtype=bool)[rng.integers(2, size=40)]),
        (rng.normal(size=(40, 2)), np.ones((40, 3), dtype=bool)),
        (rng.normal(size=(40, 2)), absent),
    ]
    for x, sets in tables:
        fitted = fit_boosting(x, sets, BoostingConfig(rounds=10))
        for probabilities in (fitted.oof.mean, fitted.model(x)):
            np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-5)
        assert fitted.model(x[:0]).shape == (0, sets.shape[1])
        assert not fitted.model.is_malformed(x.shape[1], sets.shape[1])


def test_small_differences_between_large_numbers_are_kept():
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=300)
    x = 1e12 + labels[:, None] + 0.1 * rng.normal(size=(300, 1))
    fitted = fit_boosting(x, np.eye(2, dtype=bool)[labels])
    assert (fitted.oof.mean.argmax(1) == labels).all()
    assert (fitted.model(x).argmax(1) == labels).all()


def test_it_can_be_named_alone(tmp_path):
    x, labels, sets = stripes()
    classifier = PartialLabelClassifier(learners="boosting", random_state=0).fit(x, sets)
    assert classifier.model_.learners == {"boosting": 1.0}
    assert (classifier.transduction_ == labels).mean() > 0.9
    classifier.save(tmp_path / "run")
    loaded = PartialLabelClassifier.from_run(tmp_path / "run")
    np.testing.assert_array_equal(loaded.predict_proba(x), classifier.predict_proba(x))


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    x, _, sets = stripes(n=60)
    folder = tmp_path_factory.mktemp("boosted") / "run"
    PartialLabelClassifier(learners="boosting", random_state=0).fit(x, sets).save(folder)
    return folder


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("start", lambda start: start[:0]),
        ("start", lambda start: start[:3]),
        ("start", lambda start: start[0]),
        ("start", lambda start: start[:, :2]),
        ("start", lambda start: start.bfloat16()),
        ("steps", lambda steps: steps[:, :2]),
        ("steps", lambda steps: steps[:-1]),
        ("steps", lambda steps: steps[:0]),
        ("steps", lambda steps: steps[0, 0]),
        ("steps", lambda steps: torch.full_like(steps, 1e38)),  # their sum overflows
        ("root", lambda root: root[0]),
        ("root", lambda root: root[:-1]),
    ],
)
def test_stored_arrays_that_are_no_boosted_trees_are_refused(stored, tmp_path, name, change):
    run = Path(shutil.copytree(stored, tmp_path / "run"))
    tensors = load((run / "model.safetensors").read_bytes())
    key = f"boosting.{name}"
    content = save({**tensors, key: change(tensors[key]).clone()})
    (run / "model.safetensors").write_bytes(content)
    metadata = json.loads((run / "model.json").read_text())
    metadata["sha256"] = hashlib.sha256(content).hexdigest()
    metadata["checksum"] = checksum(metadata)
    (run / "model.json").write_text(json.dumps(metadata))
    with pytest.raises(ValueError, match=r"model\.json must describe model\.safetensors"):
        load_model(run)
