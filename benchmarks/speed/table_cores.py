"""Fit a table on 1, 2, 4, 8 and 16 cores by `n_jobs`: seconds, speed-up, and whether the labels are the same.

    python benchmarks/speed/table_cores.py [--cores 16 8 4 2 1] [--rows 30000] [--networks 32] [--hidden 128 128] [--against COMMIT] [--results results/scale.jsonl]

Ten classes of two clusters each in twenty columns; each wrong label is in a set with probability 0.3. 32 networks, 32 linear models,
five kernels and trees: enough to deal out. Every fit is a process of its own, which may use so many processors and no more; its seconds include
the start of its workers. With another commit, both are measured in turns. Exits with 1 if labels differ between numbers of cores.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import make_classification

from oneof import PartialLabelClassifier
from oneof.candidates.generate import Flip, generate
from oneof.storage.rows import append
from oneof_paper.results import origin

COLUMNS = 20
CLASSES = 10


def measure(n_cores: int, n_rows: int, n_networks: int, hidden: tuple[int, ...]) -> dict[str, Any]:
    """Fit in this process, which has so many processors."""
    x, y = make_classification(
        n_rows, COLUMNS, n_informative=12, n_classes=CLASSES, class_sep=1.2, flip_y=0, random_state=0
    )
    sets = generate(y, CLASSES, Flip(0.3), seed=0)
    classifier = PartialLabelClassifier(
        n_estimators=n_networks, hidden_layer_sizes=hidden, n_jobs=n_cores, device="cpu", random_state=0
    )
    start = time.perf_counter()
    classifier.fit(x.astype(np.float32), sets)
    seconds = time.perf_counter() - start
    return {
        "kind": "table cores",
        "cores": n_cores,
        "rows": n_rows,
        "networks": n_networks,
        "hidden": list(hidden),
        "seconds": round(seconds, 2),
        "labels": hashlib.sha256(np.asarray(classifier.transduction_, dtype=np.int64).tobytes()).hexdigest()[:16],
        "labels_right": round(float((classifier.transduction_ == y).mean()), 4),
        "learners": classifier.model_.learners,
        **origin("cpu"),
    }


def fit_on(tree: Path, n_cores: int, n_rows: int, n_networks: int, hidden: list[int]) -> dict[str, Any]:
    """Fit by the code in a tree, in a process that may use so many processors; return its row, with the processor seconds of it and its workers."""
    processors = sorted(os.sched_getaffinity(0))[:n_cores]
    command = [sys.executable, __file__, "--child", str(n_cores), "--rows", str(n_rows), "--networks", str(n_networks)]
    command += ["--hidden", *map(str, hidden)]
    environment = os.environ | {"PYTHONPATH": str(tree / "src")}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    # before its libraries are loaded, which count the processors and start so many threads
    done = subprocess.run(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        preexec_fn=lambda: os.sched_setaffinity(0, processors),
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    row = json.loads(done.stdout.splitlines()[-1])
    return {**row, "processor_seconds": round(used, 1)}


def compare(trees: list[Path], arguments: argparse.Namespace) -> bool:
    """Measure each number of cores by the code in each tree, in turns; return whether all labels of a tree are the same."""
    rows: list[list[dict[str, Any]]] = [[] for _ in trees]
    for n_cores in arguments.cores:
        for tree, rows_of_tree in zip(trees, rows, strict=True):
            row = fit_on(tree, n_cores, arguments.rows, arguments.networks, arguments.hidden)
            rows_of_tree.append(row)
            print(json.dumps(row), flush=True)
            if arguments.results is not None:
                append(arguments.results, [row])
    agree = True
    for rows_of_tree in rows:
        base = min(rows_of_tree, key=lambda row: row["cores"])
        for row in rows_of_tree:
            speed_up = base["seconds"] / row["seconds"]
            print(
                f"{row['commit']}, {row['cores']} cores: {row['seconds']} s, {speed_up:.1f} x as fast as {base['cores']}"
            )
        agree = agree and len({row["labels"] for row in rows_of_tree}) == 1
    return agree


def main() -> None:
    """Measure each number of cores, by this commit and by another one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cores", type=int, nargs="+", default=[16, 8, 4, 2, 1])
    parser.add_argument("--rows", type=int, default=30_000)
    parser.add_argument("--networks", type=int, default=32)
    parser.add_argument("--hidden", type=int, nargs="*", default=[128, 128], help="units of each hidden layer")
    parser.add_argument("--against", help="a commit, measured in a git worktree")
    parser.add_argument("--results", type=Path)
    parser.add_argument("--child", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(measure(arguments.child, arguments.rows, arguments.networks, tuple(arguments.hidden))))
        return
    here = Path(__file__).resolve().parents[2]
    if arguments.against is None:
        agree = compare([here], arguments)
    else:
        with tempfile.TemporaryDirectory() as folder:
            other = Path(folder) / "other"
            git = ["git", "-C", str(here), "worktree"]
            subprocess.run([*git, "add", "--detach", str(other), arguments.against], check=True, capture_output=True)
            try:
                agree = compare([here, other], arguments)
            finally:
                subprocess.run([*git, "remove", "--force", str(other)], check=True)
    if not agree:
        sys.exit("labels differ")


if __name__ == "__main__":
    main()
