"""Whether the kernel learns resolved candidates or the sets as they are: told by the sets of strangers, and by no truth."""

import numpy as np
import pytest
from scipy.special import softmax

from oneof.ensemble.pipeline import SPACE
from oneof.ensemble.set_likelihood import choose_raw_set_temperature, set_likelihood
from oneof.learners.kernel import DEFAULT_KERNEL, cross_fit_scores, leave_one_out_scores
from oneof.learners.networks import regression_as_given, search
from oneof.learners.scaled_rows import Search
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
    asked = Search(SPACE.quick)
    found = search(data.x, mask, asked)
    given = regression_as_given(found, data.x, mask, asked, 24.0)
    assert given.regression.learner.sharpness == 24.0
    assert len(given.regression.learner.ways) == len(found.regression.learner.ways) == 2
    np.testing.assert_allclose(softmax(given.regression.learner(data.x), axis=1).sum(1), 1, atol=1e-5)
    assert (given.regression.left_out != found.regression.left_out).any()
