"""Votes and features as a prior: what a sample of many items chooses."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from pyarrow import table

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
    monkeypatch.setattr(module, "SAMPLE", 200)
    monkeypatch.setattr(module, "MAX_REGRESSION_ROWS", 300)
    some = vote_prior(x, votes, np.arange(400))
    assert whole.evidence.neighbours is not None
    assert some.evidence.neighbours is not None
    assert np.isfinite(whole.evidence.neighbours).all()
    assert np.isnan(some.evidence.neighbours).all(1).sum() == 100
    assert some.joint.posterior.shape == (400, 3)
    assert (some.joint.posterior.argmax(1) == truth).mean() > (some.joint.fitted.posterior.argmax(1) == truth).mean()
