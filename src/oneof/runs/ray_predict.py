"""Predict files on the machines of a Ray cluster: actors of Ray Data hold the model, and each writes whole files.

A file is the unit of work. Its output appears under its name in one step when it is complete, so a file whose worker is lost is
predicted again elsewhere, and no row is missing or written twice.
"""

import logging
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from oneof.data.roles import ColumnRoles
from oneof.runs.predict_files import PredictionSummary, PredictJob, run_job
from oneof.runs.predictor import Predictor
from oneof.storage.optional_packages import load_package
from oneof.storage.progress import progress_bar


class FilePredictor:
    """Predicts files in a worker process; the model is read once."""

    def __init__(self, predictor: Predictor, unpacked: float) -> None:
        self.predictor = predictor
        self.unpacked = unpacked

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Predict the files of a batch of jobs; return what was counted, or the error in a file, for each, as bytes."""
        results = []
        for file, out, origin in zip(batch["file"], batch["out"], batch["origin"], strict=True):
            job = PredictJob(Path(file), Path(out), str(origin))
            result: PredictionSummary | Exception
            try:
                result = run_job(self.predictor, job, self.unpacked)
            except (ValueError, TypeError, OSError) as error:  # raised again where the command runs
                result = error
            results.append(pickle.dumps(result))
        return {"result": results}


def predict_on_ray(
    predictor: Predictor, jobs: Sequence[PredictJob], *, unpacked: float = ColumnRoles.unpacked, show: bool = True
) -> PredictionSummary:
    """Predict files on the cluster that this process is part of or RAY_ADDRESS names, else on all cores of this machine.

    The run, the files and the folder of the results must have the same paths on every machine. Files whose output is complete are
    left as they are.
    """
    ray = load_package("ray", "--engine ray")
    ray_data = load_package("ray.data", "--engine ray")
    summary = PredictionSummary()
    open_jobs = [job for job in jobs if not job.is_done]
    if not open_jobs:
        return summary
    started_here = not ray.is_initialized()
    if started_here:
        ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    quiet = ray_data.DataContext.get_current()
    quiet.enable_progress_bars = False
    quiet.print_on_execution_start = False
    try:
        items = [{"file": str(job.file), "out": str(job.out), "origin": job.origin} for job in open_jobs]
        cluster_cores = max(1, int(ray.cluster_resources().get("CPU", 1)))
        results = ray_data.from_items(items, override_num_blocks=len(items)).map_batches(
            FilePredictor,
            fn_constructor_args=(predictor, unpacked),
            batch_size=1,
            batch_format="numpy",
            compute=ray_data.ActorPoolStrategy(min_size=1, max_size=min(cluster_cores, len(items))),
            num_cpus=1,
        )
        with progress_bar("predict", len(open_jobs), show, unit="files") as step:
            for row in results.iter_rows():
                result = pickle.loads(row["result"])
                if isinstance(result, Exception):
                    raise result
                summary.add(result)
                step(f"{summary.n_rows:,} rows")
    finally:
        if started_here:
            ray.shutdown()
    return summary
