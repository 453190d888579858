"""Learners of a table in worker processes: the same result, to the bit, for any number of them."""

from __future__ import annotations

import numpy as np

from oneof import PartialLabelClassifier
from oneof.learners.networks import split_into_stacks
from oneof.training.trials import Trial
from oneof_paper.synthetic import mixture

DATA = mixture(n=240, d=6, c=4, separation=3.0, seed=3)
SETS = np.eye(4, dtype=bool)[DATA.labels] | (np.random.default_rng(0).random((240, 4)) < 0.3)


def fitted(n_jobs: int) -> PartialLabelClassifier:
    classifier = PartialLabelClassifier(n_estimators=5, epochs=6, random_state=0, device="cpu", n_jobs=n_jobs)
    return classifier.fit(DATA.x, SETS)


def test_any_number_of_workers_gives_the_same_bits():
    alone = fitted(1)
    together = fitted(2)
    assert alone.model_.learners == together.model_.learners
    np.testing.assert_array_equal(alone.transduction_, together.transduction_)
    np.testing.assert_array_equal(alone.predict_proba(DATA.x), together.predict_proba(DATA.x))
    one_record = alone.result_.training
    other_record = together.result_.training
    assert str(one_record) == str(other_record)


def test_stacks_have_two_networks_or_more():
    for n_trials in range(1, 9):
        trials = [Trial(seed=seed) for seed in range(n_trials)]
        for n_jobs in (1, 2, 3, 16):
            stacks = split_into_stacks(trials, n_jobs)
            joined = [trial.seed for stack in stacks for trial in stack]
            assert joined == list(range(n_trials))
            assert len(stacks) <= n_jobs
            assert min(len(stack) for stack in stacks) >= min(2, n_trials)
