"""A default fit of a large table: seconds, processor seconds, memory and accuracy, here and by another commit.

    python benchmarks/speed/large_tables.py --rows 100000 --against 721ca07
    python benchmarks/speed/large_tables.py --rows 1000000 --device cuda --profile

Ten classes of two clusters each in twenty columns; each wrong label is in a set with probability 0.3. Every fit is a process of its own. The
other commit is checked out in a git worktree, which is removed at the end; what has no device parameter learns on the CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[2]
COLUMNS, CLASSES, TEST = 20, 10, 20_000

ONE = """
import cProfile, inspect, json, pstats, resource, sys, time
import numpy as np, torch
from sklearn.datasets import make_classification
from oneof import PartialLabelClassifier
from oneof.candidates.generate import Flip, generate

n, d, c, test, seed, device, profile = (int(one) if one.isdigit() else one for one in sys.argv[1:])
x, y = make_classification(
    n + test, d, n_informative=12, n_classes=c, n_clusters_per_class=2, class_sep=1.2, flip_y=0, random_state=seed
)
x, sets = x.astype(np.float32), generate(y, c, Flip(0.3), seed=seed)
takes = "device" in inspect.signature(PartialLabelClassifier).parameters
clf = PartialLabelClassifier(random_state=seed, **({"device": device} if takes else {}))
profiler = cProfile.Profile()
begun, worked = time.perf_counter(), time.process_time()
if profile == "profile":
    profiler.enable()
clf.fit(x[:n], sets[:n])
profiler.disable()
seconds, processor = time.perf_counter() - begun, time.process_time() - worked
resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
card = torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_initialized() else 0.0
if profile == "profile":
    pstats.Stats(profiler, stream=sys.stderr).sort_stats("cumtime").print_stats("oneof|sklearn/ensemble", 70)
    pstats.Stats(profiler, stream=sys.stderr).sort_stats("tottime").print_stats(40)
print(json.dumps({
    "on": torch.cuda.get_device_name() if torch.cuda.is_initialized() else "cpu",
    "seconds": round(seconds, 1),
    "processor_seconds": round(processor, 1),
    "resident_gb": round(resident, 2),
    "gpu_gb": round(card, 2),
    "accuracy": round(float((clf.predict(x[n:]) == y[n:]).mean()), 4),
    "labels_right": round(float((clf.transduction_ == y[:n]).mean()), 4),
    "learners": clf.model_.learners if hasattr(clf.model_, "learners") else None,
    "torch": torch.__version__,
}))
"""


def once(tree: Path, n: int, device: str, seed: int, profile: bool, threads: int | None) -> dict[str, Any]:
    """What a fit by the code in a tree took and gave; its profile goes to the terminal."""
    limits = {} if threads is None else {f"{name}_NUM_THREADS": str(threads) for name in ("OMP", "OPENBLAS", "MKL")}
    numbers = [n, COLUMNS, CLASSES, TEST, seed, device, "profile" if profile else "plain"]
    done = subprocess.run(
        [sys.executable, "-c", ONE, *map(str, numbers)],
        env=os.environ | {"PYTHONPATH": str(tree / "src")} | limits,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@contextmanager
def trees(own: str, against: str | None) -> Iterator[dict[str, Path]]:
    """The commits to measure, by name: this tree, and another one."""
    with tempfile.TemporaryDirectory() as place:
        found = {own: HERE}
        git = ["git", "-C", str(HERE), "worktree"]
        if against is not None:
            found[against] = Path(place) / "other"
            subprocess.run([*git, "add", "--detach", str(found[against]), against], check=True, capture_output=True)
        try:
            yield found
        finally:
            if against is not None:
                subprocess.run([*git, "remove", "--force", str(found[against])], check=True)


def _commit() -> str:
    """This commit; on a machine without git it is not known."""
    try:
        asked = ["git", "-C", str(HERE), "rev-parse", "--short", "HEAD"]
        return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def main(asked: argparse.Namespace) -> None:
    with trees(asked.commit or _commit(), asked.against) as found:
        for n in asked.rows:
            for commit, tree in found.items():
                row = {"rows": n, "columns": COLUMNS, "classes": CLASSES, "seed": asked.seed, "commit": commit}
                row |= {"device": asked.device, "threads": asked.threads, "cores": os.cpu_count()}
                row |= {"python": platform.python_version()}
                row |= once(tree, n, asked.device, asked.seed, asked.profile, asked.threads)
                print(json.dumps(row), flush=True)
                asked.results.parent.mkdir(parents=True, exist_ok=True)
                with asked.results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000])
    parser.add_argument("--device", default="cpu", help="auto, cpu or cuda")
    parser.add_argument("--against", help="another commit, measured after this one")
    parser.add_argument("--commit", help="what this tree is called in rows; default: as git says")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, help="of linear algebra; default: as many as the libraries take")
    parser.add_argument("--profile", action="store_true", help="print where the time went; it adds a little to it")
    parser.add_argument("--results", type=Path, default=HERE / "results" / "large_tables.jsonl")
    main(parser.parse_args())
