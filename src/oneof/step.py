"""One step: what a batch does to the networks and to the tables, all of it in place, so that it can be captured as a graph."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from oneof.methods import Batch, Step
from oneof.methods.base import logits_of
from oneof.optimize import along
from oneof.problem import Problem
from oneof.state import State
from oneof.trials import put, take


def step(
    problem: Problem, state: State, observing: bool, at: Tensor, lr: Tensor, mixing: Tensor, epoch: Tensor
) -> None:
    """A step on the rows at these positions [t, b] of the tables: loss, update of the network, of the memory, of what POP sees.

    lr and mixing [t]; epoch 0-dim. Adds the batch's losses to `state.loss`.
    """
    method, stack = problem.method, state.stack
    views = problem.views(take(problem.rows, at), state.generators)
    batch = Batch(take(state.candidates, at), take(state.memory, at), epoch, state.generators)
    if problem.training.mixup:
        done = _mixed_step(problem, state, views, batch, mixing)
    else:
        done = method.step(stack, _with_noise(problem, state, views), batch, state.shared)
    gradients = stack.gradients(done.loss.mean(1).sum())
    with torch.no_grad():
        problem.training.optimizer.step(stack.weights.values(), gradients, state.optimizer, lr, problem.weight_decay)
        logits, memory = done.logits, done.memory
        if method.after_step or problem.training.alters_input:
            with stack.frozen_statistics():
                logits = logits_of(stack, views[:1])[0]
            memory = method.update(logits, batch.candidates, batch.memory)
        put(state.memory, at, memory)
        for kept, new in zip(state.shared, done.shared, strict=True):
            kept.copy_(new)
        if observing and problem.purify and state.pop:
            seen = take(state.pop.seen, at)
            put(state.pop.seen, at, problem.purify.observe(seen, logits, batch.candidates))
        state.loss += done.loss.sum(1)


def _mixed_step(problem: Problem, state: State, views: Tensor, batch: Batch, mixing: Tensor) -> Step:
    """Each example mixed with its neighbour in the (random) order of the epoch: so much of its loss, so much of the other's."""
    weight = along(mixing, views[0])
    mixed = torch.lerp(views.roll(1, 2), views, weight.to(views.dtype))
    logits = logits_of(state.stack, _with_noise(problem, state, mixed))
    own = problem.method.loss(logits, batch.candidates, batch.memory)
    partner = problem.method.loss(logits, batch.candidates.roll(1, 1), _rolled(batch.memory))
    loss = (mixing[:, None] * own + (1 - mixing[:, None]) * partner).mean(0)
    return Step(loss, logits[0].detach(), batch.memory, state.shared)


def _rolled(memory: Any) -> Any:
    return tuple(part.roll(1, 1) for part in memory) if isinstance(memory, tuple) else memory.roll(1, 1)


def _with_noise(problem: Problem, state: State, views: Tensor) -> Tensor:
    if not problem.training.noise:
        return views
    draws = [
        torch.randn(views[:, 0].shape, generator=g, device=views.device, dtype=views.dtype) for g in state.generators
    ]
    return views + problem.training.noise * torch.stack(draws, dim=1)
