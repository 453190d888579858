"""Checkpoints: everything that training changes, as safetensors + JSON, so that a killed run loses nothing.

A checkpoint is two files, `step-N.safetensors` and `step-N.json`; it counts only when the second is there and the checksum in
it is that of the first. Both are written beside and renamed, the tensors first. The last two are kept: one that was damaged on
the disk is passed over for the one before.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from oneof.files import written_beside
from oneof.problem import Problem
from oneof.purify import Removals
from oneof.settings import first_difference
from oneof.state import Best, Record, State
from oneof.trials import parts
from oneof.version import __version__

FORMAT = 1
KEPT = 2


class Keeper:
    """Saves a run to a folder every so many seconds, and brings it back."""

    def __init__(self, folder: Path, setting: dict[str, Any], every: float) -> None:
        self.folder = folder
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
            return _unpack(facts, tensors, state, best)
        return []

    def save(self, state: State, best: Best, history: list[Record], *, now: bool = False) -> None:
        """Save if it is time, or now."""
        if not now and time.monotonic() - self.saved_at < self.every:
            return
        facts, tensors = _pack(state, best, history)
        content = save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
        facts |= {"identity": self.identity, "sha256": hashlib.sha256(content).hexdigest()}
        name = f"step-{state.epoch:06d}-{state.position:09d}"
        with written_beside(self.folder / f"{name}.safetensors") as file:
            file.write(content)
        with written_beside(self.folder / f"{name}.json") as file:
            file.write(json.dumps(facts).encode())
        self._forget_old()
        self.saved_at = time.monotonic()

    def _forget_old(self) -> None:
        for path in sorted(self.folder.glob("step-*.json"))[:-KEPT]:
            path.unlink()  # first: tensors without it are no checkpoint
        whole = {path.stem for path in self.folder.glob("step-*.json")}
        for path in self.folder.glob("step-*.safetensors"):
            if path.stem not in whole:
                path.unlink()


def fingerprint(problem: Problem) -> str:
    """A checksum of the data: features, sets, labels and rows."""
    digest = hashlib.sha256()
    for tensor in (problem.x, problem.candidates, problem.labels, problem.rows, problem.held_out, problem.test):
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
    yield from ((f"memory.{i}", tensor) for i, tensor in enumerate(parts(state.memory)))
    yield from ((f"shared.{i}", tensor) for i, tensor in enumerate(parts(state.shared)))
    yield from (
        ("candidates", state.candidates),
        ("order", state.order),
        ("mixing", state.mixing),
        ("loss", state.loss),
    )
    if state.pop is not None:
        yield from (("pop.seen", state.pop.seen), ("pop.threshold", state.pop.threshold))
    yield from (("best.score", best.score), ("best.epoch", best.epoch))
    yield from ((f"best.kept.{name}", tensor) for name, tensor in best.kept.items())


def _pack(state: State, best: Best, history: list[Record]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    tensors = dict(_fixed(state, best))
    tensors |= {f"generator.{i}": generator.get_state() for i, generator in enumerate(state.generators)}
    if state.pop is not None:
        tensors |= {f"pop.log.{name}": column for name, column in state.pop.log._asdict().items()}
    for name in Record._fields[1:]:
        if history and getattr(history[0], name) is not None:
            tensors[f"history.{name}"] = torch.stack([getattr(record, name) for record in history])
    facts = {"epoch": state.epoch, "position": state.position, "round": state.pop.round if state.pop else 0}
    return facts | {"epochs_recorded": len(history)}, tensors


def _unpack(facts: dict[str, Any], tensors: dict[str, Tensor], state: State, best: Best) -> list[Record]:
    for name, tensor in _fixed(state, best):
        tensor.copy_(tensors[name])
    for i, generator in enumerate(state.generators):
        generator.set_state(tensors[f"generator.{i}"])
    state.epoch, state.position = facts["epoch"], facts["position"]
    device = state.candidates.device
    if state.pop is not None:
        log = Removals(*(tensors[f"pop.log.{name}"].to(device) for name in Removals._fields))
        state.pop = state.pop._replace(round=facts["round"], log=log)
    columns = [tensors.get(f"history.{name}") for name in Record._fields[1:]]
    return [
        Record(epoch + 1, *(None if column is None else column[epoch].to(device) for column in columns))  # type: ignore[arg-type]
        for epoch in range(facts["epochs_recorded"])
    ]
