"""Choose a device, ask how much memory it has, and run steps on it."""

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

MIN_GPU_ROWS = 20_000  # of a table; with fewer rows, starting the GPU takes as long as the work
_COPIES = 8  # of a table that must fit on the GPU


def free_memory(device: torch.device) -> int:
    """Return the bytes that are free on the device now; a guess of 4 GiB where the system does not say."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free
    if "SC_AVPHYS_PAGES" in getattr(os, "sysconf_names", ()):  # not on Windows, nor on macOS
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 4 * 2**30


def available_memory(device: torch.device) -> float:
    """Return the bytes that may be allocated on the device: those that are free, and those that a cache gives up on demand."""
    if device.type != "cuda":
        return memory.available_memory()
    free, _ = torch.cuda.mem_get_info(device)
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return free + cached


def best_device() -> torch.device:
    """Return the GPU if there is one, else the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("cpu")


def checked_device(device: str | torch.device) -> torch.device:
    """Return the device of this name, after checking that there is one."""
    try:
        checked = torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"device must be one that torch knows, such as 'cpu' or 'cuda'; got {device!r}.") from error
    if checked.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device {device!r} needs a GPU and a build of torch for it; there is none here. Use 'cpu'.")
    return checked


def device_for(device: str | torch.device, n: int, d: int) -> torch.device:
    """Return the device for a table of n rows and d features; "auto": the GPU, if there is one, the table is large, and it fits."""
    if device != "auto":
        return checked_device(device)
    best = best_device()
    if best.type == "cpu" or n < MIN_GPU_ROWS:
        return torch.device("cpu")
    n_bytes = _COPIES * 2 * n * d * torch.float64.itemsize  # a table is as wide again with its ranks
    if n_bytes >= free_memory(best):
        return torch.device("cpu")
    return best


def prewarm_gpu(device: torch.device) -> Thread | None:
    """Load what a GPU needs for images, its context, cuDNN and the compiler of kernels, in a thread, since it takes seconds.

    Returns the thread; None for a CPU, which needs none.
    """

    def load() -> None:
        with suppress(RuntimeError, ImportError):  # training will raise the same error, where it can be reported
            images = torch.zeros(1, 1, 8, 8, device=device, dtype=torch.bfloat16)
            torch.nn.functional.conv2d(images, images)
            import_module("triton")

    if device.type != "cuda":
        return None
    thread = Thread(target=load)
    thread.start()  # a program that ends early waits for it: a driver that is cut off may crash
    return thread


def device_for_pictures(device: str | torch.device) -> torch.device:
    """Return the device for networks on pictures; "auto": the GPU, if there is one."""
    if device == "auto":
        return best_device()
    return checked_device(device)


def make_deterministic() -> None:
    """Make this process give the same bits for the same call from here on: one thread, and sums in a fixed order."""
    torch.set_num_threads(1)
    threadpool_limits(1)  # matrix products of NumPy and SciPy
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # read at the first matrix product on a GPU


def to_local_gpu(value: Any) -> Any:
    """Move tensors inside a value from the GPU of any process to that of this one; where no GPU is in use, return the value."""

    def to_gpu(storage: Any, location: str) -> Any:
        if location == "cpu":
            return storage
        return storage.cuda()

    return _move_tensors(value, to_gpu)


def on_cpu(value: Any) -> Any:
    """Move tensors inside a value to the CPU."""
    return _move_tensors(value, "cpu")


def _move_tensors(value: Any, map_location: Any) -> Any:
    """Copy a value of any structure, with its tensors where `map_location` puts them (see `torch.load`)."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return value
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, map_location, weights_only=False)


def global_generator(device: torch.device) -> torch.Generator:
    """Return the generator that torch draws from on this device where none is passed."""
    if device.type != "cuda":
        return torch.default_generator
    index: int | None = device.index
    if index is None:
        index = torch.cuda.current_device()
    return torch.cuda.default_generators[index]


class SideStream:
    """Run the work inside `with` on a second CUDA stream, until `join`; what it reads must stay alive till then. On a CPU: as usual."""

    def __init__(self, device: torch.device) -> None:
        self.stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream())
            self.inside = torch.cuda.stream(self.stream)
            self.inside.__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *error: object) -> None:
        if self.stream is not None:
            self.inside.__exit__(*error)

    def join(self) -> None:
        """Let the current stream wait until the work is done."""
        if self.stream is not None:
            torch.cuda.current_stream().wait_stream(self.stream)


class CudaGraphRunner:
    """Calls a function that works in place on tensors; where enabled, after a few plain calls, as one captured CUDA graph per key.

    The function's arguments are copied into the graph's input buffers, so their shapes must be the same for one key, and a tensor
    that was passed must not change afterwards. The plain calls are real ones: they compile, choose algorithms and fill the
    allocator, which a capture cannot do.
    """

    warm_up = 3  # plain calls per key

    def __init__(self, enabled: bool, generators: list[torch.Generator]) -> None:
        self.enabled = enabled
        self.generators = generators
        self.calls: dict[Hashable, int] = {}
        self.copied: dict[tuple[Hashable, int], Tensor] = {}  # what each input buffer holds
        self.graphs: dict[Hashable, tuple[torch.cuda.CUDAGraph, tuple[Tensor, ...], Any]] = {}

    def __call__(self, key: Hashable, function: Callable[..., Any], *inputs: Tensor) -> Any:
        """Call the function and return its result; that of a graph is valid until the next call with this key."""
        if not self.enabled:
            return function(*inputs)
        if key in self.graphs:
            return self._replay(key, inputs)
        if self.calls.setdefault(key, 0) < self.warm_up:
            self.calls[key] += 1
            side_stream = SideStream(torch.device("cuda"))  # a capture needs a warm-up on a stream of its own
            with side_stream:
                result = function(*inputs)
            side_stream.join()
            return result
        self._capture(key, function, inputs)
        return self._replay(key, inputs)

    def _replay(self, key: Hashable, inputs: tuple[Tensor, ...]) -> Any:
        """Copy the inputs into the buffers of a graph, run it, and return its result."""
        graph, buffers, result = self.graphs[key]
        for i, (buffer, value) in enumerate(zip(buffers, inputs, strict=True)):
            if self.copied.get((key, i)) is not value:  # an epoch's numbers are the same tensors for all its steps
                buffer.copy_(value)
                self.copied[key, i] = value
        graph.replay()
        return result

    def _capture(self, key: Hashable, function: Callable[..., Any], inputs: tuple[Tensor, ...]) -> None:
        """Record what the function does as a graph that reads its inputs from buffers."""
        buffers = tuple(value.clone() for value in inputs)
        graph = torch.cuda.CUDAGraph()
        for generator in self.generators:
            if generator.device.type == "cuda":
                graph.register_generator_state(generator)
        with torch.cuda.graph(graph):
            result = function(*buffers)
        self.graphs[key] = (graph, buffers, result)
