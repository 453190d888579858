"""The machine: how much memory a device has to give, and how a step is run on it."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor


def free_memory(device: torch.device) -> int:
    """Bytes that are free on the device now; a guess of 4 GiB where the system does not say."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if "SC_AVPHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 4 * 2**30


class Replay:
    """Calls a function that works in place on tensors; on CUDA, after a few plain calls, as one captured graph per key.

    The function's tensor arguments are copied into fixed places, so their shapes must be the same for one key. The plain calls
    are real ones: they compile, choose algorithms and fill the allocator, which a capture cannot do.
    """

    warm_up = 3

    def __init__(self, device: torch.device, generators: list[torch.Generator]) -> None:
        self.enabled = device.type == "cuda"
        self.generators = generators
        self.calls: dict[Hashable, int] = {}
        self.graphs: dict[Hashable, tuple[torch.cuda.CUDAGraph, tuple[Tensor, ...]]] = {}

    def __call__(self, key: Hashable, function: Callable[..., Any], *inputs: Tensor) -> None:
        if not self.enabled:
            function(*inputs)
        elif key in self.graphs:
            self._replay(key, inputs)
        elif self.calls.setdefault(key, 0) < self.warm_up:
            self.calls[key] += 1
            self._beside(function, inputs)
        else:
            self._capture(key, function, inputs)
            self._replay(key, inputs)

    def _replay(self, key: Hashable, inputs: tuple[Tensor, ...]) -> None:
        graph, places = self.graphs[key]
        for place, value in zip(places, inputs, strict=True):
            place.copy_(value)
        graph.replay()

    def _beside(self, function: Callable[..., Any], inputs: tuple[Tensor, ...]) -> None:
        """On a side stream, as what will be captured must have been warmed up."""
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            function(*inputs)
        torch.cuda.current_stream().wait_stream(stream)

    def _capture(self, key: Hashable, function: Callable[..., Any], inputs: tuple[Tensor, ...]) -> None:
        places = tuple(value.clone() for value in inputs)
        graph = torch.cuda.CUDAGraph()
        for generator in self.generators:
            graph.register_generator_state(generator)
        with torch.cuda.graph(graph):
            function(*places)
        self.graphs[key] = (graph, places)
