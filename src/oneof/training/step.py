"""One step: what a batch does to the networks and to the tables, all of it in place, so that it can be captured as a graph."""

from typing import Any

import torch
from torch import Tensor

from oneof.methods.base import Batch, Method, Step, leaves, logits_of, tree_map
from oneof.training.device import SideStream
from oneof.training.optimize import expand_trials
from oneof.training.shard import Shard, gathered_step, local_shard, neighbours, views_of
from oneof.training.state import State
from oneof.training.tables import gather_rows, scatter_rows_
from oneof.training.training_data import TrainingData


def step(
    problem: TrainingData, state: State, observing: bool, at: Tensor, lr: Tensor, mixing: Tensor, epoch: Tensor
) -> None:
    """Loss and updates of the rows at these positions [t, b], or of this process's own; lr, mixing [t]; epoch 0-dim."""
    method, stack, beside = problem.method, state.stack, SideStream(at.device)
    ours = local_shard(problem, at)
    at = at if ours is None else ours.at
    rows = gather_rows(problem.rows, at)
    with beside:  # tables are small: their kernels are all latency, which others hide
        sets = problem.visible_candidates(gather_rows(state.candidates, at), rows)
        prior = problem.log_prior_of(rows) if method.uses_prior else None
        memory = tree_map(lambda table: gather_rows(table, at), state.memory)
        batch = Batch(sets, memory, epoch, state.generators, prior)
    views, *others = views_of(problem, rows, ours, state.generators)
    beside.join()
    if problem.training.mixup:
        done = _mixed_step(problem, state, views, others, batch, mixing, ours)
    elif ours is not None and type(method).step is not Method.step and not method.row_independent:
        done = gathered_step(problem, state, ours, views, batch)
    else:
        done = method.step(stack, _with_noise(problem, state, views, ours), batch, state.shared)
    late = method.after_step or problem.training.alters_input
    if not late:
        with beside, torch.no_grad():
            _remember(problem, state, observing, ours, at, batch.candidates, done.logits, done.memory)
    losses = done.loss if ours is None else done.loss.where(ours.own, 0.0)  # nothing for fillers
    gradients = stack.gradients(losses.mean(1).sum() if ours is None else losses.sum() / ours.size)
    with torch.no_grad():
        *gradients, loss = problem.group.total([*gradients, losses.sum(1)])
        problem.training.optimizer.step(stack.weights.values(), gradients, state.optimizer, lr, problem.weight_decay)
        if late:
            # Batch normalisation must see what it saw in the first forward: all views, here without mixup or noise.
            with stack.frozen_statistics():
                logits = logits_of(stack, views)[0]
            memory = method.update(batch.weighed(logits), batch.candidates, batch.memory)
            _remember(problem, state, observing, ours, at, batch.candidates, logits, memory)
        for dtype in {kept.dtype for kept in state.shared}:  # one launch for all of a type
            pairs = [pair for pair in zip(state.shared, done.shared, strict=True) if pair[0].dtype == dtype]
            torch._foreach_copy_([kept for kept, _ in pairs], [new for _, new in pairs])
        state.loss += loss
    beside.join()


def _remember(
    problem: TrainingData, state: State, observing: bool, ours: Shard | None, at: Tensor, candidates: Tensor, logits: Tensor, memory: Any
) -> None:  # fmt: skip
    """Write what the batch's forward said: the method's memory, and what POP sees."""
    if ours is not None:  # fillers are not written; the others go as one trial's rows [1, k, ...]
        at, candidates, logits = (rows[ours.own][None] for rows in (at, candidates, logits))
        memory = tree_map(lambda rows: rows[ours.own][None], memory)
    for table, new in zip(leaves(state.memory), leaves(memory), strict=True):
        scatter_rows_(table, at, new)
    if observing:
        observe(problem, state, at, candidates, logits)


def observe(problem: TrainingData, state: State, at: Tensor, candidates: Tensor, logits: Tensor) -> None:
    """Show POP what the networks say of the rows at these positions [t, b]."""
    if problem.purify and state.pop:
        prior = problem.log_prior_of(gather_rows(problem.rows, at))
        seen = gather_rows(state.pop.seen, at)
        weighed = logits if prior is None else logits + prior
        scatter_rows_(state.pop.seen, at, problem.purify.observe(seen, weighed, candidates))


def _mixed_step(
    problem: TrainingData, state: State, views: Tensor, others: Any, batch: Batch, mixing: Tensor, ours: Shard | None
) -> Step:
    """Each example mixed with its neighbour in the (random) order of the epoch: so much of its loss, so much of the other's."""
    if ours is None:  # of each row the one before it in the batch
        others, sets = [views.roll(1, 2)], batch.candidates.roll(1, 1)
        memory = tree_map(lambda part: part.roll(1, 1), batch.memory)
    else:
        sets, memory = neighbours(problem, ours, batch)
    mixed = torch.lerp(others[0], views, expand_trials(mixing, views[0]).to(views.dtype))
    logits = logits_of(state.stack, _with_noise(problem, state, mixed, ours))
    own = problem.method.loss(logits, batch.candidates, batch.memory)
    partner = problem.method.loss(logits, sets, memory)
    loss = (mixing[:, None] * own + (1 - mixing[:, None]) * partner).mean(0)
    return Step(loss, logits[0].detach(), batch.memory, state.shared)


def _with_noise(problem: TrainingData, state: State, views: Tensor, ours: Shard | None) -> Tensor:
    """Views [v, t, b, ...] with noise; it is drawn for the whole batch, of which this process may take a part."""
    if not problem.training.noise:
        return views
    shape = views[:, 0].shape if ours is None else (len(views), ours.size, *views.shape[3:])
    draws = [torch.randn(shape, generator=g, device=views.device, dtype=views.dtype) for g in state.generators]
    if ours is not None:
        draws = [draw[:, column] for draw, column in zip(draws, ours.column, strict=True)]
    return views + problem.training.noise * torch.stack(draws, dim=1)
