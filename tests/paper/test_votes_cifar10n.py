"""CIFAR-10N's script: held-out votes choose, DivideMix divides and learns, and tables have what rows say."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from on_votes.cifar10n import AVERAGED, count_votes, draw_held_out, make_form
from on_votes.cifar10n_tables import forms_table, held_out_table
from on_votes.dividemix import DivideMix, clean_probability, train_dividemix
from torch import nn
from votes_cifar10n import PLANS, chosen_form, judge

from oneof.data.augment import views
from oneof.data.augment.views import Pictures
from oneof.networks import Backbone
from oneof_paper.readers.cifar import HumanVotes

LABELS = np.array([[3, 3, 5], [1, 1, 1], [0, 9, 2], [4, 4, 4]])
PEOPLE = HumanVotes(LABELS, np.array([3, 1, 0, 4]), np.array([3, 1, 2, 6]))


def test_a_vote_that_is_held_out_is_not_counted():
    counts = count_votes(PEOPLE, np.array([2, 0, 1, 0]))
    assert counts.sum(1).tolist() == [2, 2, 2, 2]
    assert (counts[0, 3], counts[0, 5], counts[2, 9]) == (2, 0, 0)
    assert count_votes(PEOPLE).sum() == 12
    assert set(draw_held_out(100, 0)) == {0, 1, 2}


@pytest.mark.parametrize("name", AVERAGED)
def test_a_form_knows_no_truth(name):
    other_truth = PEOPLE._replace(truth=np.zeros(4, dtype=int))
    counts = count_votes(PEOPLE)
    first = make_form(name, PEOPLE, counts, 40)
    second = make_form(name, other_truth, counts, 40)
    assert np.array_equal(first.candidates, second.candidates)
    assert np.array_equal(first.prior, second.prior)
    assert first.average > 0


def test_held_out_votes_choose_the_form():
    rows = [
        {"plan": "held-out", "form": "sets", "agreement": 0.815, "resolved": 0.99, "likelihood": -0.9},
        {"plan": "held-out", "form": "votes", "agreement": 0.81, "resolved": 0.90, "likelihood": -0.8},
        {"plan": "forms", "form": "majority", "epochs": 40, "accuracy": 0.9, "resolved": 0.95},
    ]
    assert chosen_form(rows) == "votes"
    assert held_out_table(rows).splitlines()[3] == "| votes | 81.00 | -0.8000 |"
    assert forms_table(rows).splitlines()[2] == "| majority | 40 | 90.00 | 95.00 | 1 |"
    with pytest.raises(SystemExit, match="needs rows of held-out votes"):
        chosen_form(rows[2:])
    assert {run.form for run in (*PLANS["chosen"], *PLANS["chosen-long"])} == {"chosen"}


def test_judging_needs_no_truth_where_a_vote_was_held_out():
    truth = np.arange(20) % 10
    votes = np.stack([truth, truth, (truth + (np.arange(20) < 5)) % 10], axis=1)  # the third person errs in five images
    people = HumanVotes(votes, truth, truth[::-1])
    judged = judge(np.eye(10)[truth], people, np.full(20, 2))
    assert judged["agreement"] == 0.75
    assert judged["likelihood"] < 0
    assert judged["resolved"] == 0.0
    assert judge(np.eye(10)[truth], people, None) == {"resolved": 0.0}


def test_small_losses_belong_to_labels_that_are_right():
    rng = np.random.default_rng(0)
    losses = np.concatenate([rng.normal(0.2, 0.05, 800), rng.normal(3.0, 0.5, 200)])
    clean = clean_probability(losses, 0)
    assert (clean[:800] > 0.9).all()
    assert (clean[800:] < 0.1).mean() > 0.95


def shapes(n, rng):
    """Bright upper, lower, left and right halves of grey images."""
    labels = rng.integers(4, size=n)
    images = rng.integers(0, 60, (n, 1, 8, 8), dtype=np.uint8)
    halves = np.zeros((4, 8, 8), dtype=np.uint8)
    halves[0, :4] = halves[1, 4:] = 150
    halves[2, :, :4] = halves[3, :, 4:] = 150
    return images + halves[labels][:, None], labels


@pytest.mark.parametrize("strong", [False, True])
def test_dividemix_learns_what_wrong_labels_hide(strong):
    """A fifth of the labels is wrong; both networks' mean, and the refined labels, are nearly all right."""
    rng = np.random.default_rng(0)
    images, truth = shapes(600, rng)
    given = np.where(rng.random(400) < 0.2, (truth[:400] + 1) % 4, truth[:400])
    network = Backbone(lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU()))
    seen = views("upright", Pictures(8, (0.3,), (0.3,)))
    setting = DivideMix(12, warm_up=4, batch=40, strong=strong)
    predicted = train_dividemix(setting, torch.as_tensor(images), torch.as_tensor(given), 4, network, seen, 0)
    right = (predicted.train.argmax(1) == truth[:400]).mean()
    print((given == truth[:400]).mean(), right, (predicted.test.argmax(1) == truth[400:]).mean())
    assert right > (given == truth[:400]).mean() + 0.1
    assert (predicted.test.argmax(1) == truth[400:]).mean() > 0.9
    np.testing.assert_allclose(predicted.train.sum(1), 1, atol=1e-5)
