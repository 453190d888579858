"""Annotators who copy each other count as fewer, and those who agree because they are right do not."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from pyarrow import table

from oneof.ensemble.vote_prior import vote_prior
from oneof.votes import Votes, dependence, read_long
from oneof.votes.dependence import annotator_weights, discount_dependent

Labels = NDArray[np.intp]


def jury(seed: int, n_copies: int, n: int = 400, copied: float = 0.9) -> tuple[Votes, Labels]:
    """Return votes of six models on every item, and the truth; the last ones mostly repeat the first."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(4, size=n)
    accuracy = rng.uniform(0.55, 0.75, size=6)
    named = np.where(rng.random((n, 6)) < accuracy, truth[:, None], rng.integers(4, size=(n, 6)))
    for model in range(6 - n_copies, 6):
        named[:, model] = np.where(rng.random(n) < copied, named[:, 0], named[:, model])
    return votes_of(named), truth


def votes_of(named: NDArray[np.intp]) -> Votes:
    """Return the votes of models on every item, from labels [n, a]."""
    n, a = named.shape
    models = [f"m{model}" for model in range(a)]
    rows = {"item": np.repeat(np.arange(n), a), "annotator": models * n, "label": named.ravel().astype(str)}
    return read_long(table(rows))


def test_copies_count_as_fewer_and_others_fully() -> None:
    votes, _ = jury(seed=0, n_copies=1)
    weights = annotator_weights(votes)
    assert (weights[[0, 5]] < 0.7).all()
    np.testing.assert_allclose(weights[1:5], 1.0)
    np.testing.assert_allclose(discount_dependent(votes).share, weights[votes.annotator])


@pytest.mark.parametrize("seed", range(5))
def test_annotators_who_err_alone_count_fully(seed: int) -> None:
    votes, _ = jury(seed, n_copies=0)
    assert discount_dependent(votes) is votes


def test_more_labels_are_right_where_copies_count_as_fewer() -> None:
    with_copies = []
    without_discount = []
    for seed in range(4):
        votes, truth = jury(seed, n_copies=1)
        nothing = np.zeros((len(truth), 0))
        labels = vote_prior(nothing, votes, np.arange(len(truth))).joint.votes_alone.argmax(1)
        with_copies.append((labels == truth).mean())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("oneof.ensemble.vote_prior.discount_dependent", lambda votes: votes)
            labels = vote_prior(nothing, votes, np.arange(len(truth))).joint.votes_alone.argmax(1)
        without_discount.append((labels == truth).mean())
    assert np.mean(with_copies) > np.mean(without_discount) + 0.05


def test_rules_of_one_label_and_pairs_with_few_items_in_common_count_fully() -> None:
    rng = np.random.default_rng(0)
    rows = [(item, f"rule {k}", "ab"[k % 2]) for item in range(200) for k in range(4) if rng.random() < 0.5]
    rows += [(item, f"p{item // 8}-{k}", "ab"[item % 2]) for item in range(200) for k in range(2)]
    item, annotator, label = zip(*rows, strict=True)
    votes = read_long(table({"item": item, "annotator": annotator, "label": label}))
    np.testing.assert_allclose(annotator_weights(votes), 1.0)


def test_of_many_items_a_sample_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    votes, _ = jury(seed=0, n_copies=1)
    all_items = annotator_weights(votes)
    monkeypatch.setattr(dependence, "MAX_PAIRED_ITEMS", 300)
    sampled = annotator_weights(votes)
    assert (sampled != all_items).any()
    np.testing.assert_allclose(sampled, all_items, atol=0.1)
