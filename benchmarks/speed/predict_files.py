"""Predict many files: rows per second and peak memory of one process, beside scikit-learn's forest; and on Ray with a node that dies.

    python benchmarks/speed/predict_files.py [--files 200] [--rows 50000] [--learners linear] [--folder /tmp/predict] [--results results/scale.jsonl]
    python benchmarks/speed/predict_files.py --ray [--files 200] [--rows 50000] [--learners linear]

The run is fitted to 2,000 rows of 20 numbers and 5 classes. One process: `oneof predict RUN 'new/*.parquet' --out FOLDER`, measured in a process of
its own; the bound is 1.5 GB at 10 million rows. The forest (100 trees, one thread) predicts the same rows, read file by file.

--ray: a cluster of two nodes on this machine (`ray.cluster_utils`), one of which is removed when half of the files are predicted. Every row must be
there once, and the files must equal those of one process.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.ensemble import RandomForestClassifier

from oneof.learners.config import EnsembleConfig, FitConfig
from oneof.runs.fit_spec import FitSpec
from oneof.runs.fit_table import fit_table
from oneof.runs.predict_files import plan_jobs, predict_to_folder
from oneof.runs.predictor import Predictor
from oneof.storage.rows import append
from oneof_paper.results import origin
from oneof_paper.synthetic import mixture

FEATURES = 20
CLASSES = 5
NAMES = [f"x{j}" for j in range(FEATURES)]


def prepare(folder: Path, n_files: int, n_rows: int, learners: list[str] | None = None) -> tuple[Path, list[Path]]:
    """Fit the run, by all learners or by these, and write the files, unless they are there."""
    run = folder / "-".join(["RUN", *(learners or [])])
    folder.mkdir(parents=True, exist_ok=True)
    data = mixture(n=2000, d=FEATURES, c=CLASSES, separation=3.0, seed=0)
    if not (run / "run.json").exists():
        rng = np.random.default_rng(1)
        sets = np.eye(CLASSES, dtype=bool)[data.labels] | (rng.random((2000, CLASSES)) < 0.3)
        table = pd.DataFrame(data.x, columns=NAMES)
        table["candidates"] = ["|".join(f"class {j}" for j in np.flatnonzero(row)) for row in sets]
        table.to_parquet(folder / "table.parquet")
        config = EnsembleConfig()
        if learners:
            config = replace(config, learners=tuple(learners))
        fit_table(folder / "table.parquet", run, FitSpec(config=FitConfig(config)))
    files = []
    (folder / "new").mkdir(exist_ok=True)
    for i in range(n_files):
        path = folder / "new" / f"{i:04d}.parquet"
        files.append(path)
        if path.exists() and pq.read_metadata(path).num_rows == n_rows:
            continue
        rng = np.random.default_rng(100 + i)
        rows = data.x[rng.integers(2000, size=n_rows)] + rng.normal(size=(n_rows, FEATURES)) / 4
        columns = {name: rows[:, j].astype(np.float32) for j, name in enumerate(NAMES)}
        columns["id"] = np.arange(i * n_rows, (i + 1) * n_rows)
        pq.write_table(pa.table(columns), path)
    return run, files


def measure(run: Path, files: list[Path], out: Path) -> dict[str, object]:
    """Predict all files in this process."""
    predictor = Predictor(run, columns=["id"])
    jobs = plan_jobs(predictor, files, out)
    start = time.perf_counter()
    summary = predict_to_folder(predictor, jobs, show=False)
    seconds = time.perf_counter() - start
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "kind": "predict",
        "files": len(files),
        "rows": summary.n_rows,
        "rows_per_second": round(summary.n_rows / seconds),
        "rows_per_processor_second": round(summary.n_rows / (used.ru_utime + used.ru_stime)),
        "peak_gigabytes": round(used.ru_maxrss / 2**20, 2),
        "learners": {name: round(share, 2) for name, share in predictor.model.learners.items()},
    }


def measure_forest(folder: Path, files: list[Path]) -> dict[str, object]:
    """Predict all files by scikit-learn's forest."""
    table = pd.read_parquet(folder / "table.parquet")
    first = table["candidates"].str.split("|").str[0]
    forest = RandomForestClassifier(100, random_state=0).fit(table[NAMES].to_numpy(np.float32), first)
    start = time.process_time()
    n_rows = 0
    for path in files:
        rows = pd.read_parquet(path)
        forest.predict_proba(rows[NAMES].to_numpy(np.float32))
        n_rows += len(rows)
    return {
        "kind": "predict, scikit-learn",
        "rows": n_rows,
        "rows_per_processor_second": round(n_rows / (time.process_time() - start)),
    }


def measure_ray(run: Path, files: list[Path], folder: Path) -> dict[str, object]:
    """Predict on two nodes, remove one half way, and compare with one process."""
    import ray
    from ray.cluster_utils import Cluster

    from oneof.runs.ray_predict import predict_on_ray

    predictor = Predictor(run, columns=["id"])
    there = plan_jobs(predictor, files, folder / "ray")
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    node = cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False)
    removed_at: list[int] = []

    def remove() -> None:
        while sum(job.out.exists() for job in there) < len(there) / 2:
            time.sleep(0.5)
        removed_at.append(sum(job.out.exists() for job in there))
        cluster.remove_node(node, allow_graceful=False)

    watcher = threading.Thread(target=remove)
    watcher.start()
    start = time.perf_counter()
    summary = predict_on_ray(predictor, there, show=False)
    seconds = time.perf_counter() - start
    watcher.join()
    ray.shutdown()
    cluster.shutdown()
    here = plan_jobs(predictor, files, folder / "here")
    predict_to_folder(predictor, here, show=False)
    ids = np.concatenate([pq.read_table(job.out)["id"].to_numpy() for job in there])
    equal = all(pq.read_table(one.out).equals(pq.read_table(other.out)) for one, other in zip(here, there, strict=True))
    return {
        "kind": "predict, ray",
        "files": len(files),
        "rows": summary.n_rows,
        "learners": {name: round(share, 2) for name, share in predictor.model.learners.items()},
        "node_removed_after_files": removed_at[0],
        "every_row_once": bool(
            len(ids) == len(np.unique(ids)) == sum(pq.read_metadata(path).num_rows for path in files)
        ),
        "equal_to_one_process": equal,
        "seconds": round(seconds, 1),
    }


def main() -> None:
    """Measure in processes of their own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "oneof-predict")
    parser.add_argument("--ray", action="store_true")
    parser.add_argument("--learners", nargs="+")
    parser.add_argument("--results", type=Path)
    parser.add_argument("--child", default="")
    arguments = parser.parse_args()
    run, files = prepare(arguments.folder, arguments.files, arguments.rows, arguments.learners)
    if not arguments.child:
        kinds = ["ray"] if arguments.ray else ["oneof", "forest"]
        for kind in kinds:
            command = [sys.executable, __file__, "--files", str(arguments.files), "--rows", str(arguments.rows)]
            command += ["--folder", str(arguments.folder), "--child", kind]
            if arguments.learners:
                command += ["--learners", *arguments.learners]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            row = {**json.loads(done.stdout.splitlines()[-1]), **origin("cpu")}
            print(json.dumps(row), flush=True)
            if arguments.results is not None:
                append(arguments.results, [row])
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        if arguments.child == "oneof":
            print(json.dumps(measure(run, files, Path(folder, "out"))), flush=True)
        elif arguments.child == "forest":
            print(json.dumps(measure_forest(arguments.folder, files)), flush=True)
        else:
            print(json.dumps(measure_ray(run, files, Path(folder))), flush=True)


if __name__ == "__main__":
    main()
