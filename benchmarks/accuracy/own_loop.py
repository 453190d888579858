"""Digits by the ten lines of a loop of one's own beside `oneof.fit`: every method, with and without POP.

    python benchmarks/accuracy/own_loop.py [--seeds 3] [--epochs 30] [--methods proden rc]

Both start from the same weights and see the same batches with the same learning rates; what differs is the code of the loop. RCR and PiCO
see views of the digits as pictures. The last epoch is taken. Prints a table; the last column is the difference of the means.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import oneof
from oneof.candidates.generate import Flip, generate
from oneof.data.augment import views
from oneof.data.augment.views import Pictures, Views
from oneof.losses import frozen_statistics
from oneof.methods import METHODS, RCR, Method, PiCO, Valen
from oneof.networks import MLP, Classifier
from oneof.training.optimize import cosine

TRAIN, BATCH, DECAY = 1400, 64, 1e-3
PICTURES = Pictures(8, (0.3,), (0.35,))
POP = oneof.Pop(warm_up=5, interval=3, window=3)


class Digits(NamedTuple):
    """Digits in a random order, the first of which train."""

    table: np.ndarray  # [n, 64]
    images: np.ndarray  # [n, 1, 8, 8] uint8
    labels: np.ndarray  # [n]
    candidates: np.ndarray  # [n, 10]


def digits() -> Digits:
    x, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    x = x[order]
    labels = labels[order]
    images = np.clip(x * 16, 0, 255).astype(np.uint8).reshape(-1, 1, 8, 8)
    return Digits((x / 16).astype(np.float32), images, labels, generate(labels, 10, Flip(rate=0.3), seed=0))


def small_network(shape: tuple[int, ...], classes: int) -> Classifier:
    """A convolution and an affine layer."""
    body = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(256, 64), nn.ReLU(),
    )  # fmt: skip
    return Classifier(body, 64, classes)


class System(NamedTuple):
    """What is trained, and how."""

    method: Method
    network: Callable[[tuple[int, ...], int], nn.Module]
    look: Views | None  # views of pictures; None: the digits are a table
    lr: float
    shape: tuple[int, ...]


def system(name: str, epochs: int) -> System:
    with_views = {"rcr": RCR(ramp=epochs / 3), "pico": PiCO(queue=512, embedding=32, epochs=epochs)}
    if name in with_views:
        return System(with_views[name], small_network, views(name, PICTURES), 0.02, (1, 8, 8))
    method = Valen(warm_up=max(1, epochs // 3)) if name == "valen" else METHODS[name]()
    return System(method, MLP(hidden=(128,)), None, 0.05, (64,))


def by_fit(data: Digits, one: System, rule: Any, seeds: range, epochs: int) -> list[float]:
    trials = [oneof.Trial(seed, np.arange(TRAIN), lr=one.lr, weight_decay=DECAY) for seed in seeds]
    x = data.table if one.look is None else data.images
    fitted = oneof.fit(
        x, data.candidates, trials=trials, method=one.method, purify=rule, network=one.network, views=one.look,
        training=oneof.Training(epochs=epochs, batch=BATCH),
    )  # fmt: skip
    predicted = fitted.logits(x[TRAIN:]).argmax(-1).numpy()
    return [float(np.mean(row == data.labels[TRAIN:])) for row in predicted]


def by_loop(data: Digits, one: System, rule: Any, seed: int, epochs: int) -> float:
    """Train in a loop of one's own, in which torch's generator draws what the trial's does in `oneof.fit`."""
    torch.manual_seed(seed)
    net = one.network(one.shape, 10)
    criterion = oneof.CandidateLoss(one.method, data.candidates[:TRAIN], network=net, input_shape=one.shape)
    purifier = None if rule is None else oneof.Purifier(rule, criterion)
    weights = [*net.parameters(), *criterion.parameters()]
    optimizer = torch.optim.SGD(weights, lr=one.lr, momentum=0.9, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: cosine(epoch, epochs))
    torch.manual_seed(seed)
    for _ in range(epochs):
        for index in torch.randperm(TRAIN).split(BATCH):
            x = inputs(data, one, index)
            loss = batch_loss(net, criterion, x, index)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if criterion.after_step:
                with torch.no_grad(), frozen_statistics(net):
                    criterion.update(net(x), index)
        if purifier is None:
            criterion.next_epoch()
        else:
            purifier.step()
        schedule.step()
    net.eval()
    with torch.no_grad():
        tests = torch.as_tensor(data.table[TRAIN:])
        if one.look is not None:
            tests = views("plain", PICTURES)(torch.as_tensor(data.images[TRAIN:]), torch.Generator())[0]
        return float(np.mean(net(tests).argmax(1).numpy() == data.labels[TRAIN:]))


def inputs(data: Digits, one: System, index: Tensor) -> Tensor:
    """What the network sees of rows: [b, 64], or views [v, b, 1, 8, 8]."""
    if one.look is None:
        return torch.as_tensor(data.table)[index]
    return one.look(torch.as_tensor(data.images)[index], torch.default_generator)


def batch_loss(net: nn.Module, criterion: oneof.CandidateLoss, x: Tensor, index: Tensor) -> Tensor:
    if isinstance(criterion.method, RCR):
        return criterion(net(x.flatten(0, 1)).unflatten(0, x.shape[:2]), index)
    if isinstance(criterion.method, (PiCO, Valen)):
        features = net.body(x[0] if isinstance(criterion.method, PiCO) else x)
        return criterion(net.head(features), index, features=features, views=x)
    return criterion(net(x), index)


def compare(names: list[str], seeds: range, epochs: int) -> list[tuple[str, str, float, float]]:
    """Return method, rule, and the accuracies of fit and of the loop, in percent."""
    data = digits()
    rows = []
    for name in names:
        one = system(name, epochs)
        for title, rule in (("", None), ("POP", POP)):
            fitted = 100 * float(np.mean(by_fit(data, one, rule, seeds, epochs)))
            looped = 100 * float(np.mean([by_loop(data, one, rule, seed, epochs) for seed in seeds]))
            rows.append((name, title, fitted, looped))
            print(f"| {name} | {title} | {fitted:.2f} | {looped:.2f} | {looped - fitted:+.2f} |", flush=True)
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    print("| method | purify | oneof.fit % | own loop % | difference |\n|---|---|---|---|---|")
    compare(chosen.methods, range(chosen.seeds), chosen.epochs)
