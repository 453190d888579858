"""t networks as one module. A trial in a stack equals the same trial alone; `tests/training/test_fit.py` holds that."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from oneof.methods.base import each
from oneof.networks.classifier import evaluating


class Stack:
    """t networks of one architecture as one; weights and buffers have a leading axis t.

    For t = 1 the module itself is called, and `weights` are views of its parameters; a module that broadcasts is called with all
    t weights at once; any other goes through vmap. `fast` is for images on CUDA: the module runs in bfloat16 (outputs are float32
    again). Parts that have kernels of their own use them; without any, the module is compiled for training batches of that many images; a
    ragged batch is not worth a compilation, nor is a process's part of one (fast = -1). Brought to a CPU, the module runs as it is: a processor may announce bfloat16 and not run it.
    """

    def __init__(self, modules: Sequence[nn.Module], fast: int = 0) -> None:
        self.t = len(modules)
        self.fast = fast
        for module in modules:  # convolutions are faster so, on a CPU too
            module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.template = copy.deepcopy(modules[0]).to("meta")
        learned = {name for name, p in modules[0].named_parameters() if p.requires_grad}  # a backbone may be frozen
        if self.t == 1:
            self.module = modules[0]
            own: dict[str, Tensor] = dict(self.module.named_parameters())
            whole = {name: p.detach()[None] for name, p in own.items()}
            self.buffers = {name: b[None] for name, b in self.module.named_buffers()}
        else:
            own, self.buffers = stack_module_state(list(modules))
            whole = {name: p.detach() for name, p in own.items()}
            self.module = self.template
        self.broadcasts = self.t > 1 and getattr(modules[0], "broadcasts", False)
        if self.broadcasts:
            self.module = copy.deepcopy(modules[0])
            for name, one in own.items():
                _put(self.module, name, nn.Parameter(one, requires_grad=one.requires_grad))
            own = dict(self.module.named_parameters())
        self.parameters = {name: own[name] for name in own if name in learned}
        self.weights = {name: whole[name] for name in whole if name in learned}
        self.fixed = {name: whole[name] for name in whole if name not in learned}
        self.alone = fast > 0 and self.t == 1
        self.plain = self.alone and not _use_kernels(self.module)
        self.compiled = cache(partial(torch.compile, dynamic=False))
        self.twin: Callable[..., Any] | None = None

    def __call__(self, x: Tensor, part: str = "", weights: Mapping[str, Tensor] | None = None) -> Any:
        """Output [t, b, ...] of the module, or of its submodule `part`, for x [t, b, ...], as `Net` says."""
        if not self.fast or x.device.type != "cuda":
            return self._call(x, part, weights)
        with torch.autocast(x.device.type, torch.bfloat16), _tried_out() if self.fast > 0 else nullcontext():
            return each(lambda one: one.float(), self._call(x, part, weights))

    def _call(self, x: Tensor, part: str, weights: Mapping[str, Tensor] | None) -> Any:
        if weights is None and self.broadcasts:
            return self.module.get_submodule(part)(x)
        trails = weights is not None and self.alone and self.module.training and not (part or torch.is_grad_enabled())
        if self.t > 1 or (weights is not None and not (trails and x.is_cuda)):
            return self._functional(x, part, weights)
        called = self.module.get_submodule(part) if weights is None else self._twin()
        own = () if weights is None else ({name: weight[0] for name, weight in weights.items()},)
        called = self.compiled(called) if self.plain and self._full(x) else called
        return each(lambda one: one[None], called(*own, x[0]))

    def fused(self, function: Callable[..., Any], *inputs: Any) -> Any:
        """What `Net` says; for full batches compiled, where the network is. Beside a network with kernels, which is large, it would save nothing."""
        return (self.compiled(function) if self.plain and self._full(inputs[0]) else function)(*inputs)

    def _full(self, x: Tensor) -> bool:
        return x.is_cuda and self.module.training and x.shape[1] == self.fast

    def _twin(self) -> Callable[..., Any]:
        """A second network as a function of weights and x; in training nothing reads its running statistics."""
        if self.twin is None:
            (module,) = self.modules()
            _use_kernels(module)
            self.twin = lambda weights, x: functional_call(module, weights, (x,))
        return self.twin

    def _functional(self, x: Tensor, part: str, weights: Mapping[str, Tensor] | None) -> Any:
        own = self.parameters if weights is None else weights
        buffers = self.buffers if weights is None else {name: buffer.clone() for name, buffer in self.buffers.items()}
        prefix = f"{part}." if part else ""
        whole = {**own, **self.fixed, **buffers}
        state = {name.removeprefix(prefix): value for name, value in whole.items() if name.startswith(prefix)}
        module = self.template.get_submodule(part)
        return vmap(lambda state, x: functional_call(module, state, (x,)), randomness="different")(state, x)

    def gradients(self, loss: Tensor) -> list[Tensor]:
        """Gradients in the order and shape of `weights`; trials do not touch each other, so their losses may be summed."""
        weights = list(self.parameters.values())
        with _tried_out() if self.fast > 0 else nullcontext():  # parts of batches differ in size
            found = torch.autograd.grad(loss, weights, allow_unused=True)
        whole = [torch.zeros_like(w) if g is None else g for w, g in zip(weights, found, strict=True)]
        return [g[None] for g in whole] if self.t == 1 else whole

    @property
    def whole(self) -> dict[str, Tensor]:
        """Everything that the networks are made of, [t, ...] each."""
        return {**self.weights, **self.fixed, **self.buffers}

    def modules(self) -> list[nn.Module]:
        """Each trial's network as a module of its own."""
        whole, alone = self.whole, [copy.deepcopy(self.template) for _ in range(self.t)]
        # not by `to_empty`: for a meta tensor torch loads SymPy, which takes seconds
        for t, module in enumerate(alone):
            for name, own in [*module.named_parameters(), *module.named_buffers()]:
                value = whole[name][t].clone()
                learned = isinstance(own, nn.Parameter)
                _put(module, name, nn.Parameter(value, requires_grad=own.requires_grad) if learned else value)
        return alone

    def __reduce__(self) -> tuple[type[Stack], tuple[list[nn.Module], int]]:
        return Stack, (self.modules(), self.fast)  # plain pickle would part the views from what they view

    @contextmanager
    def frozen_statistics(self) -> Iterator[None]:
        """BN statistics are put back on leaving: a second look at a batch must not count twice."""
        before = {name: buffer.clone() for name, buffer in self.buffers.items()}
        try:
            yield
        finally:
            for name, buffer in before.items():
                self.buffers[name].copy_(buffer)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Evaluation mode and no gradients inside; every part as it was afterwards: a frozen one may never train."""
        with evaluating(self.module), evaluating(self.template):
            yield


def build(
    make: Callable[[], nn.Module], seeds: Sequence[int], device: torch.device, fast: int = 0,
    starts: Sequence[Mapping[str, Tensor] | None] = (),
) -> Stack:  # fmt: skip
    """A stack of networks, each initialised from its own seed or `starts`; the global generator is left as it was."""
    modules = []
    for seed, start in zip(seeds, starts or [None] * len(seeds), strict=True):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            modules.append(make().to(device))
        if start is not None:
            modules[-1].load_state_dict(dict(start))
    return Stack(modules, fast)


def _put(module: nn.Module, name: str, value: Tensor) -> None:
    owner, _, attribute = name.rpartition(".")
    setattr(module.get_submodule(owner), attribute, value)


def _use_kernels(module: nn.Module) -> bool:
    """Have the parts use kernels of their own; does any?"""
    if not find_spec("triton"):
        return False
    parts: list[Any] = [part for part in module.modules() if hasattr(part, "use_kernels")]
    return bool(sum(part.use_kernels() for part in parts))


def _tried_out() -> AbstractContextManager[None]:
    """cuDNN tries its algorithms out on the first call with a shape: batches are all alike. Which wins may differ from run to run."""
    return torch.backends.cudnn.flags(enabled=True, benchmark=not torch.are_deterministic_algorithms_enabled())
