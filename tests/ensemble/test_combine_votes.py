"""Votes and learners together: learners count as far as held-out votes support them, and the votes stay where they do not."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from pyarrow import table

from oneof.data.dataset import VoteEvidence
from oneof.ensemble.combine_votes import (
    AGREEMENT_POWERS,
    ZERO_POWERS,
    Powers,
    choose_powers,
    combine_votes,
    power_of_agreement,
)
from oneof.ensemble.vote_prior import vote_prior
from oneof.learners.base import Predictions
from oneof.votes import read_long

N, C = 300, 3


def voted_rows(seed: int, n_voted: int = N) -> tuple[VoteEvidence, NDArray[np.intp]]:
    """Return what three votes by people who are right in 60 % of theirs say about the first rows, and all true labels."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(C, size=N)
    rows = []
    for i in range(n_voted):
        for a in rng.permutation(8)[:3]:
            rows.append((i, f"{a}", "abc"[truth[i] if rng.random() < 0.6 else rng.integers(C)]))
    item, annotator, label = zip(*rows, strict=True)
    votes = read_long(table({"item": item, "annotator": annotator, "label": label}))
    row_items = np.where(np.arange(N) < n_voted, np.arange(N), -1)
    return vote_prior(np.zeros((N, 0)), votes, row_items, seed).evidence, truth


def predicted(probabilities: NDArray[np.float64]) -> Predictions:
    return Predictions(
        probabilities.astype(np.float32), np.ones(len(probabilities), dtype=bool), np.ones(probabilities.shape)
    )


def right(probabilities: NDArray[np.float32], truth: NDArray[np.intp]) -> float:
    return float((probabilities.argmax(1) == truth).mean())


def test_noise_leaves_the_votes_as_they_are() -> None:
    for seed in range(3):
        evidence, _ = voted_rows(seed)
        noise = np.random.default_rng(seed).dirichlet([0.2] * C, size=N)
        np.testing.assert_allclose(combine_votes(evidence, predicted(noise)), evidence.posterior, atol=1e-6)


def test_learners_that_know_more_than_the_votes_correct_them() -> None:
    evidence, truth = voted_rows(0)
    informative = np.eye(C)[truth] * 0.7 + 0.1
    combined = combine_votes(evidence, predicted(informative))
    assert right(combined, truth) > right(np.asarray(evidence.posterior), truth) + 0.1
    np.testing.assert_allclose(combined.sum(1), 1, atol=1e-5)


def test_certain_learners_do_not_make_a_label_certain() -> None:
    """As sure as the learners are, a label that they name against the votes keeps a part of the doubt."""
    evidence, truth = voted_rows(0)
    overconfident = np.eye(C)[np.where(np.arange(N) % 4 == 0, (truth + 1) % C, truth)]
    combined = combine_votes(evidence, predicted(overconfident))
    assert right(combined, truth) > 0.75
    assert abs(combined.max(1).mean() - right(combined, truth)) < 0.15


def test_rows_without_votes_are_left_between_the_learners_and_the_class_frequencies() -> None:
    evidence, truth = voted_rows(0, n_voted=200)
    informative = np.eye(C)[truth] * 0.7 + 0.1
    combined = combine_votes(evidence, predicted(informative))
    assert right(combined[200:], truth[200:]) == 1
    assert 1 / C < combined[200:].max(1).mean() < 0.8  # the learners' own probability


def test_without_held_out_predictions_nothing_is_chosen() -> None:
    evidence, _ = voted_rows(0)
    logs = np.zeros((N, C))
    assert evidence.held_out is not None
    assert choose_powers(logs, logs, logs, np.zeros(N, dtype=bool), evidence.held_out) == ZERO_POWERS


def test_counts_are_no_single_votes() -> None:
    with pytest.raises(ValueError, match=r"single votes.*combine_prior"):
        combine_votes(VoteEvidence(np.ones((2, 2))), predicted(np.full((2, 2), 0.5)))


def test_the_power_is_a_mean_of_three_estimates() -> None:
    """By hand: learners that explain a third of the votes count fully, those that explain less by what they explain."""
    assert Powers(rows=1.0, votes=0.5, agree=0.25, explained=0.5).combined == pytest.approx(0.5 * 0.75 + 0.5 * 0.25)
    assert Powers(rows=1.0, votes=0.5, agree=2.75, explained=0.5).combined == pytest.approx(0.25 * 0.75 + 0.75 * 2.75)
    weak = Powers(rows=1.0, votes=0.0, agree=3.0, explained=0.1).combined
    assert weak == pytest.approx((1 - 0.75 * 0.09) * 0.15 + 0.75 * 0.09 * 3.0)


def test_timid_predictions_are_sharpened_until_they_are_as_probable_as_they_agree_with_the_votes() -> None:
    rng = np.random.default_rng(0)
    voted = rng.integers(3, size=400)
    predicted = np.where(rng.random(400) < 0.8, voted, (voted + 1) % 3)
    votes = np.eye(3)[voted]
    agreement = (predicted == voted).mean()
    for probability, sign in ((0.5, 1), (0.99, -1)):
        shares = np.full((400, 3), (1 - probability) / 2)
        shares[np.arange(400), predicted] = probability
        power = power_of_agreement(np.log(shares), votes)
        assert sign * (power - 1) > 0
        mean_probability = (shares**power / (shares**power).sum(1, keepdims=True)).max(1).mean()
        assert agreement <= mean_probability < agreement + 0.1
    assert power_of_agreement(np.log(np.full((400, 3), 1 / 3)), np.eye(3)[np.zeros(400, int)]) == AGREEMENT_POWERS[-1]


def test_rows_without_votes_that_show_nothing_get_the_prior_of_silent_rows() -> None:
    evidence, truth = voted_rows(0, n_voted=200)
    informative = np.eye(C)[truth] * 0.7 + 0.1
    informative[250:] = 1 / C
    assert evidence.posterior is not None
    combined = combine_votes(evidence, predicted(informative))
    np.testing.assert_allclose(combined[250:], evidence.posterior[250:], rtol=1e-5)
    assert right(combined[200:250], truth[200:250]) == 1.0


def test_learners_that_repeat_the_votes_are_replaced_on_rows_with_votes() -> None:
    """Learners that saw what rules read name the votes' labels again; regressions that did not see it take their place."""
    evidence, truth = voted_rows(0, n_voted=200)
    informative = np.eye(C)[truth] * 0.7 + 0.1
    neighbours = np.where(np.arange(N)[:, None] < 200, informative, np.nan)
    repeated = np.asarray(evidence.posterior).copy()
    repeated[200:] = informative[200:]
    evidence = evidence._replace(neighbours=neighbours, learners_repeat_votes=True)
    combined = combine_votes(evidence, predicted(repeated))
    np.testing.assert_allclose(combined, combine_votes(evidence, predicted(informative)), atol=1e-6)
    assert right(combined[:200], truth[:200]) > right(np.asarray(evidence.posterior)[:200], truth[:200]) + 0.1
