"""The only training loop. It knows the protocols of methods and rules, the name of none, and alone writes to tables."""

import math
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from oneof.methods.base import Method, first, leaves, tree_map
from oneof.metrics import accuracy, criteria
from oneof.training.device import CudaGraphRunner
from oneof.training.events import begin_purifying, event
from oneof.training.shard import over_all_processes
from oneof.training.stack import Stack
from oneof.training.state import Record, State
from oneof.training.step import observe, step
from oneof.training.tables import flat_index, gather_rows
from oneof.training.training_data import TrainingData, block_size


def begin(problem: TrainingData, stack: Stack, seeds: list[int]) -> State:
    """The state before the first step."""
    candidates = problem.training_candidates()
    steps = math.ceil(problem.total / problem.training.batch)
    return State(
        epoch=0, position=0, order=problem.rows.new_zeros(len(problem.rows), problem.total),
        mixing=torch.ones(len(problem.lr), steps, device=problem.lr.device), stack=stack,
        optimizer=problem.training.optimizer.init(stack.weights.values()), candidates=candidates,
        memory=problem.init_memory(candidates), shared=problem.method.shared(stack),
        pop=begin_purifying(problem.purify, candidates) if problem.purify else None, loss=torch.zeros_like(problem.lr),
        generators=[torch.Generator(problem.drawn_at).manual_seed(seed) for seed in seeds],
    )  # fmt: skip


def epochs(problem: TrainingData, state: State) -> Iterator[Record]:
    """Train from where the state stands, an epoch at a time, and yield what each showed."""
    return (record for record in steps(problem, state) if record is not None)


def steps(problem: TrainingData, state: State) -> Iterator[Record | None]:
    """Train from where the state stands: after every step the state is whole and None is yielded, after an epoch its record."""
    # a process's part of a batch varies in size, which no graph can; nor can it read files
    alike = problem.group.size == 1 and isinstance(problem.x, Tensor)
    replay = CudaGraphRunner(problem.lr.device.type == "cuda" and alike, state.generators)
    training, m = problem.training, problem.total
    while state.epoch < training.epochs:
        if state.position == 0:
            _open_epoch(problem, state)
        lr = problem.lr * training.schedule(state.epoch, training.epochs)
        observing = problem.purify is not None and problem.purify.observing(state.epoch)
        epoch = torch.full((), state.epoch, device=lr.device)
        where = flat_index(state.order, m)
        for start in range(state.position, m, training.batch):
            at = where[:, start : start + training.batch]
            mixing = state.mixing[:, start // training.batch]
            with over_all_processes(problem.group, state.stack.buffers):
                replay((observing, at.shape[1]), partial(step, problem, state, observing), at, lr, mixing, epoch)
            state.position = start + training.batch
            yield None
        removed = _purify(problem, state)
        state.epoch += 1
        state.position = 0
        yield _record(problem, state, replay, state.loss / m, removed)


def _open_epoch(problem: TrainingData, state: State) -> None:
    """What an epoch draws beforehand, each trial from its own generator: its order, its mixing weights."""
    _refresh(problem, state)
    draws = [torch.randperm(problem.total, generator=g, device=g.device) for g in state.generators]
    state.order = torch.stack(draws).to(problem.rows.device)
    if alpha := problem.training.mixup:  # NumPy has the Beta distribution, the trial's generator seeds it
        seeds = [int(torch.randint(2**62, (), generator=g, device=g.device)) for g in state.generators]
        weights = [np.random.default_rng(seed).beta(alpha, alpha, state.mixing.shape[1]) for seed in seeds]
        state.mixing = torch.as_tensor(np.stack(weights), dtype=problem.lr.dtype, device=problem.lr.device)
    state.loss.zero_()


def _refresh(problem: TrainingData, state: State) -> None:
    """What a method does to whole tables before an epoch, written where the tables lie."""
    method, group, kept = problem.method, problem.group, state.memory

    def mean(rows: Tensor) -> Tensor:
        """The mean [t, 1, ...] over all training rows, of which [t, n, ...] are this process's."""
        if group.size == 1:
            return rows.mean(1, keepdim=True)
        return group.total([rows.sum(1, keepdim=True)])[0] / problem.total

    _write(leaves(kept), leaves(method.on_epoch_start(kept, mean)))
    if type(method).refresh is Method.refresh:  # then nobody looks at the rows of others
        return
    whole = tree_map(group.gathered_rows, kept)
    features = partial(problem.outputs, state.stack, problem.rows, "body")
    memory, shared = method.refresh(state.stack, features, whole, state.shared, state.epoch)
    own, changed = slice(*group.local_range(problem.total)), zip(*map(leaves, (kept, whole, memory)), strict=True)
    _write(leaves(kept), [old if new is was else new[:, own] for old, was, new in changed])
    _write(state.shared, shared)


def _write(tables: Sequence[Tensor], after: Sequence[Tensor]) -> None:
    for old, new in zip(tables, after, strict=True):
        if old is not new:
            old.copy_(new)


def _purify(problem: TrainingData, state: State) -> Tensor | None:
    """An event, if one is due: the number of labels that fell [t]."""
    if problem.purify is None or state.pop is None:
        return None
    if not problem.purify.event(state.epoch):
        return torch.zeros_like(problem.lr)
    if problem.purify.current:  # show POP what the networks say now of every training row, some rows at a time
        t, m = problem.rows.shape
        size = block_size(problem.x, t)
        with state.stack.eval_mode():
            for some in torch.arange(m, device=problem.rows.device).split(size):  # type: ignore[no-untyped-call]
                at = flat_index(some.expand(t, -1), m)
                rows = gather_rows(problem.rows, at)
                sets = problem.visible_candidates(gather_rows(state.candidates, at), rows)
                observe(problem, state, at, sets, first(state.stack(problem.features(rows))))
    labels = problem.total * problem.classes
    removed, state.pop = event(problem.purify, state.candidates, state.pop, problem.group, labels, state.memory)
    return removed


def _record(
    problem: TrainingData, state: State, replay: CudaGraphRunner, loss: Tensor, removed: Tensor | None
) -> Record:
    look, labels = partial(problem.logits, state.stack), problem.labels
    set_size = problem.group.total([state.candidates.sum((1, 2))])[0].to(loss.dtype) / problem.total
    record: Record = {"loss": loss, "set_size": set_size}
    by_sets: Record = {}
    if state.pop is not None and removed is not None:  # a threshold is a new tensor at every event, so safe to keep
        record |= {"threshold": state.pop.threshold, "removed": removed}
    if problem.held_out is not None:
        logits = replay("held out", look, problem.held_out)
        by_sets = criteria(logits, problem.sets(problem.held_out))
        record |= {} if labels is None else {"oracle": accuracy(logits, labels[problem.held_out])}
    if problem.test is not None and labels is not None:
        record["accuracy"] = accuracy(replay("test", look, problem.test), labels[problem.test])
    return record | by_sets
