"""t networks as one module. A trial in a stack equals the same trial alone; `tests/test_engine.py` holds that."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap


class Stack:
    """t networks of one architecture as one; weights and buffers have a leading axis t.

    For t = 1 the module itself is called, without vmap, and `weights` are views of its parameters. On CUDA, images are seen in
    bfloat16 and the module is compiled; outputs are float32 again.
    """

    def __init__(self, modules: Sequence[nn.Module], fast: bool = False) -> None:
        self.t = len(modules)
        self.fast = fast
        state = (
            (
                {name: p[None] for name, p in modules[0].named_parameters()},
                {name: b[None] for name, b in modules[0].named_buffers()},
            )
            if self.t == 1
            else stack_module_state(list(modules))
        )
        learned = {name for name, p in modules[0].named_parameters() if p.requires_grad}  # a backbone may be frozen
        self.fixed = {name: p.detach() for name, p in state[0].items() if name not in learned}
        self.buffers: dict[str, Tensor] = state[1]
        if self.t == 1:
            self.module = modules[0]
            self.parameters: dict[str, Tensor] = {
                name: p for name, p in self.module.named_parameters() if name in learned
            }
            self.weights = {name: p.detach()[None] for name, p in self.parameters.items()}
        else:
            self.module = copy.deepcopy(modules[0]).to("meta")
            self.parameters = {name: p for name, p in state[0].items() if name in learned}
            self.weights = {name: p.detach() for name, p in self.parameters.items()}
        self.compiled = torch.compile(self.module, dynamic=False) if fast and self.t == 1 else self.module

    def __call__(self, x: Tensor, part: str = "", weights: Mapping[str, Tensor] | None = None) -> Any:
        """Output [t, b, ...] of the module, or of its submodule `part`, for x [t, b, ...].

        With other weights neither a gradient nor a BN statistic of the network's own moves: it works on copies of the buffers.
        """
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.fast):
            if self.t == 1 and weights is None:
                trained = self.module.training and not part
                module = self.compiled if trained else self.module.get_submodule(part)
                output = _map(lambda one: one[None], module(x[0]))
            else:
                output = self._functional(x, part, weights)
        return _map(lambda one: one.float(), output) if self.fast else output

    def _functional(self, x: Tensor, part: str, weights: Mapping[str, Tensor] | None) -> Any:
        own = dict(self.parameters if weights is None else weights) if self.t > 1 or weights else {}
        buffers = self.buffers if weights is None else {name: buffer.clone() for name, buffer in self.buffers.items()}
        state = {name: value for name, value in {**own, **self.fixed, **buffers}.items() if name.startswith(part)}
        state = {name[len(part) + 1 if part else 0 :]: value for name, value in state.items()}
        module = self.module.get_submodule(part)
        return vmap(lambda state, x: functional_call(module, state, (x,)), randomness="different")(state, x)

    def gradients(self, loss: Tensor) -> list[Tensor]:
        """Gradients in the order and shape of `weights`; trials do not touch each other, so their losses may be summed."""
        found = torch.autograd.grad(loss, list(self.parameters.values()), allow_unused=True, materialize_grads=True)
        return [g[None] for g in found] if self.t == 1 else list(found)

    def modules(self) -> list[nn.Module]:
        """Each trial's network as a module of its own."""
        whole = {**self.weights, **self.fixed, **self.buffers}
        device = next(iter(whole.values())).device
        alone = [copy.deepcopy(self.module).to_empty(device=device) for _ in range(self.t)]
        for t, module in enumerate(alone):
            module.load_state_dict({name: tensor[t] for name, tensor in whole.items()})
        return alone

    def __reduce__(self) -> tuple[type[Stack], tuple[list[nn.Module], bool]]:
        return Stack, (self.modules(), self.fast)  # plain pickle would part the views from what they view

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


def build(make: Callable[[], nn.Module], seeds: Sequence[int], device: torch.device, images: bool = False) -> Stack:
    """A stack of networks, each initialised from its own seed; the global generator is left as it was."""
    modules = []
    for seed in seeds:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            modules.append(make().to(device))
    fast = images and device.type == "cuda"
    return Stack([module.to(memory_format=torch.channels_last) for module in modules] if fast else modules, fast)  # type: ignore[call-overload]


def first(output: Any) -> Tensor:
    """The logits of a network that returns them, alone or before other things."""
    return output[0] if isinstance(output, tuple) else output  # type: ignore[no-any-return]


def _map(function: Callable[[Tensor], Tensor], output: Any) -> Any:
    return tuple(map(function, output)) if isinstance(output, tuple) else function(output)
