"""Take one step: what a batch does to the networks and to the tables, all in place, so that it can be captured as a graph."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from oneof.methods.base import Batch, Step, leaves, logits_of, tree_map
from oneof.training.average import average_logits, update_average
from oneof.training.device import SideStream
from oneof.training.optimize import expand_trials
from oneof.training.state import State
from oneof.training.tables import gather_rows, scatter_rows_
from oneof.training.training_data import TrainingData


def step(
    data: TrainingData, state: State, observing: bool,
    index: Tensor, lr: Tensor, mixing: Tensor, epoch: Tensor, decay: Tensor,
) -> None:  # fmt: skip
    """Train on a batch.

    Parameters
    ----------
    data, state
        What stays the same and what changes.
    observing
        Whether POP observes this batch.
    index
        Where the batch's rows [t, b] are in the tables of this rank.
    lr, mixing
        Learning rate and mixup weight of each trial [t].
    epoch
        Number of the epoch, 0-dim.
    decay
        Of the average of the networks, 0-dim.
    """
    method = data.method
    stack = state.stack
    side_stream = SideStream(index.device)
    rows = gather_rows(data.rows, index)
    with side_stream:  # tables are small: their kernels are all latency, which those of the views hide
        candidates = data.visible_candidates(gather_rows(state.candidates, index), rows)
        prior = None
        if method.uses_prior:
            prior = data.log_prior_of(rows)
        memory = tree_map(lambda table: gather_rows(table, index), state.memory)
        batch = Batch(candidates, memory, epoch, state.generators, prior)
    views = data.views(rows, state.generators)
    side_stream.join()

    if data.training.mixup:
        result = _mixed_step(data, state, views, batch, mixing)
    else:
        result = method.step(stack, _add_noise(data, state, views), batch, state.shared)
    second_forward = method.after_step or data.training.alters_input or state.average is not None
    if not second_forward:
        with side_stream, torch.no_grad():
            _write_rows(data, state, observing, index, batch.candidates, result.logits, result.memory)

    gradients = data.group.mean(stack.gradients(result.loss.mean(1).sum()))
    with torch.no_grad():
        data.training.optimizer.step(stack.weights.values(), gradients, state.optimizer, lr, data.weight_decay)
        if second_forward:
            logits = _logits_after_step(state, views, decay)
            memory = method.update(batch.weighed(logits), batch.candidates, batch.memory)
            _write_rows(data, state, observing, index, batch.candidates, logits, memory)
        _copy_shared(state.shared, result.shared)
        state.loss += result.loss.sum(1)
    side_stream.join()


def _logits_after_step(state: State, views: Tensor, decay: Tensor) -> Tensor:
    """Return logits [t, b, c] of view 0, without mixup or noise: of the average of the networks, where there is one."""
    stack = state.stack
    if state.average is not None:
        update_average(state.average, stack, decay)
        return average_logits(state.average, views[0])
    # Batch normalisation must see what it saw in the first forward: all views.
    with stack.frozen_statistics():
        return logits_of(stack, views)[0]


def observe(data: TrainingData, state: State, index: Tensor, candidates: Tensor, logits: Tensor) -> None:
    """Let POP observe logits [t, b, c] of the rows at an index [t, b]."""
    if data.purify is None or state.pop is None:
        return
    prior = data.log_prior_of(gather_rows(data.rows, index))
    if prior is not None:
        logits = logits + prior
    posterior_sum = gather_rows(state.pop.posterior_sum, index)
    scatter_rows_(state.pop.posterior_sum, index, data.purify.observe(posterior_sum, logits, candidates))


def _write_rows(
    data: TrainingData, state: State, observing: bool, index: Tensor, candidates: Tensor, logits: Tensor, memory: Any
) -> None:
    """Write the method's memory of the batch's rows, and let POP observe their logits."""
    for table, new_rows in zip(leaves(state.memory), leaves(memory), strict=True):
        scatter_rows_(table, index, new_rows)
    if observing:
        observe(data, state, index, candidates, logits)


def _copy_shared(shared: Sequence[Tensor], new: Sequence[Tensor]) -> None:
    """Copy what a method keeps for no example in particular; tensors of one type go in one launch."""
    for dtype in {tensor.dtype for tensor in shared}:
        targets = []
        sources = []
        for target, source in zip(shared, new, strict=True):
            if target.dtype == dtype:
                targets.append(target)
                sources.append(source)
        torch._foreach_copy_(targets, sources)


def _mixed_step(data: TrainingData, state: State, views: Tensor, batch: Batch, mixing: Tensor) -> Step:
    """Mix each example with the one before it in the (random) order of the epoch, and its loss with the other's."""
    partner_views = views.roll(1, 2)
    partner_candidates = batch.candidates.roll(1, 1)
    partner_memory = tree_map(lambda rows: rows.roll(1, 1), batch.memory)
    mixed = torch.lerp(partner_views, views, expand_trials(mixing, views[0]).to(views.dtype))
    logits = logits_of(state.stack, _add_noise(data, state, mixed))
    loss = data.method.loss(logits, batch.candidates, batch.memory)
    partner_loss = data.method.loss(logits, partner_candidates, partner_memory)
    mixed_loss = (mixing[:, None] * loss + (1 - mixing[:, None]) * partner_loss).mean(0)
    return Step(mixed_loss, logits[0].detach(), batch.memory, state.shared)


def _add_noise(data: TrainingData, state: State, views: Tensor) -> Tensor:
    """Return views [v, t, b, ...] with noise."""
    if not data.training.noise:
        return views
    draws = []
    for generator in state.generators:
        draws.append(torch.randn(views[:, 0].shape, generator=generator, device=views.device, dtype=views.dtype))
    return views + data.training.noise * torch.stack(draws, dim=1)
