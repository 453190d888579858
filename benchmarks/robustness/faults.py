"""Kill a run at random moments, resume it, and compare with one that was left alone.

    python benchmarks/robustness/faults.py --kills 200

The run: PRODEN + POP, two trials, a checkpoint after every step, so that many kills fall into a write. It is started, killed
(SIGKILL) after a random time, started again ... until it ends by itself, over and over until there were enough kills. Every
ending must give the same weights, sets, history and rows, to the bit, and no start may find a checkpoint it cannot read.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def work(folder: Path) -> None:
    """The run, in a process of its own; prints what it ended with."""
    import numpy as np
    import torch

    from oneof.candidates.generate import Flip, generate
    from oneof.purify import Pop
    from oneof.training.fit import fit
    from oneof.training.trials import Training, Trial
    from oneof_paper.results import rows_of
    from oneof_paper.synthetic import mixture

    torch.set_num_threads(1)
    data = mixture(n=400, d=6, c=5, seed=0)
    trials = [
        Trial(seed=seed, rows=np.arange(300), held_out=np.arange(300, 350), test=np.arange(350, 400)) for seed in (0, 1)
    ]
    fitted = fit(
        data.x, generate(data.labels, 5, Flip(0.4), seed=1), trials=trials, purify=Pop(2, 2, 2), labels=data.labels,
        training=Training(epochs=20, batch=30), choose="approximated", checkpoint=folder, every=0.0,
    )  # fmt: skip
    digest = hashlib.sha256()
    for tensor in [
        *fitted.stack.weights.values(),
        fitted.candidates,
        *fitted.removals,
        *fitted.history.values(),
    ]:
        digest.update(tensor.numpy().tobytes())
    rows = rows_of(fitted, seeds=[0, 1], seconds=0.0, labels=data.labels)
    digest.update(json.dumps(rows).encode())
    print(digest.hexdigest())


def attempt(folder: Path, seconds: float | None) -> str | None:
    """Start the run; None if it was killed, else what it ended with."""
    command = [sys.executable, __file__, "--work", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.communicate()
        return None
    if process.returncode != 0:
        sys.exit(f"a start failed:\n{err}")
    return out.strip()


def main(kills: int, seed: int) -> None:
    random.seed(seed)
    base = Path(tempfile.mkdtemp())
    start = time.perf_counter()
    undisturbed = attempt(base / "alone", None)
    whole = time.perf_counter() - start
    killed, endings, during_write, same = 0, 0, 0, 0
    while killed < kills:
        folder = base / f"run-{endings}"
        while (ended := attempt(folder, random.uniform(0.35, 1.05) * whole)) is None:
            killed += 1
            during_write += any(folder.rglob(".*.part"))
            print(
                f"\r{killed} of {kills} kills, {endings} endings, {during_write} kills inside a write",
                end="",
                flush=True,
            )
        endings += 1
        same += ended == undisturbed
        shutil.rmtree(folder)
    print(
        f"\n{killed} kills ({during_write} inside a write), {endings} endings, {same} of them equal to the undisturbed run"
    )
    shutil.rmtree(base)
    sys.exit(0 if same == endings else 1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path)
    chosen = parser.parse_args()
    if chosen.work:
        work(chosen.work)
    else:
        main(chosen.kills, chosen.seed)
