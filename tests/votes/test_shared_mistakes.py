"""Votes beside features: features show where annotators err together, and noise does not mislead."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from pyarrow import table

from oneof.learners.ridge import leave_one_out_ridge
from oneof.votes import Annotators, Votes, read_long
from oneof.votes.dawid_skene import shares
from oneof.votes.shared_mistakes import SharedMistakesModel, fit_shared_mistakes

N, C = 400, 3
Floats = NDArray[np.float64]


def votes_with_mistakes(seed: int, misleading: float, n_votes: int = 5) -> tuple[Votes, NDArray[np.intp]]:
    """Return votes of people who are right in 80 %; misleading items look like another label to six in ten of them."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(C, size=N)
    looks_like = (truth + rng.integers(1, C, size=N)) % C
    is_misleading = rng.random(N) < misleading
    rows = []
    for item in range(N):
        for person in rng.permutation(15)[:n_votes]:
            label = truth[item] if rng.random() < 0.8 else rng.integers(C)
            if is_misleading[item] and rng.random() < 0.6:
                label = looks_like[item]
            rows.append((item, f"p{person}", "abc"[label]))
    items, people, labels = zip(*rows, strict=True)
    return read_long(table({"item": items, "annotator": people, "label": labels})), truth


def predictions_of(truth: NDArray[np.intp], accuracy: float, seed: int = 0) -> Floats:
    """Return cautious predictions that are right in a share of the items."""
    rng = np.random.default_rng(seed)
    label = np.where(rng.random(N) < accuracy, truth, rng.integers(C, size=N))
    return np.where(np.arange(C) == label[:, None], 0.6, 0.2)


def right(probabilities: Floats, truth: NDArray[np.intp]) -> float:
    return float((probabilities.argmax(1) == truth).mean())


def test_features_show_shared_mistakes() -> None:
    for seed in range(3):
        votes, truth = votes_with_mistakes(seed, misleading=0.35)
        start = shares(votes, 0.1)
        fitted = fit_shared_mistakes(votes, [predictions_of(truth, 0.9)], start, Annotators())
        assert 0.2 < fitted.misleading < 0.5
        assert 0.4 < fitted.fooled < 0.8
        assert right(fitted.posterior, truth) > right(start, truth) + 0.05
        # Probabilities hold: the model is the one that the votes were drawn from.
        assert fitted.posterior.max(1).mean() == pytest.approx(right(fitted.posterior, truth), abs=0.03)


def test_people_who_err_alone_share_few_mistakes() -> None:
    votes, truth = votes_with_mistakes(0, misleading=0.0)
    start = shares(votes, 0.1)
    fitted = fit_shared_mistakes(votes, [predictions_of(truth, 0.9)], start, Annotators())
    assert fitted.misleading * fitted.fooled < 0.06
    assert right(fitted.posterior, truth) >= right(start, truth)


def test_noise_gets_little_power_beside_informative_predictions() -> None:
    votes, truth = votes_with_mistakes(1, misleading=0.2)
    noise = np.random.default_rng(5).dirichlet([0.5] * C, size=N)
    fitted = fit_shared_mistakes(votes, [noise, predictions_of(truth, 0.9)], shares(votes, 0.1), Annotators())
    assert fitted.weights.sum(1)[1] > 0.99


def test_noise_alone_does_little_harm() -> None:
    votes, truth = votes_with_mistakes(2, misleading=0.0)
    noise = np.random.default_rng(5).dirichlet([0.5] * C, size=N)
    start = shares(votes, 0.1)
    fitted = fit_shared_mistakes(votes, [noise], start, Annotators())
    assert right(fitted.posterior, truth) > right(start, truth) - 0.02


def test_other_evidence_enters_as_a_likelihood() -> None:
    votes, truth = votes_with_mistakes(0, misleading=0.0)
    certain = np.where(np.arange(C) == truth[:, None], 0.0, -50.0)
    nobody = votes.only(np.zeros(len(votes.item), dtype=bool))
    fitted = fit_shared_mistakes(nobody, [np.full((N, C), 1 / C)], certain, Annotators(pooled=True), certain)
    assert right(fitted.posterior, truth) == 1.0


def test_rows_and_classes_may_be_others_than_items_and_labels() -> None:
    votes, truth = votes_with_mistakes(0, misleading=0.2)
    predictions = predictions_of(truth, 0.9)
    row = np.arange(N)[::-1].copy()
    row[:10] = -1  # items that are not in the table
    model = SharedMistakesModel(
        votes, row, [predictions], shares(votes, 0.1), Annotators(), np.zeros((N, C)), range(C)
    ).with_classes([0, 2, 3])
    in_rows = np.full((N + 5, C + 1), 0.01)
    in_rows[row[10:][:, None], [0, 2, 3]] = predictions[10:]
    posterior = model.posterior([in_rows])
    assert np.isnan(posterior[N:]).all()
    assert np.isnan(posterior[N - 10 : N]).all()
    by_row = posterior[row[10:]]
    assert (by_row[:, 1] == 0).all()
    np.testing.assert_allclose(by_row.sum(1), 1)
    assert right(by_row[:, [0, 2, 3]], truth[10:]) > 0.9


def test_ridge_leaves_rows_out() -> None:
    rng = np.random.default_rng(0)
    x = np.hstack([rng.normal(size=(30, 4)), np.ones((30, 1))])
    targets = rng.normal(size=(30, 2))
    predicted = leave_one_out_ridge(x)(0.2, targets)
    moved = targets.copy()
    moved[3] += 100.0
    np.testing.assert_allclose(leave_one_out_ridge(x)(0.2, moved)[3], predicted[3])

    # The row left out in fact: the columns keep their scale, and the mean is that of the other rows.
    standardised = (x[:, :4] - x[:, :4].mean(0)) / x[:, :4].std(0)
    design = np.hstack([standardised, np.ones((30, 1))])
    penalty = 30 * 0.2 * np.diag([1.0, 1.0, 1.0, 1.0, 0.0])
    others = np.arange(30) != 3
    normal = design[others].T @ design[others] + penalty
    expected = design[3] @ np.linalg.solve(normal, design[others].T @ targets[others])
    np.testing.assert_allclose(predicted[3], expected)
