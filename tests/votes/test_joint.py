"""Votes and features together: the formula, and that held-out votes tell useful features from noise."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from pyarrow import table

from oneof.votes import Annotators, Choice, Votes, choose, fit_annotators, join, read_long
from oneof.votes.joint import MAJORITY, ONE_COIN, SHARED, Predict, joint_posterior, leave_answers_out, model_weights

Floats = NDArray[np.float64]


def blobs(seed: int = 0, n: int = 240) -> tuple[Votes, Floats, NDArray[np.intp]]:
    """Three groups of points; two votes each by people who are right in 60 % of theirs."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(3, size=n)
    x = np.eye(3)[truth] * 3 + rng.normal(size=(n, 3))
    rows = []
    for i in range(n):
        for a in rng.permutation(8)[:2]:
            rows.append((i, f"{a}", "abc"[truth[i] if rng.random() < 0.6 else rng.integers(3)]))
    item, annotator, label = zip(*rows, strict=True)
    return read_long(table({"item": item, "annotator": annotator, "label": label})), x, truth


def nearest(x: Floats, k: int = 15) -> Predict:
    """The mean weights of the k nearest other rows."""
    distance = ((x[:, None] - x) ** 2).sum(-1)
    np.fill_diagonal(distance, np.inf)
    rows = np.argsort(distance, axis=1)[:, :k]
    return lambda weights: np.asarray(weights[rows].mean(1))


def right(posterior: Floats, truth: NDArray[np.intp]) -> float:
    return float((posterior.argmax(1) == truth).mean())


def test_the_posterior_is_what_the_formula_says() -> None:
    votes, x, _ = blobs(n=30)
    fitted = fit_annotators(votes)
    scores = nearest(x, 5)(fitted.posterior)
    for i in range(30):
        votes_of_i = np.exp(fitted.likelihood[i])
        with_scores = [votes_of_i[j] * np.exp(4 * scores[i, j]) for j in range(3)]
        found = joint_posterior(fitted, scores, Choice(Annotators(), "x", 4.0))[i]
        np.testing.assert_allclose(found, with_scores / np.sum(with_scores))
    assert joint_posterior(fitted, None, Choice(Annotators(), None, 0.0)) is fitted.posterior


def test_models_are_averaged_by_how_much_held_out_votes_prefer_them_to_the_majority() -> None:
    """The weights of the plain majority, of one accuracy each and of the chosen model, by hand."""
    votes, _, _ = blobs(n=60)
    model = Annotators()
    scores = {Choice(model, None, 0.0): 0.4, Choice(ONE_COIN, None, 0.0): 0.3, Choice(MAJORITY, None, 0.0): 0.3}
    joint = join(votes, scores=scores)
    fits = [fit_annotators(votes, each).posterior for each in (MAJORITY, ONE_COIN, model)]
    np.testing.assert_allclose(joint.posterior, 0.45 * fits[0] + 0.3 * fits[1] + 0.25 * fits[2])
    np.testing.assert_allclose(joint.majority, fits[0])


def test_confusions_that_all_annotators_share_do_not_take_weight_from_one_coin() -> None:
    model = Annotators()
    scores = {Choice(model, None, 0.0): 0.4, Choice(ONE_COIN, None, 0.0): 0.1, Choice(MAJORITY, None, 0.0): 0.1}
    assert model_weights(scores, model)[ONE_COIN] == pytest.approx(0.1)
    assert model_weights(scores | {Choice(SHARED, None, 0.0): 0.4}, model)[ONE_COIN] == pytest.approx(0.4)


def test_the_majority_is_chosen_only_where_it_is_clearly_better() -> None:
    """Of annotators who are equally accurate, forms differ by chance alone."""
    rng = np.random.default_rng(1)
    rows = [
        (i, str(rng.integers(6)), "ab"[int(rng.random() < (0.8 if i % 2 else 0.2))]) for i in range(60) for _ in "xyz"
    ]
    item, annotator, label = zip(*rows, strict=True)
    votes = read_long(table({"item": item, "annotator": annotator, "label": label}))
    scores = choose(votes, {}, models=(MAJORITY, ONE_COIN))
    (majority,) = choose(votes, {}, models=(MAJORITY,)).values()
    assert majority > scores[Choice(ONE_COIN, None, 0.0)]
    assert next(iter(scores)).model == ONE_COIN


def test_the_majority_always_counts() -> None:
    model = Annotators()
    for best, majority, expected in [(0.4, -0.1, 0.15), (0.4, 0.4, 0.6), (-0.1, -0.2, 0.6)]:
        weights = model_weights({Choice(model, None, 0.0): best, Choice(MAJORITY, None, 0.0): majority}, model)
        assert weights[MAJORITY] == pytest.approx(expected)
        assert sum(weights.values()) == pytest.approx(1.0)
    assert model_weights({}, MAJORITY) == {MAJORITY: 1.0}


def test_features_that_help_are_found_and_noise_is_not_taken() -> None:
    for seed in range(3):
        votes, x, truth = blobs(seed)
        noise = np.random.default_rng(seed).normal(size=x.shape)
        joint = join(votes, {"noise": nearest(noise), "x": nearest(x)})
        assert joint.choice.features == "x"
        assert right(joint.posterior, truth) > right(joint.fitted.posterior, truth) + 0.1
        scores = [row["score"] for row in joint.tried]
        assert scores == sorted(scores, reverse=True)
        only_noise = join(votes, {"noise": nearest(noise)})
        assert right(only_noise.posterior, truth) > right(join(votes).posterior, truth) - 0.03


def test_the_prior_is_the_votes_alone() -> None:
    votes, x, _ = blobs(n=60)
    joint = join(votes, {"x": nearest(x)})
    alone = join(votes, scores=choose(votes, {}))
    assert alone.choice.model == joint.choice.model
    np.testing.assert_allclose(joint.prior, alone.prior)
    expected = joint.likelihood**0.75
    np.testing.assert_allclose(joint.prior, expected / expected.sum(1, keepdims=True))


def test_items_without_a_score_are_left_to_their_votes() -> None:
    votes, x, _ = blobs(n=60)
    known = nearest(x)

    def half(weights: Floats) -> Floats:
        scores = known(weights)
        scores[30:] = np.nan
        return scores

    scores = {Choice(Annotators(), "x", 4.0): 0.0}
    joint, alone = (
        join(votes, {"x": p}, scores=s) for p, s in ((half, scores), (known, {Choice(Annotators(), None, 0.0): 0.0}))
    )
    np.testing.assert_allclose(joint.posterior[30:], alone.posterior[30:])
    assert joint.feature_probabilities is not None
    assert alone.feature_probabilities is None
    assert np.isnan(joint.feature_probabilities[30:]).all()
    assert np.isfinite(joint.feature_probabilities[:30]).all()


def test_predictions_are_judged_by_answers_that_are_left_out() -> None:
    """By hand: each answer against the item's other votes, whatever labels the answer names."""
    rows = {"item": [0, 0, 0, 1, 1], "annotator": ["x", "x", "y", "x", "z"], "label": ["a", "b", "a", "c", "c"]}
    votes = read_long(table(rows))
    fitted = fit_annotators(votes)
    held_out = leave_answers_out(votes, fitted, np.array([1, 0]))
    predicted = np.log(np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]]))
    weight = 1 / votes.answer_size
    expected = []
    for k in range(len(votes.item)):
        i, a, j = votes.item[k], votes.annotator[k], votes.label[k]
        rest = [r for r in range(len(votes.item)) if votes.item[r] == i and votes.annotator[r] != a]
        others = np.zeros(3)
        for r in rest:
            others += weight[r] * np.log(fitted.confusions.of(votes.annotator[[r]], votes.label[[r]])[0])
        exponent = 1 / (1 + 0.4 * max(weight[rest].sum() - 1, 0))
        logs = 2 * exponent * others + 0.3 * predicted[1 - i] + 0.7 * exponent * np.log(fitted.frequencies)
        posterior = np.exp(logs) / np.exp(logs).sum()
        expected.append(np.log(posterior @ fitted.confusions.of(np.array([a]), np.array([j]))[0]))
    np.testing.assert_allclose(held_out.log_probabilities(predicted, power=0.3, scale=2.0), expected)
    np.testing.assert_allclose(held_out.weight, weight)


def test_a_prediction_that_is_right_scores_above_one_that_is_not() -> None:
    votes, _, truth = blobs(n=120)
    held_out = leave_answers_out(votes, fit_annotators(votes), np.arange(120))
    right = np.log(np.eye(3)[truth] * 0.8 + 0.1)
    without = held_out.log_probabilities(right, power=0.0).mean()
    assert held_out.log_probabilities(right, power=0.5).mean() > without
    assert held_out.log_probabilities(right[::-1], power=0.5).mean() < without
