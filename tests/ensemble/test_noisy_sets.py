"""Sets that miss the truth are found without truth, and where none does hardly a row is flagged."""

import numpy as np
import pytest
from stages import context_for, make_dataset

from oneof.ensemble.noisy_sets import find_noisy_sets, probability_of_missing
from oneof.learners.kernel_ensemble import fit_kernels


def world(seed, share, n=1200, c=6, sharp=4.0):
    """A calibrated classifier's probabilities, sets drawn by chance, and which of them miss the truth."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, c)) * sharp
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    truth = (p.cumsum(1) > rng.random((n, 1))).argmax(1)
    sets = (rng.random((n, c)) < 0.3) | (np.arange(c) == truth[:, None])
    missing = rng.random(n) < share
    sets[missing, truth[missing]] = False
    sets[~sets.any(1), 0] = True
    missing = ~sets[np.arange(n), truth]
    return p, sets, missing


@pytest.mark.parametrize("seed", range(3))
def test_the_probability_is_worth_something(seed):
    p, sets, missing = world(seed, 0.1)
    said = probability_of_missing(p, sets)
    assert missing[said >= 0.5].mean() > 0.75
    assert (said >= 0.5).sum() > 0.25 * missing.sum()
    low, high = said[said < 0.2], said[said > 0.8]
    assert missing[said < 0.2].mean() == pytest.approx(low.mean(), abs=0.05)
    assert missing[said > 0.8].mean() == pytest.approx(high.mean(), abs=0.15)


@pytest.mark.parametrize("seed", range(3))
def test_where_every_set_holds_the_truth_hardly_a_row_is_flagged(seed):
    p, sets, missing = world(seed, 0.0)
    assert not missing.any()
    assert (probability_of_missing(p, sets) >= 0.5).sum() <= 2


def test_a_learner_that_is_too_sure_is_held_back():
    """Of a sharpened opinion many first guesses lie outside their set; without the power all of these sets would be blamed."""
    p, sets, _missing = world(0, 0.0)
    sharpened = p**3 / (p**3).sum(1, keepdims=True)
    outside = ~sets[np.arange(len(p)), p.argmax(1)]
    assert outside.sum() > 50
    assert (probability_of_missing(sharpened, sets) >= 0.5).sum() < 0.2 * outside.sum()


def test_full_sets_miss_nothing():
    p = np.full((3, 2), 0.5)
    assert probability_of_missing(p, np.ones((3, 2), dtype=bool)).tolist() == [0, 0, 0]


def blobs(share, seed=0, n=400, c=4):
    """Well-parted groups of rows with sets of two, some of which lost the truth and are one wrong label."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(c, size=n)
    x = 4 * np.eye(c)[truth] + rng.normal(size=(n, c))
    other = (truth + rng.integers(1, c, size=n)) % c
    sets = (np.arange(c) == truth[:, None]) | (np.arange(c) == other[:, None])
    wrong = rng.random(n) < share
    sets[wrong, truth[wrong]] = False
    return x, sets, wrong


def test_sets_that_lost_the_truth_are_not_believed():
    x, sets, wrong = blobs(0.1)
    found, _ = find_noisy_sets(x, sets)
    assert wrong[found].mean() > 0.9
    assert found[wrong].mean() > 0.8
    assert not find_noisy_sets(*blobs(0.0)[:2])[0].any()


def test_a_size_whose_sets_are_mostly_wrong_is_known_as_such():
    """With one share for all sizes single labels would be believed: one set in ten misses the truth, but every single one."""
    p, sets, _ = world(1, 0.0)
    truth = p.argmax(1)
    p = np.where(np.arange(6) == truth[:, None], 0.6, 0.08)
    sets = np.arange(6) == truth[:, None]
    sets[:, 0] = True
    lone = np.arange(len(p)) < 120
    sets[lone] = np.arange(6) == ((truth[lone] + 1) % 6)[:, None]
    said = probability_of_missing(p, sets)
    assert said[lone].min() > 0.9
    assert said[~lone].max() < 0.2


def test_scores_that_were_computed_on_the_way_are_those_that_the_kernel_would_compute():
    x, sets, _ = blobs(0.2)
    wrong, scores = find_noisy_sets(x, sets)
    assert scores is not None
    data = make_dataset(x, sets | wrong[:, None])
    context = context_for(data)
    mask = data.candidates.mask
    (taken,) = fit_kernels(data, mask, ["both"], context, known_scores=scores).ranked
    (computed,) = fit_kernels(data, mask, ["both"], context).ranked
    assert taken.row == computed.row
    np.testing.assert_array_equal(taken.soft_labels, computed.soft_labels)
    np.testing.assert_array_equal(taken.scores, computed.scores)
