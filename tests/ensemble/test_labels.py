"""The purified table of an ensemble: who removed what, what is left, who is asked, and why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
import torch
from stages import make_dataset

from oneof.candidates.mask import Candidates
from oneof.data.encode import Encoding
from oneof.ensemble.model import Model
from oneof.ensemble.records import purified_table, removals_table, training_counts
from oneof.ensemble.resolve import resolve_labels, sets_after_purification
from oneof.ensemble.review_order import expected_gain, nearest, neighbours_and_gain, queue_column
from oneof.learners.base import Predictions
from oneof.learners.network_models import TableNetworks, predict_held_out
from oneof.purify import Pop
from oneof.runs.explain import reason, with_explanations
from oneof.runs.predict import prediction_table
from oneof.storage.sheets import check_out
from oneof.training.fit import fit
from oneof.training.trials import Training, Trial

NAMES = ["ant", "bee", "cow"]


@pytest.fixture(scope="module")
def world():
    """Two networks on 90 rows, each with other rows held out."""
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=90)
    x = (np.eye(3)[truth] * 4 + rng.normal(size=(90, 3))).astype(np.float32)
    sets = (rng.random((90, 3)) < 0.4) | (np.arange(3) == truth[:, None])
    rows = [np.arange(60), np.arange(30, 90)]
    fitted = fit(
        x,
        sets,
        trials=[Trial(i, own, scaling="feature") for i, own in enumerate(rows)],
        purify=Pop(warm_up=5, interval=5, window=2),
        training=Training(epochs=40, batch=10),
    )
    encoding = Encoding(("a", "b", "c"), (0.0, 0.0, 0.0), (), {}, ())
    return x, sets, truth, fitted, Model(NAMES, encoding, (TableNetworks.from_fit(fitted),), {})


def test_opinions_are_those_of_the_networks(world):
    x, sets, _, fitted, model = world
    p = fitted.probabilities(x).numpy()
    found = predict_held_out(model.members[0], x, sets, fitted.rows)
    np.testing.assert_allclose(found.mean[:30], p[1, :30], atol=1e-6)
    np.testing.assert_allclose(found.mean[60:], p[0, 60:], atol=1e-6)
    np.testing.assert_allclose(found.mean[30:60], p.mean(0)[30:60], atol=1e-6)  # all networks trained on these
    np.testing.assert_array_equal(found.held_out, np.r_[[True] * 30, [False] * 30, [True] * 30])
    np.testing.assert_allclose(found.top_share.sum(1), 1)


def test_a_million_rows_come_in_blocks(world, monkeypatch):
    x, _, _, _, model = world
    whole = model.probabilities(x)
    monkeypatch.setattr("oneof.learners.network_models.MAX_CELLS", 84)
    monkeypatch.setattr("oneof.learners.network_models.MIN_ROWS", 1)
    assert len(list(model.blocks(x))) == 13
    np.testing.assert_allclose(model.probabilities(x), whole, atol=1e-6)


def test_a_label_is_gone_when_all_who_saw_it_removed_it(world):
    _, sets, _, fitted, _ = world
    kept = sets_after_purification([fitted], sets)
    first, second = fitted.candidates.numpy()
    np.testing.assert_array_equal(kept[:30], first[:30])
    np.testing.assert_array_equal(kept[30:60], first[30:] | second[:30])
    assert (kept <= sets).all()
    assert kept.any(1).all()


def test_falls_are_gathered_by_row_and_label(world):
    _, sets, _, fitted, _ = world
    falls = removals_table([fitted], sets, NAMES).to_pylist()
    gone = np.zeros((90, 3), dtype=int)
    for rows, left in zip(fitted.rows.numpy(), fitted.candidates.numpy(), strict=True):
        gone[rows] += sets[rows] & ~left
    assert [[fall["label"] for fall in row] for row in falls] == [
        [NAMES[j] for j in np.flatnonzero(row)] for row in gone
    ]
    assert [fall["trials"] for row in falls for fall in row] == gone[gone > 0].tolist()
    log, (row, label) = fitted.removals, np.argwhere(gone)[0].tolist()
    one = (fitted.rows[log.trial, log.row] == row) & (log.label == label)
    assert falls[row][0]["round"] in log.round[one].tolist()
    assert falls[row][0]["margin"] == pytest.approx(float(log.margin[one].mean()))


def test_without_purification_nothing_falls():
    x = torch.randn(20, 2)
    fitted = fit(x, torch.ones(20, 3, dtype=torch.bool), training=Training(epochs=1))
    assert removals_table([fitted], np.ones((20, 3), dtype=bool), NAMES).to_pylist() == [[]] * 20


def table(world) -> pa.Table:
    x, sets, _, fitted, model = world
    data = make_dataset(x, sets)
    data = replace(data, candidates=Candidates(sets, np.array(NAMES)))
    predictions = predict_held_out(model.members[0], x, sets, fitted.rows)
    resolved = resolve_labels(data, predictions, sets_after_purification([fitted], sets))
    neighbours, gain = neighbours_and_gain(x, resolved.distribution, resolved.ask)
    more = {"removed": removals_table([fitted], sets, NAMES), "trained": training_counts([fitted], 90)}
    return purified_table(data, resolved, more | {"neighbours": neighbours, "gain": pa.array(gain)})


def resolve(predictions: Predictions, original: np.ndarray, kept: np.ndarray):
    return resolve_labels(make_dataset(np.zeros((len(original), 1)), original), predictions, kept)


def test_the_table_says_what_became_of_every_row(world):
    _, sets, truth, _, _ = world
    purified = table(world)
    assert purified["row"].to_pylist() == list(range(90))
    assert (np.array(purified["label"].to_pylist()) == np.array(NAMES)[truth]).mean() > 0.9
    for row, given in zip(purified.to_pylist(), sets, strict=True):
        assert row["original"] == [name for name, one in zip(NAMES, given, strict=True) if one]
        assert set(row["kept"]) <= set(row["original"])
        assert row["label"] in row["kept"]
        assert {fall["label"] for fall in row["removed"]} >= set(row["original"]) - set(row["kept"])
        assert all(1 <= fall["trials"] <= row["trained"] for fall in row["removed"])
        assert 0 < row["probability"] <= 1
        assert row["probability"] == row["distribution"][row["original"].index(row["label"])]
        assert sum(row["distribution"]) == pytest.approx(1, abs=1e-6)
        assert len(row["neighbours"]) == 5
        assert row["row"] not in row["neighbours"]


def test_a_probability_is_a_share_of_the_original_set_by_networks_that_did_not_train_on_the_row():
    """By hand: of two networks the second did not train on row 0; one label was removed; nobody trained on less than all of row 1."""
    p = np.array([[[0.7, 0.2, 0.1], [0.2, 0.3, 0.5]], [[0.3, 0.6, 0.1], [0.4, 0.5, 0.1]]], dtype=np.float32)
    original, kept = np.array([[1, 1, 0], [1, 1, 0]], dtype=bool), np.array([[1, 0, 0], [1, 1, 0]], dtype=bool)

    networks = SimpleNamespace(stack=SimpleNamespace(t=2), logits=lambda x: torch.as_tensor(p).log())
    trained = [torch.tensor([0, 1]), torch.tensor([1, 1])]  # the second network twice on row 1
    predictions = predict_held_out(networks, np.zeros((2, 1)), original, torch.stack(trained))
    found = resolve(predictions, original, kept)
    np.testing.assert_allclose(found.distribution, [[1 / 3, 2 / 3, 0], [0.3 / 0.7, 0.4 / 0.7, 0]], atol=1e-6)
    assert found.label.tolist() == [0, 1]  # the better one of row 0 was removed
    np.testing.assert_allclose(found.probability, [1 / 3, 0.4 / 0.7], atol=1e-6)
    np.testing.assert_allclose(found.margin, [-1 / 3, 0.1 / 0.7], atol=1e-6)
    np.testing.assert_allclose(found.agreement, [0.5, 1.0])


def test_a_row_that_no_network_trained_on_keeps_its_candidates(world):
    _, sets, _, fitted, _ = world
    alone = replace(fitted, rows=fitted.rows[:1], candidates=fitted.candidates[:1])
    np.testing.assert_array_equal(sets_after_purification([alone], sets)[60:], sets[60:])


def test_a_confident_label_outside_the_set_is_flagged_and_never_taken():
    p = np.array([[0.97, 0.02, 0.01]], dtype=np.float32)
    given = np.array([[False, True, True]])
    found = resolve(Predictions(p, np.array([True]), np.array([[0, 1.0, 0]])), given, given)
    assert (found.outside[0], found.label[0], found.ask[0]) == (0, 1, True)


def test_a_person_is_asked_where_the_lead_is_small_or_the_set_misses_what_the_networks_name():
    p = np.array([[0.6, 0.3, 0.1], [0.45, 0.35, 0.2], [0.95, 0.04, 0.01]], dtype=np.float32)
    sets = np.array([[1, 1, 0], [1, 1, 1], [0, 1, 1]], dtype=bool)
    found = resolve(Predictions(p, np.ones(3, dtype=bool), np.where(sets, 1.0, 0.0)), sets, sets)
    assert found.label.tolist() == [0, 0, 1]
    assert found.margin.astype(float).round(2).tolist() == [0.32, 0.1, 0.01]
    np.testing.assert_allclose(
        found.distribution.sum(1), [0.9516, 1, 0.0155], atol=1e-4
    )  # probability of holding the truth
    assert found.outside.tolist() == [-1, -1, 0]
    assert found.ask.tolist() == [False, True, True]


def test_a_sole_candidate_is_never_asked_about_unless_it_may_be_wrong():
    p = np.array([[0.5, 0.3, 0.2]], dtype=np.float32)
    given = np.array([[False, False, True]])
    found = resolve(Predictions(p, np.array([True]), np.array([[0, 0, 1.0]])), given, given)
    assert not found.ask[0]
    assert found.probability[0] == 1


def test_the_queue_is_ordered_by_gain():
    purified = pa.table({"ask": [True, False, True, True], "gain": [0.1, 9.0, 0.5, 0.3]})
    assert queue_column(purified).to_pylist() == [3, None, 1, 2]


def test_reasons_name_labels_rounds_and_neighbours(world):
    told = with_explanations(table(world), 2)
    rows = [row for row in told.to_pylist() if row["removed"]]
    assert rows
    for row in rows:
        fall = row["removed"][0]
        assert f"'{fall['label']}' was removed in round {fall['round']} " in row["why"]
        assert f"led it by {fall['margin']:.2f}." in row["why"]
    sole = next(row for row in told.to_pylist() if len(row["original"]) == 1)
    assert f"'{sole['label']}' is the only candidate." in sole["why"]
    assert "nearest settled rows are" in sole["why"]


def test_a_label_may_fall_before_training():
    row = {
        "original": ["ant", "bee"],
        "kept": ["ant"],
        "label": "ant",
        "probability": 1.0,
        "margin": 1.0,
        "agreement": 1.0,
    }
    row |= {"removed": [{"label": "bee", "round": 0, "margin": 0.75, "trials": 9}], "trained": 9, "neighbours": []}
    said = reason(row | {"ask": False, "outside": "cow"}, [], 10)
    assert "'bee' was removed before training" in said
    assert "leads it by 0.75." in said
    assert "The models are confident of 'cow', which is not a candidate" in said


def test_a_reason_in_full():
    fell = [
        {"label": "fox", "round": 7, "margin": 0.62, "trials": 8},
        {"label": "cow", "round": 2, "margin": 0.9, "trials": 3},
    ]
    row = {"original": ["cat", "cow", "fox"], "kept": ["cat", "cow"], "label": "cat", "probability": 0.8, "margin": 0.7}
    row |= {"agreement": 0.9, "outside": None, "removed": fell, "trained": 8, "neighbours": [0, 1, 2], "ask": False}
    assert reason(row, ["cat", "cat", "dog"], 10) == (
        "'fox' was removed in round 7 by all 8 networks, when the best candidate led it by 0.62. "
        "'cow' was removed in round 2 by 3 of 8 networks, when the best candidate led it by 0.90. "
        "9 of 10 models predict 'cat', with probability 0.80. 2 of the 3 nearest settled rows are 'cat'."
    )


def test_predictions_are_a_table():
    found = prediction_table(np.array([[0.7, 0.3], [0.4, 0.6]]), ["cat", "dog"], {}, distribution=True)
    assert found.to_pylist()[1] == {"label": "dog", "probability": 0.6, "p(cat)": 0.4, "p(dog)": 0.6}


def test_neighbours_are_the_nearest():
    x = np.random.default_rng(0).normal(size=(40, 3))
    rows, among = np.arange(10), np.arange(5, 40)
    found = nearest(x, rows, among)
    for i, row in enumerate(rows):
        others = [j for j in among if j != row]
        distance = [((x[row] - x[j]) ** 2).sum() for j in others]
        assert found[i].tolist() == [others[k] for k in np.argsort(distance)[:5]]


def test_there_may_be_no_neighbour():
    neighbours, _ = neighbours_and_gain(np.zeros((2, 1)), np.full((2, 2), 0.5), np.array([True, True]))
    assert neighbours.to_pylist() == [[], []]


def test_neighbours_are_settled_and_the_crowd_is_asked_about_first():
    x = np.array([[0.0], [0.1], [0.2], [5.0], [5.1]])
    shares = np.array([[1.0, 0.0], [0.6, 0.4], [0.6, 0.4], [1.0, 0.0], [0.6, 0.4]])
    neighbours, gain = neighbours_and_gain(x, shares, np.array([False, True, True, False, True]))
    assert neighbours.to_pylist() == [[3], [0, 3], [0, 3], [0], [3, 0]]
    assert np.argsort(-gain, kind="stable")[:3].tolist() == [2, 4, 1]


def test_where_nothing_can_be_written_is_said_before_the_work(tmp_path: Path):
    with pytest.raises(ValueError, match=r"out must end in one of \.parquet, \.csv; got .*x\.txt"):
        check_out(tmp_path / "x.txt")
    with pytest.raises(ValueError, match=r"out must lie in a folder that exists; .*Make .*no.* first"):
        check_out(tmp_path / "no" / "x.csv")


def test_a_crowd_with_one_doubt_is_asked_once_and_a_sure_row_never_first():
    x = np.array([[0.0], [0.01], [0.02], [3.0], [0.03], [0.04]])
    shares = np.array([[0.55, 0.45, 0], [0.55, 0.45, 0], [0.55, 0.45, 0], [0.55, 0.45, 0], [1, 0, 0], [0.55, 0, 0.45]])
    gain = expected_gain(x, shares, np.ones(6, dtype=bool))
    order = np.argsort(-gain, kind="stable")
    assert order[0] in (0, 1, 2)
    assert set(order[:3]) >= {3, 5}  # another place, another doubt
    assert order[-1] == 4
    assert gain[4] == 0
    alone = expected_gain(x, np.eye(6), np.zeros(6, dtype=bool))
    assert alone.tolist() == [0] * 6
