"""The only training loop: `epochs` yields a record per epoch, `fit` drains it.

The engine knows the protocols of a method and of a purification rule, and the name of none. It alone writes to the tables.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from oneof.evaluate import accuracy, approximated_accuracy, covering_rate
from oneof.methods import Method, Proden
from oneof.networks import MLP, Network
from oneof.problem import Problem, Training, as_tensor, pose
from oneof.progress import bar
from oneof.purify import Purify
from oneof.runtime import free_memory
from oneof.state import Best, Fit, Record, State, join
from oneof.trials import Stack, Trial, build, cut, positions, put, take


def begin(problem: Problem, stack: Stack, seeds: list[int]) -> State:
    """The state before the first step."""
    candidates = problem.sets(problem.rows)
    generators = [torch.Generator(candidates.device).manual_seed(seed) for seed in seeds]
    pop = problem.purify.init(candidates) if problem.purify else None
    optimizer = problem.training.optimizer.init(stack.weights.values())
    return State(0, stack, optimizer, candidates, problem.method.init(candidates), pop, generators)


def epochs(problem: Problem, state: State) -> Iterator[Record]:
    """Train from where the state stands, an epoch at a time, and yield what each showed."""
    while state.epoch < problem.training.epochs:
        loss = _train(problem, state)
        removed = _purify(problem, state)
        state.epoch += 1
        yield _record(problem, state, loss, removed)


def _train(problem: Problem, state: State) -> Tensor:
    """One pass over every trial's rows in its own order; the mean loss [t]."""
    training = problem.training
    m = problem.rows.shape[1]
    order = torch.stack([torch.randperm(m, generator=g, device=g.device) for g in state.generators])
    lr = problem.lr * training.schedule(state.epoch, training.epochs)
    mixing = _mixing_weights(problem, state) if training.mixup else None
    observing = problem.purify is not None and problem.purify.observing(state.epoch)
    total = torch.zeros_like(problem.lr)
    where = positions(order, m)
    for step, start in enumerate(range(0, m, training.batch)):
        at = where[:, start : start + training.batch]
        total += _step(problem, state, at, lr, None if mixing is None else mixing[:, step], observing)
    return total / m


def _step(problem: Problem, state: State, at: Tensor, lr: Tensor, mixing: Tensor | None, observing: bool) -> Tensor:
    """One step on the rows at these positions [t, b] of the tables: loss, update of the network, of the memory, of what POP sees."""
    method, stack = problem.method, state.stack
    x = problem.features(take(problem.rows, at))
    candidates, memory = take(state.candidates, at), take(state.memory, at)
    logits = stack(_altered(problem, state, x, mixing))
    loss = method.loss(logits, candidates, memory)
    if mixing is not None:  # the mixed example is so much of itself and so much of its neighbour
        partner = method.loss(logits, candidates.roll(1, 1), () if isinstance(memory, tuple) else memory.roll(1, 1))
        loss = mixing[:, None] * loss + (1 - mixing)[:, None] * partner
    gradients = stack.gradients(loss.mean(1).sum())
    with torch.no_grad():
        problem.training.optimizer.step(stack.weights.values(), gradients, state.optimizer, lr, problem.weight_decay)
        if method.after_step or problem.training.alters_input:
            with stack.frozen_statistics():
                logits = stack(x)
        put(state.memory, at, method.update(logits, candidates, memory))
        if observing and problem.purify and state.pop:
            put(state.pop.seen, at, problem.purify.observe(take(state.pop.seen, at), logits, candidates))
    return loss.detach().sum(1)


def _altered(problem: Problem, state: State, x: Tensor, mixing: Tensor | None) -> Tensor:
    """The batch as the loss sees it: with noise, and mixed with its neighbour in the (random) order of the epoch."""
    if problem.training.noise:
        x = x + problem.training.noise * torch.stack(
            [torch.randn(x.shape[1:], generator=g, device=x.device, dtype=x.dtype) for g in state.generators]
        )
    if mixing is not None:
        x = torch.lerp(x.roll(1, 1), x, mixing.view(-1, *[1] * (x.dim() - 1)))
    return x


def _mixing_weights(problem: Problem, state: State) -> Tensor:
    """Beta(alpha, alpha) draws [t, steps] for an epoch; NumPy has the distribution, the trial's generator seeds it."""
    steps = math.ceil(problem.rows.shape[1] / problem.training.batch)
    alpha = problem.training.mixup
    seeds = [torch.randint(2**62, (), generator=g, device=g.device).item() for g in state.generators]
    draws = np.stack([np.random.default_rng(int(seed)).beta(alpha, alpha, steps) for seed in seeds])
    return torch.as_tensor(draws, dtype=problem.lr.dtype, device=problem.lr.device)


def _purify(problem: Problem, state: State) -> Tensor | None:
    """An event, if one is due: the only way in which sets shrink. The number of labels that fell [t]."""
    if problem.purify is None or state.pop is None:
        return None
    if not problem.purify.event(state.epoch):
        return torch.zeros_like(problem.lr)
    state.candidates, fallen = problem.purify.remove(state.candidates, state.pop)
    removed = (fallen > 0).sum((1, 2)).to(problem.lr.dtype)
    state.pop = problem.purify.advance(state.pop, fallen, removed / fallen[0].numel())
    return removed


def _record(problem: Problem, state: State, loss: Tensor, removed: Tensor | None) -> Record:
    covering = approximated = oracle = test_accuracy = None
    if problem.held_out is not None:
        logits = problem.logits(state.stack, problem.held_out)
        sets = problem.sets(problem.held_out)
        covering, approximated = covering_rate(logits, sets), approximated_accuracy(logits, sets)
        if problem.labels is not None:
            oracle = accuracy(logits, problem.labels[problem.held_out])
    if problem.test is not None and problem.labels is not None:
        test_accuracy = accuracy(problem.logits(state.stack, problem.test), problem.labels[problem.test])
    set_size = state.candidates.sum((1, 2)).to(loss.dtype) / problem.rows.shape[1]
    threshold = state.pop.threshold if state.pop else None
    return Record(state.epoch, loss, set_size, threshold, removed, covering, approximated, oracle, test_accuracy)


CHOICES = ("last", "covering", "approximated", "oracle")
"""How the epoch is chosen: the last one, or the best by what held-out sets say; "oracle" looks at held-out true labels."""


def fit(
    x: Any,
    candidates: Any,
    *,
    trials: Sequence[Trial] = (Trial(),),
    method: Method = Proden(),  # noqa: B008 - frozen
    purify: Purify | None = None,
    network: Network = MLP(),  # noqa: B008 - frozen
    training: Training = Training(),  # noqa: B008 - frozen
    labels: Any = None,
    choose: str = "last",
    device: str | torch.device = "cpu",
    progress: str | None = None,
    memory: int | None = None,
) -> Fit:
    """Train t trials at once.

    Parameters
    ----------
    x
        Features [n, ...].
    candidates
        Bool mask [n, c], or [t, n, c] where every trial has its own sets.
    trials
        Seeds, rows and rates; every trial gives what it would give alone.
    method, purify, network, training
        What is learned, whether POP purifies the sets, by which network, and how.
    labels
        True labels [n], for reporting; used by nothing else unless choose="oracle".
    choose
        One of CHOICES. All but "last" need `held_out` rows in every trial.
    device
        Where to train.
    progress
        Show a bar with this title.
    memory
        Bytes that a stack may take; more trials than fit are trained in several stacks. Default: half of what is free.

    >>> from oneof.data.synthetic import mixture
    >>> data = mixture(n=200, d=2, c=3, seed=0)
    >>> result = fit(data.x, np.eye(3, dtype=bool)[data.labels], training=Training(epochs=20))
    >>> (result.logits(data.x)[0].argmax(-1).numpy() == data.labels).mean() > 0.8
    np.True_
    """
    place = torch.device(device)
    features, mask = as_tensor(x, torch.get_default_dtype(), place), as_tensor(candidates, None, place)
    size = _bytes_per_trial(features, mask, network, training)
    stacks = cut(trials, size, memory or free_memory(place) // 2)
    start, parts = 0, []
    for number, some in enumerate(stacks, 1):
        own = mask[start : start + len(some)] if mask.dim() == 3 and len(mask) == len(trials) else mask
        problem = pose(
            features, own, trials=some, method=method, purify=purify, training=training, labels=labels, device=place
        )
        title = progress if progress is None or len(stacks) == 1 else f"{progress} ({number} of {len(stacks)})"
        parts.append(_fit_stack(problem, network, [trial.seed for trial in some], choose, title))
        start += len(some)
    return join(parts)


def _bytes_per_trial(x: Tensor, candidates: Tensor, network: Network, training: Training) -> int:
    """Roughly what a trial takes: sets, memory and POP's sum of every row; weights with their gradients; a batch's features."""
    weights = sum(
        p.numel()
        for p in build(lambda: network(tuple(x.shape[1:]), candidates.shape[-1]), [0], x.device).parameters.values()
    )
    tables = candidates.shape[-2:].numel() * (1 + 3 * x.element_size())
    return tables + x.element_size() * (6 * weights + 8 * training.batch * x[0].numel())


def _fit_stack(problem: Problem, network: Network, seeds: list[int], choose: str, title: str | None) -> Fit:
    _check_choice(choose, problem)
    shape, classes = tuple(problem.x.shape[1:]), problem.candidates.shape[-1]
    state = begin(problem, build(lambda: network(shape, classes), seeds, problem.x.device), seeds)
    best, history = Best(state, choose), []
    with bar(title or "", problem.training.epochs, title is not None) as step:
        for record in epochs(problem, state):
            history.append(record)
            best.see(record, state)
            step(f"set size {float(record.set_size.mean()):.2f}")
    return best.fit(problem, state, history)


def _check_choice(choose: str, problem: Problem) -> None:
    if choose not in CHOICES:
        raise ValueError(f"choose must be one of {', '.join(CHOICES)}; got {choose!r}.")
    if choose != "last" and problem.held_out is None:
        raise ValueError(f"choose={choose!r} needs held_out rows in every trial. Give them, or choose='last'.")
    if choose == "oracle" and problem.labels is None:
        raise ValueError("choose='oracle' needs labels. Give them, or choose without true labels.")
