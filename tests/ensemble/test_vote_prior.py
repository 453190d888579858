"""Votes and features as a prior: what a sample of many items chooses."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from pyarrow import table

from oneof.data.dataset import VoteEvidence
from oneof.ensemble import vote_prior as module
from oneof.ensemble.vote_prior import vote_prior
from oneof.votes import Votes, read_long


def blobs(n: int) -> tuple[Votes, NDArray[np.float64], NDArray[np.intp]]:
    """Three groups of points; two votes each by people who are right in 60 % of theirs."""
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=n)
    rows = [(i, f"{a}", "abc"[truth[i] if rng.random() < 0.6 else rng.integers(3)]) for i in range(n) for a in range(2)]
    item, annotator, label = zip(*rows, strict=True)
    x = np.eye(3)[truth] * 3 + rng.normal(size=(n, 3))
    return read_long(table({"item": item, "annotator": annotator, "label": label})), x, truth


def test_of_many_items_a_sample_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The choice is made on SAMPLE items and holds for all; rows beyond MAX_REGRESSION_ROWS are left to their votes and the networks."""
    votes, x, truth = blobs(n=400)
    whole = vote_prior(x, votes, np.arange(400))
    monkeypatch.setattr(module, "MAX_TUNING_ITEMS", 200)
    monkeypatch.setattr(module, "MAX_REGRESSION_ROWS", 300)
    some = vote_prior(x, votes, np.arange(400))
    assert whole.evidence.neighbours is not None
    assert some.evidence.neighbours is not None
    assert np.isfinite(whole.evidence.neighbours).all()
    assert np.isnan(some.evidence.neighbours).all(1).sum() == 100
    assert some.joint.posterior.shape == (400, 3)
    assert (some.joint.posterior.argmax(1) == truth).mean() > (some.joint.fitted.posterior.argmax(1) == truth).mean()


def test_features_and_majority_resist_a_habit_of_most_people() -> None:
    """Learners take two classes for each other in a third of the cases; features tell the classes apart, and most votes are right."""
    rng = np.random.default_rng(0)
    n = 400
    truth = rng.choice(4, size=n, p=[0.4, 0.3, 0.2, 0.1])
    taken_for = np.array([1, 0, 2, 3])
    x = 0.8 * rng.normal(size=(4, 10))[truth] + rng.normal(size=(n, 10))
    rows = []
    for item in range(n):
        for person in rng.permutation(20)[:3]:
            label = taken_for[truth[item]] if rng.random() < 0.35 else truth[item]
            rows.append((item, f"{person}", "abcd"[label if rng.random() < 0.8 else rng.integers(4)]))
        if rng.random() < 0.2:
            rows.append((item, f"expert {rng.integers(3)}", "abcd"[truth[item]]))
    items, annotators, labels = zip(*rows, strict=True)
    votes = read_long(table({"item": items, "annotator": annotators, "label": labels}))
    model = vote_prior(x, votes, np.arange(n)).evidence.vote_model
    assert model is not None
    posterior = model.posterior([np.full((n, 4), 0.25)])
    counts = np.zeros((n, 4))
    np.add.at(counts, (votes.item, votes.label), 1)
    assert (posterior.argmax(1) == truth).mean() > (counts.argmax(1) == truth).mean() + 0.1


def test_words_that_rules_look_for_do_not_confirm_their_votes() -> None:
    """Eight rules look for a word each, three of which are as frequent in the other class; twelve words that no rule looks for tell the truth."""
    rng = np.random.default_rng(0)
    n = 400
    truth = rng.integers(2, size=n)
    has_rule_word = rng.random((n, 8)) < 0.3
    for word in range(5):
        has_rule_word[:, word] = rng.random(n) < np.where(truth == word % 2, 0.4, 0.1)
    has_other_word = rng.random((n, 12)) < np.where(truth[:, None] == np.arange(12) % 2, 0.5, 0.2)
    item, rule = np.nonzero(has_rule_word)
    votes = read_long(table({"item": item, "annotator": rule.astype(str), "label": (rule % 2).astype(str)}))
    rows = votes.items.to_numpy()
    x = np.hstack([has_rule_word, has_other_word]).astype(np.float64)[rows]
    evidence = vote_prior(x, votes, np.arange(len(rows))).evidence
    assert evidence.learners_repeat_votes
    assert evidence.neighbours is not None
    without_rule_words = vote_prior(x[:, 8:], votes, np.arange(len(rows))).evidence
    assert not without_rule_words.learners_repeat_votes
    assert without_rule_words.vote_model is not None
    assert evidence.vote_model is not None
    uniform = [np.full((len(rows), 2), 0.5)]
    posterior = evidence.vote_model.posterior(uniform)
    np.testing.assert_allclose(posterior, without_rule_words.vote_model.posterior(uniform))
    assert (posterior.argmax(1) == truth[rows]).mean() > (votes_alone(evidence) == truth[rows]).mean() + 0.05


def test_where_rules_read_all_columns_all_are_used() -> None:
    rng = np.random.default_rng(0)
    x = (rng.random((200, 5)) < 0.25).astype(np.float64)
    item, rule = np.nonzero(x)
    votes = read_long(table({"item": item, "annotator": rule.astype(str), "label": (rule % 2).astype(str)}))
    rows = votes.items.to_numpy()
    evidence = vote_prior(x[rows], votes, np.arange(len(rows))).evidence
    assert not evidence.learners_repeat_votes
    assert evidence.vote_model is not None


def votes_alone(evidence: VoteEvidence) -> NDArray[np.intp]:
    """Return the labels [n] by the votes alone."""
    assert evidence.posterior is not None
    return np.asarray(evidence.posterior.argmax(1))
