"""Save everything that training changes, as safetensors and JSON, so that a killed run loses nothing.

A checkpoint is two files, `step-N.safetensors` and `step-N.json`; it is valid only if the second is there and holds the checksum of
the first. Both are written to a temporary file and renamed, the tensors first. The last two are kept: if one was damaged on the
disk, the one before is taken.
"""

import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor

from oneof.data.on_disk import OnDiskFeatures
from oneof.methods.base import leaves
from oneof.storage.files import atomic_write
from oneof.storage.regular import read_regular
from oneof.storage.schema import find_schema_error
from oneof.storage.settings import first_difference
from oneof.storage.strict_json import parse_json
from oneof.training.device import global_generator
from oneof.training.processes import ProcessGroup
from oneof.training.state import BestEpoch, Record, State
from oneof.training.training_data import TrainingData
from oneof.training.trials import Trial
from oneof.version import __version__

FORMAT = 3
KEPT = 2
_METADATA = {
    "identity": dict,
    "sha256": str,
    "epoch": int,
    "position": int,
    "round": int,
    "epochs_recorded": int,
    "columns": [str],
}
_DUE, _NOW = 1, 2  # why a checkpoint is written: the interval has passed, or it was asked for


class Checkpointer:
    """Save a run at intervals and when it is interrupted, with the rows of all ranks: any number of them can resume it."""

    def __init__(
        self, folder: Path, settings: dict[str, Any], every: float, group: ProcessGroup = ProcessGroup()  # noqa: B008 - frozen
    ) -> None:  # fmt: skip
        self.folder = folder
        self.group = group
        self.identity = {"format": FORMAT, "oneof": __version__, **settings}
        self.every = every
        self.saved_at = time.monotonic()
        folder.mkdir(parents=True, exist_ok=True)

    def restore(self, state: State, best: BestEpoch) -> list[Record]:
        """Load the newest valid checkpoint into the state; return its history, empty if there is none."""
        for path in sorted(self.folder.glob("step-*.json"), reverse=True):
            try:
                metadata = json.loads(read_regular(path))
                tensors_path = path.with_suffix(".safetensors")
                with safe_open(tensors_path, "pt"):  # which compares the length of the file with what its header says
                    content = tensors_path.read_bytes()
            except (OSError, ValueError, RecursionError, SafetensorError):  # a file is missing, or cut short
                continue
            is_valid = find_schema_error(metadata, _METADATA) is None
            if is_valid and hashlib.sha256(content).hexdigest() == metadata["sha256"]:
                difference = first_difference(metadata["identity"], self.identity)
                if difference:
                    raise _other_run_error(self.folder, difference)
                try:
                    return _load_state(metadata, load(content), state, best, self.group)
                except torch.OutOfMemoryError:
                    raise
                except (LookupError, RuntimeError, TypeError, SafetensorError) as error:
                    raise ValueError(
                        f"{path} must be the checkpoint that was written; it was changed. Delete {self.folder}."
                    ) from error
        return []

    def save(self, state: State, best: BestEpoch, history: list[Record], *, now: bool = False) -> bool:
        """Save if the interval has passed, or now; return whether the first process asked for it now, which decides for all."""
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
        metadata, tensors = _collect_state(state, best, history, self.group)
        self.saved_at = time.monotonic()
        if self.group.rank > 0:
            return
        on_cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        content = save(on_cpu)
        metadata["identity"] = self.identity
        metadata["sha256"] = hashlib.sha256(content).hexdigest()
        name = f"step-{state.epoch:06d}-{state.position:09d}"
        with atomic_write(self.folder / f"{name}.safetensors") as file:
            file.write(content)
        with atomic_write(self.folder / f"{name}.json") as file:
            file.write(json.dumps(metadata).encode())
        self._remove_old()

    def _remove_old(self) -> None:
        """Remove all checkpoints but the last ones."""
        for path in sorted(self.folder.glob("step-*.json"))[:-KEPT]:
            path.unlink()  # first: tensors without it are no checkpoint
        for path in self.folder.glob("step-*.safetensors"):
            if not path.with_suffix(".json").exists():
                path.unlink()


def plan_stacks(
    trials: Sequence[Trial], trial_bytes: int, memory_limit: int, checkpoint: str | Path | None, group: ProcessGroup
) -> list[Sequence[Trial]]:
    """Divide trials into stacks of about equal size that fit in memory, where possible one or more for each process.

    A run that is resumed is divided as it was, however much memory is free now.

    >>> [len(stack) for stack in plan_stacks([Trial()] * 7, 10, 35, None, ProcessGroup())]
    [3, 3, 1]
    """
    n_trials = len(trials)
    max_size = max(1, group.broadcast_int(memory_limit) // group.size // max(1, trial_bytes))
    n_stacks = -(-n_trials // max_size)
    size = -(-n_trials // n_stacks)
    stacks = [trials[start : start + size] for start in range(0, n_trials, size)]
    if 1 < group.size <= n_trials:
        stacks_per_process = -(-len(stacks) // group.size)
        n_stacks = min(n_trials, stacks_per_process * group.size)
        stacks = []
        for number in range(n_stacks):
            start, end = ProcessGroup(number, n_stacks).local_range(n_trials)
            stacks.append(trials[start:end])
    if checkpoint is None:
        return stacks
    path = Path(checkpoint) / "stacks.json"
    if path.exists():
        return _planned_before(path, trials)
    path.parent.mkdir(parents=True, exist_ok=True)
    if group.rank == 0:
        sizes = [len(stack) for stack in stacks]
        with atomic_write(path) as file:
            file.write(json.dumps(sizes).encode())
    return stacks


def _planned_before(path: Path, trials: Sequence[Trial]) -> list[Sequence[Trial]]:
    """Return the stacks whose sizes a file holds."""
    try:
        sizes = parse_json(read_regular(path))
        misfit = find_schema_error(sizes, [int])
    except ValueError as error:
        misfit = str(error)
    if misfit is not None or min(sizes, default=0) < 1:
        raise ValueError(f"{path} must hold the sizes of the stacks; it is damaged ({misfit}). Delete its folder.")
    if sum(sizes) != len(trials):
        raise _other_run_error(path.parent, f"it has {sum(sizes)} trials, now {len(trials)}")
    ends = accumulate(sizes, initial=0)
    return [trials[start:end] for start, end in pairwise(ends)]


def _other_run_error(folder: str | Path, difference: str) -> ValueError:
    return ValueError(
        f"{folder} holds a checkpoint of another run: {difference}. Give another folder, or delete this one."
    )


def fingerprint(data: TrainingData) -> str:
    """Return a checksum of the data: features, sets, votes, labels and rows."""
    digest = hashlib.sha256()
    tables = (data.x, data.candidates, data.prior, data.labels, data.rows, data.held_out, data.test)
    for table in tables:
        if table is None:
            continue
        digest.update(str(tuple(table.shape)).encode())
        blocks: Iterable[Tensor]
        if isinstance(table, OnDiskFeatures):
            blocks = table.blocks()
        else:
            blocks = [table]
        for block in blocks:
            digest.update(block.cpu().contiguous().numpy().data)
    return digest.hexdigest()[:16]


class CheckpointTensor(NamedTuple):
    """A tensor that training changes, as a checkpoint stores it."""

    name: str
    tensor: Tensor
    sections: list[int] | None = None  # of the rows of a rank: how many belong to each trial; None: it has no rows
    of_rank: bool = False  # does every rank have its own?
    of_epoch: bool = False  # is it drawn or begun anew in every epoch?


def _row_table(name: str, table: Tensor) -> CheckpointTensor:
    """Return rows [t, m, ...] of this process as a checkpoint stores them, the trials one after the other."""
    t, m = table.shape[:2]
    return CheckpointTensor(name, table.flatten(0, 1), [m] * t)


def _checkpoint_tensors(state: State, best: BestEpoch) -> Iterator[CheckpointTensor]:
    """Yield the tensors that training changes and that keep their shape: they are restored in place."""
    for name, tensor in state.stack.weights.items():
        yield CheckpointTensor(f"weight.{name}", tensor)
    for name, tensor in state.stack.buffers.items():
        yield CheckpointTensor(f"buffer.{name}", tensor, of_rank=True)
    if state.average is not None:
        for name, tensor in state.average.weights.items():
            yield CheckpointTensor(f"average.weight.{name}", tensor)
        for name, tensor in state.average.buffers.items():
            yield CheckpointTensor(f"average.buffer.{name}", tensor, of_rank=True)
    for name, tensor in best.kept.items():
        yield CheckpointTensor(f"best.kept.{name}", tensor)
    for i, moments in enumerate(state.optimizer):
        for j, tensor in enumerate(moments):
            yield CheckpointTensor(f"optimizer.{i}.{j}", tensor)
    for i, table in enumerate(leaves(state.memory)):
        yield _row_table(f"memory.{i}", table)
    for i, tensor in enumerate(state.shared):
        yield CheckpointTensor(f"shared.{i}", tensor, of_rank=True)
    yield _row_table("candidates", state.candidates)
    yield CheckpointTensor("order", state.order, of_rank=True, of_epoch=True)
    yield CheckpointTensor("mixing", state.mixing, of_rank=True, of_epoch=True)
    yield CheckpointTensor("loss", state.loss, of_rank=True, of_epoch=True)
    if state.pop is not None:
        yield CheckpointTensor("pop.threshold", state.pop.threshold)
        yield _row_table("pop.seen", state.pop.posterior_sum)
        yield _row_table("pop.fell", state.pop.removal_round)
        yield _row_table("pop.margin", state.pop.margin)
    yield CheckpointTensor("best.score", best.score)
    yield CheckpointTensor("best.epoch", best.epoch)
    if best.sets is not None:
        yield _row_table("best.sets", best.sets)


def _name_of_rank(name: str, rank: int) -> str:
    """Return what a checkpoint calls a tensor that every rank has; that of the first has its plain name."""
    if rank == 0:
        return name
    return f"rank.{rank}.{name}"


def _generators(state: State) -> dict[str, torch.Generator]:
    generators = {}
    for i, generator in enumerate(state.generators):
        generators[f"generator.{i}"] = generator
    generators["generator.global"] = global_generator(state.loss.device)
    return generators


def _collect_state(
    state: State, best: BestEpoch, history: list[Record], group: ProcessGroup
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return metadata and tensors of a checkpoint, with the rows of all ranks and what each has for itself."""
    tensors = {}
    of_this_rank = {name: generator.get_state() for name, generator in _generators(state).items()}
    for name, tensor, sections, of_rank, _ in _checkpoint_tensors(state, best):
        if of_rank:
            of_this_rank[name] = tensor.detach().cpu()
        elif sections is None:
            tensors[name] = tensor
        else:
            tensors[name] = group.gathered(tensor, sections)
    for rank, of_one_rank in enumerate(group.gathered_objects(of_this_rank)):
        for name, tensor in of_one_rank.items():
            tensors[_name_of_rank(name, rank)] = tensor
    columns = []
    if history:
        columns = list(history[0])
    for name in columns:
        tensors[f"history.{name}"] = torch.stack([record[name] for record in history])
    n_rounds = 0
    if state.pop is not None:
        n_rounds = state.pop.round
    metadata = {
        "epoch": state.epoch,
        "position": state.position,
        "round": n_rounds,
        "epochs_recorded": len(history),
        "ranks": group.size,
        "columns": columns,
    }
    return metadata, tensors


def _load_state(
    metadata: dict[str, Any], tensors: dict[str, Tensor], state: State, best: BestEpoch, group: ProcessGroup
) -> list[Record]:
    """Load a checkpoint into the state, of which this rank takes its rows; return the history.

    Another number of ranks than wrote it begins the epoch anew: whose turn the remaining rows are was drawn for other shares.
    """
    as_written = metadata.get("ranks", 1) == group.size
    for name, tensor, sections, of_rank, of_epoch in _checkpoint_tensors(state, best):
        if sections is not None:
            tensor.copy_(group.local_part(tensors[name], sections))
        elif as_written and of_rank:
            tensor.copy_(tensors[_name_of_rank(name, group.rank)])
        elif as_written or not of_epoch:
            tensor.copy_(tensors[name])
    for name, generator in _generators(state).items():
        if as_written or group.rank == 0:
            generator.set_state(tensors[_name_of_rank(name, group.rank)])
        else:
            generator.manual_seed(group.seed(generator.initial_seed(), metadata["epoch"]))
    state.epoch = metadata["epoch"]
    state.position = 0
    if as_written:
        state.position = metadata["position"]
    if state.pop is not None:
        state.pop = state.pop._replace(round=metadata["round"])
    columns = {name: tensors[f"history.{name}"].to(state.loss.device) for name in metadata["columns"]}
    history = []
    for epoch in range(metadata["epochs_recorded"]):
        history.append({name: column[epoch] for name, column in columns.items()})
    return history
