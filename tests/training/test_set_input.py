"""Candidate sets as masks, sparse matrices and lists of labels: one run, dense; what does not fit in memory is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import sparse

from oneof.methods import CC, Proden
from oneof.networks import MLP
from oneof.purify import Pop
from oneof.training.fit import fit
from oneof.training.trials import Training, Trial
from oneof_paper.synthetic import mixture

N, C = 80, 16
DATA = mixture(n=N, d=3, c=C, separation=4.0, seed=1)
SETS = np.eye(C, dtype=bool)[DATA.labels] | (np.random.default_rng(3).random((N, C)) < 0.12)
ROWS = [row.nonzero()[0].tolist() for row in SETS]
BACKWARDS = np.concatenate([row[::-1] for row in ROWS])
POP = Pop(warm_up=1, interval=2, window=2, e0=0.2, e_end=0.02, e_s=0.1)
FORMS = {
    "csr": sparse.csr_array(SETS),
    "coo": sparse.coo_matrix(SETS),
    "csc": sparse.csc_array(SETS),
    "numbers": sparse.csr_array(SETS.astype(float)),
    "unsorted": sparse.csr_array((np.ones(len(BACKWARDS)), BACKWARDS, np.r_[0, SETS.sum(1).cumsum()]), SETS.shape),
    "lists": ROWS,
    "sets": [set(row) for row in ROWS],
}


def trained(candidates, *, method=Proden(), purify=POP):  # noqa: B008 - frozen
    return fit(
        DATA.x,
        candidates,
        trials=[Trial(seed=seed, lr=0.3, scaling="feature") for seed in range(2)],
        method=method,
        purify=purify,
        network=MLP((8,)),
        training=Training(epochs=4, batch=16),
    )


@pytest.fixture(scope="module")
def from_mask():
    return trained(SETS)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_what_the_mask_gives(form, from_mask):
    other = trained(FORMS[form])
    assert torch.equal(other.candidates, from_mask.candidates)
    assert from_mask.history["removed"].sum() > 10
    for name, weight in from_mask.stack.weights.items():
        assert torch.equal(other.stack.weights[name], weight)


def test_none_among_lists_is_every_label():
    known = [None if i % 3 == 0 else row for i, row in enumerate(ROWS)]
    mask = SETS.copy()
    mask[::3] = True
    assert torch.equal(trained(known).candidates, trained(mask).candidates)


@pytest.mark.parametrize(
    ("candidates", "message"),
    [
        (sparse.csr_array(SETS * 0.5), r"sparse mask .* only 0 and 1"),
        (sparse.csr_array(SETS & (np.arange(N) != 7)[:, None]), r"at least one label per row; row 7 is empty"),
        (sparse.csr_array(SETS[:9]), r"a set for every row of x \(80\); got 9"),
        ([[0, 1], [1, 1]] * 40, r"row 1 has one twice"),
        ([[0, 2], []] * 40, r"at least one label per row; row 1 is empty"),
        ([[0, -2], [1]] * 40, r"numbers from 0; got -2"),
    ],
)
def test_messages(candidates, message):
    with pytest.raises(ValueError, match=message):
        trained(candidates)


def test_a_sparse_matrix_whose_mask_does_not_fit_is_refused():
    """1,000,000 x 10,000,000 labels: a mask of 9,313 GiB."""
    n, c = 1_000_000, 10_000_000
    empty = sparse.csr_array((n, c), dtype=bool)
    with pytest.raises(
        ValueError, match=r"1,000,000 rows x 10,000,000 labels need 9,313\.2 GiB, [\d,.]+ GiB are free\. Use fewer"
    ):
        fit(np.zeros((n, 1), dtype=np.float32), empty)


def test_what_training_keeps_must_fit_too(monkeypatch):
    """A byte per label for the set, four for the method's memory, ten for POP."""
    monkeypatch.setattr("oneof.training.set_input.available_memory", lambda device: N * C * 14)
    with pytest.raises(ValueError, match=r"80 rows x 16 labels need 0\.0 GiB"):
        trained(SETS)
    trained(SETS, purify=None)
    trained(SETS, method=CC())
