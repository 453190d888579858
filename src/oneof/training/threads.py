"""Threads of torch: as many as the work is worth and as idle processors can run; a thread that waits for a core delays all others."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from threadpoolctl import threadpool_info, threadpool_limits  # type: ignore[import-untyped]

from oneof.storage.cores import idle_cores

CELLS_PER_THREAD = 2**16
"""Values of a batch of pictures that are worth a thread: of less, starting it takes as long as what it saves."""


def threads_for(cells: int) -> int:
    """Return how many threads to use for steps on so many values, at most as many as torch is set to (OMP_NUM_THREADS)."""
    by_size = cells // CELLS_PER_THREAD
    most = min(torch.get_num_threads(), by_size)
    if most <= 1:
        return 1
    return max(1, min(most, idle_cores()))


@contextmanager
def blas_threads() -> Iterator[None]:
    """Let matrix products of NumPy and SciPy use as many threads as there are idle processors inside the block.

    On a busy machine one per processor would wait for one another at every step: a factorisation of 700 rows took a second in place of
    ten milliseconds. A smaller limit, such as that of `make_deterministic`, stays.
    """
    in_use = [pool["num_threads"] for pool in threadpool_info()]
    with threadpool_limits(max(1, min([idle_cores(), *in_use]))):
        yield


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch use so many threads inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
