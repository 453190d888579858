"""A user's network as the `Net` that a method's `step` expects.

The user's loop computes features and logits; what a method adds (PiCO's projection and momentum network, VALEN's encoder and decoder)
runs here, by the same `step` that `oneof.fit` calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from oneof.methods.base import Method, tree_map


class GivenLogits:
    """Net whose input is its output: for a step that looks at nothing but the logits of the views."""

    weights: dict[str, Tensor] = {}  # noqa: RUF012 - part of the protocol, and empty
    buffers: dict[str, Tensor] = {}  # noqa: RUF012

    def __call__(self, x: Tensor, part: str = "", weights: Mapping[str, Tensor] | None = None) -> Tensor:
        if part or weights is not None:
            raise TypeError(
                "step must call net(views) alone where CandidateLoss has no network. Write `network` or `shared`, too."
            )
        return x

    def fused(self, function: Callable[..., Any], *inputs: Any) -> Any:
        return function(*inputs)


class GivenOutputs:
    """Net of one trial, whose outputs for view 0 have been computed; other views and parts are computed when called for.

    Everything it returns has a leading axis of one trial, and is in float32 where the network runs in half precision.
    """

    def __init__(self, module: nn.Module, outputs: tuple[Tensor, ...] = (), autocast: Autocast | None = None) -> None:
        self.module = module
        self.outputs = outputs
        self.autocast = autocast
        self.weights = {}
        for name, parameter in module.named_parameters():
            if parameter.requires_grad:
                self.weights[name] = parameter.detach()[None]
        self.buffers = {name: buffer[None] for name, buffer in module.named_buffers()}

    def __call__(self, x: Tensor, part: str = "", weights: Mapping[str, Tensor] | None = None) -> Any:
        if weights is not None:
            return self._with_trial_axis(self._functional(x[0], weights))
        if part:
            return self._with_trial_axis(self._called(self.module.get_submodule(part), x[0]))
        return self._with_trial_axis(self.outputs)

    def fused(self, function: Callable[..., Any], *inputs: Any) -> Any:
        return function(*inputs)

    def _functional(self, x: Tensor, weights: Mapping[str, Tensor]) -> Any:
        """Run the network with other weights, on copies of its buffers."""
        state = {name: weight[0] for name, weight in weights.items()}
        for name, buffer in self.buffers.items():
            state[name] = buffer[0].clone()
        return self._called(lambda inputs: functional_call(self.module, state, (inputs,)), x)

    def _called(self, function: Callable[[Tensor], Any], x: Tensor) -> Any:
        if self.autocast is None:
            return function(x)
        with self.autocast.restored():
            return function(x)

    def _with_trial_axis(self, outputs: Any) -> Any:
        return tree_map(lambda output: at_least_float32(output)[None], outputs)


@contextmanager
def frozen_statistics(module: nn.Module) -> Iterator[None]:
    """Restore the buffers of a network on leaving, so that a second forward of a batch does not count in its running statistics.

    with torch.no_grad(), frozen_statistics(net):
        criterion.update(net(x), index)
    """
    before = [(buffer, buffer.clone()) for buffer in module.buffers()]
    try:
        yield
    finally:
        for buffer, value in before:
            buffer.copy_(value)


class Autocast:
    """The state of autocast where a criterion was called: off inside the loss, restored where a network runs."""

    def __init__(self, device: torch.device) -> None:
        self.device_type = device.type
        self.enabled = torch.is_autocast_enabled(device.type)
        self.dtype: torch.dtype | None = None
        if self.enabled:
            self.dtype = torch.get_autocast_dtype(device.type)

    def off(self) -> AbstractContextManager[Any]:
        """Switch autocast off inside."""
        if not self.enabled:
            return nullcontext()
        return torch.autocast(self.device_type, enabled=False)

    def restored(self) -> AbstractContextManager[Any]:
        """Switch autocast inside to what it was."""
        if not self.enabled:
            return nullcontext()
        return torch.autocast(self.device_type, dtype=self.dtype)


def at_least_float32(tensor: Tensor) -> Tensor:
    """Return the tensor in float32 where it is in half precision."""
    if tensor.dtype.itemsize < 4:
        return tensor.float()
    return tensor


def needs_network(method: Method) -> bool:
    """Return whether a method adds parts to the network or keeps state made from its weights."""
    kind = type(method)
    return kind.network is not Method.network or kind.shared is not Method.shared


def extend_network(method: Method, network: Any, classes: int, input_shape: tuple[int, ...] | None) -> nn.Module:
    """Return the user's network with the parts that the method adds; its body and head stay the user's."""
    name = type(method).__name__
    if not isinstance(network, nn.Module) or input_shape is None:
        raise TypeError(
            f"{name} adds parts to the network: give network=, the module that you train, and input_shape=, the shape of an "
            "example, such as (3, 32, 32)."
        )
    for part in ("body", "width", "head"):
        if not hasattr(network, part):
            raise ValueError(
                f"{name} needs a network with body, width and head; {type(network).__name__} has no {part}. "
                "oneof.networks.Classifier(body, width, classes) builds one from a body that returns features [b, width]."
            )
    module = method.network(network, classes, tuple(input_shape))
    if not hasattr(module, "outputs"):
        raise TypeError(f"{type(module).__name__} must have outputs(x, features, logits) to be used by CandidateLoss.")
    return module


def added_parts(module: nn.Module, network: nn.Module) -> dict[str, nn.Module]:
    """Return the parts of an extended network that are not the user's, by name."""
    parts_of_user = {id(part) for part in network.modules()}
    added = {}
    for name, part in module.named_children():
        if id(part) not in parts_of_user:
            added[name] = part
    return added
