"""Run t networks as one module. A trial in a stack equals the same trial alone; `tests/training/test_fit.py` checks that."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from oneof.methods.base import tree_map
from oneof.networks.classifier import eval_mode
from oneof.networks.cuda.accelerate import Accelerator, accelerate


class Stack:
    """t networks of one architecture as one; weights and buffers have a leading axis t.

    For t = 1 the module itself is called, and `weights` are views of its parameters. A module that takes batched weights is called
    with all t weights at once; any other goes through vmap.

    Parameters
    ----------
    modules
        The t networks.
    compile_batch
        0 for tables and on a CPU. Otherwise the networks see images on CUDA and run in bfloat16 (outputs are float32 again), and a
        single one is accelerated for training batches of so many images. A stack that is moved to a CPU runs as it is: a processor
        may announce bfloat16 and not run it.
    """

    def __init__(self, modules: Sequence[nn.Module], compile_batch: int = 0) -> None:
        self.t = len(modules)
        self.compile_batch = compile_batch
        for module in modules:  # convolutions are faster so, on a CPU too
            module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.template = copy.deepcopy(modules[0]).to("meta")
        parameters: dict[str, Tensor]
        if self.t == 1:
            self.module = modules[0]
            parameters = dict(self.module.named_parameters())
            values = {name: parameter.detach()[None] for name, parameter in parameters.items()}
            self.buffers = {name: buffer[None] for name, buffer in self.module.named_buffers()}
        else:
            self.module = self.template
            parameters, self.buffers = stack_module_state(list(modules))
            values = {name: parameter.detach() for name, parameter in parameters.items()}
        self.batched_weights = self.t > 1 and getattr(modules[0], "batched_weights", False)
        if self.batched_weights:
            self.module = copy.deepcopy(modules[0])
            for name, parameter in parameters.items():
                _set_tensor(self.module, name, nn.Parameter(parameter, requires_grad=parameter.requires_grad))
            parameters = dict(self.module.named_parameters())
        self.parameters: dict[str, Tensor] = {}
        self.weights: dict[str, Tensor] = {}
        self.fixed: dict[str, Tensor] = {}  # weights of a backbone may be frozen
        for name, parameter in modules[0].named_parameters():
            if parameter.requires_grad:
                self.parameters[name] = parameters[name]
                self.weights[name] = values[name]
            else:
                self.fixed[name] = values[name]
        self._accelerator: Accelerator | None = None
        if compile_batch > 0 and self.t == 1:
            self._accelerator = accelerate(self.module, compile_batch)
        self._second: Callable[..., Any] | None = None

    def __call__(self, x: Tensor, part: str = "", weights: Mapping[str, Tensor] | None = None) -> Any:
        """Return the output [t, b, ...] of the module, or of its submodule `part`, for x [t, b, ...]; see `Net`."""
        if self.compile_batch == 0 or x.device.type != "cuda":
            return self._call(x, part, weights)
        with torch.autocast(x.device.type, torch.bfloat16), self._cudnn_benchmark():
            output = self._call(x, part, weights)
            return tree_map(lambda tensor: tensor.float(), output)

    def fused(self, function: Callable[..., Any], *inputs: Any) -> Any:
        """Return function(*inputs); see `Net`."""
        return self._accelerated(function, inputs[0])(*inputs)

    def _call(self, x: Tensor, part: str, weights: Mapping[str, Tensor] | None) -> Any:
        if weights is None and self.batched_weights:
            return self.module.get_submodule(part)(x)
        if self.t > 1:
            return self._functional(x, part, weights)
        if weights is None:
            submodule = self.module.get_submodule(part)
            output = self._accelerated(submodule, x)(x[0])
        elif self._takes_second_network(x, part):
            first_weights = {name: weight[0] for name, weight in weights.items()}
            output = self._accelerated(self._second_network(), x)(first_weights, x[0])
        else:
            return self._functional(x, part, weights)
        return tree_map(lambda tensor: tensor[None], output)

    def _accelerated(self, function: Callable[..., Any], x: Tensor) -> Callable[..., Any]:
        """Return the function as it is to be called for inputs x [t, b, ...]."""
        if self._accelerator is None:
            return function
        return self._accelerator(function, x)

    def _takes_second_network(self, x: Tensor, part: str) -> bool:
        """Return whether other weights go through a second module, which is faster: on CUDA, in training, without gradients."""
        if self._accelerator is None or not x.is_cuda or not self.module.training:
            return False
        return not part and not torch.is_grad_enabled()

    def _second_network(self) -> Callable[..., Any]:
        """Return a second network as a function of weights and x; in training nothing reads its running statistics."""
        if self._second is None:
            (module,) = self.modules()
            if self._accelerator is not None:
                self._accelerator.use_kernels(module)
            self._second = lambda weights, x: functional_call(module, weights, (x,))
        return self._second

    def _functional(self, x: Tensor, part: str, weights: Mapping[str, Tensor] | None) -> Any:
        """Return the output of the networks, or of a part, by vmap; with other weights buffers are copied."""
        if weights is None:
            tensors = {**self.parameters, **self.fixed, **self.buffers}
        else:
            buffers = {name: buffer.clone() for name, buffer in self.buffers.items()}
            tensors = {**weights, **self.fixed, **buffers}
        state = tensors
        if part:
            state = {}
            for name, value in tensors.items():
                if name.startswith(f"{part}."):
                    state[name.removeprefix(f"{part}.")] = value
        module = self.template.get_submodule(part)
        return vmap(lambda state, x: functional_call(module, state, (x,)), randomness="different")(state, x)

    def gradients(self, loss: Tensor) -> list[Tensor]:
        """Return gradients in the order and shape of `weights`; trials are independent, so their losses may be summed."""
        parameters = list(self.parameters.values())
        with self._cudnn_benchmark():
            computed: Sequence[Tensor | None] = torch.autograd.grad(loss, parameters, allow_unused=True)
        gradients = []
        for parameter, gradient in zip(parameters, computed, strict=True):
            if gradient is None:  # the loss does not depend on this parameter
                gradient = torch.zeros_like(parameter)
            gradients.append(gradient)
        if self.t == 1:
            return [gradient[None] for gradient in gradients]
        return gradients

    def _cudnn_benchmark(self) -> AbstractContextManager[None]:
        """Let cuDNN try its algorithms on the first call with a shape, where batches have one; which wins may differ between runs."""
        if self.compile_batch == 0:
            return nullcontext()
        benchmark = not torch.are_deterministic_algorithms_enabled()
        return torch.backends.cudnn.flags(enabled=True, benchmark=benchmark)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Return all weights, frozen ones included, and buffers of the networks, [t, ...] each."""
        return {**self.weights, **self.fixed, **self.buffers}

    def modules(self) -> list[nn.Module]:
        """Return each trial's network as a module of its own."""
        tensors = self.tensors
        networks = [copy.deepcopy(self.template) for _ in range(self.t)]
        # not by `to_empty`: for a meta tensor torch loads SymPy, which takes seconds
        for t, network in enumerate(networks):
            for name, parameter in list(network.named_parameters()):
                value = tensors[name][t].clone()
                _set_tensor(network, name, nn.Parameter(value, requires_grad=parameter.requires_grad))
            for name, _ in list(network.named_buffers()):
                _set_tensor(network, name, tensors[name][t].clone())
        return networks

    def __reduce__(self) -> tuple[type[Stack], tuple[list[nn.Module], int]]:
        return Stack, (self.modules(), self.compile_batch)  # plain pickle would separate views from their tensors

    @contextmanager
    def frozen_statistics(self) -> Iterator[None]:
        """Restore the statistics of batch normalisation on exit: a second forward of a batch must not count twice."""
        before = {name: buffer.clone() for name, buffer in self.buffers.items()}
        try:
            yield
        finally:
            for name, buffer in before.items():
                self.buffers[name].copy_(buffer)

    @contextmanager
    def eval_mode(self) -> Iterator[None]:
        """Switch to evaluation mode without gradients, and back: each part to its own mode, since a frozen one may never train."""
        with eval_mode(self.module), eval_mode(self.template):
            yield


def build(
    make: Callable[[], nn.Module], seeds: Sequence[int], device: torch.device, compile_batch: int = 0,
    starts: Sequence[Mapping[str, Tensor] | None] = (),
) -> Stack:  # fmt: skip
    """Build a stack of networks, each initialised from its seed or with the weights in `starts`; the global generator does not move."""
    modules = []
    for seed, start in zip(seeds, starts or [None] * len(seeds), strict=True):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = make().to(device)
        if start is not None:
            module.load_state_dict(dict(start))
        modules.append(module)
    return Stack(modules, compile_batch)


def _set_tensor(module: nn.Module, name: str, value: Tensor) -> None:
    """Set a parameter or buffer by its full name."""
    owner, _, attribute = name.rpartition(".")
    setattr(module.get_submodule(owner), attribute, value)
