"""A default fit of tables of many sizes: processor seconds, peak memory and accuracy, beside a weighted forest's, or by another commit.

    python benchmarks/speed/large_tables.py --rows 1000 3000 10000 30000 100000 300000 1000000 --threads 1
    python benchmarks/speed/large_tables.py --rows 1000 3000 10000 30000 100000 --learner forest
    python benchmarks/speed/large_tables.py --rows 1600 --columns 10000 --threads 1
    python benchmarks/speed/large_tables.py --draw docs/figures/large-tables.png
    python benchmarks/speed/large_tables.py --rows 100000 --against 721ca07
    python benchmarks/speed/large_tables.py --rows 1000000 --device cuda --profile

Ten classes of two clusters each in twenty columns, or in --columns, of which a fiftieth (twelve at least) tells them apart; each wrong label is in a set with probability 0.3. Every fit is a process of its own, and
--jobs of them run at a time. The forest has 100 trees, grown on a copy of each row for every candidate, with weight 1 / |S|; of more than
100,000 rows it gets that many. The other commit is checked out in a git worktree, which is removed at the end. --draw draws the last row of
each size that was fitted by one thread of a CPU.
"""

from __future__ import annotations

import argparse
import cProfile
import inspect
import json
import os
import platform
import pstats
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import make_classification
from sklearn.ensemble import ExtraTreesClassifier

from oneof import PartialLabelClassifier
from oneof.candidates.generate import Flip, generate

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = 20
CLASSES = 10
TEST_ROWS = 20_000
TEST_CELLS = 10_000_000  # rows x columns to test on, at most
MAX_FOREST_ROWS = 100_000


def fit_oneof(x: Any, sets: Any, seed: int, device: str) -> Any:
    """Fit the default."""
    options = {}
    if "device" in inspect.signature(PartialLabelClassifier).parameters:  # an older commit may have none
        options["device"] = device
    return PartialLabelClassifier(random_state=seed, **options).fit(x, sets)


def fit_forest(x: Any, sets: Any, seed: int) -> Any:
    """Fit a forest to a copy of each row for every candidate."""
    mask = np.asarray(sets)[:MAX_FOREST_ROWS]
    row, label = np.nonzero(mask)
    weight = 1 / mask.sum(1)
    forest = ExtraTreesClassifier(100, random_state=seed)
    return forest.fit(x[row], label, weight[row])


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Fit one table in this process."""
    (n_rows,) = arguments.rows
    n_test = min(TEST_ROWS, TEST_CELLS // arguments.columns)
    x, labels = make_classification(
        n_rows + n_test,
        arguments.columns,
        n_informative=max(12, arguments.columns // 50),
        n_classes=CLASSES,
        n_clusters_per_class=2,
        class_sep=1.2,
        flip_y=0,
        random_state=arguments.seed,
    )
    x = x.astype(np.float32)
    sets = generate(labels, CLASSES, Flip(0.3), seed=arguments.seed)
    profiler = cProfile.Profile()
    start = time.perf_counter()
    processor_start = time.process_time()
    if arguments.profile:
        profiler.enable()
    if arguments.learner == "forest":
        classifier = fit_forest(x[:n_rows], sets[:n_rows], arguments.seed)
    else:
        classifier = fit_oneof(x[:n_rows], sets[:n_rows], arguments.seed, arguments.device)
    profiler.disable()
    seconds = time.perf_counter() - start
    processor_seconds = time.process_time() - processor_start
    peak_gigabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    has_gpu = torch.cuda.is_initialized()
    if arguments.profile:
        pstats.Stats(profiler, stream=sys.stderr).sort_stats("cumtime").print_stats("oneof|sklearn/ensemble", 70)
        pstats.Stats(profiler, stream=sys.stderr).sort_stats("tottime").print_stats(40)
    row = {
        "on": torch.cuda.get_device_name() if has_gpu else "cpu",
        "seconds": round(seconds, 1),
        "processor_seconds": round(processor_seconds, 1),
        "resident_gb": round(peak_gigabytes, 2),
        "gpu_gb": round(torch.cuda.max_memory_allocated() / 2**30, 2) if has_gpu else 0.0,
        "accuracy": round(float((classifier.predict(x[n_rows:]) == labels[n_rows:]).mean()), 4),
    }
    if arguments.learner == "oneof":
        row["labels_right"] = round(float((classifier.transduction_ == labels[:n_rows]).mean()), 4)
        row["learners"] = getattr(classifier.model_, "learners", None)
    return {**row, "torch": torch.__version__}


def measure_in_process(tree: Path, n_rows: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Fit by the code in a tree, in a process of its own; its profile goes to the terminal."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    if arguments.threads is not None:
        for library in ("OMP", "OPENBLAS", "MKL"):
            environment[f"{library}_NUM_THREADS"] = str(arguments.threads)
    command = [sys.executable, __file__, "--child", "--rows", str(n_rows), "--seed", str(arguments.seed)]
    command += ["--columns", str(arguments.columns), "--device", arguments.device, "--learner", arguments.learner]
    if arguments.profile:
        command.append("--profile")
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


@contextmanager
def source_trees(commit: str, against: str | None) -> Iterator[dict[str, Path]]:
    """Yield the source trees to measure, by commit: this one, and another."""
    with tempfile.TemporaryDirectory() as folder:
        trees = {commit: ROOT}
        git = ["git", "-C", str(ROOT), "worktree"]
        if against is not None:
            trees[against] = Path(folder) / "other"
            subprocess.run([*git, "add", "--detach", str(trees[against]), against], check=True, capture_output=True)
        try:
            yield trees
        finally:
            if against is not None:
                subprocess.run([*git, "remove", "--force", str(trees[against])], check=True)


def current_commit() -> str:
    """Return this commit; on a machine without git it is not known."""
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def draw(results: Path, out: Path) -> None:
    """Draw processor seconds, peak memory and accuracy over the number of rows."""
    import matplotlib.pyplot as plt

    rows: dict[str, dict[int, dict[str, Any]]] = {"oneof": {}, "forest": {}}
    for line in results.read_text("utf-8").splitlines():
        row = json.loads(line)
        if row["on"] == "cpu" and row["threads"] == 1 and row["columns"] == COLUMNS:
            rows[row.get("learner", "oneof")][row["rows"]] = row  # rows of earlier commits do not name it
    figure, axes = plt.subplots(1, 3, figsize=(10, 3), layout="constrained")
    for learner, title in (("oneof", "oneof, default"), ("forest", "weighted forest")):
        sizes = sorted(rows[learner])
        for axis, key in zip(axes, ("processor_seconds", "resident_gb", "accuracy"), strict=True):
            axis.plot(sizes, [rows[learner][n][key] for n in sizes], marker="o", label=title)
    axes[0].set(title="Processor seconds", yscale="log")
    axes[1].set(title="Peak memory, GB", ylim=(0, None))
    axes[2].set(title="Accuracy on new rows")
    axes[2].legend()
    for axis in axes:
        axis.set(xscale="log", xlabel="rows")
        axis.grid(alpha=0.3)
    figure.savefig(out, dpi=150)


def main() -> None:
    """Measure each number of rows in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000])
    parser.add_argument("--columns", type=int, default=COLUMNS)
    parser.add_argument("--learner", choices=("oneof", "forest"), default="oneof")
    parser.add_argument("--device", default="cpu", help="auto, cpu or cuda")
    parser.add_argument("--against", help="another commit, measured beside this one")
    parser.add_argument("--commit", help="what this tree is called in rows; default: as git says")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, help="of linear algebra; default: as many as the libraries take")
    parser.add_argument("--jobs", type=int, default=1, help="fits at a time")
    parser.add_argument("--profile", action="store_true", help="print where the time went; it adds a little to it")
    parser.add_argument("--results", type=Path, default=ROOT / "results" / "large_tables.jsonl")
    parser.add_argument("--draw", type=Path, help="draw the rows to this file, and measure nothing")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.draw is not None:
        draw(arguments.results, arguments.draw)
        return
    if arguments.child:
        print(json.dumps(measure(arguments)))
        return
    commit = arguments.commit or current_commit()
    with source_trees(commit, arguments.against) as trees, ThreadPoolExecutor(arguments.jobs) as pool:
        settings = {}
        for n_rows in arguments.rows:
            for name, tree in trees.items():
                setting = {
                    "rows": n_rows,
                    "columns": arguments.columns,
                    "classes": CLASSES,
                    "seed": arguments.seed,
                    "learner": arguments.learner,
                    "commit": name,
                    "device": arguments.device,
                    "threads": arguments.threads,
                    "cores": os.cpu_count(),
                    "python": platform.python_version(),
                }
                settings[pool.submit(measure_in_process, tree, n_rows, arguments)] = setting
        arguments.results.parent.mkdir(parents=True, exist_ok=True)
        for future in as_completed(settings):
            row = {**settings[future], **future.result()}
            print(json.dumps(row), flush=True)
            with arguments.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
