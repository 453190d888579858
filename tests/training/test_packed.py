"""Packed tables: the numbers of dense ones, in the room of the candidates."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given as drawn
from hypothesis import strategies as st
from scipy import sparse

import oneof.training.fit
import oneof.training.set_input
from oneof.data.augment import views
from oneof.methods import METHODS, RCR, PiCO, Proden
from oneof.networks import MLP, LeNet
from oneof.purify import Pop, PopPrinted, PopRatio
from oneof.training.events import begin_purifying, event, removals
from oneof.training.fit import fit
from oneof.training.packed import Packed, pack
from oneof.training.problem import pose
from oneof.training.processes import Crew
from oneof.training.set_input import read_sets, worth_packing
from oneof.training.tables import Dense, positions
from oneof.training.trials import Training, Trial
from oneof_paper.synthetic import mixture

CPU = torch.device("cpu")
N, C = 80, 16
DATA = mixture(n=N, d=3, c=C, separation=4.0, seed=1)
RNG = np.random.default_rng(3)
SETS = np.eye(C, dtype=bool)[DATA.labels] | (RNG.random((N, C)) < 0.12)
SETS[5, :14] = True  # a row much longer than the others, and not full
OWN = np.stack([SETS, np.eye(C, dtype=bool)[DATA.labels] | (RNG.random((N, C)) < 0.1)])
PURIFY = {
    "plain": None,
    "pop": Pop(warm_up=1, interval=2, window=2, e0=0.2, e_end=0.02, e_s=0.1),
    "ratio": PopRatio(1, 2, 1, True, 0.3, 0.8),
    "printed": PopPrinted(warm_up=1, e0=0.5),
}
PACKING = [name for name, method in METHODS.items() if method.packs and method.views == 1]


def split(seed):
    order = np.random.default_rng(seed).permutation(N)
    return {"rows": order[:60], "held_out": order[60:70], "test": order[70:]}


def run(sets=SETS, *, method="proden", x=DATA.x, **options):
    options = {
        "trials": [Trial(seed=seed, lr=0.3, scaling="feature", **split(seed)) for seed in range(2)], "network": MLP((8,)),
        "labels": DATA.labels, "choose": "approximated", "training": Training(epochs=6, batch=16),
    } | options  # fmt: skip
    return fit(x, sets, method=METHODS[method]() if isinstance(method, str) else method, **options)


@pytest.fixture
def packing(monkeypatch):
    """Pack however small the tables are."""
    return lambda: monkeypatch.setattr(oneof.training.set_input, "LARGE", 0)


def assert_same(packed, dense, atol=1e-12):
    assert isinstance(packed.sets, Packed)
    assert isinstance(dense.sets, Dense)
    assert torch.equal(packed.candidates, dense.candidates)
    assert torch.equal(packed.epoch, dense.epoch)
    for name, weight in dense.stack.weights.items():
        np.testing.assert_allclose(packed.stack.weights[name], weight, rtol=0, atol=atol)
    for name, column in dense.history.items():
        np.testing.assert_allclose(packed.history[name], column, rtol=0, atol=atol, err_msg=name)
    for ours, theirs in zip(packed.removals or (), dense.removals or (), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=atol)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("purify", PURIFY)
@pytest.mark.parametrize("method", PACKING)
def test_packed_and_dense_give_the_same(packing, method, purify):
    options = {"method": method, "purify": PURIFY[purify]}
    dense = run(OWN, **options)
    packing()
    packed = run(OWN, **options)
    assert_same(packed, dense)
    if purify != "plain":
        assert dense.history["removed"].sum() > 10


@pytest.mark.parametrize("purify", PURIFY)
@pytest.mark.parametrize(("method", "recipe"), [(RCR(ramp=2), "rcr"), (PiCO(queue=64, epochs=3), "pico")])
def test_packed_and_dense_give_the_same_on_images(packing, method, recipe, purify):
    options = {
        "x": RNG.integers(0, 256, size=(40, 1, 8, 8), dtype=np.uint8), "labels": None, "choose": "last", "method": method,
        "network": LeNet(), "trials": [Trial(seed=0, lr=0.01)], "training": Training(3, 16), "views": views(recipe, "mnist"),
        "purify": PURIFY[purify] and type(PURIFY[purify])(1, 1, 1),
    }  # fmt: skip
    dense = run(SETS[:40], **options)
    packing()
    assert_same(run(SETS[:40], **options), dense, atol=1e-6)  # views are float32


@pytest.mark.usefixtures("double")
def test_with_mixup_and_noise_in_one_stack_or_several(packing):
    options = {"purify": PURIFY["pop"], "training": Training(5, 16, mixup=0.5, noise=0.1)}
    dense = run(**options)
    packing()
    assert_same(run(**options), dense)
    assert_same(run(**options, memory=1), dense)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("form", ["csr", "coo", "csc", "numbers", "unsorted", "lists", "sets"])
def test_every_form_of_sparse_sets(packing, form):
    rows = [row.nonzero()[0].tolist() for row in SETS]
    backwards = np.concatenate([row[::-1] for row in rows])
    forms = {
        "csr": lambda: sparse.csr_array(SETS),
        "coo": lambda: sparse.coo_matrix(SETS),
        "csc": lambda: sparse.csc_array(SETS),
        "numbers": lambda: sparse.csr_array(SETS.astype(float)),
        "unsorted": lambda: sparse.csr_array((np.ones(len(backwards)), backwards, np.r_[0, SETS.sum(1).cumsum()]), SETS.shape),
        "lists": lambda: rows,
        "sets": lambda: [set(row) for row in rows],
    }  # fmt: skip
    dense = run(purify=PURIFY["pop"])
    assert torch.equal(run(forms[form](), purify=PURIFY["pop"]).candidates, dense.candidates)  # small: made dense
    packing()
    assert_same(run(forms[form](), purify=PURIFY["pop"]), dense)


def test_all_rows_share_their_cells_with_what_was_given(packing):
    packing()
    given = read_sets(sparse.csr_array(SETS), N, 1, CPU)
    problem = pose(DATA.x, given, [Trial()], Proden(), None, Training())
    assert problem.sets_to_train_on().cells is given.cells
    assert torch.equal(problem.sets_to_train_on().dense(), torch.as_tensor(SETS)[None])


def test_checkpoints_hold_the_packed_form(packing, tmp_path):
    from safetensors.torch import load_file

    packing()
    whole = run(purify=PURIFY["pop"])
    run(purify=PURIFY["pop"], checkpoint=tmp_path, every=0)
    kept = load_file(sorted((tmp_path / "stack-1").glob("*.safetensors"))[-1])
    cells = len(whole.sets.values)
    packed = {
        f"{name}.values" for name in ("memory.0", "candidates", "pop.seen", "pop.fell", "pop.margin", "best.sets")
    }
    assert {name for name, tensor in kept.items() if tensor.shape == (cells,)} >= packed
    assert not any(tensor.shape[-1:] == (C,) and tensor.numel() == 2 * 60 * C for tensor in kept.values())
    again = run(purify=PURIFY["pop"], checkpoint=tmp_path)
    assert torch.equal(again.candidates, whole.candidates)
    assert all(torch.equal(a, b) for a, b in zip(again.removals, whole.removals, strict=True))


def test_a_killed_run_ends_the_same(packing, tmp_path, monkeypatch):
    packing()
    whole, steps = run(purify=PURIFY["pop"]), oneof.training.fit.steps

    def some(problem, state):
        for number, record in enumerate(steps(problem, state)):
            yield record
            if number == 18:
                raise KeyboardInterrupt

    monkeypatch.setattr(oneof.training.fit, "steps", some)
    with pytest.raises(KeyboardInterrupt):
        run(purify=PURIFY["pop"], checkpoint=tmp_path, every=0)
    monkeypatch.setattr(oneof.training.fit, "steps", steps)
    again = run(purify=PURIFY["pop"], checkpoint=tmp_path)
    assert torch.equal(again.logits(DATA.x), whole.logits(DATA.x))
    assert all(torch.equal(a, b) for a, b in zip(again.removals, whole.removals, strict=True))


# ---------------------------------------------------------------------------------------------------------- the tables


masks = st.tuples(st.integers(1, 3), st.integers(1, 6), st.integers(2, 5), st.integers(0, 2**32 - 1))


def mask_of(t, m, c, seed):
    rng = np.random.default_rng(seed)
    mask = rng.random((t, m, c)) < rng.random()
    mask[..., 0] |= ~mask.any(-1)
    return torch.as_tensor(mask)


@drawn(masks)
def test_rows_go_in_and_out_as_in_a_dense_table(shape):
    mask = mask_of(*shape)
    t, m, c = mask.shape
    generator = torch.Generator().manual_seed(shape[3])
    sets = pack(mask)
    assert torch.equal(sets.dense(), mask)
    assert sets.sizes().tolist() == mask.sum((1, 2)).tolist()
    assert all(np.array_equal(sets.sparse(trial).toarray(), mask[trial]) for trial in range(t))
    full = mask.all(-1, keepdim=True)
    dense, packed = Dense(torch.zeros(t, m, c)), sets.zeros(torch.float32, rest=True)
    for _ in range(3):
        where = positions(torch.stack([torch.randperm(m, generator=generator)[:2] for _ in range(t)]), m)
        assert torch.equal(sets.take(where), Dense(mask).take(where))
        rows = torch.rand(*where.shape, c, generator=generator)
        dense.put(where, torch.where(Dense(mask & ~full).take(where), rows, 0.0))
        packed.put(where, rows)
        assert torch.equal(packed.take(where), dense.take(where))
    assert torch.equal(packed.dense(), dense.values)


@drawn(masks)
def test_rows_chosen_of_what_was_given(shape):
    mask = mask_of(*shape)
    n = mask.shape[1]
    rows = torch.randint(n, (2, 7), generator=torch.Generator().manual_seed(shape[3]))
    got = pack(mask[:1]).chosen(rows)
    assert torch.equal(got.dense(), mask[0][rows])
    assert torch.equal(got.cells.labels, pack(mask[0][rows]).cells.labels)


@drawn(masks)
def test_both_forms_answer_alike(shape):
    """Whatever is asked of a table, dense or packed: sizes, places, numbers by trial."""
    mask = mask_of(*shape)
    t, m, c = mask.shape
    sets = [Dense(mask), pack(mask)]
    assert sets[0].shape == sets[1].shape
    assert sets[0].sizes().tolist() == sets[1].sizes().tolist()
    assert sets[0].count_cells() == sets[1].count_cells()
    dense, packed = (one.by_trial(torch.arange(t)) for one in sets)
    for entry in range(len(sets[1].values)):
        trial, row, label = (int(part) for part in sets[1].places(torch.tensor(entry)))
        flat = (trial * m + row) * c + max(label, 0)
        assert [int(part) for part in sets[0].places(torch.tensor(flat))] == [trial, row, max(label, 0)]
        assert packed[entry] == dense[trial, 0, 0] == trial


def test_memory_begins_as_in_a_dense_table():
    mask = torch.as_tensor(OWN)
    mask[1, 7] = True
    assert torch.equal(pack(mask).first_memory(Proden().init, None).dense(), Proden().init(mask))
    both = pack(mask).first_memory(lambda sets: (Proden().init(sets), 2 * Proden().init(sets)), None)
    assert torch.equal(both[1].dense(), 2 * Proden().init(mask))


def to_purify(mask):
    """A packed table of the sets of one trial that may be written to."""
    return pack(mask).chosen(torch.arange(mask.shape[1])[None])


def test_what_lies_off_the_sets_counts_in_the_total_of_a_row():
    """0.4 outside the set: the lead is 0.3, not the 0.5 that it would be within the set."""
    rule, sets = Pop(e0=0.4, e_end=0.1), to_purify(torch.tensor([[[True, False, True, False]]]))
    state = begin_purifying(rule, sets)
    row = torch.tensor([[[0.45, 0.3, 0.15, 0.1]]])
    first = torch.tensor([[0]])
    state.seen.put(first, rule.observe(state.seen.take(first), row.log(), sets.take(first)))
    removed, state = event(rule, sets, state, Crew(), 4)
    assert removed.tolist() == [0]
    assert (state.seen.values == 0).all()
    assert (state.seen.rest == 0).all()


def test_a_full_set_is_one_cell_keeps_no_memory_and_is_not_purified():
    mask = torch.tensor([[[True] * 4, [True, True, False, False]]])
    sets, rule, every = to_purify(mask), Pop(e0=0.1, e_end=0.1), torch.tensor([[0, 1]])
    assert sets.cells.labels.tolist() == [-1, 0, 1]
    weights = sets.first_memory(Proden().init, None)
    weights.put(every, torch.tensor([[[0.7, 0.1, 0.1, 0.1], [0.9, 0.1, 0, 0]]]))
    assert weights.take(every).tolist() == torch.tensor([[[0.25] * 4, [0.9, 0.1, 0, 0]]]).tolist()
    state = begin_purifying(rule, sets)
    state.seen.put(every, torch.tensor([[[9.0, 0, 0, 0], [9.0, 0, 0, 0]]]))
    removed, state = event(rule, sets, state, Crew(), 4)
    assert removed.tolist() == [1]
    assert sets.dense().tolist() == [[[True] * 4, [True, False, False, False]]]
    assert [column.tolist() for column in removals(state, sets, Crew())[:4]] == [[0], [1], [1], [1]]


def test_unlabelled_rows_take_a_cell_each(packing):
    packing()
    rows = [None if i % 3 == 0 else row.nonzero()[0].tolist() for i, row in enumerate(SETS)]
    fitted = run(rows, purify=PURIFY["pop"], trials=[Trial()], choose="last")
    assert len(fitted.sets.values) == sum(1 if row is None else len(row) for row in rows)
    assert fitted.candidates[0, ::3].all()
    assert fitted.sparse(0).toarray()[::3].all()


def test_only_large_tables_that_shrink_by_half_are_packed(packing):
    few, many = pack(torch.as_tensor(SETS)[None]), pack(torch.ones(1, 50, 9, dtype=torch.bool).tril())
    assert not worth_packing(few, 1)
    assert not worth_packing(Dense(torch.as_tensor(SETS)[None]), 1)
    packing()
    assert worth_packing(few, 1)
    assert worth_packing(Dense(torch.as_tensor(SETS)[None]), 1)
    assert worth_packing(Dense(torch.as_tensor(OWN)), 1)
    assert not worth_packing(Dense(torch.rand(1, 50, 9) < 0.7), 1)
    assert worth_packing(many, 1)  # nearly all are full
    assert isinstance(run(method="lws").sets, Dense)


# ------------------------------------------------------------------------------------------------------------- messages


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (sparse.csr_array(SETS * 0.5), r"sparse mask of candidates must hold only 0 and 1, no weights\. Threshold"),
        (
            sparse.csr_array(SETS & (np.arange(N) != 7)[:, None]),
            r"at least one label per row; row 7 is empty\. Drop it",
        ),
        (sparse.csr_array(SETS[:9]), r"candidates must have a set for every row of x \(80\); got 9"),
        ([[0, 1], [1, 1]] * 40, r"labels of a set must differ; row 1 has one twice\. Give a mask as an array"),
        ([[0, 2], []] * 40, r"at least one label per row; row 1 is empty"),
        ([[0, -2], [1]] * 40, r"labels must be numbers from 0; got -2"),
    ],
)
def test_messages(packing, sets, message):
    packing()
    with pytest.raises(ValueError, match=message):
        run(sets)


def test_a_method_that_weighs_every_label_refuses_what_does_not_fit(monkeypatch):
    monkeypatch.setattr(oneof.training.fit, "free_memory", lambda device: 16_000)
    with pytest.raises(
        ValueError, match=r"LWS keeps a number for every label of every row: 80 x 16 take 0 GB.*such as Proden"
    ):
        run(sparse.csr_array(SETS), method="lws")


def test_a_mask_that_does_not_fit_is_refused(packing, monkeypatch):
    packing()
    fitted = run()
    monkeypatch.setattr("oneof.training.packed.free_memory", lambda device: 100)
    with pytest.raises(
        ValueError, match=r"sets as a mask would take 0 GB and 0 GB are free\. Use sparse\(trial\) of a fit"
    ):
        _ = fitted.candidates
    assert fitted.sparse(1).shape == (60, C)
