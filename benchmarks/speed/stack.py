"""What stacking is worth: 60 trials of Lost's size as one stack, one after the other, and in plain PyTorch loops.

    python benchmarks/speed/stack.py [--threads 2]

All four train PRODEN with a linear model on 898 x 108 features, 16 classes, batches of 100, SGD with momentum. The plain loops
are what one would write by hand: with tensors that are indexed, and with a DataLoader. Then: does a step cost more when the
data are larger? Figures are the least of several, taken in turns; only ratios within one run mean anything.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from oneof.candidates.generate import Flip, generate
from oneof.networks import Linear
from oneof.training.fit import fit
from oneof.training.trials import Training, Trial

N, D, C, BATCH, TRIALS = 898, 108, 16, 100, 60
STEPS = -(-N // BATCH)


def data(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, D)).astype(np.float32)
    return x, generate(rng.integers(C, size=n), C, Flip(rate=0.08), seed=0)


def ours(x: np.ndarray, sets: np.ndarray, trials: int, epochs: int) -> None:
    fit(
        x, sets, trials=[Trial(seed=seed) for seed in range(trials)], network=Linear(), training=Training(epochs, BATCH)
    )


def bare(x: np.ndarray, sets: np.ndarray, epochs: int, loader: bool = False) -> None:
    """PRODEN by hand, in one's own loop."""
    features, mask = torch.as_tensor(x), torch.as_tensor(sets)
    weights = mask.float() / mask.sum(1, keepdim=True)
    net = nn.Linear(D, C)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    rows = TensorDataset(features, mask, torch.arange(len(x)))
    for _ in range(epochs):
        if loader:
            batches = iter(DataLoader(rows, batch_size=BATCH, shuffle=True))
        else:
            batches = ((features[at], mask[at], at) for at in torch.randperm(len(x)).split(BATCH))
        for xb, sb, at in batches:
            optimizer.zero_grad()
            logits = net(xb)
            loss = -(weights[at] * logits.log_softmax(1)).sum(1).mean()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                weights[at] = logits.masked_fill(~sb, -torch.inf).softmax(1)
        schedule.step()


def seconds(works: list[Callable[[], None]], rounds: int = 7) -> list[float]:
    """The least time of each, taken in turns: the machine's speed wanders, and it should wander for all alike."""
    times: list[list[float]] = [[] for _ in works]
    for number in range(rounds + 1):
        for work, own in zip(works, times, strict=True):
            start = time.perf_counter()
            work()
            if number:  # the first round warms up
                own.append(time.perf_counter() - start)
    return [min(own) for own in times]


def main() -> None:
    x, sets = data(N)
    took = seconds(
        [
            lambda: ours(x, sets, TRIALS, 10),
            lambda: ours(x, sets, 1, 60),
            lambda: bare(x, sets, 60),
            lambda: bare(x, sets, 20, loader=True),
        ]
    )
    steps = [10 * TRIALS * STEPS, 60 * STEPS, 60 * STEPS, 20 * STEPS]
    stacked, alone, by_hand, loader = (1e6 * t / n for t, n in zip(took, steps, strict=True))
    print(f"microseconds per trial and step: stack of {TRIALS}: {stacked:.1f}   t = 1: {alone:.1f}   ", end="")
    print(f"bare loop: {by_hand:.1f}   DataLoader loop: {loader:.1f}")
    print(f"stack against our t = 1:        {alone / stacked:.1f} x cheaper   (wanted: 6)")
    print(f"stack against DataLoader loop:  {loader / stacked:.1f} x cheaper   (wanted: 20)")
    print(f"our t = 1 against a bare loop:  {alone / by_hand:.2f} x its time   (wanted: at most 1.3)")
    small, large = data(1_000), data(100_000)
    one, hundred = (1e3 * t for t in seconds([lambda: ours(*small, 1, 100), lambda: ours(*large, 1, 1)], rounds=3))
    print(
        f"a step at n = 100,000 against one at n = 1,000: {hundred:.0f} / {one:.0f} us = {hundred / one:.2f} x   (wanted: at most 1.6)"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    torch.set_num_threads(parser.parse_args().threads)
    main()
