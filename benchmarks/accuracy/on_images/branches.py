"""Train the part that runs share once: those that differ only in how they purify are one run until the first window opens.

So PRODEN and POP are compared on the very same beginning, and it is paid for once.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from oneof.methods.base import Method
from oneof.networks import Network
from oneof.purify import Purify, stack_rules
from oneof.training.checkpoint import Checkpointer
from oneof.training.events import begin_purifying
from oneof.training.loop import begin, epochs
from oneof.training.stack import build
from oneof.training.state import BestEpoch, Fit, Record, State
from oneof.training.training_data import TrainingData


@dataclass(frozen=True)
class Branch:
    """How one of the runs goes on."""

    method: Method
    purify: Purify | None  # None: to the end without


def never(rule: Purify, epochs: int) -> Purify:
    """Return the rule with its first event after the end."""
    return replace(rule, warm_up=epochs + rule.window)


def fork(branch: Branch, epochs: int) -> int:
    """Return how many epochs of a branch pass before its first window opens; all, where it never purifies."""
    if branch.purify is None:
        return epochs
    return min(max(0, branch.purify.warm_up - branch.purify.window + 1), epochs)


def run(
    problem: TrainingData, network: Network, seed: int, branches: Mapping[str, Branch]
) -> Iterator[tuple[str, Fit, float, int]]:
    """Yield name, fit, seconds (its beginning included) and shared epochs of each branch; a fit holds only until the next.

    The trunk, which never purifies, is trained once; every branch goes on from where it leaves it.
    """
    rules = [branch.purify for branch in branches.values() if branch.purify]
    length = problem.training.epochs
    never_purifies = never(rules[0], length)
    trunk = with_rule(problem, never_purifies)
    state = _begun(trunk, network, seed)
    best = BestEpoch(state, "last")
    forks = {name: fork(branch, length) for name, branch in branches.items()}
    elapsed: dict[int, float] = {}
    history: list[Record] = []
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        keepers = {
            epoch: Checkpointer(Path(folder) / str(epoch), {}, math.inf) for epoch in sorted(set(forks.values()))
        }
        for epoch, keeper in keepers.items():
            history = train(trunk, state, history, until=epoch)
            keeper.save(state, best, history, now=True)
            elapsed[epoch] = time.perf_counter() - start
        for name, branch in branches.items():
            start = time.perf_counter()
            problem_of_branch = with_rule(problem._replace(method=branch.method), branch.purify or never_purifies)
            history = keepers[forks[name]].restore(state, best)
            state.pop = begin_purifying(problem_of_branch.purify, state.candidates)  # type: ignore[arg-type]
            history = train(problem_of_branch, state, history, until=length)
            fitted = best.fit(problem_of_branch, state, history)
            fitted.history["loss"].tolist()  # waits for the device
            others = [epoch for other, epoch in forks.items() if other != name]
            shared = min(forks[name], max(others, default=0))
            yield name, fitted, elapsed[forks[name]] + time.perf_counter() - start, shared


def alone(problem: TrainingData, network: Network, seed: int) -> Fit:
    """Train a run that shares nothing with others, without purification."""
    state = _begun(problem, network, seed)
    best = BestEpoch(state, "last")
    history = train(problem, state, [], until=problem.training.epochs)
    fitted = best.fit(problem, state, history)
    fitted.history["loss"].tolist()  # waits for the device
    return fitted


def _begun(problem: TrainingData, network: Network, seed: int) -> State:
    """Return the state before the first step, with a new network."""
    shape = tuple(problem.x.shape[1:])

    def make_network() -> nn.Module:
        return problem.method.network(network(shape, problem.n_classes), problem.n_classes, shape)

    stack = build(make_network, [seed], problem.lr.device, problem.compile_batch)
    return begin(problem, stack, [seed])


def with_rule(problem: TrainingData, rule: Purify) -> TrainingData:
    """Return the problem with this rule of purification."""
    return problem._replace(purify=stack_rules([rule], problem.lr.device))


def train(problem: TrainingData, state: State, history: list[Record], until: int) -> list[Record]:
    """Train up to an epoch, and return the history with the records of the epochs that were added."""
    if state.epoch < until:
        for record in epochs(problem, state):
            history.append(record)
            if state.epoch == until:
                break
    return history
