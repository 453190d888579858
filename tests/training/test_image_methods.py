"""The methods that compare views learn real digits, on the CPU, with the views of their recipes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from torch import Tensor, nn

from oneof.candidates.generate import Flip, generate
from oneof.data.augment import views
from oneof.data.augment.views import Pictures
from oneof.methods import CAVL, LWS, RC, RCR, PiCO, Proden, Valen
from oneof.networks import Backbone, LeNet
from oneof.purify import Pop
from oneof.training.fit import fit
from oneof.training.trials import Training, Trial
from oneof_paper.data.catalogue import load
from oneof_paper.image_sets import read as read_sets
from oneof_paper.teacher import channels_first

EPOCHS = 4
SYSTEMS = {
    "POP": (Proden(), Pop(warm_up=1, interval=1, window=1), "pop"),
    "RCR": (RCR(ramp=2), None, "rcr"),
    "PiCO": (PiCO(queue=1024, epochs=EPOCHS), None, "pico"),
    "VALEN": (Valen(warm_up=2), None, "plain"),
}


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.skipif("ONEOF_DATA" not in os.environ, reason="needs MNIST: set ONEOF_DATA")
@pytest.mark.parametrize("system", SYSTEMS)
def test_learns_five_thousand_digits(system):
    method, purify, recipe = SYSTEMS[system]
    data = load("mnist")
    chosen = np.concatenate([np.arange(5000), data.test[:1000]])
    x, labels = channels_first(data.x[chosen]), data.labels[chosen]
    sets = generate(labels, 10, Flip(rate=0.3), seed=0)
    trial = Trial(seed=0, rows=np.arange(5000), test=np.arange(5000, 6000), lr=0.02)
    fitted = fit(
        x, sets, trials=[trial], method=method, purify=purify, network=LeNet(), training=Training(EPOCHS, 100),
        views=views(recipe, "mnist"), labels=labels,
    )  # fmt: skip
    print(system, fitted.history["accuracy"][:, 0].tolist())
    assert fitted.history["accuracy"][-1, 0] > 0.9


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.skipif("ONEOF_DATA" not in os.environ, reason="needs MNIST: set ONEOF_DATA")
def test_rc_comes_within_two_points_of_proden():
    """They differ only in the forward that the weights are taken from, so batch statistics must not set them apart."""
    data = load("mnist")
    n = 1000
    chosen = np.concatenate([np.arange(n), data.test[:1000]])
    drawn = read_sets(Path(__file__).parents[2] / "results" / "sets" / "mnist-20.npz").masks[100][:n]
    sets = np.concatenate([drawn, np.ones((1000, 10), dtype=bool)])
    trial = Trial(seed=0, rows=np.arange(n), test=np.arange(n, n + 1000), lr=0.05)
    accuracy = {}
    for method in (Proden(), RC()):
        fitted = fit(
            channels_first(data.x[chosen]), sets, trials=[trial], method=method, network=LeNet(),
            training=Training(8, 100), views=views("pop", "mnist"), labels=data.labels[chosen],
        )  # fmt: skip
        accuracy[type(method).__name__] = fitted.history["accuracy"][-1, 0].item()
    assert accuracy["RC"] > accuracy["Proden"] - 0.02, accuracy


class CountingNorm(nn.BatchNorm1d):
    """Batch normalisation that notes the number of rows of every forward in training mode."""

    batch_sizes: ClassVar[list[int]] = []

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.batch_sizes.append(len(x))
        return super().forward(x)


@pytest.mark.parametrize("method", [RC(), LWS(), CAVL(), Proden()], ids=lambda method: type(method).__name__)
@pytest.mark.parametrize("training", [Training(1, 20), Training(1, 20, mixup=0.3), Training(1, 20, noise=0.1)])
def test_every_forward_of_a_step_normalises_all_views(method, training):
    """A second forward of view 0 alone would show batch normalisation other statistics than the first."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (40, 1, 8, 8), dtype=np.uint8)
    sets = rng.random((40, 3)) < 0.6
    sets[np.arange(40), np.arange(40) % 3] = True
    three_views = views("pop", Pictures(8, (0.5,), (0.5,)))
    network = Backbone(lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 8), CountingNorm(8), nn.ReLU()))
    fit(images, sets, trials=[Trial(seed=0)], method=method, network=network, training=training, views=three_views)
    sizes = CountingNorm.batch_sizes.copy()
    CountingNorm.batch_sizes.clear()
    second_forward = method.after_step or training.alters_input
    assert sizes == [3 * 20] * (4 if second_forward else 2)
