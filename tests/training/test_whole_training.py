"""Whole trainings of a linear model in plain NumPy, with gradients written out by hand, beside those of the engine."""

from __future__ import annotations

import math

import numpy as np
import pytest
import reference
import torch

from oneof.methods import CAVL, CC, CLPL, LWS, RC, Proden
from oneof.networks import Linear
from oneof.purify import Pop, PopPrinted, PopReleased
from oneof.training.fit import fit
from oneof.training.trials import Training, Trial

N, D, C = 46, 5, 4
EPOCHS, BATCH = 12, 10
LR, DECAY, MOMENTUM = 0.3, 1e-3, 0.9
LOSSES = {"proden": Proden(), "rc": RC(), "cc": CC(), "lws": LWS(beta=2.0), "cavl": CAVL(), "clpl": CLPL()}
RULES = {
    "alone": None,
    "pop": Pop(warm_up=4, interval=3, window=2, e0=0.6, e_end=0.2, e_s=0.2),
    "printed": PopPrinted(warm_up=4, e0=0.5, e_end=0.2, e_s=0.2),
    "released": PopReleased(warm_up=4, interval=3, window=2, theta=0.2, inc=0.5, quiet=0.02),
}
PAIRS = [
    (name, rule) for name in LOSSES for rule in RULES if rule != "released" or name in ("proden", "rc")
]  # weights to reset


def problem() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = rng.integers(C, size=N)
    x = rng.normal(size=(N, D)) + 1.5 * np.eye(C, D)[labels]
    sets = np.eye(C, dtype=bool)[labels] | (rng.random((N, C)) < 0.4)
    return x, sets


def softmax(z: np.ndarray) -> np.ndarray:
    return np.array([reference.softmax(row) for row in z])


def gradient(name: str, z: np.ndarray, S: np.ndarray, w: np.ndarray) -> np.ndarray:
    """d loss_i / d z_ij."""
    p = softmax(z)
    if name in ("proden", "rc", "cavl"):  # - sum_j w_j log p_j
        return p - reference.restrict(w, S)
    if name == "cc":  # - log sum_{j in S} p_j
        return p - reference.posterior(z, S)
    if name == "lws":  # w_j / (1 + e^z_j) on S, 2 w_j / (1 + e^-z_j) off it, each half of w normalised
        off = np.zeros_like(w)
        partial = ~S.all(1)
        off[partial] = reference.restrict(w[partial], ~S[partial])
        slope = 1 / (1 + np.exp(-z)) / (1 + np.exp(z))
        return np.where(S, -reference.restrict(w, S), 2 * off) * slope
    inside = (z * S).sum(1, keepdims=True) / S.sum(1, keepdims=True)  # clpl: squared hinges
    return np.where(S, -2 * np.maximum(0, 1 - inside) / S.sum(1, keepdims=True), 2 * np.maximum(0, 1 + z))


def updated(name: str, z: np.ndarray, S: np.ndarray, w: np.ndarray) -> np.ndarray:
    if name in ("proden", "rc"):
        return reference.posterior(z, S)
    if name == "lws":
        return reference.lws_update(z, S)
    return reference.cavl_update(z, S) if name == "cavl" else w


def trained(name: str, rule: str, weight: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The weights, the bias and the sets after the last epoch."""
    x, sets = problem()
    S = sets.copy()
    A, b = weight.copy(), bias.copy()
    speed_A, speed_b = np.zeros_like(A), np.zeros_like(b)
    w = np.full((N, C), 1 / C) if name == "lws" else reference.uniform(S)
    numbers = RULES[rule]
    threshold = {"alone": 0.0, "pop": 0.6, "printed": 0.5, "released": 0.2}[rule]
    seen = np.zeros((N, C))
    generator = torch.Generator().manual_seed(7)
    for epoch in range(EPOCHS):
        lr = LR * 0.5 * (1 + math.cos(math.pi * epoch / EPOCHS))
        order = torch.randperm(N, generator=generator).numpy()
        in_window = rule in ("pop", "released") and epoch in (3, 4, 6, 7, 9, 10)
        for start in range(0, N, BATCH):
            at = order[start : start + BATCH]
            z = x[at] @ A.T + b
            dz = gradient(name, z, S[at], w[at]) / len(at)
            speed_A = MOMENTUM * speed_A + dz.T @ x[at] + DECAY * A
            speed_b = MOMENTUM * speed_b + dz.sum(0) + DECAY * b
            A, b = A - lr * speed_A, b - lr * speed_b
            if name in ("rc", "lws", "cavl"):
                z = x[at] @ A.T + b
            w[at] = updated(name, z, S[at], w[at])
            if in_window:
                seen[at] += reference.posterior(z, S[at]) if rule == "released" else softmax(z)
        if rule == "printed" and epoch >= 4:
            left = reference.pop_margin_remove(softmax(x @ A.T + b), S, threshold)
        elif rule == "pop" and epoch in (4, 7, 10):
            left = reference.pop_margin_remove(seen / 2, S, threshold)
        elif rule == "released" and epoch in (4, 7, 10):
            left = reference.pop_ratio_remove(seen, S, threshold)
            w = reference.restrict(seen, left)
        else:
            continue
        removed = int((S & ~left).sum())
        if rule == "released":
            threshold = reference.pop_ratio_schedule(threshold, removed, N, C, numbers.quiet, numbers.inc)
        else:
            threshold = reference.pop_margin_schedule(threshold, removed, 0.2, 0.2, numbers.every_round)
        S, seen = left, np.zeros((N, C))
    return A, b, S


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize(("name", "rule"), PAIRS)
def test_a_training_is_the_one_written_out_in_numpy(name, rule):
    x, sets = problem()
    rng = np.random.default_rng(1)
    weight, bias = 0.1 * rng.normal(size=(C, D)), 0.1 * rng.normal(size=C)
    start = {"head.weight": torch.from_numpy(weight), "head.bias": torch.from_numpy(bias)}
    fitted = fit(
        x, sets, trials=[Trial(7, lr=LR, weight_decay=DECAY, start=start)], method=LOSSES[name], purify=RULES[rule],
        network=Linear(), training=Training(EPOCHS, BATCH),
    )  # fmt: skip
    A, b, S = trained(name, rule, weight, bias)
    np.testing.assert_array_equal(fitted.candidates[0].numpy(), S)
    np.testing.assert_allclose(fitted.stack.weights["head.weight"][0].numpy(), A, rtol=0, atol=1e-12)
    np.testing.assert_allclose(fitted.stack.weights["head.bias"][0].numpy(), b, rtol=0, atol=1e-12)
    if rule != "alone":
        assert S.sum() < sets.sum()
