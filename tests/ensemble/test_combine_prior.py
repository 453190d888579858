"""A prior and held-out predictions: independent predictions change nothing, informative ones help, and neither is believed beyond the evidence."""

from __future__ import annotations

import numpy as np
import pytest

from oneof.ensemble.combine_prior import combine_prior

N = 400


def stated(labels, c, share):
    """The same share on the true label of every row, the rest spread over the others."""
    prior = np.full((len(labels), c), (1 - share) / (c - 1))
    prior[np.arange(len(labels)), labels] = share
    return prior


def drawn(labels, c, accuracy, rng):
    """Predictions whose most probable label is right in a share of the rows, and which say so."""
    wrong = (labels + rng.integers(1, c, size=len(labels))) % c
    first = np.where(rng.random(len(labels)) < accuracy, labels, wrong)
    return stated(first, c, accuracy)


def combined(prior, predicted):
    candidates = prior > 0
    return combine_prior(prior, predicted, candidates, np.ones(len(prior), dtype=bool))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("concentration", [0.05, 1.0, 50.0])
def test_predictions_independent_of_the_labels_change_nothing(seed, concentration):
    rng = np.random.default_rng(seed)
    prior = stated(rng.integers(3, size=N), 3, 0.8)
    noise = rng.dirichlet([concentration] * 3, size=N)
    np.testing.assert_allclose(combined(prior, noise), prior, atol=1e-6)


def test_a_confident_constant_does_not_overturn_a_rare_class():
    """Nine rows in ten have one label: predicting it for all is accurate, and still says nothing about a single row."""
    labels = (np.arange(N) % 10 == 0).astype(int)
    prior = stated(labels, 2, 0.8)
    for constant in ([0.9, 0.1], [0.999, 0.001]):
        np.testing.assert_allclose(combined(prior, np.tile(constant, (N, 1))), prior, atol=1e-6)


def test_informative_predictions_correct_a_noisy_prior():
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=N)
    prior = drawn(labels, 3, 0.7, rng)
    shares = combined(prior, drawn(labels, 3, 0.9, rng))
    right = (shares.argmax(1) == labels).mean()
    assert right > 0.85
    assert shares.max(1).mean() == pytest.approx(right, abs=0.05)


def drawn_with_doubts(labels, c, rng):
    """Predictions that are right as often as they say, which differs from row to row."""
    share = rng.uniform(1 / c, 1, size=len(labels))
    predicted = drawn(labels, c, 1.0, rng)
    wrong = (labels + rng.integers(1, c, size=len(labels))) % c
    first = np.where(rng.random(len(labels)) < share, labels, wrong)
    predicted[:] = ((1 - share) / (c - 1))[:, None]
    predicted[np.arange(len(labels)), first] = share
    return predicted


def test_a_prior_that_is_better_than_it_states_is_believed():
    """It gives 0.8 to labels that are all right; the rows of which the learners are surest show it, and doubtful ones must not overrule it."""
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=N)
    shares = combined(stated(labels, 3, 0.8), drawn_with_doubts(labels, 3, rng))
    assert (shares.argmax(1) == labels).mean() > 0.99
    assert shares.max(1).mean() > 0.95


def noisy_labels_and_predictions(rng, c=5):
    """A quarter of the named labels are wrong. Learners reproduce that as a probability of 0.75, and are right in nearly all rows."""
    labels = rng.integers(c, size=N)
    wrong = (labels + rng.integers(1, c, size=N)) % c
    named = np.where(rng.random(N) < 0.75, labels, wrong)
    predicted = np.where(rng.random(N) < 0.95, labels, rng.integers(c, size=N))
    return labels, named, stated(predicted, c, 0.75)


def test_learners_who_were_trained_on_noise_are_surer_than_they_say():
    labels, named, predicted = noisy_labels_and_predictions(np.random.default_rng(0))
    shares = combined(stated(named, 5, 0.75), predicted)
    right = (shares.argmax(1) == labels).mean()
    assert right > 0.92
    assert shares.max(1).mean() < right + 0.05


def test_a_prior_that_states_more_than_learners_confirm_is_doubted():
    """It states 0.97 and is right in 0.75. Its labels stay, since the learners might be those who err, but less probable."""
    labels, named, predicted = noisy_labels_and_predictions(np.random.default_rng(0))
    shares = combined(stated(named, 5, 0.97), predicted)
    assert (shares.argmax(1) == labels).mean() >= (named == labels).mean()
    is_contradicted = predicted.argmax(1) != named
    assert shares.max(1)[is_contradicted].mean() < 0.75
    assert shares.max(1)[~is_contradicted].mean() > 0.95


def test_learners_who_are_no_second_opinion_change_nothing():
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=N)
    prior = drawn(labels, 3, 0.6, rng)
    everywhere = np.ones(prior.shape, dtype=bool)
    repeated = stated(prior.argmax(1), 3, 0.9)
    held_out = np.ones(N, dtype=bool)
    np.testing.assert_allclose(combine_prior(prior, repeated, everywhere, held_out, independence=0.0), prior, atol=1e-6)
    half = combine_prior(prior, repeated, everywhere, held_out, independence=0.5)
    full = combine_prior(prior, repeated, everywhere, held_out)
    assert prior.max(1).mean() < half.max(1).mean() < (prior.max(1).mean() + full.max(1).mean()) / 2


def test_only_held_out_rows_count():
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=N)
    prior = drawn(labels, 3, 0.7, rng)
    everywhere = np.ones(prior.shape, dtype=bool)
    memorised = stated(prior.argmax(1), 3, 0.99)
    nowhere = np.zeros(N, dtype=bool)
    np.testing.assert_allclose(combine_prior(prior, memorised, everywhere, nowhere), prior, atol=1e-6)


def test_a_tie_that_nothing_breaks_stays_a_tie():
    rng = np.random.default_rng(0)
    votes = rng.multinomial(3, [0.6, 0.2, 0.1, 0.1], size=N)
    shares = combined(votes, rng.dirichlet(np.ones(4), size=N))
    np.testing.assert_array_equal(shares.argmax(1), votes.argmax(1))


def test_rows_without_a_prior_and_labels_off_the_set():
    prior = np.array([[2.0, 1.0, 5.0], [0.0, 0.0, 0.0]])
    candidates = np.array([[True, True, False], [True, False, True]])
    shares = combine_prior(prior, np.full((2, 3), 1 / 3), candidates, np.ones(2, dtype=bool))
    np.testing.assert_allclose(shares, [[2 / 3, 1 / 3, 0], [0.5, 0, 0.5]])
