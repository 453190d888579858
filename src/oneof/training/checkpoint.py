"""Checkpoints: everything that training changes, as safetensors + JSON, so that a killed run loses nothing.

A checkpoint is two files, `step-N.safetensors` and `step-N.json`; it counts only when the second is there and the checksum in
it is that of the first. Both are written beside and renamed, the tensors first. The last two are kept: one that was damaged on
the disk is passed over for the one before.
"""

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load, save
from torch import Tensor

from oneof.data.on_disk import RowsOnDisk
from oneof.methods.base import leaves
from oneof.storage.files import written_beside
from oneof.storage.settings import first_difference
from oneof.training.device import global_generator
from oneof.training.processes import ProcessGroup
from oneof.training.state import BestEpoch, Record, State
from oneof.training.training_data import TrainingData
from oneof.training.trials import Trial
from oneof.version import __version__

FORMAT = 3
KEPT = 2
_DUE, _NOW = 1, 2  # why a checkpoint is written: the interval has passed, or it was asked for


class Checkpointer:
    """Saves a run every so many seconds and when it is interrupted, with the rows of all processes: any number of them brings it back."""

    def __init__(
        self,
        folder: Path,
        setting: dict[str, Any],
        every: float,
        group: ProcessGroup = ProcessGroup(),  # noqa: B008 - frozen
    ) -> None:
        self.folder = folder
        self.group = group
        self.identity = {"format": FORMAT, "oneof": __version__, **setting}
        self.every = every
        self.saved_at = time.monotonic()
        folder.mkdir(parents=True, exist_ok=True)

    def restore(self, state: State, best: BestEpoch) -> list[Record]:
        """Put the newest whole checkpoint into the state; its history, empty if there is none."""
        for path in sorted(self.folder.glob("step-*.json"), reverse=True):
            try:
                facts, content = json.loads(path.read_text()), path.with_suffix(".safetensors").read_bytes()
                whole = hashlib.sha256(content).hexdigest() == facts["sha256"]
            except (OSError, ValueError, LookupError, TypeError):  # a file is missing, or cut short
                continue
            if whole:
                if difference := first_difference(facts["identity"], self.identity):
                    raise _another_run(self.folder, difference)
                return _unpack(facts, load(content), state, best, self.group)
        return []

    def save(self, state: State, best: BestEpoch, history: list[Record], *, now: bool = False) -> bool:
        """Save if the interval has passed, or now; return whether the first process asked for it now, which holds for all."""
        if now:
            reason = _NOW
        elif time.monotonic() - self.saved_at >= self.every:
            reason = _DUE
        else:
            reason = 0
        reason = self.group.broadcast_int(reason)
        if reason:
            self._write(state, best, history)
        return reason == _NOW

    def _write(self, state: State, best: BestEpoch, history: list[Record]) -> None:
        facts, tensors = _pack(state, best, history, self.group)
        self.saved_at = time.monotonic()
        if self.group.rank > 0:
            return
        content = save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
        facts |= {"identity": self.identity, "sha256": hashlib.sha256(content).hexdigest()}
        name = f"step-{state.epoch:06d}-{state.position:09d}"
        for ending, written in (("safetensors", content), ("json", json.dumps(facts).encode())):
            with written_beside(self.folder / f"{name}.{ending}") as file:
                file.write(written)
        for path in sorted(self.folder.glob("step-*.json"))[:-KEPT]:
            path.unlink()  # first: tensors without it are no checkpoint
        for path in self.folder.glob("step-*.safetensors"):
            if not path.with_suffix(".json").exists():
                path.unlink()


def plan_stacks(
    trials: Sequence[Trial], each: int, limit: int, checkpoint: str | Path | None, group: ProcessGroup
) -> list[Sequence[Trial]]:
    """Stacks of as many trials of `each` bytes as the limit allows, about even; a group gets some for each process.

    A resumed run is cut as it was, whatever memory is free now.

    >>> [len(part) for part in plan_stacks([Trial()] * 7, 10, 35, None, ProcessGroup())]
    [3, 3, 1]
    """
    most = max(1, group.broadcast_int(limit) // group.size // max(1, each))
    size = -(-len(trials) // -(-len(trials) // most))
    stacks = [trials[start : start + size] for start in range(0, len(trials), size)]
    if 1 < group.size <= len(trials):
        count = min(len(trials), -(-len(stacks) // group.size) * group.size)
        stacks = [trials[slice(*ProcessGroup(i, count).local_range(len(trials)))] for i in range(count)]
    if checkpoint is None:
        return stacks
    note = Path(checkpoint) / "stacks.json"
    if note.exists():
        try:
            ends = list(accumulate(map(int, json.loads(note.read_text())), initial=0))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{note} must hold the sizes of the stacks; it is damaged. Delete its folder.") from error
        if ends[-1] != len(trials):
            raise _another_run(checkpoint, f"it has {ends[-1]} trials, now {len(trials)}")
        return [trials[a:b] for a, b in pairwise(ends)]
    note.parent.mkdir(parents=True, exist_ok=True)
    if group.rank == 0:
        with written_beside(note) as file:
            file.write(json.dumps([len(some) for some in stacks]).encode())
    return stacks


def _another_run(folder: str | Path, how: str) -> ValueError:
    return ValueError(f"{folder} holds a checkpoint of another run: {how}. Give another folder, or delete this one.")


def fingerprint(data: TrainingData) -> str:
    """A checksum of the data: features, sets, votes, labels and rows."""
    digest = hashlib.sha256()
    known = (data.candidates, data.prior, data.labels, data.rows, data.held_out, data.test)
    for rows in (data.x, *known):
        if rows is not None:
            digest.update(str(tuple(rows.shape)).encode())
            for block in rows.blocks() if isinstance(rows, RowsOnDisk) else (rows,):
                digest.update(block.cpu().contiguous().numpy().data)
    return digest.hexdigest()[:16]


class CheckpointTensor(NamedTuple):
    """A tensor that training changes, as a checkpoint keeps it."""

    name: str
    tensor: Tensor
    sections: list[int] | None = None  # of a process's own rows: how many belong to each trial; None: all have the same


def _rows(name: str, table: Tensor) -> CheckpointTensor:
    """Return rows [t, m, ...] of this process as a checkpoint keeps them, with trials one after the other."""
    t, m = table.shape[:2]
    return CheckpointTensor(name, table.flatten(0, 1), [m] * t)


def _stored(state: State, best: BestEpoch) -> Iterator[CheckpointTensor]:
    """The tensors that training changes and that keep their shape: they are restored in place."""
    networks = {"weight": state.stack.weights, "buffer": state.stack.buffers, "best.kept": best.kept}
    for group, tensors in networks.items():
        yield from (CheckpointTensor(f"{group}.{name}", tensor) for name, tensor in tensors.items())
    for i, several in enumerate(state.optimizer):
        yield from (CheckpointTensor(f"optimizer.{i}.{j}", tensor) for j, tensor in enumerate(several))
    for i, table in enumerate(leaves(state.memory)):
        yield _rows(f"memory.{i}", table)
    yield from (CheckpointTensor(f"shared.{i}", tensor) for i, tensor in enumerate(state.shared))
    yield _rows("candidates", state.candidates)
    yield from (
        CheckpointTensor("order", state.order),
        CheckpointTensor("mixing", state.mixing),
        CheckpointTensor("loss", state.loss),
    )
    if state.pop is not None:
        yield CheckpointTensor("pop.threshold", state.pop.threshold)
        for name in ("seen", "fell", "margin"):
            yield _rows(f"pop.{name}", getattr(state.pop, name))
    yield from (CheckpointTensor("best.score", best.score), CheckpointTensor("best.epoch", best.epoch))
    if best.sets is not None:
        yield _rows("best.sets", best.sets)


def _generators(state: State) -> dict[str, torch.Generator]:
    own = {f"generator.{i}": generator for i, generator in enumerate(state.generators)}
    return own | {"generator.global": global_generator(state.loss.device)}


def _pack(
    state: State, best: BestEpoch, history: list[Record], group: ProcessGroup
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    stored = _stored(state, best)
    tensors = {name: own if several is None else group.gathered(own, several) for name, own, several in stored}
    tensors |= {name: generator.get_state() for name, generator in _generators(state).items()}
    columns = list(history[0]) if history else []
    tensors |= {f"history.{name}": torch.stack([record[name] for record in history]) for name in columns}
    facts = {"epoch": state.epoch, "position": state.position, "round": state.pop.round if state.pop else 0}
    return facts | {"epochs_recorded": len(history), "columns": columns}, tensors


def _unpack(
    facts: dict[str, Any], tensors: dict[str, Tensor], state: State, best: BestEpoch, group: ProcessGroup
) -> list[Record]:
    for name, own, sections in _stored(state, best):
        own.copy_(tensors[name] if sections is None else group.part(tensors[name], sections))
    for name, generator in _generators(state).items():
        generator.set_state(tensors[name])
    state.epoch, state.position = facts["epoch"], facts["position"]
    if state.pop is not None:
        state.pop = state.pop._replace(round=facts["round"])
    columns = {name: tensors[f"history.{name}"].to(state.loss.device) for name in facts["columns"]}
    return [{name: column[i] for name, column in columns.items()} for i in range(facts["epochs_recorded"])]
