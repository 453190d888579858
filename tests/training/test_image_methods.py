"""The methods that compare views learn real digits, on the CPU, with the views of their recipes."""

from __future__ import annotations

import os

import numpy as np
import pytest

from oneof.candidates.generate import Flip, generate
from oneof.data.augment import views
from oneof.data.named.catalogue import load
from oneof.methods import RCR, PiCO, Proden, Valen
from oneof.networks import LeNet
from oneof.purify import Pop
from oneof.training.fit import fit
from oneof.training.teacher import channels_first
from oneof.training.trials import Training, Trial

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
