"""How a kernel is launched; and how many are compiled at once before the first step."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from oneof.storage.cores import cores

_rehearsing = ContextVar("are kernels compiled only, not run?", default=False)


def launch(kernel: Any, programs: tuple[int, ...], *arguments: Any, num_warps: int = 4) -> None:
    if _rehearsing.get():
        kernel.warmup(*arguments, grid=programs, num_warps=num_warps)
    else:
        kernel[programs](*arguments, num_warps=num_warps)


@contextmanager
def warmup() -> Iterator[None]:
    """What is launched inside is compiled, several kernels at a time, and does not run; cuDNN's kernels do, and are chosen meanwhile."""
    from triton import AsyncCompileMode  # type: ignore[import-not-found]

    token = _rehearsing.set(True)
    try:
        with ThreadPoolExecutor(min(8, cores())) as pool, AsyncCompileMode(pool):
            yield
    finally:
        _rehearsing.reset(token)


def warmed_up(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, all of whose kernels are compiled before its first call, at once."""
    done = False

    def call(*arguments: Any) -> Any:
        nonlocal done
        if not done:
            with warmup():
                function(*arguments)
            done = True
        return function(*arguments)

    return call
