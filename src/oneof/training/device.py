"""The machine: how much memory a device has to give, and how a step is run on it."""

import io
import os
from collections.abc import Callable, Hashable
from contextlib import suppress
from importlib import import_module
from threading import Thread
from typing import Any

import torch
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
from torch import Tensor

from oneof.storage import memory

LARGE = 20_000  # rows of a table; with fewer, starting the GPU takes as long as the work


def free_memory(device: torch.device) -> int:
    """Bytes that are free on the device now; a guess of 4 GiB where the system does not say."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if "SC_AVPHYS_PAGES" in getattr(os, "sysconf_names", ()):  # not on Windows, nor on macOS
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 4 * 2**30


def available_memory(device: torch.device) -> float:
    """Return the bytes that may be allocated on the device: those that are free, and those that a cache gives up on demand."""
    if device.type != "cuda":
        return memory.available_memory()
    free = torch.cuda.mem_get_info(device)[0]
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return free + cached


def best_device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def checked_device(device: str | torch.device) -> torch.device:
    """The device of this name, if there is one."""
    try:
        place = torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"device must be one that torch knows, such as 'cpu' or 'cuda'; got {device!r}.") from error
    if place.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device {device!r} needs a GPU and a build of torch for it; there is none here. Use 'cpu'.")
    return place


def device_for(device: str | torch.device, n: int, d: int) -> torch.device:
    """Where a table of n rows and d features is learned; "auto": on the GPU, if there is one, the table is large, and it fits."""
    if device != "auto":
        return checked_device(device)
    best = best_device()
    pays = best.type == "cuda" and n >= LARGE and 8 * 16 * n * d < free_memory(best)  # eight copies beside their ranks
    return best if pays else torch.device("cpu")


def prewarm_gpu(device: torch.device) -> Thread | None:
    """Load what a GPU needs for images, which takes seconds, in a thread beside other work: its context, cuDNN, the compiler of kernels.

    Return the thread; None for a CPU, which needs none.
    """

    def load() -> None:
        with suppress(RuntimeError, ImportError):  # who needs it will say what is wrong
            images = torch.zeros(1, 1, 8, 8, device=device, dtype=torch.bfloat16)
            torch.nn.functional.conv2d(images, images)
            import_module("triton")

    if device.type != "cuda":
        return None
    thread = Thread(target=load)
    thread.start()  # a program that ends early waits for it: a driver that is cut off may crash
    return thread


def device_for_pictures(device: str | torch.device) -> torch.device:
    """Where networks on pictures are trained; "auto": on the GPU, if there is one."""
    return best_device() if device == "auto" else checked_device(device)


def make_deterministic() -> None:
    """From here on this process gives the same bits for the same call: one thread, and sums in a fixed order."""
    torch.set_num_threads(1)
    threadpool_limits(1)  # of NumPy's and SciPy's products
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # read at the first product on a card


def to_local_gpu(value: Any) -> Any:
    """The value with what lies on the GPU of any process on that of this one; as it is where none is in use."""
    return _brought(value, lambda stored, place: stored if place == "cpu" else stored.cuda())


def on_cpu(value: Any) -> Any:
    return _brought(value, "cpu")


def _brought(value: Any, where: Any) -> Any:
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return value
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, where, weights_only=False)


def global_generator(device: torch.device) -> torch.Generator:
    """What torch draws from on this device where no generator is named."""
    if device.type != "cuda":
        return torch.default_generator
    return torch.cuda.default_generators[torch.cuda.current_device() if device.index is None else device.index]


class SideStream:
    """Work inside `with` may run on a second CUDA stream until `join`; what it reads must stay alive till then."""

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream())
            self.inside = torch.cuda.stream(self.stream)
            self.inside.__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *error: object) -> None:
        if self.stream is not None:
            self.inside.__exit__(*error)

    def join(self) -> None:
        if self.stream is not None:
            torch.cuda.current_stream().wait_stream(self.stream)


class CudaGraphRunner:
    """Calls a function that works in place on tensors; where enabled, after a few plain calls, as one captured CUDA graph per key.

    The function's tensor arguments are copied into fixed places, so their shapes must be the same for one key, and a tensor that
    was given must not change afterwards. The plain calls are real ones: they compile, choose algorithms and fill the allocator, which a capture cannot do.
    """

    warm_up = 3

    def __init__(self, enabled: bool, generators: list[torch.Generator]) -> None:
        self.enabled = enabled
        self.generators = generators
        self.calls: dict[Hashable, int] = {}
        self.copied: dict[tuple[Hashable, int], Tensor] = {}  # what lies in a graph's places
        self.graphs: dict[Hashable, tuple[torch.cuda.CUDAGraph, tuple[Tensor, ...], Any]] = {}

    def __call__(self, key: Hashable, function: Callable[..., Any], *inputs: Tensor) -> Any:
        """What the function returns; from a graph, only until the next call with this key."""
        if not self.enabled:
            return function(*inputs)
        if key in self.graphs:
            return self._replay(key, inputs)
        if self.calls.setdefault(key, 0) < self.warm_up:
            self.calls[key] += 1
            beside = SideStream(torch.device("cuda"))  # as what will be captured must have been warmed up
            with beside:
                result = function(*inputs)
            beside.join()
            return result
        self._capture(key, function, inputs)
        return self._replay(key, inputs)

    def _replay(self, key: Hashable, inputs: tuple[Tensor, ...]) -> Any:
        graph, places, result = self.graphs[key]
        for i, (place, value) in enumerate(zip(places, inputs, strict=True)):
            if self.copied.get((key, i)) is not value:  # an epoch's numbers are the same tensors for all its steps
                place.copy_(value)
                self.copied[key, i] = value
        graph.replay()
        return result

    def _capture(self, key: Hashable, function: Callable[..., Any], inputs: tuple[Tensor, ...]) -> None:
        places = tuple(value.clone() for value in inputs)
        graph = torch.cuda.CUDAGraph()
        for generator in self.generators:
            if generator.device.type == "cuda":
                graph.register_generator_state(generator)
        with torch.cuda.graph(graph):
            result = function(*places)
        self.graphs[key] = (graph, places, result)
