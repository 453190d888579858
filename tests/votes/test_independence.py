"""The correlation of errors is less than usual only where the votes contradict it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from pyarrow import table

from oneof.votes import Annotators, Votes, fit_annotators, read_long
from oneof.votes import independence as module
from oneof.votes.annotators import CORRELATION
from oneof.votes.independence import correlation_of_errors
from oneof.votes.joint import join

N, A, C = 400, 5, 4
ONE_COIN = Annotators(one_coin=True)


def votes_for(named: NDArray[np.intp]) -> Votes:
    """Return the votes of annotators [n, a] for labels."""
    n, a = named.shape
    item = np.repeat(np.arange(n), a)
    annotator = np.tile(np.arange(a), n).astype(str)
    return read_long(table({"item": item, "annotator": annotator, "label": named.ravel().astype(str)}))


def drawn_votes(seed: int, repeat: float, n: int = N, a: int = A) -> Votes:
    """Return votes by people who are right in 65 % of the cases, or repeat, this often, what one such person sees in the item."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(C, size=(n, 1))

    def look(columns: int) -> NDArray[np.intp]:
        wrong = (truth + rng.integers(1, C, size=(n, columns))) % C
        return np.where(rng.random((n, columns)) < 0.65, truth, wrong)

    return votes_for(np.where(rng.random((n, a)) < repeat, look(1), look(a)))


def correlation(votes: Votes, model: Annotators = ONE_COIN) -> float:
    return correlation_of_errors(votes, fit_annotators(votes, model))


def test_people_who_err_alone_are_less_correlated() -> None:
    found = [correlation(drawn_votes(seed, repeat=0.0)) for seed in range(8)]
    assert np.mean(found) < 0.75 * CORRELATION
    assert min(found) > 0


@pytest.mark.parametrize("seed", range(4))
def test_people_who_repeat_an_impression_keep_the_correlation(seed: int) -> None:
    assert correlation(drawn_votes(seed, repeat=0.5)) == pytest.approx(CORRELATION, rel=0.02)


def test_more_items_show_more() -> None:
    few = np.mean([correlation(drawn_votes(seed, repeat=0.0, n=100)) for seed in range(6)])
    many = np.mean([correlation(drawn_votes(seed, repeat=0.0, n=1600)) for seed in range(6)])
    assert many < few - 0.05


def test_where_nothing_can_be_compared_the_correlation_stays() -> None:
    """One vote an item; annotators who only ever give one label; answers of two labels."""
    rng = np.random.default_rng(0)
    assert correlation(votes_for(rng.integers(C, size=(N, 1)))) == CORRELATION
    assert correlation(votes_for(np.tile(np.arange(A) % C, (N, 1)))) == CORRELATION
    rows = [(i, a, label) for i in range(60) for a in "xyz" for label in rng.permutation(C)[:2].astype(str)]
    item, annotator, label = zip(*rows, strict=True)
    votes = read_long(table({"item": item, "annotator": annotator, "label": label}))
    assert correlation(votes) == CORRELATION


def test_drawn_votes_follow_the_confusions() -> None:
    """Of many drawn votes by one annotator, the shares are those of the confusion matrix weighted by the frequencies."""
    votes = drawn_votes(0, repeat=0.0)
    fitted = fit_annotators(votes, Annotators(strength=3.0))
    labels = module._draw_labels(votes, fitted)
    for annotator in range(A):
        drawn = labels[:, votes.annotator == annotator]
        expected = fitted.frequencies / fitted.frequencies.sum() @ fitted.confusions.table(annotator)
        np.testing.assert_allclose(np.bincount(drawn.ravel(), minlength=C) / drawn.size, expected, atol=0.02)


def test_of_many_items_a_sample_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    votes = drawn_votes(0, repeat=0.5)
    monkeypatch.setattr(module, "MAX_COMPARED_ITEMS", 300)
    assert correlation(votes) == pytest.approx(CORRELATION, rel=0.02)


def test_another_correlation_gives_what_a_fit_with_it_gives() -> None:
    votes = drawn_votes(0, repeat=0.5)
    changed = fit_annotators(votes, ONE_COIN).with_correlation(0.1)
    fitted = fit_annotators(votes, replace(ONE_COIN, correlation=0.1))
    np.testing.assert_allclose(changed.posterior, fitted.posterior, rtol=1e-12)
    np.testing.assert_allclose(changed.likelihood, fitted.likelihood, rtol=1e-12)
    assert changed.correlation == 0.1


def test_labels_of_people_who_err_alone_are_more_probable() -> None:
    """With the usual correlation their mean probability is far below the share that is right."""
    votes = drawn_votes(1, repeat=0.0)
    joint = join(votes)
    assert joint.fitted.correlation < CORRELATION
    usual = joint.fitted.with_correlation(CORRELATION)
    assert joint.fitted.posterior.max(1).mean() > usual.posterior.max(1).mean() + 0.02
