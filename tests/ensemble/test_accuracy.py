"""What is said of the accuracy is true or absent, on rows whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from oneof.ensemble.accuracy import (
    MIN_GOLD,
    AccuracyEstimate,
    HeldOutEval,
    binomial_interval,
    estimate_accuracy,
    gold_of_random_sample,
    measure_labels,
    sample_order,
)


def guesses(n: int, c: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Calibrated probabilities and truths drawn from them."""
    p = rng.dirichlet(np.full(c, 0.12), size=n)
    return p, (p.cumsum(1) > rng.random((n, 1))).argmax(1)


def world(kind: str, seed: int, n: int = 1500, c: int = 6) -> tuple[HeldOutEval, np.ndarray]:
    """Held-out rows with sets of a kind, and whether each guess is right."""
    rng = np.random.default_rng(seed)
    p, truth = guesses(n, c, rng)
    own = np.arange(c) == truth[:, None]
    sets = own | (rng.random((n, c)) < 0.3)
    if kind == "doubts":
        sets = own | (p > rng.uniform(0.02, 0.2, size=(n, 1)))
    elif kind == "pairs":
        sets = own | (np.roll(own, 1, axis=1) & (rng.random((n, 1)) < 0.6))
    elif kind == "people":  # who take some rows for the class of the next, all of them
        led = (rng.random((n, 1)) < 0.3) & (rng.random((n, c)) < 0.8)
        sets = own | (np.roll(own, 2, axis=1) & led)
    elif kind == "shuffled":
        sets = sets[rng.permutation(n)]
    elif kind == "missing":
        lost = rng.random(n) < 0.1
        sets[lost] &= ~own[lost]
        sets[~sets.any(1)] |= np.roll(own, 1, axis=1)[~sets.any(1)]
    return HeldOutEval(p, sets, np.full(n, -1), p), p.argmax(1) == truth


def test_chance_sets_get_an_interval_that_holds():
    found = [
        (estimate_accuracy(judged), right.mean()) for judged, right in (world("uniform", seed) for seed in range(20))
    ]
    given = [(said, right) for said, right in found if said.verdict == "interval"]
    assert len(given) >= 16
    assert all(said.low <= right <= said.high <= said.bound for said, right in given)
    assert np.median([said.high - said.low for said, _ in given]) < 0.15


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("doubts", "the size of a set depends on the features"),
        ("pairs", "some labels enter sets together"),
        ("people", "some labels enter sets together"),
    ],
)
def test_sets_that_depend_on_something_get_a_bound(kind, reason):
    found = [(estimate_accuracy(judged), right.mean()) for judged, right in (world(kind, seed) for seed in range(10))]
    assert {said.verdict for said, _ in found} == {"bound"}
    assert any(said.reason == reason for said, _ in found)
    assert all(right <= said.bound <= said.covering + 0.1 for said, right in found)
    assert found[0][0].in_words.startswith(("at most ", "not known: "))


def test_shuffled_sets_teach_nothing():
    found = [estimate_accuracy(world("shuffled", seed)[0]) for seed in range(30)]
    assert sum(said.verdict == "nothing learned" for said in found) >= 28
    assert "no more often than in shuffled sets" in found[0].in_words


def test_sets_that_miss_the_truth_do_not_make_the_figure_too_low():
    found = [
        (estimate_accuracy(judged), right.mean()) for judged, right in (world("missing", seed) for seed in range(10))
    ]
    assert all(said.verdict != "interval" or said.low <= right <= said.high for said, right in found)
    assert all(right <= said.bound for said, right in found)


def test_where_sets_show_that_they_miss_the_truth_the_bound_allows_for_it():
    """Networks that are nearly always right, and 15 % of sets without the truth: the covering rate and a tenth are not enough."""
    rng, n, c = np.random.default_rng(0), 1500, 6
    truth = rng.integers(c, size=n)
    own = np.arange(c) == truth[:, None]
    sets = own | (rng.random((n, c)) < 0.3)
    lost = rng.random(n) < 0.15
    sets[lost] = np.roll(own, 1, axis=1)[lost] | (sets[lost] & ~own[lost])
    said = estimate_accuracy(HeldOutEval(p := np.where(own, 0.95, 0.01), sets, np.full(n, -1), p))
    assert said.covering + 0.1 < 1.0 <= said.bound <= said.covering + 0.26
    words = estimate_accuracy(world("missing", 0)[0]).in_words
    assert "if the sets hold the truth; no more can be said: about 1" in words
    assert "of the sets seem to miss the true label, for which the bound allows; and " in words


def test_what_networks_owe_to_the_rows_own_set_lowers_the_interval():
    judged, right = world("uniform", 0)
    some = (np.arange(len(right)) % 10 == 0)[:, None]
    leaking = np.where(some & judged.candidates, judged.probabilities + 1, judged.probabilities)
    said = estimate_accuracy(judged._replace(probabilities=leaking, cross_fitted=judged.probabilities))
    assert said.verdict == "interval"
    assert said.low <= right.mean() <= said.high
    owed = said.covering - judged.covered.mean()
    assert owed > 0.01
    assert said.low < said.value - owed - 0.02


def test_labels_that_were_drawn_measure_and_others_do_not():
    judged, right = world("doubts", 0)
    truth = np.where(right, judged.probabilities.argmax(1), (judged.probabilities.argmax(1) + 1) % 6)
    n = len(truth)
    drawn, easy = np.full(n, -1), np.full(n, -1)
    drawn[sample_order(n)[:50]] = truth[sample_order(n)[:50]]
    easy[np.flatnonzero(right)[:200]] = truth[right][:200]
    exact = estimate_accuracy(judged._replace(gold=gold_of_random_sample(drawn)))
    hits = int(right[sample_order(n)[:50]].sum())
    assert (exact.by, exact.value, (exact.low, exact.high)) == ("gold labels", hits / 50, binomial_interval(hits, 50))
    assert exact.in_words.endswith("by gold labels: 50 rows of a random sample have gold labels")
    assert estimate_accuracy(judged._replace(gold=gold_of_random_sample(easy))).by == "candidate sets"


def test_of_many_drawn_labels_half_measure():
    gold = np.zeros(400, dtype=int)
    assert (gold_of_random_sample(gold) >= 0).sum() == 200
    assert (
        gold_of_random_sample(np.where(np.isin(np.arange(400), sample_order(400)[:MIN_GOLD]), 0, -1)) >= 0
    ).sum() == MIN_GOLD
    assert (
        gold_of_random_sample(np.where(np.isin(np.arange(400), sample_order(400)[: MIN_GOLD - 1]), 0, -1)) >= 0
    ).sum() == 0


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"has_prior": True}, "the sets come from votes, counts or probabilities, which may share their errors"),
        ({"candidates": np.ones((1500, 6), dtype=bool)}, "every held-out set holds all labels"),
    ],
)
def test_where_nothing_can_be_tested_there_is_a_bound(change, reason):
    said = estimate_accuracy(world("uniform", 0)[0]._replace(**change))
    assert (said.verdict, said.value, said.reason) == ("bound", None, reason)


def test_little_is_called_a_bound():
    assert (
        estimate_accuracy(world("uniform", 1, n=60)[0]).reason
        == "only 60 held-out sets exclude a label, 100 are needed"
    )
    assert (
        estimate_accuracy(world("uniform", 1, c=2)[0]).reason
        == "with two labels, how wrong ones come into sets cannot be tested"
    )
    single, _ = world("uniform", 1)
    alone = np.arange(6) == np.where(single.candidates, single.probabilities, -1).argmax(1)[:, None]
    said = estimate_accuracy(single._replace(candidates=alone))
    assert said.reason == "only 0 sets have several labels, too few to test how wrong ones come in"


def test_words():
    said = AccuracyEstimate("interval", 0.7, 0.62, 0.75, 0.8, 0.78, "candidate sets", "if")
    assert said.in_words == "about 70 % (62 % to 75 %), by candidate sets: if"
    said = AccuracyEstimate("bound", None, 0.0, 0.93, 0.93, 0.9, "candidate sets", "sets depend on the row")
    assert said.in_words == "at most 93 %, if the sets hold the truth; no more can be said: sets depend on the row"


def test_the_interval_of_a_share_is_the_exact_one():
    assert tuple(round(end, 3) for end in binomial_interval(45, 50)) == (0.782, 0.967)


def test_labels_are_measured_on_a_random_sample_of_gold_labels() -> None:
    n = 500
    is_right = np.random.default_rng(0).random(n) < 0.9
    drawn = sample_order(n)
    is_known = np.zeros(n, dtype=bool)
    assert measure_labels(is_right, is_known) is None
    is_known[drawn[:100]] = True
    measured = measure_labels(is_right, is_known)
    assert measured is not None
    assert measured.rows == 100
    assert measured.value == is_right[drawn[:100]].mean()
    assert measured.low < 0.9 < measured.high
    whole = measure_labels(is_right, np.ones(n, dtype=bool))
    assert whole is not None
    assert whole.low == whole.value == whole.high == is_right.mean()
    picked = np.zeros(n, dtype=bool)
    picked[drawn[50:]] = True  # chosen by a person, not drawn
    assert measure_labels(is_right, picked) is None
