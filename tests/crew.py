"""What tests/test_processes.py trains in one process and in several; run by torchrun it trains every case and saves what came out."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import torch

import oneof.engine
import oneof.given
from oneof.data.synthetic import mixture
from oneof.engine import fit
from oneof.methods import METHODS
from oneof.networks import MLP
from oneof.problem import Training
from oneof.purify import Pop, PopRatio
from oneof.trials import Trial

N, C = 61, 12
DATA = mixture(n=N, d=3, c=C, separation=4.0, seed=1)
SETS = np.eye(C, dtype=bool)[DATA.labels] | (np.random.default_rng(3).random((N, C)) < 0.15)
POP = Pop(warm_up=1, interval=2, window=2, e0=0.03, e_end=0.01, e_s=0.01, every_round=False)
RATIO = PopRatio(1, 2, 1, False, 0.3, 0.8, quiet=0.05)
TABLES = [name for name, method in METHODS.items() if method.views == 1 and name != "valen"]
CASES = {f"{name} {rule}": {"method": name, "purify": rule} for name in TABLES for rule in ("pop", "ratio")}
CASES |= {
    "plain": {"purify": None},
    "noise": {"noise": 0.1},
    "packed": {"large": 0},
    "two trials": {"trials": 2},
    "small batches": {"batch": 3},  # some without a row of a process
}
KEPT = ["proden pop", "lws ratio", "packed"]  # checkpoints of these are resumed by another number of processes


def schedule(epoch: int, epochs: int) -> float:
    """Slow, so that a process can be killed on the way."""
    time.sleep(0.5)
    return 1.0


def train(method="proden", purify="pop", noise=0.0, large=2**28, trials=1, batch=16, epochs=5, slow=False, **options):
    """A small run; what a case does not say is the same for all."""
    oneof.given.LARGE = large
    order = np.random.default_rng(0).permutation(N)
    rows = {"rows": order[:45], "held_out": order[45:53], "test": order[53:]}
    training = Training(epochs, batch, noise=noise)
    return fit(
        DATA.x,
        SETS,
        method=METHODS[method](),
        purify={"pop": POP, "ratio": RATIO, None: None}[purify],
        trials=[Trial(seed=seed, lr=0.3, scaling="feature", **rows) for seed in range(trials)],
        network=MLP((8,)),
        training=Training(epochs, batch, schedule=schedule) if slow else training,
        labels=DATA.labels,
        choose="approximated",
        **options,
    )


def outcome(fitted):
    """All that a run leaves behind, as plain tensors."""
    history = {name: value for name, value in fitted.history._asdict().items() if isinstance(value, torch.Tensor)}
    removals = fitted.removals._asdict() if fitted.removals else {}
    numbers = {**fitted.stack.weights, **history, "margin": removals.pop("margin", torch.empty(0))}
    exact = {**removals, "rows": fitted.rows, "candidates": fitted.candidates, "epoch": fitted.epoch}
    return {"near": numbers, "exact": exact}


class Stopped(Exception):
    """Stands for the end of the process."""


def train_some(steps: int, **case) -> None:
    """A run that ends after so many steps, with a checkpoint after each."""
    whole = oneof.engine.steps

    def some(problem, state):
        for number, record in enumerate(whole(problem, state), 1):
            yield record
            if number == steps:
                raise Stopped

    oneof.engine.steps = some
    try:
        train(**case, every=0)
    except Stopped:
        return
    finally:
        oneof.engine.steps = whole


if __name__ == "__main__":
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    results = {name: outcome(train(**case)) for name, case in CASES.items()}
    for name in KEPT:  # one process began these; it will end them too
        train_some(4, **CASES[name], checkpoint=folder / name)
    torch.save(results, folder / f"rank-{torch.distributed.get_rank()}.pt")
