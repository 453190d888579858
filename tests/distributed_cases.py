"""What tests/training/test_processes.py trains in one process and in several; run by torchrun it trains every case and saves what came out."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.datasets import load_digits
from torch import nn

import oneof.data.augment
import oneof.training.fit
from oneof.estimator.classifier import PartialLabelClassifier
from oneof.learners.config import EnsembleConfig, FitConfig
from oneof.methods import METHODS
from oneof.networks import MLP, Backbone, GeneratorMLP, LeNet
from oneof.purify import Pop, PopRatio
from oneof.runs.fit_spec import FitSpec
from oneof.runs.fit_table import RunOptions, fit_table
from oneof.training.fit import fit
from oneof.training.trials import Training, Trial
from oneof_paper.synthetic import mixture

N, C = 61, 12
DATA = mixture(n=N, d=3, c=C, separation=4.0, seed=1)
SETS = np.eye(C, dtype=bool)[DATA.labels] | (np.random.default_rng(3).random((N, C)) < 0.15)
VOTES = SETS * np.random.default_rng(4).integers(1, 4, SETS.shape)
POP = Pop(warm_up=1, interval=2, window=2, e0=0.03, e_end=0.01, e_s=0.01, every_round=False)
RATIO = PopRatio(1, 2, 1, False, 0.3, 0.8, quiet=0.05)
IMAGES = (DATA.labels[:, None, None] * 20 + np.random.default_rng(5).integers(0, 30, (N, 8, 8))).astype(np.uint8)[
    :, None
]
ON_TABLES = {
    "plain": {"purify": None},
    "one trial": {"purify": "ratio", "mixup": 0.7},  # the second process has nothing to do
    "dealt": {"trials": 3, "mixup": 0.7, "noise": 0.1},
    "dealt, five stacks": {"trials": 5, "memory": 1},
    "dealt valen": {"method": "valen", "trials": 2},
    "dealt, batch normalisation": {"trials": 2, "network": GeneratorMLP((8,))},
    "dealt votes": {"prior": True, "slack": 0.3, "trials": 3},
}
ON_IMAGES = {
    "images proden": {"views": "pop", "purify": None},
    "images pop": {"views": "pop"},
    "images rcr": {"views": "rcr", "method": "rcr"},
    "images pico": {"views": "pico", "method": "pico"},
    "images valen": {"views": "plain", "method": "valen"},
    "images lws": {"views": "plain", "method": "lws"},  # memory is taken from a second forward
    "images mixup": {"views": "pop", "mixup": 0.7, "noise": 0.1},
    "images with batch normalisation and dropout": {"views": "plain", "network": "normalised"},
    "images with an average": {"views": "plain", "network": "normalised", "average": 0.9},
    "images in small batches": {"views": "plain", "batch": 3, "epochs": 2},
}
ON_IMAGES = {name: {"epochs": 3} | case for name, case in ON_IMAGES.items()}  # dear, and a fault shows after a step
CASES = ON_TABLES | ON_IMAGES
SMALL = {"pico": {"queue": 40, "embedding": 8}, "valen": {"warm_up": 2}, "rcr": {"ramp": 3.0}}
KEPT = ["images pop", "images pico"]  # checkpoints of these are resumed by another number of processes


def schedule(epoch: int, epochs: int) -> float:
    """Slow, so that a process can be killed on the way."""
    time.sleep(0.5)
    return 1.0


def train(
    method="proden",
    purify="pop",
    noise=0.0,
    mixup=0.0,
    average=0.0,
    trials=1,
    batch=16,
    epochs=4,
    slow=False,
    prior=False,
    views=None,
    network=MLP((8,)),  # noqa: B008 - frozen
    **options,
):
    """A small run; what a case does not say is the same for all."""
    seen = views and oneof.data.augment.views(views, "mnist", dtype=torch.get_default_dtype())
    scaling = "none" if views else "feature"
    orders = [np.random.default_rng(seed).permutation(N) for seed in range(trials)]
    rows = [{"rows": order[:45], "held_out": order[45:53], "test": order[53:]} for order in orders]
    training = Training(epochs, batch, mixup=mixup, noise=noise, average=average)
    return fit(
        IMAGES if views else DATA.x,
        SETS,
        views=seen,
        method=METHODS[method](**SMALL.get(method, {})),
        purify={"pop": POP, "ratio": RATIO, None: None}[purify],
        trials=[Trial(seed=seed, lr=0.03 if views else 0.3, scaling=scaling, **own) for seed, own in enumerate(rows)],
        network=_network(views, network),
        training=Training(epochs, batch, schedule=schedule) if slow else training,
        labels=DATA.labels,
        prior=VOTES if prior else None,
        choose="approximated",
        **options,
    )


def _network(views, network):
    if network == "normalised":
        return Backbone(normalised)
    return LeNet() if views else network


def normalised():
    """A body with batch normalisation and dropout."""
    layers = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.1), nn.Flatten()]
    return nn.Sequential(*layers)


def digits(**options):
    """The accuracy of a network on pictures of digits, some 300 of which it was not trained on."""
    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    images = (data.images * 15.9).astype(np.uint8)[:, None]
    sets = np.eye(10, dtype=bool)[data.target] | (np.random.default_rng(1).random((len(order), 10)) < 0.15)
    fitted = fit(
        images,
        sets,
        views=oneof.data.augment.views("plain", "mnist"),
        trials=[Trial(seed=0, lr=0.03, scaling="none", rows=order[:700], test=order[-300:])],
        network=LeNet(),
        purify=Pop(warm_up=4, interval=2, window=2),
        training=Training(8, 50),
        labels=data.target,
        **options,
    )
    return float(fitted.history["accuracy"][-1, 0])


def outcome(fitted):
    """All that a run leaves behind, as plain tensors."""
    removals = fitted.removals._asdict() if fitted.removals else {}
    numbers = {
        **fitted.stack.weights,
        **fitted.stack.buffers,
        **fitted.history,
        "margin": removals.pop("margin", torch.empty(0)),
    }
    x = DATA.x if fitted.eval_transform is None else IMAGES
    numbers["probabilities"] = fitted.probabilities(x)
    exact = {
        **removals,
        "labels": numbers["probabilities"].argmax(-1),
        "rows": fitted.rows,
        "candidates": fitted.candidates,
        "epoch": fitted.epoch,
    }
    return {"near": numbers, "exact": exact}


SPACE = EnsembleConfig(scalings=("feature", "ranks"), lr=0.1, weight_decay=1e-3, n_networks=4, n_folds=2, epochs=25)


def classified(**options):
    """What the estimator learns of the same table, as it comes to a person."""
    clf = PartialLabelClassifier(n_estimators=3, epochs=25, scaling="feature", random_state=0, **options).fit(
        DATA.x, SETS
    )
    return clf.predict_proba(DATA.x), clf.candidates_, clf.transduction_


def write_table(path: Path) -> None:
    """The same as a file; the sets in letters."""
    letters = np.array(list("abcdefghijkl"))
    columns = {f"x{i}": column for i, column in enumerate(DATA.x.T)}
    pd.DataFrame(columns | {"candidates": ["|".join(letters[row]) for row in SETS]}).to_csv(path, index=False)


class Stopped(Exception):
    """Stands for the end of the process."""


def train_some(steps: int, **case) -> None:
    """A run that ends after so many steps, with a checkpoint after each."""
    whole = oneof.training.fit.steps

    def some(problem, state):
        for number, record in enumerate(whole(problem, state), 1):
            yield record
            if number == steps:
                raise Stopped

    oneof.training.fit.steps = some
    try:
        train(**case, every=0)
    except Stopped:
        return
    finally:
        oneof.training.fit.steps = whole


def main(folder: Path) -> None:
    results = {name: outcome(train(**CASES[name])) for name in CASES}
    for name in KEPT:
        train_some(4, **CASES[name], checkpoint=folder / name)  # one process began these; it will end them too
        train_some(5, **CASES[name], checkpoint=folder / f"{name} of two")  # two begin these and end them
        results[f"{name} of two"] = outcome(train(**CASES[name], checkpoint=folder / f"{name} of two"))
    torch.set_default_dtype(torch.float32)
    results["digits"] = digits()
    torch.set_default_dtype(torch.float64)
    try:
        fit(DATA.x, SETS, trials=[Trial(), Trial(lr=-1.0)])  # the second process finds it
    except ValueError as error:
        results["wrong"] = str(error)
    results["classified"] = classified()
    said: list[str] = []
    for _ in range(2):  # the second time it is finished already
        fit_table(folder / "table.csv", folder / "run", FitSpec(config=FitConfig(SPACE)), RunOptions(echo=said.append))
    try:
        fit_table(folder / "missing.csv", folder / "other", options=RunOptions(echo=said.append))
    except OSError as error:
        results["missing"] = str(error)
    results["said"] = said
    torch.save(results, folder / f"rank-{torch.distributed.get_rank()}.pt")


def assert_same_run(ours, theirs, atol):
    """The same sets, labels and choices, and numbers that are close."""
    assert ours.metadata["chosen"] == theirs.metadata["chosen"]
    for name in theirs.purified.column_names:
        one, other = ours.purified[name].to_pylist(), theirs.purified[name].to_pylist()
        if name == "removed":
            margins = [[fall.pop("margin") for row in column for fall in row] for column in (one, other)]
            np.testing.assert_allclose(*margins, rtol=0, atol=atol, err_msg=name)
        if name == "distribution":  # a share for each label of the set
            assert list(map(len, one)) == list(map(len, other)), name
            np.testing.assert_allclose(np.concatenate(one), np.concatenate(other), rtol=0, atol=atol, err_msg=name)
        elif isinstance(other[0], float):
            np.testing.assert_allclose(one, other, rtol=0, atol=atol, err_msg=name)
        else:
            assert one == other, name


if __name__ == "__main__":
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
