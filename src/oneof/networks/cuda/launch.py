"""Launch kernels, and compile several of them at once before the first step."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from oneof.storage.cores import cores

_compile_only = ContextVar("compile_only", default=False)  # whether kernels are compiled and not run


def launch(kernel: Any, programs: tuple[int, ...], *arguments: Any, num_warps: int = 4) -> None:
    """Run a kernel on a grid of programs; inside `warmup`, compile it."""
    if _compile_only.get():
        kernel.warmup(*arguments, grid=programs, num_warps=num_warps)
    else:
        kernel[programs](*arguments, num_warps=num_warps)


@contextmanager
def warmup() -> Iterator[None]:
    """Compile what is launched inside, several kernels at a time, without running it; cuDNN's kernels run, and are chosen meanwhile."""
    from triton import AsyncCompileMode  # type: ignore[import-not-found]

    token = _compile_only.set(True)
    try:
        with ThreadPoolExecutor(min(8, cores())) as pool, AsyncCompileMode(pool):
            yield
    finally:
        _compile_only.reset(token)


def warmed_up(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with all of its kernels compiled, at once, before its first call."""
    is_compiled = False

    def call(*arguments: Any) -> Any:
        nonlocal is_compiled
        if not is_compiled:
            with warmup():
                function(*arguments)
            is_compiled = True
        return function(*arguments)

    return call
