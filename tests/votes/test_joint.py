"""Votes and features together: the formula, and that held-out votes tell useful features from noise."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pyarrow import table

from oneof.votes import Annotators, Choice, Votes, choose, fit_annotators, join, read_long
from oneof.votes.joint import Predict, joint_posterior, leave_answers_out

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
    model = Annotators(balance=0.5)
    fitted = fit_annotators(votes, model)
    scores = nearest(x, 5)(fitted.posterior)
    for i in range(30):
        m, votes_of_i = fitted.frequencies, np.exp(fitted.likelihood[i])
        with_scores = [(m[j] ** -0.5 * votes_of_i[j]) ** 0.3 * np.exp(4 * scores[i, j]) for j in range(3)]
        alone = [(m[j] ** 0.5 * votes_of_i[j]) ** 0.3 for j in range(3)]
        np.testing.assert_allclose(
            joint_posterior(fitted, scores, Choice(model, "x", 4.0, 0.3))[i], with_scores / np.sum(with_scores)
        )
        np.testing.assert_allclose(
            joint_posterior(fitted, None, Choice(model, None, 0.0, 0.3))[i], alone / np.sum(alone)
        )


def test_with_power_one_and_no_features_it_is_the_model_of_annotators() -> None:
    votes, _, _ = blobs(n=60)
    model = Annotators(balance=0.5, tolerance=1e-12)
    joint = join(votes, scores=choose(votes, {}, models=[model], powers=(1.0,)))
    np.testing.assert_allclose(joint.posterior, joint.fitted.posterior, atol=1e-6)
    assert joint.choice == Choice(model, None, 0.0, 1.0)


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
    expected = np.exp(joint.choice.power / 2 * joint.fitted.likelihood)
    np.testing.assert_allclose(joint.prior, expected / expected.sum(1, keepdims=True))


def test_votes_that_copy_one_another_are_flattened() -> None:
    """Four people who repeat the first one's vote are not five witnesses."""
    rng = np.random.default_rng(0)
    rows = []
    for i in range(300):
        truth = rng.integers(3)
        said = [truth if rng.random() < 0.7 else rng.integers(3) for _ in range(2)]
        rows += [(i, "alone", "abc"[said[0]])]
        rows += [(i, f"copy {k}", "abc"[said[1] if rng.random() < 0.8 else rng.integers(3)]) for k in range(5)]
    item, annotator, label = zip(*rows, strict=True)
    votes = read_long(table({"item": item, "annotator": annotator, "label": label}))
    assert join(votes).choice.power < 1


def test_items_without_a_score_are_left_to_their_votes() -> None:
    votes, x, _ = blobs(n=60)
    known = nearest(x)

    def half(weights: Floats) -> Floats:
        scores = known(weights)
        scores[30:] = np.nan
        return scores

    scores = {Choice(Annotators(), "x", 4.0, 0.5): 0.0}
    joint, alone = (
        join(votes, {"x": p}, scores=s)
        for p, s in ((half, scores), (known, {Choice(Annotators(), None, 0.0, 0.5): 0.0}))
    )
    np.testing.assert_allclose(joint.posterior[30:], alone.posterior[30:])
    assert joint.opinion is not None
    assert alone.opinion is None
    assert np.isnan(joint.opinion[30:]).all()
    assert np.isfinite(joint.opinion[:30]).all()


def test_opinions_are_judged_by_answers_that_are_left_out() -> None:
    """By hand: each answer against the item's other votes, whatever labels the answer names."""
    rows = {"item": [0, 0, 0, 1, 1], "annotator": ["x", "x", "y", "x", "z"], "label": ["a", "b", "a", "c", "c"]}
    votes = read_long(table(rows))
    fitted = fit_annotators(votes)
    judges = leave_answers_out(votes, fitted, 0.5, np.array([1, 0]))
    opinion = np.log(np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]]))
    logs = []
    for k in range(len(votes.item)):
        i, a, j = votes.item[k], votes.annotator[k], votes.label[k]
        rest = [r for r in range(len(votes.item)) if votes.item[r] == i and votes.annotator[r] != a]
        weight = 1 / votes.answer_size
        on_item = weight[votes.item == i].sum()
        said = np.zeros(3)
        for r in rest:
            said += weight[r] * np.log(fitted.confusions.of(votes.annotator[[r]], votes.label[[r]])[0])
            if votes.annotators[votes.annotator[r]] != "x":  # who names one label: frequencies count less
                said -= weight[r] / on_item * np.log(fitted.frequencies)
        shares = np.exp(0.5 * said + opinion[1 - i])
        chance = shares @ fitted.confusions.of(np.array([a]), np.array([j]))[0] / shares.sum()
        logs.append((np.log(chance), weight[k]))
    value, weights = np.array(logs).T
    np.testing.assert_allclose(judges.score(opinion), np.average(value, weights=weights))


def test_an_opinion_that_is_right_scores_above_one_that_is_not() -> None:
    votes, _, truth = blobs(n=120)
    judges = leave_answers_out(votes, fit_annotators(votes), 1.0, np.arange(120))
    right = np.log(np.eye(3)[truth] * 0.8 + 0.1)
    assert judges.score(right) > judges.score(np.zeros((120, 3))) > judges.score(right[::-1])
