"""Compute rows on a Ray cluster: every job is a task, and one whose worker is lost resumes elsewhere from its checkpoint.

Every machine of the cluster needs `oneof`, and access to the folders of the rows and of the data.
"""

import logging
from collections.abc import Sequence
from typing import Any

from oneof.storage.optional_packages import load_package
from oneof.storage.rows import Row
from oneof_paper.compute_rows import FinishedJobs, Job, run_job

MAX_RETRIES = 5  # of a job whose worker is lost


def run_on_ray(jobs: Sequence[Job], workers: int = 0) -> FinishedJobs:
    """Run jobs on the cluster that this process is part of or RAY_ADDRESS names, else on so many workers of this machine."""
    ray = load_ray()
    started_here = not ray.is_initialized()
    if started_here:
        ray.init(num_cpus=workers or None, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    running: dict[Any, Job] = {}
    try:
        for job in jobs:
            gpus = 1 if job.device.startswith("cuda") else 0
            task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=MAX_RETRIES)(run_job)
            running[task.remote(job)] = job
        while running:
            (finished,), _ = ray.wait(list(running), num_returns=1)
            job = running.pop(finished)
            yield job, _get_rows(ray, finished, job)
    finally:
        for unfinished in running:
            ray.cancel(unfinished, force=True)
        if started_here:
            ray.shutdown()


def load_ray() -> Any:
    """Return the package ray; raise with the command that installs it if it is missing."""
    return load_package("ray", "--on ray")


def _get_rows(ray: Any, finished: Any, job: Job) -> list[Row]:
    """Return the rows of a finished task; raise its error without the trace of the worker."""
    try:
        return ray.get(finished)  # type: ignore[no-any-return]
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    except ray.exceptions.WorkerCrashedError as error:
        cell = job.cell
        raise OSError(
            f"{cell.dataset}, {cell.system.title}, seed {cell.seeds[0]} lost {MAX_RETRIES + 1} workers, one after the other. "
            "Repeat the command with fewer workers: it resumes where it stopped."
        ) from error
