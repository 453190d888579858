"""A fit that is saved and loaded says what it said, whatever its network; a damaged file is one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

import oneof
from oneof.data.augment import views
from oneof.methods import PiCO
from oneof.networks import MLP, Backbone, LeNet, WideResNet
from oneof.training.state import Fit
from oneof.training.trials import Trial
from oneof_paper.synthetic import mixture

DATA = mixture(n=60, d=3, c=3, seed=0)
SETS = np.eye(3, dtype=bool)[DATA.labels] | (np.random.default_rng(0).random((60, 3)) < 0.3)
IMAGES = np.random.default_rng(0).integers(0, 256, (60, 1, 28, 28)).astype(np.uint8)
ON_IMAGES: dict[str, Any] = {"views": views("plain", "mnist"), "training": oneof.Training(1, 20)}


def table(**how: Any) -> Fit:
    trials = [Trial(seed, np.arange(50), np.arange(50, 60), scaling="feature") for seed in range(2)]
    return oneof.fit(DATA.x, SETS, trials=trials, training=oneof.Training(3, 20), **how)


FITS = {
    "MLP": lambda: (table(network=MLP((8,)), purify=oneof.Pop(0, 1, 1), choose="covering"), DATA.x),
    "LeNet": lambda: (oneof.fit(IMAGES, SETS, network=LeNet(), **ON_IMAGES), IMAGES),
    "WRN": lambda: (oneof.fit(IMAGES, SETS, network=WideResNet(10, 1), **ON_IMAGES), IMAGES),
    "PiCO": lambda: (oneof.fit(IMAGES, SETS, network=LeNet(), method=PiCO(embedding=8), **ON_IMAGES | {"views": views("pico", "mnist")}), IMAGES),
}  # fmt: skip


@pytest.mark.parametrize("kind", FITS)
def test_a_fit_read_back_is_the_same(kind: str, tmp_path: Path) -> None:
    fitted, x = FITS[kind]()
    fitted.save(tmp_path / "fit.safetensors")
    again = oneof.load(tmp_path / "fit.safetensors")
    torch.testing.assert_close(again.logits(x), fitted.logits(x), rtol=0, atol=0)
    assert (again.candidates == fitted.candidates).all()
    assert (again.rows == fitted.rows).all()
    assert (again.epoch == fitted.epoch).all()
    assert {name: one.tolist() for name, one in again.history.items()} == {
        name: one.tolist() for name, one in fitted.history.items()
    }
    assert (again.removals is None) == (fitted.removals is None)
    if fitted.removals is not None and again.removals is not None:
        assert all((one == other).all() for one, other in zip(again.removals, fitted.removals, strict=True))
    again.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "fit.safetensors").read_bytes()


def test_a_network_of_ones_own_is_given_again(tmp_path: Path) -> None:
    own = Backbone(lambda: nn.Linear(3, 5))
    fitted = table(network=own)
    fitted.save(tmp_path / "fit")
    assert (oneof.load(tmp_path / "fit", own).logits(DATA.x) == fitted.logits(DATA.x)).all()
    with pytest.raises(
        ValueError,
        match=r"must be a file that Fit\.save wrote; .*got 'Backbone'.* If its network was your own, give network=\.",
    ):
        oneof.load(tmp_path / "fit")
    with pytest.raises(ValueError, match=r"must be a file that Fit\.save wrote; it is not, or not whole"):
        oneof.load(tmp_path / "fit", MLP((4,)))


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"network": {"kind": "MLP", "hidden": [10**9]}}, "not those of the network"),
        ({"network": {"kind": "MLP", "hidden": [1] * 100_000}}, "claims 100,000 layers"),
        ({"network": {"kind": "WideResNet", "depth": 6 * 10**6 + 4, "widen": 1}}, "claims 6,000,004 layers"),
        ({"shape": [10**12]}, "claim the shape"),
        ({"shape": []}, "not whole"),
        ({"method": {"kind": "PiCO", "embedding": 10**9}}, "not whole"),
    ],
)
def test_what_a_file_claims_is_compared_before_anything_is_made_of_it(
    tmp_path: Path, claims: dict[str, Any], words: str
) -> None:
    table().save(tmp_path / "fit")
    with safe_open(tmp_path / "fit", "pt") as file:
        metadata = json.loads(file.metadata()["fit"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    save_file(tensors, tmp_path / "claims", {"fit": json.dumps({**metadata, **claims})})
    with pytest.raises(ValueError, match=r"claims must be a file that Fit\.save wrote") as raised:
        oneof.load(tmp_path / "claims")
    assert words in str(raised.value)


@pytest.mark.parametrize("name", ["rows", "epoch", "candidates"])
def test_a_tensor_that_is_missing_is_one_line(tmp_path: Path, name: str) -> None:
    table().save(tmp_path / "fit")
    with safe_open(tmp_path / "fit", "pt") as file:
        metadata = file.metadata()
        tensors = {key: file.get_tensor(key) for key in file.keys() if key != name}  # noqa: SIM118
    save_file(tensors, tmp_path / "part", metadata)
    with pytest.raises(ValueError, match=r"part must be a file that Fit\.save wrote; it is not, or not whole"):
        oneof.load(tmp_path / "part")


def test_other_files_are_refused(tmp_path: Path) -> None:
    table().save(tmp_path / "fit")
    (tmp_path / "cut").write_bytes((tmp_path / "fit").read_bytes()[:-5])
    save_file({"rows": torch.zeros(1)}, tmp_path / "other")
    (tmp_path / "text").write_text("{}")
    for name in ("cut", "other", "text", "nowhere"):
        with pytest.raises(ValueError, match=rf"{name} must be a file that Fit\.save wrote; it is not, or not whole"):
            oneof.load(tmp_path / name)
