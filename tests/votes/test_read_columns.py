"""Columns that rules read are found: of words, alternatives and categories, and no others."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from pyarrow import table

from oneof.votes import Votes, read_long
from oneof.votes.read_columns import columns_read_by_rules

N = 300


def words(seed: int) -> NDArray[np.float64]:
    """Return how often each of six words is in a text [N, 6]."""
    return np.random.default_rng(seed).poisson(0.25, size=(N, 6)).astype(np.float64)


def votes_of_rules(has_vote: NDArray[np.bool_]) -> tuple[Votes, NDArray[np.intp]]:
    """Return votes by rules that vote on these rows [N, rules], beside a person on each row, and the rows' items."""
    rows = [(int(i), f"rule {a}", "ab"[a % 2]) for i, a in zip(*np.nonzero(has_vote), strict=True)]
    rows += [(i, "person", "ab"[i % 2]) for i in range(N)]
    item, annotator, label = zip(*rows, strict=True)
    votes = read_long(table({"item": item, "annotator": annotator, "label": label}))
    return votes, np.argsort(votes.items.to_numpy())


@pytest.mark.parametrize("seed", range(5))
def test_words_that_rules_look_for_are_found(seed: int) -> None:
    """A rule looks for the first word, another for the second or the third."""
    x = words(seed)
    votes, item = votes_of_rules(np.stack([x[:, 0] > 0, (x[:, 1] > 0) | (x[:, 2] > 0)], axis=1))
    assert columns_read_by_rules(x, votes, item).tolist() == [True, True, True, False, False, False]


@pytest.mark.parametrize("seed", range(5))
def test_rules_that_read_other_things_leave_all_columns(seed: int) -> None:
    """Words of the rules' class are not what the rules read, though they are often in the same texts."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(2, size=N)
    x = (rng.random((N, 6)) < np.where(truth == 1, 0.4, 0.02)[:, None]).astype(np.float64)
    has_vote = rng.random((N, 4)) < np.where((truth[:, None] == np.arange(4) % 2), 0.7, 0.05)
    votes, item = votes_of_rules(has_vote)
    assert not columns_read_by_rules(x, votes, item).any()


def test_a_rule_that_always_votes_and_people_read_nothing() -> None:
    x = words(0)
    votes, item = votes_of_rules(np.ones((N, 1), dtype=bool))
    assert not columns_read_by_rules(x, votes, item).any()
    votes, item = votes_of_rules(np.zeros((N, 1), dtype=bool))
    assert not columns_read_by_rules(x, votes, item).any()


def test_measurements_and_no_columns_are_not_searched() -> None:
    x = np.random.default_rng(0).normal(size=(N, 2))
    votes, item = votes_of_rules(x > 0.5)
    assert not columns_read_by_rules(x, votes, item).any()
    assert columns_read_by_rules(np.zeros((N, 0)), votes, item).shape == (0,)
