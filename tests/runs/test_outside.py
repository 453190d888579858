"""Sets that miss the truth are found without truth, and where none does hardly a row is flagged."""

import numpy as np
import pytest

from oneof.runs.outside import probability_outside


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
    said = probability_outside(p, sets)
    assert missing[said >= 0.5].mean() > 0.75
    assert (said >= 0.5).sum() > 0.25 * missing.sum()
    low, high = said[said < 0.2], said[said > 0.8]
    assert missing[said < 0.2].mean() == pytest.approx(low.mean(), abs=0.05)
    assert missing[said > 0.8].mean() == pytest.approx(high.mean(), abs=0.15)


@pytest.mark.parametrize("seed", range(3))
def test_where_every_set_holds_the_truth_hardly_a_row_is_flagged(seed):
    p, sets, missing = world(seed, 0.0)
    assert not missing.any()
    assert (probability_outside(p, sets) >= 0.5).sum() <= 2


def test_a_learner_that_is_too_sure_is_held_back():
    """Of a sharpened opinion many first guesses lie outside their set; without the power all of these sets would be blamed."""
    p, sets, _missing = world(0, 0.0)
    sharpened = p**3 / (p**3).sum(1, keepdims=True)
    outside = ~sets[np.arange(len(p)), p.argmax(1)]
    assert outside.sum() > 50
    assert (probability_outside(sharpened, sets) >= 0.5).sum() < 0.2 * outside.sum()


def test_full_sets_miss_nothing():
    p = np.full((3, 2), 0.5)
    assert probability_outside(p, np.ones((3, 2), dtype=bool)).tolist() == [0, 0, 0]
