"""Jobs in worker processes: the same results for any number of them, with bounded threads."""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest
import torch
from joblib.externals.loky import get_reusable_executor
from threadpoolctl import threadpool_info

from oneof.storage.cores import cores
from oneof.training.parallel import count_workers, map_jobs, start_workers


def product(seed: int) -> np.ndarray:
    matrix = np.random.default_rng(seed).normal(size=(60, 60)).astype(np.float32)
    return matrix @ matrix.T


def describe(job: int) -> tuple[int, int, int]:
    pools = [pool["num_threads"] for pool in threadpool_info()]
    return os.getpid(), torch.get_num_threads(), max(pools, default=1)


def is_writable(array: np.ndarray) -> bool:
    return bool(torch.as_tensor(array).sum() >= 0) and array.flags.writeable


def is_deterministic(job: int) -> bool:
    return torch.are_deterministic_algorithms_enabled()


def has_compiler(job: int) -> bool:
    return "torch._inductor" in sys.modules


def refuse(job: int) -> None:
    raise ValueError(f"job {job} must be another; got {job}. Leave it out.")


def test_results_are_equal_to_the_bit_and_in_order():
    alone = map_jobs(product, range(5))
    together = map_jobs(product, range(5), n_jobs=2)
    assert len(alone) == len(together) == 5
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one, other)


def test_jobs_run_in_workers_with_bounded_threads():
    before = torch.get_num_threads()
    for n_jobs in (1, 2):
        described = map_jobs(describe, range(4), n_jobs=n_jobs, threads=1)
        assert {threads for _, *counts in described for threads in counts} == {1}
        is_here = {process == os.getpid() for process, *_ in described}
        assert is_here == {n_jobs == 1}
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_bad_input_in_a_job_is_raised_here(n_jobs):
    with pytest.raises(ValueError, match=r"job 3 must be another"):
        map_jobs(refuse, [3, 3], n_jobs=n_jobs)


def test_as_many_workers_as_asked_for():
    assert count_workers(-1, 10_000) == cores()
    assert map_jobs(product, [], n_jobs=4) == []
    with pytest.raises(ValueError, match=r"n_jobs must be at least 1, or -1"):
        count_workers(0, 3)


def test_workers_that_were_started_before_do_the_jobs():
    with start_workers(2):
        pass
    first = {process for process, *_ in map_jobs(describe, range(8), n_jobs=2)}
    second = {process for process, *_ in map_jobs(describe, range(2), n_jobs=2)}
    assert os.getpid() not in first | second
    assert len(first | second) <= 2
    with start_workers(1):
        assert count_workers(1, 4) == 1


def test_large_arrays_are_writable_in_workers():
    large = np.zeros(2**18)  # beyond a megabyte, joblib maps it into memory
    assert map_jobs(is_writable, [large, large], n_jobs=2) == [True, True]


def test_workers_do_not_load_the_compiler_of_torch():
    """It takes each of them a second, and a table needs none."""
    get_reusable_executor().shutdown(wait=True)
    assert not any(map_jobs(has_compiler, range(2), n_jobs=2))


def test_workers_are_as_deterministic_as_this_process():
    before = torch.are_deterministic_algorithms_enabled()
    try:
        for mode in (True, False):
            torch.use_deterministic_algorithms(mode)
            assert map_jobs(is_deterministic, range(2), n_jobs=2) == [mode, mode]
    finally:
        torch.use_deterministic_algorithms(before)
