"""The only training loop. It knows the protocols of methods and rules, the name of none, and alone writes to tables."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from oneof.methods.base import Method, first_output, leaves, tree_map
from oneof.metrics import accuracy, criteria
from oneof.training.average import begin_average, decay_at
from oneof.training.device import CudaGraphRunner
from oneof.training.events import begin_purifying, run_event
from oneof.training.stack import Stack
from oneof.training.state import Record, State
from oneof.training.step import observe, step
from oneof.training.tables import flat_index, gather_rows
from oneof.training.training_data import TrainingData, block_size


def begin(data: TrainingData, stack: Stack, seeds: list[int]) -> State:
    """Return the state before the first step."""
    t = len(data.rows)
    n_steps = math.ceil(data.n_drawn / data.training.batch)
    candidates = data.training_candidates()
    pop = None
    if data.purify is not None:
        pop = begin_purifying(data.purify, candidates)
    generators = []
    for seed in seeds:
        generator = torch.Generator(data.generator_device)
        generators.append(generator.manual_seed(data.group.seed(seed)))
    average = None
    if data.training.average:
        average = begin_average(stack)
    return State(
        epoch=0,
        position=0,
        order=data.rows.new_zeros(t, data.n_drawn),
        mixing=torch.ones(t, n_steps, device=data.lr.device),
        stack=stack,
        optimizer=data.training.optimizer.init(stack.weights.values()),
        candidates=candidates,
        memory=data.init_memory(candidates),
        shared=data.method.shared(stack),
        pop=pop,
        generators=generators,
        loss=torch.zeros_like(data.lr),
        average=average,
    )


def epochs(data: TrainingData, state: State) -> Iterator[Record]:
    """Train from where the state is, an epoch at a time, and yield the record of each."""
    for record in steps(data, state):
        if record is not None:
            yield record


def steps(data: TrainingData, state: State) -> Iterator[Record | None]:
    """Train from where the state is: yield None after every step, when the state is complete, and after an epoch its record."""
    training = data.training
    can_capture = data.group.can_capture and isinstance(data.x, Tensor)  # a graph can read no files
    runner = CudaGraphRunner(data.lr.device.type == "cuda" and can_capture, state.generators)
    while state.epoch < training.epochs:
        if state.position == 0:
            _open_epoch(data, state)
        lr = data.lr * training.schedule(state.epoch, training.epochs)
        observing = data.purify is not None and data.purify.observing(state.epoch)
        epoch = torch.full((), state.epoch, device=lr.device)
        n_earlier_steps = state.epoch * math.ceil(data.n_drawn / training.batch)
        decay = torch.full((), decay_at(training.average, n_earlier_steps), device=lr.device)
        order = flat_index(state.order, data.rows.shape[1])
        for start in range(state.position, data.n_drawn, training.batch):
            index = order[:, start : start + training.batch]
            mixing = state.mixing[:, start // training.batch]
            key = (observing, index.shape[1])
            runner(key, partial(step, data, state, observing), index, lr, mixing, epoch, decay)
            state.position = start + training.batch
            yield None
        _average_statistics(data, state)
        removed = _purify(data, state)
        state.epoch += 1
        state.position = 0
        (loss,) = data.group.mean([state.loss / data.n_drawn])
        yield _record(data, state, runner, loss, removed)


def _open_epoch(data: TrainingData, state: State) -> None:
    """Draw what an epoch needs beforehand, each trial from its own generator: the order of rows and mixup's weights."""
    _update_tables(data, state)
    orders = [_draw_order(data, generator) for generator in state.generators]
    state.order = torch.stack(orders).to(data.rows.device)
    alpha = data.training.mixup
    if alpha:  # NumPy has the Beta distribution, the trial's generator seeds it
        weights = []
        for generator in state.generators:
            seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
            weights.append(np.random.default_rng(seed).beta(alpha, alpha, state.mixing.shape[1]))
        state.mixing = torch.as_tensor(np.stack(weights), dtype=data.lr.dtype, device=data.lr.device)
    state.loss.zero_()


def _draw_order(data: TrainingData, generator: torch.Generator) -> Tensor:
    """Return the rows of this rank in random order; where more are to be drawn, the first ones come once more at the end."""
    order = torch.randperm(data.rows.shape[1], generator=generator, device=generator.device)
    n_more = data.n_drawn - len(order)
    if not n_more:
        return order
    return torch.cat([order, order.repeat(n_more)[:n_more]])


def _average_statistics(data: TrainingData, state: State) -> None:
    """Give all ranks the mean of their running statistics of batch normalisation; in steps each normalises by its own batch."""
    if data.group.size == 1:
        return
    buffers = list(state.stack.buffers.values())
    if state.average is not None:
        buffers += state.average.buffers.values()
    statistics = []
    for buffer in buffers:
        if buffer.is_floating_point():  # the rest counts batches
            statistics.append(buffer)
    for buffer, mean in zip(statistics, data.group.mean(statistics), strict=True):
        buffer.copy_(mean)


def _update_tables(data: TrainingData, state: State) -> None:
    """Let the method change its memory of all rows, and what it shares, before an epoch."""
    method = data.method
    group = data.group

    def mean_over_rows(rows: Tensor) -> Tensor:
        """Return the mean [t, 1, ...] over the training rows of all processes, of which [t, n, ...] are this one's."""
        if group.size == 1:
            return rows.mean(1, keepdim=True)
        (total,) = group.total([rows.sum(1, keepdim=True)])
        return total / data.n_rows

    _copy_changed(leaves(state.memory), leaves(method.on_epoch_start(state.memory, mean_over_rows)))
    if type(method).refresh is Method.refresh:  # then no row depends on others, and nothing is gathered
        return
    all_memory = tree_map(group.gathered_rows, state.memory)
    features = partial(data.outputs, state.stack, data.rows, "body")
    new_memory, new_shared = method.refresh(state.stack, features, all_memory, state.shared, state.epoch)
    local_rows = slice(*group.local_range(data.n_rows))
    for local, old, new in zip(leaves(state.memory), leaves(all_memory), leaves(new_memory), strict=True):
        if new is not old:
            local.copy_(new[:, local_rows])
    _copy_changed(state.shared, new_shared)


def _copy_changed(tensors: Sequence[Tensor], new: Sequence[Tensor]) -> None:
    """Copy new values to tensors, but for those that are the same tensor."""
    for old_tensor, new_tensor in zip(tensors, new, strict=True):
        if old_tensor is not new_tensor:
            old_tensor.copy_(new_tensor)


def _purify(data: TrainingData, state: State) -> Tensor | None:
    """Hold a purification event, if one is due; return how many labels were removed [t], None without purification."""
    if data.purify is None or state.pop is None:
        return None
    if not data.purify.event(state.epoch):
        return torch.zeros_like(data.lr)
    if data.purify.current:
        _observe_all_rows(data, state)
    n_labels = data.n_rows * data.n_classes
    removed, state.pop = run_event(data.purify, state.candidates, state.pop, data.group, n_labels, state.memory)
    return removed


def _observe_all_rows(data: TrainingData, state: State) -> None:
    """Let POP observe the networks as they are now on every training row, block by block."""
    t, m = data.rows.shape
    with state.predictor.eval_mode():
        size = block_size(data.x, t, data.rows.device)
        for block in torch.arange(m, device=data.rows.device).split(size):  # type: ignore[no-untyped-call]
            index = flat_index(block.expand(t, -1), m)
            rows = gather_rows(data.rows, index)
            candidates = data.visible_candidates(gather_rows(state.candidates, index), rows)
            logits = first_output(state.predictor(data.features(rows)))
            observe(data, state, index, candidates, logits)


def _record(data: TrainingData, state: State, runner: CudaGraphRunner, loss: Tensor, removed: Tensor | None) -> Record:
    """Return the record of an epoch, see `Record`."""
    (n_candidates,) = data.group.total([state.candidates.sum((1, 2))])
    record: Record = {"loss": loss, "set_size": n_candidates.to(loss.dtype) / data.n_rows}
    if state.pop is not None and removed is not None:
        record["threshold"] = state.pop.threshold  # a new tensor at every event, so safe to keep
        record["removed"] = removed
    evaluate = partial(data.logits, state.predictor)
    run: Callable[..., Tensor] = runner
    if data.group.size > 1:  # what ranks gather cannot be captured
        run = _run_plainly
    by_sets: Record = {}
    if data.held_out is not None:
        logits = run("held out", evaluate, data.held_out)
        by_sets = criteria(logits, data.original_candidates(data.held_out))
        if data.labels is not None:
            record["oracle"] = accuracy(logits, data.labels[data.held_out])
    if data.test is not None and data.labels is not None:
        logits = run("test", evaluate, data.test)
        record["accuracy"] = accuracy(logits, data.labels[data.test])
    return record | by_sets


def _run_plainly(key: str, function: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
    """Call a function as `CudaGraphRunner` does where it is not enabled."""
    return function(rows)
