"""The only training loop: `epochs` yields a record per epoch, `fit` drains it.

The engine knows the protocols of a method and of a purification rule, and the name of none. It alone writes to the tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from oneof.data.augment.views import Views
from oneof.evaluate import accuracy, approximated_accuracy, covering_rate
from oneof.methods import Method, Proden
from oneof.networks import MLP, Network
from oneof.problem import Problem, Training, as_tensor, pose
from oneof.progress import bar
from oneof.purify import Purify
from oneof.runtime import Replay, free_memory
from oneof.stack import Stack, build
from oneof.state import Best, Fit, Record, State, join
from oneof.step import step
from oneof.trials import Trial, cut, parts, positions


def begin(problem: Problem, stack: Stack, seeds: list[int]) -> State:
    """The state before the first step."""
    candidates = problem.sets(problem.rows)
    return State(
        epoch=0,
        stack=stack,
        optimizer=problem.training.optimizer.init(stack.weights.values()),
        candidates=candidates,
        memory=problem.method.init(candidates),
        shared=problem.method.shared(stack),
        pop=problem.purify.init(candidates) if problem.purify else None,
        generators=[torch.Generator(candidates.device).manual_seed(seed) for seed in seeds],
        loss=torch.zeros_like(problem.lr),
    )


def epochs(problem: Problem, state: State) -> Iterator[Record]:
    """Train from where the state stands, an epoch at a time, and yield what each showed."""
    replay = Replay(problem.lr.device, state.generators)
    while state.epoch < problem.training.epochs:
        _refresh(problem, state)
        loss = _train(problem, state, replay)
        removed = _purify(problem, state)
        state.epoch += 1
        yield _record(problem, state, loss, removed)


def _refresh(problem: Problem, state: State) -> None:
    """What a method does to whole tables before an epoch, written where the tables lie."""
    memory, shared = problem.method.refresh(
        state.stack, lambda: problem.body_features(state.stack), state.memory, state.shared, state.epoch
    )
    for old, new in zip(parts(state.memory) + parts(state.shared), parts(memory) + parts(shared), strict=True):
        if old is not new:
            old.copy_(new)


def _train(problem: Problem, state: State, replay: Replay) -> Tensor:
    """One pass over every trial's rows in its own order; the mean loss [t]."""
    training = problem.training
    m = problem.rows.shape[1]
    order = torch.stack([torch.randperm(m, generator=g, device=g.device) for g in state.generators])
    lr = problem.lr * training.schedule(state.epoch, training.epochs)
    mixing = _mixing_weights(problem, state)
    observing = problem.purify is not None and problem.purify.observing(state.epoch)
    epoch = torch.tensor(state.epoch, device=lr.device)
    state.loss.zero_()
    where = positions(order, m)
    for number, start in enumerate(range(0, m, training.batch)):
        at = where[:, start : start + training.batch]
        replay((observing, at.shape[1]), partial(step, problem, state, observing), at, lr, mixing[:, number], epoch)
    return state.loss / m


def _mixing_weights(problem: Problem, state: State) -> Tensor:
    """Beta(alpha, alpha) draws [t, steps] for an epoch; NumPy has the distribution, the trial's generator seeds it."""
    steps = math.ceil(problem.rows.shape[1] / problem.training.batch)
    alpha = problem.training.mixup
    if not alpha:
        return torch.ones(len(problem.lr), steps, device=problem.lr.device)
    seeds = [torch.randint(2**62, (), generator=g, device=g.device).item() for g in state.generators]
    draws = np.stack([np.random.default_rng(int(seed)).beta(alpha, alpha, steps) for seed in seeds])
    return torch.as_tensor(draws, dtype=problem.lr.dtype, device=problem.lr.device)


def _purify(problem: Problem, state: State) -> Tensor | None:
    """An event, if one is due: the only way in which sets shrink. The number of labels that fell [t]."""
    if problem.purify is None or state.pop is None:
        return None
    if not problem.purify.event(state.epoch):
        return torch.zeros_like(problem.lr)
    kept, fallen = problem.purify.remove(state.candidates, state.pop)
    removed = (fallen > 0).sum((1, 2)).to(problem.lr.dtype)
    after = problem.purify.advance(state.pop, fallen, removed / fallen[0].numel())
    state.candidates.copy_(kept)  # in place, as everything that a captured step reads
    state.pop = after._replace(seen=state.pop.seen.copy_(after.seen))
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
    threshold = state.pop.threshold if state.pop else None  # a new tensor at every event, so safe to keep
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
    views: Views | None = None,
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
    views
        How images are seen: with it x is uint8 [n, channels, height, width] and stays so on the device.
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
    features = as_tensor(x, torch.uint8 if views else torch.get_default_dtype(), place)
    mask = as_tensor(candidates, None, place)
    build_one = partial(_network, method, network, tuple(features.shape[1:]), mask.shape[-1])
    stacks = cut(trials, _bytes_per_trial(features, mask, build_one, training), memory or free_memory(place) // 2)
    start, fits = 0, []
    for number, some in enumerate(stacks, 1):
        own = mask[start : start + len(some)] if mask.dim() == 3 and len(mask) == len(trials) else mask
        problem = pose(features, own, some, method, purify, training, views, labels, place)
        title = progress if progress is None or len(stacks) == 1 else f"{progress} ({number} of {len(stacks)})"
        fits.append(_fit_stack(problem, build_one, [trial.seed for trial in some], choose, title))
        start += len(some)
    return join(fits)


def _network(method: Method, network: Network, shape: tuple[int, ...], classes: int) -> nn.Module:
    return method.network(network(shape, classes), classes, shape)


def _bytes_per_trial(x: Tensor, candidates: Tensor, build_one: Callable[[], nn.Module], training: Training) -> int:
    """Roughly what a trial takes: sets, memory and POP's sum of every row; weights with their gradients; a batch's features."""
    with torch.random.fork_rng(devices=[]):
        weights = sum(weight.numel() for weight in build_one().parameters())
    tables = candidates.shape[-2:].numel() * 13
    return tables + 4 * (6 * weights + 8 * training.batch * x[0].numel())


def _fit_stack(
    problem: Problem, build_one: Callable[[], nn.Module], seeds: list[int], choose: str, title: str | None
) -> Fit:
    _check_choice(choose, problem)
    state = begin(problem, build(build_one, seeds, problem.lr.device, problem.fast), seeds)
    best, history = Best(state, choose), []
    with bar(title or "", problem.training.epochs, title is not None) as step_bar:
        for record in epochs(problem, state):
            history.append(record)
            best.see(record, state)
            step_bar(f"set size {float(record.set_size.mean()):.2f}")
    return best.fit(problem, state, history)


def _check_choice(choose: str, problem: Problem) -> None:
    if choose not in CHOICES:
        raise ValueError(f"choose must be one of {', '.join(CHOICES)}; got {choose!r}.")
    if choose != "last" and problem.held_out is None:
        raise ValueError(f"choose={choose!r} needs held_out rows in every trial. Give them, or choose='last'.")
    if choose == "oracle" and problem.labels is None:
        raise ValueError("choose='oracle' needs labels. Give them, or choose without true labels.")
