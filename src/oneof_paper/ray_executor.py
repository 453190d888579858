"""Rows on a Ray cluster: every errand is a task, and one whose worker is lost goes on elsewhere from its checkpoint.

The folder of the rows and that of the data must be seen by every machine of the cluster, and `oneof` installed there.
"""

import logging
from collections.abc import Sequence
from typing import Any

from oneof.storage.optional_packages import load_package
from oneof.storage.rows import Row
from oneof_paper.compute_rows import Done, Errand, run_errand

LOSSES = 5  # of workers that one errand survives


def on_ray(errands: Sequence[Errand], workers: int = 0) -> Done:
    """Run errands on the cluster that this process is part of, or RAY_ADDRESS names; else on so many workers of this machine."""
    ray = load_ray()
    ours = not ray.is_initialized()
    if ours:
        ray.init(num_cpus=workers or None, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    at_work: dict[Any, Errand] = {}
    try:
        for errand in errands:
            gpus = 1 if errand.device.startswith("cuda") else 0
            task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=LOSSES)(run_errand)
            at_work[task.remote(errand)] = errand
        while at_work:
            (done,), _ = ray.wait(list(at_work), num_returns=1)
            errand = at_work.pop(done)
            yield errand, _rows(ray, done, errand)
    finally:
        for unfinished in at_work:
            ray.cancel(unfinished, force=True)
        if ours:
            ray.shutdown()


def load_ray() -> Any:
    """Ray, if it is installed."""
    return load_package("ray", "--on ray")


def _rows(ray: Any, done: Any, errand: Errand) -> list[Row]:
    try:
        return ray.get(done)  # type: ignore[no-any-return]
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None  # the error itself, without the worker's trace
    except ray.exceptions.WorkerCrashedError as error:
        cell = errand.cell
        raise OSError(
            f"workers must live long enough for an errand; {cell.dataset}, {cell.system.title}, seed {cell.seeds[0]} lost "
            f"{LOSSES + 1} of them. Repeat the command with fewer workers: it goes on where it stood."
        ) from error
