"""Checkpoints: everything that training changes, as safetensors + JSON, so that a killed run loses nothing.

A checkpoint is two files, `step-N.safetensors` and `step-N.json`; it counts only when the second is there and the checksum in
it is that of the first. Both are written beside and renamed, the tensors first. The last two are kept: one that was damaged on
the disk is passed over for the one before.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from oneof.data.on_disk import RowsOnDisk
from oneof.purify import Falls, Removals
from oneof.storage.files import written_beside
from oneof.storage.settings import first_difference
from oneof.training.device import global_draws, set_global_draws
from oneof.training.packed import Packed, Table, sections
from oneof.training.problem import Problem
from oneof.training.processes import Crew
from oneof.training.state import SETS, Best, Record, State
from oneof.training.trials import Trial, cut, parts
from oneof.version import __version__

FORMAT = 2
KEPT = 2


@dataclass(frozen=True)
class Share:
    """What one of a crew's processes has of the tables. A checkpoint holds the whole, so any number of processes resumes it."""

    crew: Crew = Crew()  # noqa: RUF009 - frozen
    first: int = 0  # the rows that it owns begin here
    end: int = 0

    def gathered(self, tensors: dict[str, Tensor], sets: Table) -> dict[str, Tensor]:
        """What all processes have together, and that only the first goes on to write."""
        if self.crew.size == 1:
            return tensors
        whole = {}
        for name, own in tensors.items():
            moved = own + self.first if name == "pop.log.row" else own
            whole[name] = self._gathered(name, moved, sets) if _by_row(name) else own
        return whole

    def part(self, tensors: dict[str, Tensor], state: State, best: Best) -> dict[str, Tensor]:
        """Of a whole checkpoint, this process's part."""
        if self.crew.size == 1:
            return tensors
        own = {name: tensor for name, tensor in _fixed(state, best) if _by_row(name)}
        parts = {name: self._part(name, tensors[name], one, state.candidates) for name, one in own.items()}
        if "pop.log.row" in tensors:
            row = tensors["pop.log.row"]
            inside = (row >= self.first) & (row < self.end)
            log = {name: column for name, column in tensors.items() if name.startswith("pop.log.")}
            parts |= {name: column[inside] for name, column in log.items()}
            parts["pop.log.row"] = parts["pop.log.row"] - self.first
        return tensors | parts

    def _gathered(self, name: str, own: Tensor, sets: Table) -> Tensor:
        return self.crew.gathered(own, _sections(name, own, sets)) if own.dim() == 1 else self.crew.gathered_rows(own)

    def _part(self, name: str, whole: Tensor, own: Tensor, sets: Table) -> Tensor:
        return self.crew.part(_flat(whole), _sections(name, own, sets)).view_as(own)


def _by_row(name: str) -> bool:
    return name.startswith(("memory.", "candidates", "pop.seen", "pop.falls.", "pop.log.", f"best.kept.{SETS}"))


def _flat(table: Tensor) -> Tensor:
    """Dense tables are [t, m, ...]; those of cells, and columns of the log, have one axis."""
    return table if table.dim() == 1 else table.flatten(0, 1)


def _sections(name: str, own: Tensor, sets: Table) -> list[int]:
    """How many of the numbers, flat, belong to each trial."""
    if own.dim() > 1:
        return sections(own)
    if name.startswith("pop.log."):
        return [len(own)]  # entries say themselves which trial they belong to
    if name.endswith(".rest") and isinstance(sets, Packed):
        return [sets.cells.shape[1]] * sets.cells.shape[0]
    return sections(sets)


class Keeper:
    """Saves a run to a folder every so many seconds, and brings it back."""

    def __init__(self, folder: Path, setting: dict[str, Any], every: float, ours: Share = Share()) -> None:  # noqa: B008
        self.folder = folder
        self.ours = ours
        self.identity = {"format": FORMAT, "oneof": __version__, **setting}
        self.every = every
        self.saved_at = time.monotonic()
        folder.mkdir(parents=True, exist_ok=True)

    def restore(self, state: State, best: Best) -> list[Record]:
        """Put the newest whole checkpoint into the state; its history, empty if there is none."""
        for path in sorted(self.folder.glob("step-*.json"), reverse=True):
            found = _read(path)
            if found is None:
                continue
            facts, tensors = found
            difference = first_difference(facts["identity"], self.identity)
            if difference:
                raise ValueError(
                    f"{self.folder} holds a checkpoint of another run: {difference}. Give another folder, or delete this one."
                )
            return _unpack(facts, self.ours.part(tensors, state, best), state, best)
        return []

    def save(self, state: State, best: Best, history: list[Record], *, now: bool = False) -> None:
        """Save if it is time, or now."""
        if not self.ours.crew.agreed(now or time.monotonic() - self.saved_at >= self.every):
            return
        facts, tensors = _pack(state, best, history)
        tensors = self.ours.gathered(tensors, state.candidates)
        self.saved_at = time.monotonic()
        if self.ours.crew.rank == 0:
            self._write(state, facts, tensors)

    def _write(self, state: State, facts: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        content = save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
        facts |= {"identity": self.identity, "sha256": hashlib.sha256(content).hexdigest()}
        name = f"step-{state.epoch:06d}-{state.position:09d}"
        with written_beside(self.folder / f"{name}.safetensors") as file:
            file.write(content)
        with written_beside(self.folder / f"{name}.json") as file:
            file.write(json.dumps(facts).encode())
        self._forget_old()

    def _forget_old(self) -> None:
        for path in sorted(self.folder.glob("step-*.json"))[:-KEPT]:
            path.unlink()  # first: tensors without it are no checkpoint
        whole = {path.stem for path in self.folder.glob("step-*.json")}
        for path in self.folder.glob("step-*.safetensors"):
            if path.stem not in whole:
                path.unlink()


def cut_as_before(
    trials: Sequence[Trial], each: int, limit: int, checkpoint: str | Path | None, crew: Crew
) -> list[Sequence[Trial]]:
    """The trials cut into stacks; a resumed run is cut as it was, whatever memory is free now. A crew gets some for each process."""
    stacks = cut(trials, each, crew.agreed(limit) // crew.size)
    if 1 < crew.size <= len(trials):
        count = min(len(trials), -(-len(stacks) // crew.size) * crew.size)
        stacks = [trials[slice(*Crew(i, count).owned(len(trials)))] for i in range(count)]
    if checkpoint is None:
        return stacks
    note = Path(checkpoint) / "stacks.json"
    if note.exists():
        sizes = _sizes(note)
        if sum(sizes) != len(trials):
            raise ValueError(
                f"{checkpoint} holds a checkpoint of another run: it has {sum(sizes)} trials, now {len(trials)}. "
                "Give another folder, or delete this one."
            )
        ends = list(accumulate(sizes, initial=0))
        return [trials[a:b] for a, b in pairwise(ends)]
    note.parent.mkdir(parents=True, exist_ok=True)
    if crew.rank > 0:
        return stacks
    with written_beside(note) as file:
        file.write(json.dumps([len(some) for some in stacks]).encode())
    return stacks


def _sizes(note: Path) -> list[int]:
    try:
        return [int(size) for size in json.loads(note.read_text())]
    except (ValueError, TypeError) as error:
        raise ValueError(f"{note} must hold the sizes of the stacks; it is damaged. Delete its folder.") from error


def fingerprint(problem: Problem) -> str:
    """A checksum of the data: features, sets, votes, labels and rows."""
    digest = hashlib.sha256()
    sets = problem.candidates
    given = (sets.cells.labels, sets.cells.starts) if isinstance(sets, Packed) else (sets,)
    votes = problem.prior.values if isinstance(problem.prior, Packed) else problem.prior
    features = problem.x.blocks() if isinstance(problem.x, RowsOnDisk) else (problem.x,)
    for tensor in chain(features, given, (votes, problem.labels, problem.rows, problem.held_out, problem.test)):
        if tensor is not None:
            digest.update(str(tuple(tensor.shape)).encode())
            digest.update(tensor.cpu().contiguous().numpy().data)
    return digest.hexdigest()[:16]


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
    """A checkpoint by its JSON file; None if either file is missing, cut short or changed."""
    try:
        facts = json.loads(path.read_text())
        content = path.with_suffix(".safetensors").read_bytes()
    except (OSError, ValueError):
        return None
    if not isinstance(facts, dict) or hashlib.sha256(content).hexdigest() != facts.get("sha256"):
        return None
    return facts, load(content)


def _fixed(state: State, best: Best) -> Iterator[tuple[str, Tensor]]:
    """The tensors whose shape does not change during training: they are restored in place."""
    stack = state.stack
    yield from ((f"weight.{name}", tensor) for name, tensor in stack.weights.items())
    yield from ((f"buffer.{name}", tensor) for name, tensor in stack.buffers.items())
    for i, several in enumerate(state.optimizer):
        yield from ((f"optimizer.{i}.{j}", tensor) for j, tensor in enumerate(several))
    for i, table in enumerate(parts(state.memory)):
        yield from _stored(f"memory.{i}", table)
    yield from ((f"shared.{i}", tensor) for i, tensor in enumerate(parts(state.shared)))
    yield from _stored("candidates", state.candidates)
    yield from (("order", state.order), ("mixing", state.mixing), ("loss", state.loss))
    if state.pop is not None:
        yield from _stored("pop.seen", state.pop.seen)
        yield "pop.threshold", state.pop.threshold
        if isinstance(state.pop.log, Falls):
            yield from ((f"pop.falls.{name}", column) for name, column in state.pop.log._asdict().items())
    yield from (("best.score", best.score), ("best.epoch", best.epoch))
    yield from ((f"best.kept.{name}", tensor) for name, tensor in best.kept.items())


def _stored(name: str, table: Table) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a table; the cells of a packed one follow from the data."""
    if isinstance(table, Tensor):
        yield name, table
        return
    yield f"{name}.values", table.values
    if table.rest is not None:
        yield f"{name}.rest", table.rest


def _pack(state: State, best: Best, history: list[Record]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    tensors = dict(_fixed(state, best))
    tensors |= {f"generator.{i}": generator.get_state() for i, generator in enumerate(state.generators)}
    tensors["generator.global"] = global_draws(state.candidates.device)
    if state.pop is not None and isinstance(state.pop.log, Removals):
        tensors |= {f"pop.log.{name}": column for name, column in state.pop.log._asdict().items()}
    columns = list(history[0].columns) if history else []
    for name in columns:
        tensors[f"history.{name}"] = torch.stack([record.columns[name] for record in history])
    facts = {"epoch": state.epoch, "position": state.position, "round": state.pop.round if state.pop else 0}
    return facts | {"epochs_recorded": len(history), "columns": columns}, tensors


def _unpack(facts: dict[str, Any], tensors: dict[str, Tensor], state: State, best: Best) -> list[Record]:
    for name, tensor in _fixed(state, best):
        tensor.copy_(tensors[name])
    for i, generator in enumerate(state.generators):
        generator.set_state(tensors[f"generator.{i}"])
    set_global_draws(tensors["generator.global"], state.candidates.device)
    state.epoch, state.position = facts["epoch"], facts["position"]
    device = state.candidates.device
    if state.pop is not None:
        state.pop = state.pop._replace(round=facts["round"])
    if state.pop is not None and isinstance(state.pop.log, Removals):
        log = Removals(*(tensors[f"pop.log.{name}"].to(device) for name in Removals._fields))
        state.pop = state.pop._replace(log=log)
    columns = {name: tensors[f"history.{name}"].to(device) for name in facts["columns"]}
    return [
        Record.of(epoch + 1, {name: column[epoch] for name, column in columns.items()})
        for epoch in range(facts["epochs_recorded"])
    ]
