"""The state of a training run, epoch by epoch, and the fit that it ends with."""

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
from torch import Tensor, nn

from oneof.data.augment.views import Plain, Views
from oneof.data.with_ranks import QuantileNormalizer
from oneof.methods import METHODS
from oneof.methods.base import Method, first_output
from oneof.networks import MLP, GeneratorMLP, LeNet, Linear, Network, ResNet32, WideResNet
from oneof.networks.named import Timm
from oneof.purify import Removals
from oneof.storage.files import atomic_write
from oneof.storage.printable import shortened
from oneof.storage.regular import check_regular
from oneof.storage.settings import from_serializable, to_serializable
from oneof.training.checks import check_like_trained
from oneof.training.events import Purification, removals
from oneof.training.optimize import expand_trials
from oneof.training.stack import Stack
from oneof.training.training_data import TrainingData, as_features, block_size


@dataclass
class State:
    """Hold everything that training changes; a checkpoint stores exactly this."""

    epoch: int  # the current one, counted from 0
    position: int  # where in its order the next batch begins
    order: Tensor  # [t, m] order of the rows in this epoch
    mixing: Tensor  # [t, steps] mixup's weights in this epoch
    stack: Stack
    optimizer: list[list[Tensor]]
    candidates: Tensor  # [t, m, c] remaining sets
    memory: Any  # rows [t, m, ...] of the method: a tensor, a tuple of them, or ()
    shared: Any  # tensors that the method keeps for no example in particular: a tuple
    pop: Purification | None
    generators: list[torch.Generator]  # one per trial
    loss: Tensor  # [t] summed over the examples of this epoch
    average: Stack | None = None  # of the networks, see `oneof.training.average`; None where training has none

    @property
    def predictor(self) -> Stack:
        """Return the networks that are evaluated and kept: the average where there is one."""
        if self.average is None:
            return self.stack
        return self.average


Record = dict[str, Tensor]
"""Measurements of one epoch by name, a number per trial [t]; in a fit's history those of every epoch [epochs, t].

`loss` and `set_size`; with POP `threshold` and `removed`, the number of labels removed at the end of this epoch; on held-out rows
every one of `oneof.metrics.CRITERIA` and, where true labels are given, the accuracy `oracle`; `accuracy` on labelled test rows.
"""


@dataclass(frozen=True)
class Fit:
    """Hold t trained trials: networks and candidate sets at the chosen epoch, removals and history."""

    stack: Stack
    shift: Tensor | None  # [t, 1, ...] scaling of features
    scale: Tensor | None
    eval_transform: Views | None  # how images are normalised; None for tables
    shape: tuple[int, ...]  # of an example, as the networks see it
    rows: Tensor  # [t, m] training rows
    candidates: Tensor  # [t, m, c] their remaining sets
    removals: Removals | None  # up to the chosen epoch
    history: Record
    epoch: Tensor  # [t] the chosen one, counted from 1
    origin: NDArray[np.float64] | None = None  # subtracted from features before they are rounded to float32
    ranks: QuantileNormalizer | None = None  # applied before everything else: appends ranks to the features
    network: Network | None = None  # builder of the networks
    method: Method = Method()  # noqa: RUF009 - frozen; it may have added parts to the networks

    @torch.no_grad()
    def logits(self, x: Any) -> Tensor:
        """Return logits [t, n, c] of features x [n, ...], in evaluation mode."""
        if self.ranks is None:
            check_like_trained(x, self.shape)
            values = x
        else:
            check_like_trained(x, self.ranks.quantiles.shape[1:])
            values = self.ranks(np.asarray(x))
        if self.origin is not None:
            values = np.asarray(values, dtype=np.float64) - self.origin
        device = self.rows.device
        features = as_features(values, self.history["loss"].dtype, device, self.eval_transform)
        blocks = []
        with self.stack.eval_mode():
            for block in features.split(block_size(features, self.stack.t, device)):
                inputs = self._transform(block.to(device))
                blocks.append(first_output(self.stack(inputs)))
        return torch.cat(blocks, dim=1)

    def probabilities(self, x: Any) -> Tensor:
        """Return the softmax of the logits, [t, n, c]."""
        return self.logits(x).softmax(-1)

    def save(self, path: str | Path) -> None:
        """Write everything to one file, safetensors with JSON in its header, which `oneof.load` reads."""
        tensors: dict[str, Tensor | None] = {}
        for name in ("shift", "scale", "rows", "epoch", "candidates"):
            tensors[name] = getattr(self, name)
        if self.origin is not None:
            tensors["origin"] = torch.from_numpy(self.origin)
        if self.ranks is not None:
            tensors["ranks"] = torch.from_numpy(self.ranks.quantiles)
        for name, tensor in self.stack.tensors.items():
            tensors[f"weight.{name}"] = tensor
        for name, tensor in self.history.items():
            tensors[f"history.{name}"] = tensor
        if self.removals is not None:
            for name, tensor in self.removals._asdict().items():
                tensors[f"removals.{name}"] = tensor
        if self.eval_transform is not None:
            tensors["look.scale"] = self.eval_transform.scale
            tensors["look.offset"] = self.eval_transform.offset
        stored_method = None
        if type(self.method).network is not Method.network:  # the method added parts to the networks
            stored_method = self.method
        metadata = {
            "network": self.network,
            "method": stored_method,
            "shape": self.shape,
            "epochs": len(self.history["loss"]),
        }
        stored = {}
        for name, value in tensors.items():
            if value is not None:
                stored[name] = value.detach().cpu().contiguous().clone()
        with atomic_write(Path(path)) as file:
            file.write(save(stored, {"fit": json.dumps(to_serializable(metadata))}))

    def _transform(self, x: Tensor) -> Tensor:
        """Return what the networks see [t, b, ...] of features or images x [b, ...]."""
        shape = (self.stack.t, *x.shape)
        if self.eval_transform is not None:
            return self.eval_transform.apply(x, (None,)).expand(shape)
        if self.shift is None or self.scale is None:
            return x.expand(shape)
        return (x.expand(shape) - self.shift) * self.scale


class BestEpoch:
    """Keep, per trial, the networks and sets of the best epoch so far; among equals those of the latest."""

    def __init__(self, state: State, choose: str) -> None:
        self.choose = choose
        self.score = torch.full_like(state.loss, -torch.inf)
        self.epoch = torch.zeros_like(state.loss, dtype=torch.int64)
        self.kept: dict[str, Tensor] = {}  # weights and buffers
        self.sets: Tensor | None = None
        if choose != "last":
            for name, tensor in _weights_and_buffers(state).items():
                self.kept[name] = tensor.clone()
            self.sets = torch.zeros_like(state.candidates)

    def update(self, record: Record, state: State) -> None:
        """Keep the networks and sets of those trials whose latest epoch is the best."""
        if self.sets is None:
            return
        score = record[self.choose]
        is_better = (score >= self.score) | (self.epoch == 0)  # a first epoch counts even if it diverged
        self.score = torch.where(is_better, score, self.score)
        self.epoch = torch.where(is_better, state.epoch, self.epoch)
        for name, tensor in _weights_and_buffers(state).items():
            self.kept[name] = torch.where(expand_trials(is_better, tensor), tensor, self.kept[name])
        self.sets.copy_(torch.where(expand_trials(is_better, self.sets), state.candidates, self.sets))

    def fit(self, data: TrainingData, state: State, history: list[Record]) -> Fit:
        """Return the fit at the chosen epochs; the state is set back to them."""
        if self.sets is None:
            self.epoch = torch.full_like(self.epoch, state.epoch)
        else:
            for name, tensor in _weights_and_buffers(state).items():
                tensor.copy_(self.kept[name])
            state.candidates.copy_(self.sets)
        candidates = data.group.gathered_rows(state.candidates)
        removed = None
        if state.pop is not None:
            removed = removals(state.pop, candidates, data.group)
        return Fit(
            stack=state.predictor,
            shift=data.shift,
            scale=data.scale,
            eval_transform=data.eval_transform,
            shape=tuple(data.x.shape[1:]),
            rows=data.all_rows,
            candidates=candidates,
            removals=removed,
            history=_merge(history, torch.stack),
            epoch=self.epoch,
        )


def _weights_and_buffers(state: State) -> dict[str, Tensor]:
    return state.predictor.weights | state.predictor.buffers


def join_fits(fits: list[Fit]) -> Fit:
    """Join fits of one setting, trained separately because together they would not fit in memory."""
    first_fit = fits[0]
    if len(fits) == 1:
        return first_fit
    columns: dict[str, Any] = {}
    for name in ("shift", "scale", "rows", "candidates", "epoch"):
        if getattr(first_fit, name) is not None:
            columns[name] = torch.cat([getattr(fit, name) for fit in fits])
    if first_fit.removals is not None:
        columns["removals"] = _join_removals(fits)
    modules = []
    histories = []
    for fit in fits:
        modules += fit.stack.modules()
        histories.append(fit.history)
    return replace(
        first_fit,
        stack=Stack(modules, first_fit.stack.compile_batch),
        history=_merge(histories, partial(torch.cat, dim=1)),
        **columns,
    )


def _join_removals(fits: list[Fit]) -> Removals:
    """Return the removals of all fits in the order of their rounds, as one stack would have them."""
    n_trials = 0
    logs = []
    for fit in fits:
        if fit.removals is not None:
            logs.append(fit.removals._replace(trial=fit.removals.trial + n_trials))
        n_trials += fit.stack.t
    columns = {}
    for name in Removals._fields:
        columns[name] = torch.cat([getattr(log, name) for log in logs])
    order = columns["round"].argsort(stable=True)
    return Removals(**{name: column[order] for name, column in columns.items()})


def _merge(records: list[Record], merge: Callable[[list[Tensor]], Tensor]) -> Record:
    """Merge records, column by column."""
    merged = {}
    for name in records[0]:
        merged[name] = merge([record[name] for record in records])
    return merged


_NETWORKS = (MLP, Linear, GeneratorMLP, LeNet, ResNet32, WideResNet, Timm)
KINDS = {kind.__name__: kind for kind in (*_NETWORKS, *METHODS.values())}
"""Networks and methods that a file may name."""


def load(path: str | Path, network: Network | None = None) -> Fit:
    """Read what `Fit.save` wrote, on the CPU.

    Safetensors, and JSON in their header; no pickle, so a stranger's file runs no code.

    Parameters
    ----------
    path
        The file.
    network
        The network, if it is not one of oneof's.
    """
    check_regular(path)
    try:
        with safe_open(path, "pt") as file:
            metadata = json.loads(file.metadata()["fit"])
            tensors = {}
            for name in file.keys():  # noqa: SIM118 - the file is not a dict
                tensors[name] = file.get_tensor(name)
        return _restore_fit(metadata, tensors, network)
    except (OSError, SafetensorError, LookupError, AttributeError, TypeError, ValueError, RuntimeError) as error:
        message = f"{path} must be a file that Fit.save wrote; it is not, or not whole ({error})."
        if network is None:
            message += " If its network was your own, give network=."
        raise ValueError(message) from error


def _restore_fit(metadata: dict[str, Any], tensors: dict[str, Tensor], network: Network | None) -> Fit:
    """Return the fit that `Fit.save` stored; raise an error if the parts do not belong together."""
    _check_claims(metadata, tensors)
    make = network or from_serializable(metadata["network"], KINDS)
    method = Method()
    if metadata["method"]:
        method = from_serializable(metadata["method"], KINDS)
    shape = tuple(metadata["shape"])
    n_classes = tensors["candidates"].shape[2]

    def make_module() -> nn.Module:
        return method.network(make(shape, n_classes), n_classes, shape)

    is_described = network is None and not isinstance(make, Timm)  # timm's have sizes of their own
    stack = _restore_stack(make_module, tensors, is_described)
    normalisation = _with_prefix(tensors, "look.")
    eval_transform = None
    if normalisation:
        eval_transform = Views(((Plain(), 1),), normalisation["scale"], normalisation["offset"], torch.float32)
    removal_columns = _with_prefix(tensors, "removals.")
    removed = None
    if removal_columns:
        removed = Removals(**removal_columns)
    origin = None
    if "origin" in tensors:
        origin = tensors["origin"].numpy()
    ranks = None
    if "ranks" in tensors:
        ranks = QuantileNormalizer(tensors["ranks"].numpy())
    return Fit(
        stack=stack,
        shift=tensors.get("shift"),
        scale=tensors.get("scale"),
        eval_transform=eval_transform,
        shape=shape,
        rows=tensors["rows"],
        candidates=tensors["candidates"],
        removals=removed,
        history=_with_prefix(tensors, "history."),
        epoch=tensors["epoch"],
        origin=origin,
        ranks=ranks,
        network=make,
        method=method,
    )


def _restore_stack(make_module: Callable[[], nn.Module], tensors: dict[str, Tensor], is_described: bool) -> Stack:
    """Return the networks with their stored weights, after a check of their sizes if a file describes the network."""
    weights = _with_prefix(tensors, "weight.")
    if is_described:
        with torch.device("meta"):  # which has shapes and no memory
            described = make_module()
        _check_shapes(described, weights)
    modules = []
    for trial in range(len(tensors["rows"])):
        module = make_module()
        module.load_state_dict({name: weight[trial] for name, weight in weights.items()})
        modules.append(module)
    return Stack(modules)


def _check_claims(metadata: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Raise ValueError if a description has more layers, or larger examples, than the tensors that belong to it can have."""
    network = metadata["network"]
    if isinstance(network, dict):  # a function is stored by its name
        n_layers = max(len(network.get("hidden", ())), network.get("depth", 0))
        if n_layers > len(tensors):
            raise ValueError(f"its network claims {n_layers:,} layers, more than it has tensors")
    n_stored = sum(tensor.numel() for tensor in tensors.values())
    if max(metadata["shape"]) > n_stored:
        raise ValueError(f"its examples claim the shape {shortened(str(metadata['shape']))}")


def _check_shapes(described: nn.Module, weights: dict[str, Tensor]) -> None:
    """Raise ValueError if the weights of trials [t, ...] are not those of the network that is described."""
    expected = {name: tuple(weight.shape) for name, weight in described.state_dict().items()}
    stored = {name: tuple(weight.shape[1:]) for name, weight in weights.items()}
    if stored != expected:
        raise ValueError("its weights are not those of the network that it describes")


def _with_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names begin with a prefix, without it."""
    matching = {}
    for name, tensor in tensors.items():
        if name.startswith(prefix):
            matching[name.removeprefix(prefix)] = tensor
    return matching
