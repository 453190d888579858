"""What training changes, epoch by epoch, and what it leaves behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from oneof.data.augment.views import Plain, Views
from oneof.data.with_ranks import Ranks
from oneof.methods import METHODS
from oneof.methods.base import Method, first
from oneof.networks import MLP, GeneratorMLP, LeNet, Linear, Network, ResNet32, WideResNet
from oneof.networks.named import Timm
from oneof.purify import Removals
from oneof.storage.files import written_beside
from oneof.storage.settings import plain_value, restored
from oneof.training.checks import check_like_trained
from oneof.training.events import Purification, removals
from oneof.training.optimize import expand_trials
from oneof.training.stack import Stack
from oneof.training.training_data import TrainingData, as_features, block_size


@dataclass
class State:
    """What training changes; a checkpoint is exactly this."""

    epoch: int  # the one under way, counted from 0
    position: int  # where in its order the next batch begins
    order: Tensor  # [t, m] in which the rows are seen this epoch
    mixing: Tensor  # [t, steps] mixup's weights of this epoch
    stack: Stack
    optimizer: list[list[Tensor]]
    candidates: Tensor  # [t, m, c], the sets that are left
    memory: Any  # rows [t, m, ...] of the method: a tensor, a tuple of them, or ()
    shared: Any  # what the method keeps that belongs to no example: a tuple of tensors
    pop: Purification | None
    generators: list[torch.Generator]  # one per trial
    loss: Tensor  # [t] summed over the examples of this epoch


Record = dict[str, Tensor]
"""What one epoch showed, a number per trial [t] by name; of a fit's history, of every epoch [epochs, t].

loss and set_size; with POP threshold and removed, the labels that fell at the end of this epoch; of held-out rows oracle, the accuracy
if their true labels are given, and every one of oneof.metrics.CRITERIA; accuracy, if labels of test rows are given.
"""


@dataclass(frozen=True)
class Fit:
    """t trained trials: their networks at the chosen epoch, the sets they kept, and how they got there."""

    stack: Stack
    shift: Tensor | None  # [t, 1, ...] scaling of features
    scale: Tensor | None
    look: Views | None  # how images are seen
    shape: tuple[int, ...]  # of an example, as the networks see it
    rows: Tensor  # [t, m] the rows trained on
    candidates: Tensor  # [t, m, c] what is left of their sets
    removals: Removals | None  # up to the chosen epoch
    history: Record
    epoch: Tensor  # [t] the chosen one, counted from 1
    origin: NDArray[np.float64] | None = None  # subtracted from features before they are rounded to float32
    ranks: Ranks | None = None  # put beside the features before all else
    network: Network | None = None  # what the networks were built by
    method: Method = Method()  # noqa: RUF009 - frozen; that trained them, and may have added parts

    @torch.no_grad()
    def logits(self, x: Any) -> Tensor:
        """Logits [t, n, c] of features x [n, ...], in evaluation mode."""
        check_like_trained(x, self.shape if self.ranks is None else self.ranks.knots.shape[1:])
        values = x if self.ranks is None else self.ranks(np.asarray(x))
        values = values if self.origin is None else np.asarray(values, dtype=np.float64) - self.origin
        features = as_features(values, self.history["loss"].dtype, self.rows.device, self.look)
        with self.stack.eval_mode():
            blocks = features.split(block_size(features, self.stack.t))
            return torch.cat([first(self.stack(self._seen(part.to(self.rows.device)))) for part in blocks], dim=1)

    def probabilities(self, x: Any) -> Tensor:
        """Softmax of the logits, [t, n, c]."""
        return self.logits(x).softmax(-1)

    def save(self, path: str | Path) -> None:
        """Write everything to one file, safetensors with JSON in its header, which `oneof.load` reads."""
        tensors: dict[str, Any] = {n: getattr(self, n) for n in ("shift", "scale", "rows", "epoch", "candidates")}
        tensors["origin"] = None if self.origin is None else torch.from_numpy(self.origin)
        tensors["ranks"] = None if self.ranks is None else torch.from_numpy(self.ranks.knots)
        parts = {"weight": self.stack.tensors, "history": self.history}
        parts["removals"] = {} if self.removals is None else self.removals._asdict()
        parts["look"] = {} if self.look is None else {"scale": self.look.scale, "offset": self.look.offset}
        tensors |= {f"{kind}.{name}": one for kind, named in parts.items() for name, one in named.items()}
        plain = type(self.method).network is Method.network
        told = {"network": self.network, "method": None if plain else self.method, "shape": self.shape}
        facts = json.dumps(plain_value(told | {"epochs": len(self.history["loss"])}))
        there = {name: one.detach().cpu().contiguous().clone() for name, one in tensors.items() if one is not None}
        with written_beside(Path(path)) as file:
            file.write(save(there, {"fit": facts}))

    def _seen(self, part: Tensor) -> Tensor:
        if self.look is not None:
            return self.look.apply(part, (None,)).expand(self.stack.t, *part.shape)
        x = part.expand(self.stack.t, *part.shape)
        return x if self.shift is None or self.scale is None else (x - self.shift) * self.scale


class BestEpoch:
    """Keeps, per trial, the networks and sets of the best epoch so far; of equals the latest."""

    def __init__(self, state: State, choose: str) -> None:
        self.choose = choose
        self.score = torch.full_like(state.loss, -torch.inf)
        self.epoch = torch.zeros_like(state.loss, dtype=torch.int64)
        moved = (state.stack.weights | state.stack.buffers).items() if choose != "last" else ()
        self.kept = {name: tensor.clone() for name, tensor in moved}
        self.sets = torch.zeros_like(state.candidates) if choose != "last" else None

    def see(self, record: Record, state: State) -> None:
        if self.sets is None:
            return
        score = record[self.choose]
        better = (score >= self.score) | (self.epoch == 0)  # a first epoch counts even if it diverged
        self.score = torch.where(better, score, self.score)
        self.epoch = torch.where(better, state.epoch, self.epoch)
        for name, tensor in (state.stack.weights | state.stack.buffers).items():
            self.kept[name] = torch.where(expand_trials(better, tensor), tensor, self.kept[name])
        self.sets.copy_(torch.where(better.view(-1, 1, 1), state.candidates, self.sets))

    def fit(self, problem: TrainingData, state: State, history: list[Record]) -> Fit:
        if self.sets is None:
            self.epoch = torch.full_like(self.epoch, state.epoch)
        else:
            for name, tensor in (state.stack.weights | state.stack.buffers).items():
                tensor.copy_(self.kept[name])
            state.candidates.copy_(self.sets)
        sets = problem.group.gathered_rows(state.candidates)
        fell = None if state.pop is None else removals(state.pop, sets, problem.group)
        return Fit(
            stack=state.stack, shift=problem.shift, scale=problem.scale, look=problem.look,
            shape=tuple(problem.x.shape[1:]), rows=problem.all_rows, candidates=sets, removals=fell,
            history=_merged(history, torch.stack), epoch=self.epoch,
        )  # fmt: skip


def join(fits: list[Fit]) -> Fit:
    """Several fits of one setting, trained apart because together they would not fit in memory, as one."""
    if len(fits) == 1:
        return fits[0]
    one = fits[0]
    named = [name for name in ("shift", "scale", "rows", "candidates", "epoch") if getattr(one, name) is not None]
    whole: dict[str, Any] = {name: torch.cat([getattr(part, name) for part in fits]) for name in named}
    return replace(
        one,
        stack=Stack([module for part in fits for module in part.stack.modules()], one.stack.compile_batch),
        removals=None if one.removals is None else _joined_removals(fits),
        history=_merged([part.history for part in fits], partial(torch.cat, dim=1)),
        **whole,
    )


def _joined_removals(fits: list[Fit]) -> Removals:
    start, logs = 0, []
    for part in fits:
        if part.removals is not None:
            logs.append(part.removals._replace(trial=part.removals.trial + start))
        start += part.stack.t
    whole = Removals(*(torch.cat(column) for column in zip(*logs, strict=True)))
    order = whole.round.argsort(stable=True)  # as they fell, and as in one stack
    return Removals(*(column[order] for column in whole))


def _merged(records: list[Record], merge: Callable[[list[Tensor]], Tensor]) -> Record:
    """Several records as one, column by column."""
    return {name: merge([one[name] for one in records]) for name in records[0]}


KINDS = {one.__name__: one for one in (MLP, Linear, GeneratorMLP, LeNet, ResNet32, WideResNet, Timm, *METHODS.values())}


def load(path: str | Path, network: Network | None = None) -> Fit:
    """What `Fit.save` wrote, on the CPU. A network that is not oneof's own must be given again.

    Safetensors, and JSON in their header; no pickle, so a stranger's file runs no code.
    """
    try:
        with safe_open(path, "pt") as file:
            facts, tensors = json.loads(file.metadata()["fit"]), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        make = network or restored(facts["network"], KINDS)
        shape, c = tuple(facts["shape"]), tensors["candidates"].shape[2]
        method: Method = restored(facts["method"], KINDS) if facts["method"] else Method()
        own: dict[str, dict[str, Any]] = {kind: {} for kind in ("weight", "history", "removals", "look")}
        for name in tensors:
            kind, _, rest = name.partition(".")
            own.get(kind, {})[rest] = tensors[name]
        modules = [method.network(make(shape, c), c, shape) for _ in tensors["rows"]]
        for i, module in enumerate(modules):
            module.load_state_dict({name: weight[i] for name, weight in own["weight"].items()})
    except (OSError, SafetensorError, LookupError, TypeError, ValueError, RuntimeError) as error:
        why = f"({error})." if network else f"({error}). If its network was your own, say network=."
        raise ValueError(f"{path} must be a file that Fit.save wrote; it is not, or not whole {why}") from error
    look = Views(((Plain(), 1),), own["look"]["scale"], own["look"]["offset"], torch.float32) if own["look"] else None
    origin, ranks = (tensors[name].numpy() if name in tensors else None for name in ("origin", "ranks"))
    removals = Removals(**own["removals"]) if own["removals"] else None
    return Fit(
        Stack(modules), tensors.get("shift"), tensors.get("scale"), look, shape, tensors["rows"], tensors["candidates"],
        removals, own["history"], tensors["epoch"], origin, None if ranks is None else Ranks(ranks), make, method,
    )  # fmt: skip
