"""A fit read back from its file: safetensors, and JSON in their header; no pickle, so a stranger's file runs no code."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from oneof.data.augment.views import Plain, Views
from oneof.data.ranks import Ranks
from oneof.methods import METHODS, Method
from oneof.networks import MLP, GeneratorMLP, LeNet, Linear, Network, ResNet32, WideResNet
from oneof.networks.named import Timm
from oneof.purify import Removals
from oneof.storage.settings import restored
from oneof.training.dense import Dense
from oneof.training.stack import Stack
from oneof.training.state import Fit, Record

KINDS = {one.__name__: one for one in (MLP, Linear, GeneratorMLP, LeNet, ResNet32, WideResNet, Timm, *METHODS.values())}


def load(path: str | Path, network: Network | None = None) -> Fit:
    """What `Fit.save` wrote, on the CPU. A network that is not oneof's own must be given again."""
    try:
        with safe_open(path, "pt") as file:
            facts, tensors = json.loads(file.metadata()["fit"]), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        make = network or restored(facts["network"], KINDS)
        shape, c = tuple(facts["shape"]), tensors["candidates"].shape[2]
        method: Method = restored(facts["method"], KINDS) if facts["method"] else Method()
        own = {kind: _below(tensors, f"{kind}.") for kind in ("weight", "history", "removals", "look")}
        t = len(tensors["rows"])
        modules = [method.network(make(shape, c), c, shape) for _ in range(t)]
        for i, module in enumerate(modules):
            module.load_state_dict({name: weight[i] for name, weight in own["weight"].items()})
    except (OSError, SafetensorError, LookupError, TypeError, ValueError, RuntimeError) as error:
        why = "" if network else " If its network was your own, say network=."
        raise ValueError(
            f"{path} must be a file that Fit.save wrote; it is not, or not whole ({error}).{why}"
        ) from error
    look = Views(((Plain(), 1),), own["look"]["scale"], own["look"]["offset"], torch.float32) if own["look"] else None
    origin, ranks = (tensors[name].numpy() if name in tensors else None for name in ("origin", "ranks"))
    removals = Removals(**own["removals"]) if own["removals"] else None
    return Fit(
        Stack(modules), tensors.get("shift"), tensors.get("scale"), look, shape, tensors["rows"], Dense(tensors["candidates"]),
        removals, Record.of(facts["epochs"], own["history"]), tensors["epoch"], origin, None if ranks is None else Ranks(ranks), make, method,
    )  # fmt: skip


def _below(tensors: dict[str, Any], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): one for name, one in tensors.items() if name.startswith(prefix)}
