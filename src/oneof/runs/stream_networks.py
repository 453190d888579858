"""Train the networks of an ensemble further on all rows of many files, which are read once, a batch at a time.

Each row's target is what the whole ensemble, as it was fitted on the sample, predicts within the row's set. The networks that come out replace the old
ones only if their ensemble covers more sets of rows that neither learned from.
"""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor

from oneof.data.dataset import BoolArray
from oneof.data.files.batches import read_batches
from oneof.data.files.columns import read_numbers
from oneof.data.roles import ColumnRoles
from oneof.data.table import read_columns
from oneof.ensemble.model import Model
from oneof.learners.network_models import TableNetworks
from oneof.runs.file_sets import known_sets, supervision_columns
from oneof.runs.predictor import batch_size
from oneof.storage.files import atomic_write
from oneof.storage.progress import progress_bar

HELD_OUT_EVERY = 50  # of the rows, one is held out to compare the networks by
MAX_HELD_OUT = 20_000
RATE = 0.01  # at first; it falls to zero over all rows
MOMENTUM = 0.9
BATCH = 512


class RowChunk(NamedTuple):
    """Features and sets of some rows of a file."""

    features: NDArray[Any]  # [n, d]
    sets: BoolArray  # [n, c] within the classes of the model
    is_held_out: BoolArray  # [n]


@dataclass(frozen=True)
class NetworkStream:
    """Files to learn from, and where the state is kept between two of them."""

    files: Sequence[Path]
    roles: ColumnRoles
    checkpoint: Path  # a .safetensors file
    show: bool = False

    def __call__(self, model: Model) -> tuple[Model, str]:
        """Return the model with the better networks, and a line that says which these are."""
        members = [member for member in model.members if isinstance(member, TableNetworks)]
        if not members or len(members) < len(model.members):
            return model, "no network counts in the ensemble, so none goes on learning from the other rows."
        streamed = replace(model, members=tuple(_Trainer(self, model, members).train()))
        before, after = self._covered(model, streamed)
        gain = after.astype(np.float64) - before
        line = f"{100 * gain.mean():+.2f} points of {len(gain):,} sets that were held out contain the prediction"
        if gain.mean() > gain.std() / np.sqrt(len(gain)):
            return streamed, f"networks went on learning from all rows: {line}."
        return model, f"networks that went on learning from all rows are left out: {line}."

    def rows(self, model: Model, file: Path) -> Iterator[RowChunk]:
        """Yield the rows of a file in batches, without those whose set is empty or full."""
        encoding = model.encoding
        names = supervision_columns(self.roles)
        numbers = encoding.roles.read_as_numbers
        others = [*encoding.roles.read_as_cells, *names]
        for batch in read_batches(file, numbers, others, batch_size(model)):
            columns = read_columns(batch, encoding.roles)
            _, cells = read_numbers(batch, [], names)
            where = f"{batch.name}, rows from {batch.first_row:,} on"
            sets = known_sets(where, cells, self.roles, len(columns), model.classes)
            is_informative = sets.any(1) & ~sets.all(1)
            is_held_out = (batch.first_row + np.arange(len(columns))) % HELD_OUT_EVERY == 0
            features = encoding.transform(columns)
            yield RowChunk(features[is_informative], sets[is_informative], is_held_out[is_informative])

    def _covered(self, before: Model, after: Model) -> tuple[BoolArray, BoolArray]:
        """Return for held-out rows whether the prediction of each model lies in the set, [m] each."""
        covered_before = []
        covered_after = []
        n_left = MAX_HELD_OUT
        for file in self.files:
            for rows in self.rows(before, file):
                features = rows.features[rows.is_held_out][:n_left]
                sets = rows.sets[rows.is_held_out][:n_left]
                positions = np.arange(len(sets))
                covered_before.append(sets[positions, before.probabilities(features).argmax(1)])
                covered_after.append(sets[positions, after.probabilities(features).argmax(1)])
                n_left -= len(sets)
            if n_left <= 0:
                break
        return np.concatenate(covered_before), np.concatenate(covered_after)


class _Trainer:
    """Train copies of networks by SGD, file after file."""

    def __init__(self, stream: NetworkStream, model: Model, members: Sequence[TableNetworks]) -> None:
        self.stream = stream
        self.model = model
        self.members = [member._replace(stack=copy.deepcopy(member.stack)) for member in members]
        self.velocity: dict[str, Tensor] = {}
        for name, weight in self._weights().items():
            self.velocity[name] = torch.zeros_like(weight)
        self.n_rows = [pq.read_metadata(file).num_rows for file in stream.files]

    def train(self) -> list[TableNetworks]:
        """Return the networks after one pass over all files, or over those that were not read before a stop."""
        first = self._load()
        total = sum(self.n_rows)
        done = sum(self.n_rows[:first])
        with progress_bar("networks", total, self.stream.show, done=done, unit="rows") as step:
            for number in range(first, len(self.stream.files)):
                order = np.random.default_rng(number)  # seeded by the file, so that a resumed run draws the same
                for rows in self.stream.rows(self.model, self.stream.files[number]):
                    self._learn(rows, order, 1 - done / total)
                done += self.n_rows[number]
                step(steps=self.n_rows[number])
                self._save(number + 1)
        return self.members

    def _learn(self, rows: RowChunk, order: np.random.Generator, rate_share: float) -> None:
        """Take a step for every BATCH rows that are not held out."""
        train = order.permutation(np.flatnonzero(~rows.is_held_out))
        features = rows.features[train]
        inside = np.where(rows.sets[train], self.model.probabilities(features) + np.float32(1e-12), np.float32(0))
        targets = torch.as_tensor(inside / inside.sum(1, keepdims=True))
        for start in range(0, len(features), BATCH):
            part = slice(start, start + BATCH)
            for k, member in enumerate(self.members):
                logits = member.stack(member.scaled(features[part]))  # [t, b, c]
                loss = -(targets[part] * logits.log_softmax(-1)).sum(-1).mean(-1).sum()
                self._step(k, member.stack.gradients(loss), RATE * rate_share)

    @torch.no_grad()
    def _step(self, k: int, gradients: Sequence[Tensor], rate: float) -> None:
        for (name, weight), gradient in zip(self.members[k].stack.weights.items(), gradients, strict=True):
            velocity = self.velocity[f"{k}.{name}"]
            velocity.mul_(MOMENTUM).add_(gradient)
            weight.sub_(rate * velocity)

    def _weights(self) -> dict[str, Tensor]:
        weights = {}
        for k, member in enumerate(self.members):
            for name, weight in member.stack.weights.items():
                weights[f"{k}.{name}"] = weight
        return weights

    def _save(self, n_done: int) -> None:
        """Store weights and velocities after so many files."""
        tensors = {"files": torch.tensor(n_done)}
        for name, weight in self._weights().items():
            tensors[f"weight.{name}"] = weight.contiguous()
            tensors[f"velocity.{name}"] = self.velocity[name].contiguous()
        self.stream.checkpoint.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(self.stream.checkpoint) as file:
            save_file(tensors, file.name)

    @torch.no_grad()
    def _load(self) -> int:
        """Load stored weights and velocities, if there are any, and return the number of the next file."""
        if not self.stream.checkpoint.exists():
            return 0
        tensors = load_file(self.stream.checkpoint)
        for name, weight in self._weights().items():
            weight.copy_(tensors[f"weight.{name}"])
            self.velocity[name].copy_(tensors[f"velocity.{name}"])
        return int(tensors["files"])
