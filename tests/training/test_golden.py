"""Golden numbers: three seeds of a small setting per method, plain and with POP.

They move only when a formula or the order of draws does. To renew them, run this file, and say in the commit why they moved.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from oneof.candidates.generate import Flip, generate
from oneof.methods import METHODS
from oneof.networks import MLP
from oneof.purify import Pop
from oneof.training.fit import fit
from oneof.training.trials import Training, Trial
from oneof_paper.synthetic import mixture

GOLDEN = Path(__file__).parents[1] / "golden" / "methods.json"
SYSTEMS = [f"{method}{pop}" for method in METHODS if METHODS[method].views == 1 for pop in ("", "+pop")]


def measure(system: str) -> dict[str, list[float]]:
    method, _, pop = system.partition("+")
    data = mixture(n=120, d=4, c=5, separation=3.0, seed=5)
    sets = generate(data.labels, 5, Flip(rate=0.4), seed=6)
    trials = [Trial(seed=seed, scaling="feature") for seed in range(3)]
    rule = Pop(warm_up=3, interval=2, window=2, e0=0.7, e_s=0.1) if pop else None
    fitted = fit(
        data.x, sets, trials=trials, method=METHODS[method](), purify=rule, network=MLP((8,)), training=Training(10, 20)
    )
    truth = torch.as_tensor(data.labels)
    return {
        "loss": fitted.history["loss"][-1].tolist(),
        "set_size": fitted.history["set_size"][-1].tolist(),
        "accuracy": (fitted.logits(data.x).argmax(-1) == truth).double().mean(1).tolist(),
    }


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("system", SYSTEMS)
def test_golden(system):
    expected = json.loads(GOLDEN.read_text())[system]
    for name, values in measure(system).items():
        assert values == pytest.approx(expected[name], abs=1e-7), name


if __name__ == "__main__":
    torch.set_default_dtype(torch.float64)
    GOLDEN.write_text(json.dumps({system: measure(system) for system in SYSTEMS}, indent=1) + "\n")
