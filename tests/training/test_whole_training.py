"""Whole trainings of a linear model in plain NumPy, with gradients written out by hand, beside those of the engine.

Every loss of the paper's tables that needs one view, with every rule of purification. RCR, PiCO and VALEN, whose steps need several views,
a second network or draws, are compared step by step in `tests/methods/test_view_methods.py`.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import reference
import torch

from oneof.methods import CAVL, CC, CLPL, LWS, METHODS, RC, CLPLSoftmax, LWSCrossEntropy, Proden
from oneof.methods.proden import BalancedProden
from oneof.networks import Linear
from oneof.purify import PURIFY, Pop, PopPrinted, PopRatio, PopReleased
from oneof.training.fit import fit
from oneof.training.trials import Training, Trial

N, D, C = 46, 5, 4
EPOCHS, BATCH = 12, 10
LR, DECAY, MOMENTUM = 0.3, 1e-3, 0.9
BETA = 2.0  # of LW: how much the labels off the set weigh
BALANCE = 0.5
LOSSES = {
    "proden": Proden(),
    "balanced_proden": BalancedProden(balance=BALANCE),
    "rc": RC(),
    "cc": CC(),
    "lws": LWS(beta=BETA),
    "lws_ce": LWSCrossEntropy(beta=BETA),
    "cavl": CAVL(),
    "clpl": CLPL(),
    "clpl_softmax": CLPLSoftmax(),
}
NEED_VIEWS = ("rcr", "pico", "valen")
AFTER_STEP = ("rc", "lws", "lws_ce", "cavl")  # whose weights come from a second forward
RULES = {
    "alone": None,
    "pop": Pop(warm_up=4, interval=3, window=2, e0=0.6, e_end=0.2, e_s=0.2),
    "pop, quiet rounds": Pop(warm_up=4, interval=3, window=2, every_round=False, e0=0.6, e_end=0.2, e_s=0.2),
    "printed": PopPrinted(warm_up=4, e0=0.5, e_end=0.2, e_s=0.2),
    "ratio": PopRatio(warm_up=4, interval=3, window=2, theta=0.2, inc=0.5, quiet=0.02),
    "released": PopReleased(warm_up=4, interval=3, window=2, theta=0.2, inc=0.5, quiet=0.02),
}
FIRST_THRESHOLD = {"pop": 0.6, "pop, quiet rounds": 0.6, "printed": 0.5, "ratio": 0.2, "released": 0.2}
EVENTS = (4, 7, 10)  # epochs after which rules with a window remove labels
IN_WINDOW = (3, 4, 6, 7, 9, 10)
PAIRS = []
for loss in LOSSES:
    for rule in RULES:
        if rule != "released" or loss in ("proden", "rc"):  # others have no weights to reset
            PAIRS.append((loss, rule))


def problem() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = rng.integers(C, size=N)
    x = rng.normal(size=(N, D)) + 1.5 * np.eye(C, D)[labels]
    sets = np.eye(C, dtype=bool)[labels] | (rng.random((N, C)) < 0.4)
    return x, sets


def softmax(z: np.ndarray) -> np.ndarray:
    return np.array([reference.softmax(row) for row in z])


def off_the_set(w: np.ndarray, S: np.ndarray) -> np.ndarray:
    """Return w normalised over the labels that are no candidates; zero for a row whose set is full."""
    off = np.zeros_like(w)
    partial = ~S.all(1)
    off[partial] = reference.restrict(w[partial], ~S[partial])
    return off


def gradient(name: str, z: np.ndarray, S: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Return d loss_i / d z_ij."""
    p = softmax(z)
    if name in ("proden", "balanced_proden", "rc", "cavl"):  # - sum_j w_j log p_j
        return p - reference.restrict(w, S)
    if name == "cc":  # - log sum_{j in S} p_j
        return p - reference.posterior(z, S)
    if name == "lws":  # w_j / (1 + e^z_j) on S, beta w_j / (1 + e^-z_j) off it, each half of w normalised
        slope = 1 / (1 + np.exp(-z)) / (1 + np.exp(z))
        return np.where(S, -reference.restrict(w, S), BETA * off_the_set(w, S)) * slope
    if name == "lws_ce":  # - w_j log p_j on S, - beta w_j log(1 - p_j) off it
        odds = off_the_set(w, S) * p / (1 - p)
        return p - reference.restrict(w, S) + BETA * (odds - p * odds.sum(1, keepdims=True))
    scores = p if name == "clpl_softmax" else z
    inside = (scores * S).sum(1, keepdims=True) / S.sum(1, keepdims=True)  # clpl: squared hinges
    slope_on = -2 * np.maximum(0, 1 - inside) / S.sum(1, keepdims=True)
    slope_off = 2 * np.maximum(0, 1 + scores)
    slope = np.where(S, slope_on, slope_off)
    if name == "clpl":
        return slope
    return p * (slope - (p * slope).sum(1, keepdims=True))


def updated(name: str, z: np.ndarray, S: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Return the weights after a step."""
    if name in ("proden", "balanced_proden", "rc"):
        return reference.posterior(z, S)
    if name in ("lws", "lws_ce"):
        return reference.lws_update(z, S)
    if name == "cavl":
        return reference.cavl_update(z, S)
    return w


def purified(rule: str, S: np.ndarray, window_sum: np.ndarray, p: np.ndarray, threshold: float) -> np.ndarray:
    """Return the sets after an event, from the sums over the window or from p, the softmax of the model as it is."""
    if rule == "printed":
        return reference.pop_margin_remove(p, S, threshold)
    if rule in ("ratio", "released"):
        return reference.pop_ratio_remove(window_sum, S, threshold)
    return reference.pop_margin_remove(window_sum / 2, S, threshold)


def next_threshold(rule: str, threshold: float, removed: int) -> float:
    numbers = RULES[rule]
    if isinstance(numbers, PopRatio):
        return reference.pop_ratio_schedule(
            threshold, removed, N, C, numbers.quiet, numbers.inc, every_round=numbers.every_round
        )
    return reference.pop_margin_schedule(threshold, removed, 0.2, 0.2, numbers.every_round)


def trained(name: str, rule: str, weight: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the weights, the bias and the sets after the last epoch."""
    x, sets = problem()
    S = sets.copy()
    A = weight.copy()
    b = bias.copy()
    speed_A = np.zeros_like(A)
    speed_b = np.zeros_like(b)
    w = np.full((N, C), 1 / C) if name.startswith("lws") else reference.uniform(S)
    threshold = FIRST_THRESHOLD.get(rule, 0.0)
    window_sum = np.zeros((N, C))
    generator = torch.Generator().manual_seed(7)
    for epoch in range(EPOCHS):
        lr = LR * 0.5 * (1 + math.cos(math.pi * epoch / EPOCHS))
        if name == "balanced_proden":
            w = reference.balanced_proden_renew(w, BALANCE)
        order = torch.randperm(N, generator=generator).numpy()
        for start in range(0, N, BATCH):
            at = order[start : start + BATCH]
            z = x[at] @ A.T + b
            dz = gradient(name, z, S[at], w[at]) / len(at)
            speed_A = MOMENTUM * speed_A + dz.T @ x[at] + DECAY * A
            speed_b = MOMENTUM * speed_b + dz.sum(0) + DECAY * b
            A = A - lr * speed_A
            b = b - lr * speed_b
            if name in AFTER_STEP:
                z = x[at] @ A.T + b
            w[at] = updated(name, z, S[at], w[at])
            if epoch in IN_WINDOW:
                window_sum[at] += reference.posterior(z, S[at]) if rule in ("ratio", "released") else softmax(z)
        has_event = epoch >= 4 if rule == "printed" else epoch in EVENTS
        if rule == "alone" or not has_event:
            continue
        left = purified(rule, S, window_sum, softmax(x @ A.T + b), threshold)
        if rule == "released":
            w = reference.restrict(window_sum, left)
        threshold = next_threshold(rule, threshold, int((S & ~left).sum()))
        S = left
        window_sum = np.zeros((N, C))
    return A, b, S


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize(("name", "rule"), PAIRS)
def test_a_training_is_the_one_written_out_in_numpy(name, rule):
    x, sets = problem()
    rng = np.random.default_rng(1)
    weight = 0.1 * rng.normal(size=(C, D))
    bias = 0.1 * rng.normal(size=C)
    start = {"head.weight": torch.from_numpy(weight), "head.bias": torch.from_numpy(bias)}
    fitted = fit(
        x,
        sets,
        trials=[Trial(7, lr=LR, weight_decay=DECAY, start=start)],
        method=LOSSES[name],
        purify=RULES[rule],
        network=Linear(),
        training=Training(EPOCHS, BATCH),
    )
    A, b, S = trained(name, rule, weight, bias)
    np.testing.assert_array_equal(fitted.candidates[0].numpy(), S)
    np.testing.assert_allclose(fitted.stack.weights["head.weight"][0].numpy(), A, rtol=0, atol=1e-12)
    np.testing.assert_allclose(fitted.stack.weights["head.bias"][0].numpy(), b, rtol=0, atol=1e-12)
    if rule != "alone":
        assert S.sum() < sets.sum()


def test_every_loss_and_every_rule_is_written_out():
    assert {*LOSSES, *NEED_VIEWS} == set(METHODS)
    written_out = {type(rule) for rule in RULES.values() if rule is not None}
    assert written_out == set(PURIFY.values())
