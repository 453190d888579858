"""Run independent jobs in worker processes by joblib: learners, members, folds and blocks of rows of a table."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import joblib
import torch
from joblib.externals.loky.process_executor import BrokenProcessPool
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from oneof.storage.cores import cores
from oneof.training.threads import torch_threads

Map = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]
"""(function, jobs) -> function(job) for every job, in their order: `map_here`, or `Resources.map` of a fit."""


def map_here(function: Callable[[Any], Any], jobs: Sequence[Any]) -> list[Any]:
    """Return function(job) for every job, computed one after the other in this process."""
    return [function(job) for job in jobs]


def map_jobs(
    function: Callable[[Any], Any], jobs: Sequence[Any], n_jobs: int | None = None, threads: int = 1
) -> list[Any]:
    """Return function(job) for every job, in their order.

    A job runs with the same number of threads wherever it runs, so that the results are the same for any number of workers.

    Parameters
    ----------
    function
        A function at the top of a module, or a `functools.partial` of one: workers import it.
    jobs
        Arguments that can be pickled; large arrays are sent as files that workers map into memory.
    n_jobs
        Worker processes; -1: as many as this process may use processors. None or 1: this process.
    threads
        Threads of NumPy, SciPy, scikit-learn and torch in a job. Where workers times threads exceed the processors, they wait for one
        another.
    """
    bounded = partial(_run_with_threads, function, threads)
    if count_workers(n_jobs, len(jobs)) == 1:
        return map_here(bounded, jobs)
    pool_size = resolve_n_jobs(n_jobs)  # also for fewer jobs: a smaller pool would end workers that the next call needs
    in_worker = partial(
        _run_in_worker, bounded, torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled()
    )
    try:
        with _worker_config(threads):
            results: list[Any] = joblib.Parallel(n_jobs=pool_size)(joblib.delayed(in_worker)(job) for job in jobs)
    except BrokenProcessPool as error:
        raise ChildProcessError(
            "a worker process has died, so the run cannot go on; it may have been out of memory. Repeat the call, or use fewer n_jobs."
        ) from error
    return results


@contextmanager
def start_workers(n_jobs: int | None, threads: int = 1) -> Iterator[None]:
    """Start the workers of `map_jobs`, which import torch for seconds, while the block runs."""
    pool_size = count_workers(n_jobs, cores())
    if pool_size == 1:
        yield
        return
    with _worker_config(threads):
        imports = [joblib.delayed(_import_torch)() for _ in range(pool_size)]
        started = joblib.Parallel(n_jobs=resolve_n_jobs(n_jobs), return_as="generator")(imports)
    try:
        yield
    finally:
        list(started)


def count_workers(n_jobs: int | None, n_items: int) -> int:
    """Return the number of workers for so many jobs: at most one for each.

    >>> [count_workers(n_jobs, 3) for n_jobs in (None, 1, 2, 8)]
    [1, 1, 2, 3]
    """
    n_workers = resolve_n_jobs(n_jobs) or 1
    return max(1, min(n_workers, n_items))


def resolve_n_jobs(n_jobs: int | None, *, pictures: bool = False) -> int | None:
    """Return the number of processes, with -1 replaced: all processors; for pictures one for each GPU, if there is one."""
    if n_jobs is not None and n_jobs != -1 and n_jobs < 1:
        raise ValueError(f"n_jobs must be at least 1, or -1 for all processors; got {n_jobs}.")
    if n_jobs != -1:
        return n_jobs
    if pictures and torch.cuda.device_count() > 0:
        return torch.cuda.device_count()
    return cores()


def _worker_config(threads: int) -> Any:
    """Return joblib's settings of the workers: arrays are mapped copy-on-write, since torch warns of read-only ones."""
    return joblib.parallel_config("loky", inner_max_num_threads=threads, mmap_mode="c")


def _import_torch() -> None:
    """Do nothing: a worker that receives this function has imported this module, and with it torch."""


def _run_in_worker(function: Callable[[Any], Any], dtype: torch.dtype, deterministic: bool, job: Any) -> Any:
    """Run a job with the settings of torch in the process that sent it."""
    torch.set_default_dtype(dtype)
    if torch.are_deterministic_algorithms_enabled() != deterministic:  # setting it loads torch's compiler, for a second
        torch.use_deterministic_algorithms(deterministic)
    return function(job)


def _run_with_threads(function: Callable[[Any], Any], threads: int, job: Any) -> Any:
    with limit_threads(threads):
        return function(job)


@contextmanager
def limit_threads(threads: int) -> Iterator[None]:
    """Let NumPy, SciPy and torch use so many threads inside the block."""
    with threadpool_limits(threads), torch_threads(threads):
        yield
