"""Runs that differ only in how they purify are one run until the first window opens: train that part once.

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
from oneof.purify import Purify, stacked
from oneof.training.checkpoint import Keeper
from oneof.training.events import begin_purifying
from oneof.training.loop import begin, epochs
from oneof.training.problem import Problem
from oneof.training.stack import build
from oneof.training.state import Best, Fit, Record, State


@dataclass(frozen=True)
class Branch:
    """How one of the runs goes on."""

    method: Method
    purify: Purify | None  # None: to the end without


def never(rule: Purify, epochs: int) -> Purify:
    """The rule, with its first event after the end."""
    return replace(rule, warm_up=epochs + rule.window)


def fork(branches: Mapping[str, Branch]) -> int:
    """How many epochs are the same for all: until the first of their windows opens."""
    rules = [branch.purify for branch in branches.values() if branch.purify]
    return min(max(0, rule.warm_up - rule.window + 1) for rule in rules)


def run(
    problem: Problem, network: Network, seed: int, branches: Mapping[str, Branch]
) -> Iterator[tuple[str, Fit, float, int]]:
    """Name, fit, seconds (its beginning included) and shared epochs of each branch; a fit holds only until the next is asked for."""
    rules = {name: branch.purify for name, branch in branches.items() if branch.purify}
    any_rule, length = next(iter(rules.values())), problem.training.epochs
    trunk = with_rule(problem, never(any_rule, length))
    state = _begun(trunk, network, seed)
    best, shared, start = Best(state, "last"), fork(branches), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        keeper = Keeper(Path(folder), {}, math.inf)
        keeper.save(state, best, train(trunk, state, [], until=shared), now=True)
        beginning = time.perf_counter() - start
        for name, branch in branches.items():
            start = time.perf_counter()
            own = with_rule(problem._replace(method=branch.method), branch.purify or never(any_rule, length))
            history = keeper.restore(state, best)
            state.pop = begin_purifying(own.purify, state.candidates)  # type: ignore[arg-type]
            fitted = best.fit(own, state, train(own, state, history, until=length))
            fitted.history["loss"].tolist()  # waits for the device
            yield name, fitted, beginning + time.perf_counter() - start, shared


def alone(problem: Problem, network: Network, seed: int) -> Fit:
    """A run that shares nothing with others, without purification."""
    state = _begun(problem, network, seed)
    fitted = Best(state, "last").fit(problem, state, train(problem, state, [], until=problem.training.epochs))
    fitted.history["loss"].tolist()  # waits for the device
    return fitted


def _begun(problem: Problem, network: Network, seed: int) -> State:
    shape, classes, method = tuple(problem.x.shape[1:]), problem.classes, problem.method

    def one() -> nn.Module:
        return method.network(network(shape, classes), classes, shape)

    return begin(problem, build(one, [seed], problem.lr.device, problem.fast), [seed])


def with_rule(problem: Problem, rule: Purify) -> Problem:
    return problem._replace(purify=stacked([rule], problem.lr.device))


def train(problem: Problem, state: State, history: list[Record], until: int) -> list[Record]:
    """The history, with what the epochs up to that one showed."""
    if state.epoch < until:
        for record in epochs(problem, state):
            history.append(record)
            if state.epoch == until:
                break
    return history
