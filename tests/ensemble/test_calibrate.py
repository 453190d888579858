"""Abstention and prediction sets, on data whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from oneof.ensemble.accuracy import HeldOutEval, estimate_accuracy
from oneof.ensemble.calibrate import calibrate, prediction_sets, threshold


def world(n: int = 4000, c: int = 6, rate: float = 0.3, seed: int = 0) -> tuple[HeldOutEval, np.ndarray]:
    """Networks that are calibrated, and sets whose wrong labels are drawn regardless of the features."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(c, 0.12), size=n)
    truth = (p.cumsum(1) > rng.random((n, 1))).argmax(1)
    sets = (rng.random((n, c)) < rate) | (np.arange(c) == truth[:, None])
    return HeldOutEval(p, sets, np.full(n, -1), p), truth


def curves_of(judged: HeldOutEval) -> dict:
    return calibrate(judged, estimate_accuracy(judged))


@pytest.mark.parametrize("known", [True, False], ids=["gold", "sets"])
def test_predictions_above_the_threshold_are_as_right_as_wished(known):
    judged, truth = world()
    curves = curves_of(judged._replace(gold=truth) if known else judged)
    new, answers = world(seed=1)
    at = threshold(curves, 0.9)
    sure = new.confidence >= at
    assert 0.3 < sure.mean() < 0.95
    assert abs((new.probabilities.argmax(1) == answers)[sure].mean() - 0.9) < 0.04
    assert threshold(curves, 0.8) < at


def test_a_wish_beyond_reach_is_refused():
    curves = {"by": "candidate sets", "accuracy": [[0.2, 0.5], [0.9, 0.7]]}
    with pytest.raises(
        ValueError, match=r"accuracy must be one that this model reaches on some rows; 0\.8 is above its best, 0\.700"
    ):
        threshold(curves, 0.8)
    for wrong in (0.0, 1.0, 95):
        with pytest.raises(ValueError, match="accuracy must lie between 0 and 1"):
            threshold(curves, wrong)


@pytest.mark.parametrize("known", [True, False], ids=["gold", "sets"])
@pytest.mark.parametrize("coverage", [0.8, 0.95])
def test_prediction_sets_hold_the_truth_as_often_as_wished(known, coverage):
    judged, truth = world()
    curves = curves_of(judged._replace(gold=truth) if known else judged)
    new, answers = world(seed=1)
    sets = prediction_sets(curves, new.probabilities, coverage)
    held = sets[np.arange(len(answers)), answers].mean()
    assert abs(held - coverage) < (0.03 if known else 0.05)
    assert sets.any(1).all()
    assert sets.sum(1).mean() < 6


def test_few_rows_give_sets_of_everything():
    curves = {"by": "gold labels", "rows": 5, "scores": [0.5] * 201}
    assert prediction_sets(curves, np.array([[0.9, 0.1]]), 0.95).all()
    with pytest.raises(ValueError, match="sets must have a coverage between 0 and 1; got 90"):
        prediction_sets(curves, np.array([[0.9, 0.1]]), 90)


def test_what_cannot_be_known_is_refused():
    judged, _ = world(n=5)
    curves = curves_of(judged._replace(candidates=np.ones_like(judged.candidates)))
    assert curves["by"] == "nothing"
    with pytest.raises(ValueError, match=r"coverage must be known; .* every held-out set holds all labels\. Label"):
        prediction_sets(curves, judged.probabilities, 0.9)
    with pytest.raises(ValueError, match=r"accuracy must be known; .*Label the rows in its sample\.csv"):
        threshold(curves, 0.9)


def test_a_prediction_set_takes_labels_until_the_score_that_the_curve_has_at_the_coverage():
    curve = {"by": "gold labels", "rows": 999, "scores": [i / 200 for i in range(201)]}
    assert prediction_sets(curve, np.array([[0.7, 0.2, 0.1]]), 0.85).tolist() == [[True, True, False]]
