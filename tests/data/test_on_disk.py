"""Features on the disk: the numbers of features in memory, whatever is asked of them."""

from __future__ import annotations

import pickle
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import oneof.data.on_disk
from oneof.candidates.generate import Flip, generate
from oneof.data.augment.views import Pictures, views
from oneof.data.on_disk import OnDiskFeatures, fitted_scaling, from_parquet
from oneof.data.scaling import SCALINGS
from oneof.methods import METHODS
from oneof.networks import MLP, LeNet
from oneof.purify import Pop
from oneof.training.fit import fit
from oneof.training.trials import Training, Trial
from oneof_paper.synthetic import mixture

N, C = 80, 4
DATA = mixture(n=N, d=3, c=C, seed=1)
X = DATA.x.astype(np.float32)
SETS = generate(DATA.labels, C, Flip(0.4), seed=2)
IMAGES = np.random.default_rng(0).integers(0, 256, (N, 1, 8, 8), dtype=np.uint8)


@pytest.fixture
def rows(tmp_path, monkeypatch):
    monkeypatch.setattr(oneof.data.on_disk, "BLOCK", 20)  # six rows: several blocks
    np.save(tmp_path / "x.npy", X)
    return OnDiskFeatures(tmp_path / "x.npy")


def run(x, scaling="feature", method="proden", **options):
    order = np.random.default_rng(0).permutation(N)
    split = {"rows": order[:60], "held_out": order[60:70], "test": order[70:]}
    return fit(
        x, SETS, trials=[Trial(seed=seed, scaling=scaling, **split) for seed in range(2)], method=METHODS[method](),
        network=MLP((8,)), training=Training(4, 16), purify=Pop(1, 1, 1, True, 0.5, 0.1), labels=DATA.labels,
        choose="approximated", **options,
    )  # fmt: skip


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("method", ["proden", "valen"])
def test_training_gives_what_it_gives_in_memory(rows, scaling, method):
    disk, memory = run(rows, scaling, method), run(X, scaling, method)
    np.testing.assert_allclose(disk.logits(rows), memory.logits(X), rtol=0, atol=1e-10)
    assert torch.equal(disk.candidates, memory.candidates)
    for one, other in zip(disk.history.values(), memory.history.values(), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-10)


def test_a_run_is_resumed_and_another_file_refused(rows, tmp_path):
    first = run(rows, checkpoint=tmp_path / "run")
    assert torch.equal(run(OnDiskFeatures(rows.path), checkpoint=tmp_path / "run").logits(X), first.logits(X))
    np.save(tmp_path / "other.npy", X + 1)
    with pytest.raises(ValueError, match=r"data was '.*', now '.*'"):
        run(OnDiskFeatures(tmp_path / "other.npy"), checkpoint=tmp_path / "run")


@pytest.mark.parametrize(
    ("method", "recipe"), [("proden", "pop"), ("rcr", "rcr"), ("pico", "pico"), ("valen", "plain")]
)
def test_images_give_what_they_give_in_memory_to_the_bit(tmp_path, monkeypatch, method, recipe):
    monkeypatch.setattr(oneof.data.on_disk, "BLOCK", 700)  # ten rows
    np.save(tmp_path / "images.npy", IMAGES)
    how = {"valen": {"warm_up": 1}, "pico": {"queue": 20, "embedding": 4}}.get(method, {})
    order = np.random.default_rng(0).permutation(N)

    def train(x):
        return fit(
            x, SETS, trials=[Trial(rows=order[:60], held_out=order[60:])], method=METHODS[method](**how), network=LeNet(),
            views=views(recipe, Pictures(8, (0.5,), (0.5,))), training=Training(3, 16),
            purify=Pop(1, 1, 1, True, 0.5, 0.1),
        )  # fmt: skip

    disk, memory = train(OnDiskFeatures(tmp_path / "images.npy")), train(IMAGES)
    assert torch.equal(disk.logits(OnDiskFeatures(tmp_path / "images.npy")), memory.logits(IMAGES))
    assert torch.equal(disk.candidates, memory.candidates)
    for one, other in zip(disk.history.values(), memory.history.values(), strict=True):
        assert torch.equal(one, other)


def test_a_run_begun_in_memory_goes_on_from_the_disk(rows, tmp_path):
    first = run(X, checkpoint=tmp_path / "run")
    assert torch.equal(run(rows, checkpoint=tmp_path / "run").logits(X), first.logits(X))


def test_rows_as_a_tensor_gives_them(rows):
    whole = torch.as_tensor(X)
    at = torch.tensor([7, 7, 79, 0])
    assert rows.shape == whole.shape
    assert torch.equal(rows.index_select(0, at), whole[at])
    assert torch.equal(rows[at], whole[at])
    assert torch.equal(rows[5], whole[5])
    assert torch.equal(torch.cat(list(rows.split(33))), whole)
    assert torch.equal(torch.cat(list(rows.blocks())), whole)
    assert torch.equal(pickle.loads(pickle.dumps(rows))[79], whole[79])


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("kind", [kind for kind in SCALINGS if kind != "none"])
def test_scaling_is_that_of_the_rows_however_often_they_occur(rows, kind):
    some = torch.tensor([3, 3, 3, 40, 41, 42, 79])
    for ours, theirs in zip(
        fitted_scaling(kind, rows, some), SCALINGS[kind](torch.as_tensor(X)[some].double()), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_other_scalings_are_refused(rows):
    with pytest.raises(
        ValueError, match=r"scaling of features on the disk must be one of none, global, .*; got a function"
    ):
        fitted_scaling(SCALINGS["feature"], rows, torch.arange(3))


def test_parquet_becomes_a_file_of_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(oneof.data.on_disk, "BLOCK", 100)
    table = pa.table(
        {"b": X[:, 1], "name": ["x"] * N, "a": X[:, 0].astype(float), "k": np.arange(N), "yes": X[:, 2] > 0}
    )
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=17)
    every = from_parquet(tmp_path / "x.parquet", tmp_path / "x.npy")
    wanted = np.column_stack([X[:, 1], X[:, 0], np.arange(N), X[:, 2] > 0]).astype(np.float32)
    assert np.array_equal(torch.cat(list(every.split(9))), wanted)
    two = from_parquet(tmp_path / "x.parquet", tmp_path / "two.npy", ["a", "b"])
    assert np.array_equal(np.load(two.path), X[:, :2])


def test_large_whole_numbers_of_parquet_are_rounded_once(tmp_path):
    large = 2**60 + 2**36 + 1  # through float64 it would be a tie, and rounded down
    pq.write_table(pa.table({"k": [large], "a": [0.5]}), tmp_path / "x.parquet")
    assert from_parquet(tmp_path / "x.parquet", tmp_path / "x.npy")[0].tolist() == [2.0**60 + 2.0**37, 0.5]


# ------------------------------------------------------------------------------------------------------------- messages


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (
            X.astype(np.float64),
            r"x\.npy must hold float32 or uint8 \[n, \.\.\.\], row after row; got float64 \[80, 3\]",
        ),
        (np.asfortranarray(X), r"must hold float32 or uint8 .*row after row; got float32"),
        (X[:, 0].copy(), r"got float32 \[80\]"),
    ],
)
def test_other_files_are_refused(tmp_path, array, message):
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(ValueError, match=message):
        OnDiskFeatures(tmp_path / "x.npy")


def test_a_damaged_file_is_refused(rows, tmp_path):
    (tmp_path / "half.npy").write_bytes(rows.path.read_bytes()[:500])
    (tmp_path / "none.npy").write_bytes(b"")
    np.savez(tmp_path / "x.npz", X)
    for name in ("half.npy", "none.npy"):
        with pytest.raises(ValueError, match=rf"{name} must be a whole \.npy file; "):
            OnDiskFeatures(tmp_path / name)
    with pytest.raises(ValueError, match=r"got an archive"):
        OnDiskFeatures(tmp_path / "x.npz")
    with rows.path.open("r+b") as file:
        file.truncate(300)
    with pytest.raises(OSError, match=r"x\.npy was cut short while it was read; row 79 is gone"):
        rows[79]


def test_messages_of_parquet_and_of_what_needs_memory(rows, tmp_path):
    pq.write_table(pa.table({"a": [1.0, None], "b": [1e300, 2.0], "c": ["x", "y"]}), tmp_path / "bad.parquet")
    for columns, message in [
        (["a"], r"finite numbers of at most 1e\+30 in size; .*bad\.parquet, column 'a', row 1 is nan"),
        (["b"], r"column 'b', row 0 is 1e\+300"),
        (["z"], r"must have columns of numbers; 'z' is not there"),
        ([], r"must have columns of numbers; it has none"),
    ]:
        with pytest.raises(ValueError, match=message):
            from_parquet(tmp_path / "bad.parquet", tmp_path / "bad.npy", columns)
    assert not (tmp_path / "bad.npy").exists()
    with pytest.raises(TypeError, match=r"x must be uint8 images .* where views are given; got float32"):
        fit(rows, SETS, views=views("plain", "mnist"))
    np.save(tmp_path / "images.npy", IMAGES)
    with pytest.raises(
        ValueError, match=r"a table on the disk must be float32 for the CPU; got uint8 for cpu\. For im"
    ):
        fit(OnDiskFeatures(tmp_path / "images.npy"), SETS)


def test_decimals_are_numbers_and_their_gaps_are_named(tmp_path):
    column = pa.array([Decimal("1.5"), Decimal("2.25")], pa.decimal128(5, 2))
    pq.write_table(pa.table({"a": column}), tmp_path / "x.parquet")
    assert from_parquet(tmp_path / "x.parquet", tmp_path / "x.npy")[1].tolist() == [2.25]
    pq.write_table(pa.table({"a": pa.array([Decimal("1.5"), None], pa.decimal128(5, 2))}), tmp_path / "x.parquet")
    with pytest.raises(ValueError, match=r"x\.parquet, column 'a', row 1 is None"):
        from_parquet(tmp_path / "x.parquet", tmp_path / "x.npy")
