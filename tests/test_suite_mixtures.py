"""Mixtures of stored probabilities: good forms get weight by the sets alone, and every mixture is one row."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pytest
import suite_mixtures
from on_tables.mixtures import RULES, best_power, likeliest_weights, mix, pair_factors, plausibility_factors, powered
from on_tables.problems import make_problem
from on_tables.rivals import Outcome
from on_tables.trials import Trial, store_probabilities

from oneof.storage.rows import append, read


@pytest.fixture(scope="module")
def example():
    """Held-out probabilities of a good, a fair and a useless form for 300 rows with sets by chance."""
    rng = np.random.default_rng(0)
    labels = rng.integers(4, size=300)
    truth = np.eye(4)[labels]
    sets = (truth > 0) | (rng.random((300, 4)) < 0.3)
    forms = [powered(truth * quality + rng.random((300, 4)), 2.0) for quality in (1.5, 0.5, 0.0)]
    return np.stack(forms), sets, labels


@pytest.mark.parametrize("rule", RULES)
def test_weights_follow_the_sets(example, rule):
    forms, sets, labels = example
    weights = RULES[rule](forms, sets)
    assert weights.sum() == pytest.approx(1)
    assert (weights >= 0).all()
    if rule == "mean":
        np.testing.assert_allclose(weights, 1 / 3)
    else:
        assert weights.argmax() == 0
        assert weights[0] > 0.5
        accuracy = (mix(forms, weights).argmax(1) == labels).mean()
        assert accuracy > (forms[1].argmax(1) == labels).mean()


def test_the_likeliest_weights_are_those_of_a_grid():
    rng = np.random.default_rng(1)
    evidence = rng.random((50, 2))
    weights = likeliest_weights(evidence)
    grid = np.linspace(0, 1, 1001)
    likelihood = [np.log(evidence @ [first, 1 - first]).sum() for first in grid]
    assert weights[0] == pytest.approx(grid[int(np.argmax(likelihood))], abs=0.005)


def test_pairs_prefer_the_label_whose_company_is_explained():
    """Label 1 always enters where 0 is right, and 0 never where 1 is: {0, 1} speaks for 0."""
    sets = np.array([[True, True, False], [False, True, False], [False, False, True]] * 40)
    probabilities = np.where(sets, 0.5, 0.01)
    factors = pair_factors(probabilities, sets)
    assert (factors[::3, 0] > factors[::3, 1]).all()


def test_plausible_labels_enter_more_often_and_count_less():
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.ones(5), 400)
    labels = (probabilities.cumsum(1) > rng.random((400, 1))).argmax(1)
    sets = np.eye(5, dtype=bool)[labels] | (rng.random((400, 5)) < probabilities)
    factors = plausibility_factors(probabilities, sets)
    assert factors[probabilities > 0.5].mean() < factors[probabilities < 0.1].mean()


def test_probabilities_that_are_too_flat_are_sharpened(example):
    forms, sets, _ = example
    assert best_power(powered(forms[0], 0.3), sets) > 1
    assert best_power(np.full(sets.shape, 0.25), sets) == 0.5  # all powers are alike: the first


def test_every_mixture_is_one_row(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"c0": rng.normal(size=60), "target": np.repeat(["k0", "k1", "k2"], 20)})
    (tmp_path / "tables").mkdir()
    frame.to_csv(tmp_path / "tables/glass.csv", index=False)
    problem = make_problem("glass", "uniform", 0, str(tmp_path))
    truth = np.eye(3)[problem.labels_test]
    rows = []
    for name, quality in (("forest b=0", 0.9), ("kernel b=0", 0.1)):
        trial = Trial("glass", "uniform", 0, name)
        test = quality * truth + (1 - quality) / 3
        store_probabilities(tmp_path / "store", trial, Outcome(test, np.full(problem.sets.shape, 1 / 3)))
        rows.append({**trial._asdict(), "accuracy": 0.5, "cpu_seconds": 2.0})
    append(tmp_path / "rows.jsonl", rows)
    arguments = ["--store", str(tmp_path / "store"), "--rows", str(tmp_path / "rows.jsonl"), "--rules", "mean", "mass"]
    arguments += ["--members", "forest b=0", "kernel b=0", "--data-dir", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["suite_mixtures.py", *arguments])
    for _ in range(2):
        assert suite_mixtures.main() == 0
    made = read(tmp_path / "rows.jsonl")[2:]
    assert [row["system"] for row in made] == ["mean of own", "mass of own"]
    assert made[0]["accuracy"] == 1.0
    assert made[0]["weights"] == [0.5, 0.5]
    assert made[0]["cpu_seconds"] == 4.0
