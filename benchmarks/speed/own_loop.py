"""What a step costs with `oneof.CandidateLoss`, beside the same loss written by hand in the loop.

    python benchmarks/speed/own_loop.py [--device cuda] [--threads 1] [--methods proden cc rc]

Both train the same network on the same batches: with the criterion, and with the method's formulas and an indexed table of weights, as one
would write them without checks. Steps of the two alternate, and the medians are compared. On a CPU the network is an MLP
784-500-500-10, and processor time is measured; on a GPU a wide ResNet on 32 x 32 pictures, and the clock. Prints microseconds per step and
the difference in percent.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor, nn

import oneof
from oneof.candidates.mask import masked
from oneof.networks import MLP, WideResNet

ROWS, CLASSES, BATCH = 20_000, 10, 256


def by_hand(name: str, mask: Tensor, net: nn.Module) -> Callable[[Tensor, Tensor, torch.optim.Optimizer], None]:
    """A training step of PRODEN, CC or RC without the library."""
    weights = mask.float() / mask.sum(1, keepdim=True)

    def remember(logits: Tensor, at: Tensor) -> None:
        weights[at] = masked(logits, mask[at]).softmax(1)

    def step(x: Tensor, at: Tensor, optimizer: torch.optim.Optimizer) -> None:
        logits = net(x)
        if name == "cc":
            loss = (logits.logsumexp(1) - masked(logits, mask[at]).logsumexp(1)).mean()
        else:
            inside = weights[at] * mask[at]
            loss = -(inside / inside.sum(1, keepdim=True) * logits.log_softmax(1)).sum(1).mean()
        if name == "proden":
            with torch.no_grad():
                remember(logits.detach(), at)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if name == "rc":
            with torch.no_grad():
                remember(net(x), at)

    return step


def by_criterion(name: str, mask: Tensor, net: nn.Module) -> Callable[[Tensor, Tensor, torch.optim.Optimizer], None]:
    criterion = oneof.CandidateLoss(name, mask).to(mask.device)

    def step(x: Tensor, at: Tensor, optimizer: torch.optim.Optimizer) -> None:
        loss = criterion(net(x), at)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if criterion.after_step:
            with torch.no_grad():
                criterion.update(net(x), at)

    return step


def measure(name: str, device: torch.device, steps: int) -> tuple[float, float]:
    """Return the median seconds of a step by hand and with the criterion."""
    generator = torch.Generator().manual_seed(0)
    mask = torch.rand(ROWS, CLASSES, generator=generator) < 0.3
    mask[torch.arange(ROWS), torch.arange(ROWS) % CLASSES] = True
    mask = mask.to(device)
    pictures = device.type == "cuda"
    shape = (3, 32, 32) if pictures else (784,)
    x = torch.randn(BATCH, *shape, generator=generator).to(device)
    runs = []
    for make in (by_hand, by_criterion):
        torch.manual_seed(0)
        network = WideResNet() if pictures else MLP(hidden=(500, 500))
        net = network(shape, CLASSES).to(device)
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
        runs.append((make(name, mask, net), optimizer, []))
    clock = time.perf_counter if pictures else time.process_time
    for number in range(steps):
        at = torch.randperm(ROWS, generator=generator)[:BATCH].to(device)
        for step, optimizer, seconds in runs if number % 2 else reversed(runs):
            _wait(device)
            start = clock()
            step(x, at, optimizer)
            _wait(device)
            seconds.append(clock() - start)
    warm = steps // 5
    hand, criterion = (median(seconds[warm:]) for _, _, seconds in runs)
    return hand, criterion


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--methods", nargs="+", default=["proden", "cc", "rc"], choices=["proden", "cc", "rc"])
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    print("| method | by hand, µs | CandidateLoss, µs | more, % |\n|---|---|---|---|")
    for name in chosen.methods:
        hand, criterion = measure(name, torch.device(chosen.device), chosen.steps)
        print(
            f"| {name} | {1e6 * hand:.0f} | {1e6 * criterion:.0f} | {100 * (criterion / hand - 1):+.1f} |", flush=True
        )
