"""Many trials as one: t networks as one module, and tables [t, n, ...] whose rows go in and out.

A trial in a stack equals the same trial alone; `tests/test_engine.py` holds that.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from oneof.purify import Purify


@dataclass(frozen=True, eq=False)
class Trial:
    """One training run: its randomness, its rows of the data, its rates.

    Rows are indices into the x and candidates given to `fit`.
    """

    seed: int = 0
    rows: NDArray[np.intp] | None = None  # to train on; None: all
    held_out: NDArray[np.intp] | None = None  # their *sets* choose the epoch
    test: NDArray[np.intp] | None = None  # their labels, if given, are reported and choose nothing
    lr: float = 0.05
    weight_decay: float = 1e-3
    scaling: str = "none"  # a key of oneof.data.scaling.SCALINGS, fitted on `rows`
    purify: Purify | None = None  # this trial's own numbers, in place of fit's


class Stack:
    """t networks of one architecture as one; weights and buffers have a leading axis t.

    For t = 1 the module itself is called, without vmap, and `weights` are views of its parameters.
    """

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        self.t = len(modules)
        if self.t == 1:
            self.module = modules[0]
            self.parameters = dict(self.module.named_parameters())
            self.weights = {name: p.detach()[None] for name, p in self.parameters.items()}
            self.buffers = {name: b[None] for name, b in self.module.named_buffers()}
        else:
            self.parameters, self.buffers = stack_module_state(list(modules))
            self.weights = {name: p.detach() for name, p in self.parameters.items()}
            self.module = copy.deepcopy(modules[0]).to("meta")

    def __call__(self, x: Tensor) -> Tensor:
        """Logits [t, b, c] of x [t, b, ...]."""
        if self.t == 1:
            return self.module(x[0])[None]  # type: ignore[no-any-return]
        return vmap(self._call_one, randomness="different")(self.parameters, self.buffers, x)

    def _call_one(self, weights: dict[str, Any], buffers: dict[str, Any], x: Tensor) -> Tensor:
        return functional_call(self.module, (weights, buffers), (x,))  # type: ignore[no-any-return]

    def gradients(self, loss: Tensor) -> list[Tensor]:
        """Gradients in the order and shape of `weights`; trials do not touch each other, so their losses may be summed."""
        found = torch.autograd.grad(loss, list(self.parameters.values()))
        return [g[None] for g in found] if self.t == 1 else list(found)

    def modules(self) -> list[nn.Module]:
        """Each trial's network as a module of its own."""
        alone = [
            copy.deepcopy(self.module).to_empty(device=next(iter(self.weights.values())).device) for _ in range(self.t)
        ]
        for t, module in enumerate(alone):
            module.load_state_dict({name: tensor[t] for name, tensor in {**self.weights, **self.buffers}.items()})
        return alone

    def __reduce__(self) -> tuple[type[Stack], tuple[list[nn.Module]]]:
        return Stack, (self.modules(),)  # plain pickle would part the views from what they view

    @contextmanager
    def frozen_statistics(self) -> Iterator[None]:
        """BN statistics are put back on leaving: a second look at a batch must not count twice."""
        before = {name: buffer.clone() for name, buffer in self.buffers.items()}
        yield
        for name, buffer in before.items():
            self.buffers[name].copy_(buffer)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Evaluation mode and no gradients inside; training mode afterwards."""
        self.module.eval()
        with torch.no_grad():
            yield
        self.module.train()


def build(make: Any, seeds: Sequence[int], device: torch.device) -> Stack:
    """A stack of networks, each initialised from its own seed; the global generator is left as it was."""
    modules = []
    for seed in seeds:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            modules.append(make().to(device))
    return Stack(modules)


def cut(trials: Sequence[Trial], bytes_each: int, limit: int) -> list[Sequence[Trial]]:
    """Stacks of as many trials as fit under the limit, as even as can be; at least one each.

    >>> [len(part) for part in cut([Trial()] * 7, bytes_each=10, limit=35)]
    [3, 3, 1]
    """
    most = max(1, limit // max(1, bytes_each))
    size = -(-len(trials) // -(-len(trials) // most))
    return [trials[start : start + size] for start in range(0, len(trials), size)]


def positions(at: Tensor, n: int) -> Tensor:
    """Where rows `at` [t, b] of tables [t, n, ...] lie once the two axes are one; worked out once, used for every table."""
    return at + torch.arange(0, at.shape[0] * n, n, device=at.device)[:, None]


def take(table: Any, where: Tensor) -> Any:
    """Rows of a table [t, n, ...] at `positions` [t, b], as [t, b, ...]; of an empty memory (), nothing.

    >>> take(torch.arange(6).view(2, 3, 1), positions(torch.tensor([[2, 0], [1, 1]]), 3)).squeeze(-1)
    tensor([[2, 0],
            [4, 4]])
    """
    if isinstance(table, tuple):
        return table
    return table.flatten(0, 1).index_select(0, where.reshape(-1)).view(*where.shape, *table.shape[2:])


def put(table: Any, where: Tensor, rows: Any) -> None:
    """Write rows [t, b, ...] into a table in place; the engine alone does this."""
    if not isinstance(table, tuple):
        table.flatten(0, 1).index_copy_(0, where.reshape(-1), rows.flatten(0, 1))
