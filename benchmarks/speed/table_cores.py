"""Fit a table on 1, 2, 4, 8 and 16 cores by `n_jobs`: seconds, speed-up, and whether the labels are the same.

    python benchmarks/speed/table_cores.py [--cores 16 8 4 2 1] [--rows 8000] [--networks 32] [--results FILE]

Ten classes of two clusters each in twenty columns; each wrong label is in a set with probability 0.3. 32 networks and as many linear models, kernels and
trees: enough to deal out. Every fit is a process of its own, which may use so many processors and no more. Exits with 1 if labels differ.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import make_classification

from oneof import PartialLabelClassifier
from oneof.candidates.generate import Flip, generate

COLUMNS = 20
CLASSES = 10


def measure(n_cores: int, n_rows: int, n_networks: int) -> dict[str, Any]:
    """Fit in this process, on so many of its processors."""
    processors = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, processors[:n_cores])
    x, y = make_classification(
        n_rows, COLUMNS, n_informative=12, n_classes=CLASSES, class_sep=1.2, flip_y=0, random_state=0
    )
    sets = generate(y, CLASSES, Flip(0.3), seed=0)
    classifier = PartialLabelClassifier(n_estimators=n_networks, n_jobs=n_cores, device="cpu", random_state=0)
    start = time.perf_counter()
    classifier.fit(x.astype(np.float32), sets)
    seconds = time.perf_counter() - start
    return {
        "cores": n_cores,
        "rows": n_rows,
        "networks": n_networks,
        "seconds": round(seconds, 2),
        "labels": hashlib.sha256(np.asarray(classifier.transduction_, dtype=np.int64).tobytes()).hexdigest()[:16],
        "labels_right": round(float((classifier.transduction_ == y).mean()), 4),
        "learners": classifier.model_.learners,
        "torch": torch.__version__,
    }


def main() -> None:
    """Measure each number of cores in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cores", type=int, nargs="+", default=[16, 8, 4, 2, 1])
    parser.add_argument("--rows", type=int, default=8000)
    parser.add_argument("--networks", type=int, default=32)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--child", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(measure(arguments.child, arguments.rows, arguments.networks)))
        return
    rows = []
    for n_cores in arguments.cores:
        command = [sys.executable, __file__, "--child", str(n_cores)]
        command += ["--rows", str(arguments.rows), "--networks", str(arguments.networks)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        row = json.loads(done.stdout.splitlines()[-1])
        rows.append(row)
        print(json.dumps(row), flush=True)
        if arguments.results is not None:
            with arguments.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
    base = min(rows, key=lambda row: row["cores"])
    for row in rows:
        speed_up = base["seconds"] / row["seconds"]
        print(f"{row['cores']} cores: {row['seconds']} s, {speed_up:.1f} x as fast as {base['cores']}")
    if len({row["labels"] for row in rows}) > 1:
        sys.exit("labels differ")


if __name__ == "__main__":
    main()
