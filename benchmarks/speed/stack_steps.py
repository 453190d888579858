"""What a training step of a stack of networks costs on a CPU, by the number of networks, beside another commit.

    python benchmarks/speed/stack_steps.py [--cases large small linear] [--networks 1 2 4 8 16 32] [--against COMMIT] [--results results/scale.jsonl]

Ten classes in twenty columns, each wrong label in a set with probability 0.3; networks, batches and training are the default's, by one
thread. `large` has 20,000 rows, `small` 1,000, and `linear` the linear models beside the MLPs of 20,000. Prints processor milliseconds:
the median of a step, and what an epoch ends with, mostly the prediction of held-out rows. The last line of
`small` is a step of four rows, which is overhead alone. With another commit, both are measured in turns, and the less of three is kept.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.datasets import make_classification

from oneof.candidates.generate import Flip, generate
from oneof.learners.config import EnsembleConfig
from oneof.learners.networks import LINEAR_BATCH_FACTOR, make_training
from oneof.networks import MLP
from oneof.storage.rows import append
from oneof.training.loop import begin, steps
from oneof.training.stack import build
from oneof.training.training_data import make_training_data
from oneof.training.trials import Trial
from oneof_paper.results import origin

COLUMNS = 20
CLASSES = 10
TURNS = 3


class Case(NamedTuple):
    """A table and the networks that are trained on it."""

    n_rows: int
    epochs: int
    is_linear: bool = False


CASES = {"large": Case(20_000, 4), "small": Case(1_000, 40), "linear": Case(20_000, 8, is_linear=True)}


def measure(name: str, n_networks: int, batch: int) -> dict[str, Any]:
    """Train a stack in this process; return milliseconds. A batch of 0 rows means that of the default."""
    torch.set_num_threads(1)
    case = CASES[name]
    x, labels = make_classification(
        case.n_rows, COLUMNS, n_informative=12, n_classes=CLASSES, class_sep=1.2, flip_y=0, random_state=0
    )
    sets = generate(labels, CLASSES, Flip(0.3), seed=0)
    config = EnsembleConfig().for_size(case.n_rows, CLASSES)
    hidden = () if case.is_linear else config.hidden
    if not batch:
        batch = config.batch_size * (LINEAR_BATCH_FACTOR if case.is_linear else 1)
    n_held_out = case.n_rows // config.n_folds
    trials = []
    for seed in range(n_networks):
        rows = np.random.default_rng(seed).permutation(case.n_rows)
        trial = Trial(
            seed=seed,
            rows=rows[n_held_out:],
            held_out=rows[:n_held_out],
            lr=config.lr,
            weight_decay=config.weight_decay,
            scaling="feature",
        )
        trials.append(trial)
    training = make_training(config, case.epochs, batch)
    data = make_training_data(x.astype(np.float32), sets, trials, config.method, config.purify, training)
    seeds = [trial.seed for trial in trials]
    stack = build(lambda: data.network(MLP(hidden)), seeds, torch.device("cpu"))

    step_seconds = []
    epoch_end_seconds = []
    was_step = False
    last = time.process_time()
    for record in steps(data, begin(data, stack, seeds)):
        now = time.process_time()
        if record is not None:
            epoch_end_seconds.append(now - last)
        elif was_step:  # the first of an epoch also draws its order
            step_seconds.append(now - last)
        was_step = record is None
        last = now
    return {
        "kind": "stack steps",
        "case": name,
        "networks": n_networks,
        "batch": batch,
        "step_ms": round(1e3 * median(step_seconds), 3),
        "epoch_end_ms": round(1e3 * median(epoch_end_seconds), 2),
        **origin("cpu"),
    }


def run(tree: Path, name: str, n_networks: int, batch: int) -> dict[str, Any]:
    """Return what `measure` gives by the code in a tree, in a process of its own."""
    environment = os.environ | {"PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--child", name, str(n_networks), str(batch)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def compare(trees: list[Path], cases: list[str], networks: list[int], results: Path | None) -> None:
    """Measure cases by the code in each tree, in turns; print a line for each number of networks."""
    for name in cases:
        sizes = [(count, 0) for count in networks]
        if name == "small":
            sizes.append((2, 4))
        for n_networks, batch in sizes:
            rows: list[list[dict[str, Any]]] = [[] for _ in trees]
            for _ in range(TURNS):
                for tree, rows_of_tree in zip(trees, rows, strict=True):
                    rows_of_tree.append(run(tree, name, n_networks, batch))
            best = []
            for rows_of_tree in rows:
                fastest = min(rows_of_tree, key=lambda row: row["step_ms"])
                epoch_end = min(row["epoch_end_ms"] for row in rows_of_tree)
                best.append({**fastest, "epoch_end_ms": epoch_end})
            texts = [f"{row['step_ms']:7.2f} ms a step, {row['epoch_end_ms']:7.1f} an epoch's end" for row in best]
            print(
                f"{name}, {n_networks} networks, batches of {best[0]['batch']}: " + "; before: ".join(texts), flush=True
            )
            if results is not None:
                append(results, best)


def main() -> None:
    """Measure this commit, and another one in a git worktree beside it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=CASES)
    parser.add_argument("--networks", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32])
    parser.add_argument("--against", help="a commit")
    parser.add_argument("--results", type=Path)
    parser.add_argument("--child", nargs=3)
    arguments = parser.parse_args()
    if arguments.child:
        name, n_networks, batch = arguments.child
        print(json.dumps(measure(name, int(n_networks), int(batch))))
        return
    here = Path(__file__).resolve().parents[2]
    if arguments.against is None:
        compare([here], arguments.cases, arguments.networks, arguments.results)
        return
    with tempfile.TemporaryDirectory() as folder:
        other = Path(folder) / "other"
        git = ["git", "-C", str(here), "worktree"]
        subprocess.run([*git, "add", "--detach", str(other), arguments.against], check=True, capture_output=True)
        try:
            compare([here, other], arguments.cases, arguments.networks, arguments.results)
        finally:
            subprocess.run([*git, "remove", "--force", str(other)], check=True)


if __name__ == "__main__":
    main()
