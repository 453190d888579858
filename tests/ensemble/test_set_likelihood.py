"""Whether the kernel learns resolved candidates or the sets as they are: told by the sets of strangers, and by no truth."""

import numpy as np
import pytest
from scipy.special import softmax
from stages import context_for, make_dataset

from oneof.ensemble.set_likelihood import choose_raw_set_temperature, set_likelihood
from oneof.learners.kernel import DEFAULT_KERNEL, cross_fit_scores, leave_one_out_scores
from oneof.learners.kernel_ensemble import fit_kernels, refit_on_raw_sets
from oneof_paper.synthetic import mixture

RNG = np.random.default_rng(0)
LABELS = RNG.integers(4, size=2000)
TRUTH = np.eye(4, dtype=bool)[LABELS]
TOGETHER = TRUTH | (np.roll(TRUTH, 1, axis=1) & (RNG.random((2000, 1)) < 0.5))  # label j + 1 comes with j


def test_likelihood_is_that_of_the_model():
    """Counted with the truth known, it is what a loop over rows and labels gives."""
    p = np.where(TRUTH, 0.97, 0.01)
    expected = np.log(0.971) + np.log(0.5)  # either of two sets is as likely, given the label
    assert set_likelihood(p, TOGETHER) == pytest.approx(expected, abs=0.03)


def test_it_tells_labels_within_a_set_apart():
    """Where one label comes with all others, to name it is as good by the sum over the set, and worse by the model."""
    sets = TRUTH | (np.arange(4) == 0) & (RNG.random((2000, 1)) < 0.5)
    right, wrong = (np.where(one, 0.97, 0.01) for one in (TRUTH, np.eye(4, dtype=bool)[sets.argmax(1)]))
    assert (wrong * sets).sum() == pytest.approx((right * sets).sum())
    assert set_likelihood(right, sets) > set_likelihood(wrong, sets) + 0.1


def test_the_better_of_two_opinions_is_taken():
    noise = RNG.normal(size=TRUTH.shape)
    good, poor = 0.2 * TRUTH + 0.01 * noise, 0.1 * noise
    assert choose_raw_set_temperature((good, poor), TOGETHER) is None
    assert choose_raw_set_temperature((poor, good), TOGETHER) in (24.0, 36.0, 48.0)
    assert choose_raw_set_temperature((good, good), TOGETHER) is None  # as where every set has one label


def test_no_rounds_leave_the_sets_as_given():
    data = mixture(n=200, d=2, c=4, seed=0)
    mask = np.eye(4, dtype=bool)[data.labels] | (RNG.random((200, 4)) < 0.3)
    opinion = leave_one_out_scores(data.x, mask, type(DEFAULT_KERNEL)(rounds=0))
    np.testing.assert_allclose(opinion.weights, mask / mask.sum(1, keepdims=True))
    resolved, given = cross_fit_scores(data.x, mask)
    assert resolved.shape == given.shape == mask.shape
    assert np.abs(given - opinion.scores).mean() < np.abs(resolved - opinion.scores).mean()


def test_the_regression_learns_what_was_given():
    data = mixture(n=200, d=2, c=3, seed=0)
    mask = np.eye(3, dtype=bool)[data.labels] | (RNG.random((200, 3)) < 0.5)
    table = make_dataset(data.x, mask)
    context = context_for(table)
    resolved = fit_kernels(table, mask, ["feature", "ranks", "both"], context)
    raw = refit_on_raw_sets(table, mask, resolved, 24.0, context)
    assert raw.scalings == resolved.scalings[:2]
    on_resolved = resolved.learner(2, mask)
    on_raw = raw.learner(2, mask)
    assert on_raw.model.inverse_temperature == 24.0
    assert len(on_raw.model.kernels) == len(on_resolved.model.kernels) == 2
    np.testing.assert_allclose(softmax(on_raw.model(data.x), axis=1).sum(1), 1, atol=1e-5)
    assert (on_raw.oof.mean != on_resolved.oof.mean).any()
