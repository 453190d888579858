"""The default's processor time beside that of another commit, in turns, least of five: the ratio and the accuracy of both.

    python benchmarks/speed/default.py --against 721ca07 --data-dir DIR
    python benchmarks/speed/default.py --against 721ca07 --data-dir DIR/tables --names segment.csv waveform5000.csv

A CSV has the labels in its last column; each wrong label is in a set with probability 0.3.
The other commit is checked out in a git worktree beside this one, which is removed at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ONE = """
import json, sys, time
import numpy as np, pandas as pd, torch
from sklearn.datasets import load_digits
from oneof import PartialLabelClassifier
from oneof.candidates.generate import Flip, generate
from oneof_paper.data.catalogue import load

torch.set_num_threads(1)
name, folder, seed = sys.argv[1], sys.argv[2], 0
if name == "digits":
    x, labels = load_digits(return_X_y=True)
    sets = generate(labels, 10, Flip(0.3), seed=0)
elif name.endswith(".csv"):
    table = pd.read_csv(f"{folder}/{name}")
    x = table.iloc[:, :-1].to_numpy()
    classes, labels = np.unique(table.iloc[:, -1], return_inverse=True)
    sets = generate(labels, len(classes), Flip(0.3), seed=0)
else:
    data = load(name, folder)
    x, labels, sets = data.x, data.labels, data.candidates
order = np.random.default_rng(seed).permutation(len(x))
train, test = order[: round(0.8 * len(x))], order[round(0.8 * len(x)) :]
begun = time.process_time()
clf = PartialLabelClassifier(random_state=seed).fit(x[train], sets[train])
seconds = time.process_time() - begun
right = clf.predict_proba(x[test]).argmax(1) == labels[test]
print(json.dumps({"seconds": seconds, "accuracy": float(right.mean())}))
"""


def once(tree: Path, name: str, folder: str) -> dict[str, float]:
    """Processor seconds of a fit by the code in a tree, and its accuracy."""
    environment = os.environ | {"PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", ONE, name, folder], env=environment, capture_output=True, text=True, check=True
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(against: str, folder: str, names: list[str], times: int) -> None:
    here = Path(__file__).resolve().parents[2]
    with tempfile.TemporaryDirectory() as place:
        old = Path(place) / "old"
        git = ["git", "-C", str(here), "worktree"]
        subprocess.run([*git, "add", "--detach", str(old), against], check=True, capture_output=True)
        try:
            print(f"| | {against}, s | now, s | ratio | {against}, accuracy | now |\n|---|---|---|---|---|---|")
            for name in names:
                turns = [(once(old, name, folder), once(here, name, folder)) for _ in range(times)]
                before, now = (min(turn[i]["seconds"] for turn in turns) for i in (0, 1))
                accuracy = " | ".join(f"{100 * turns[0][i]['accuracy']:.1f}" for i in (0, 1))
                print(f"| {name} | {before:.1f} | {now:.1f} | {before / now:.1f} | {accuracy} |", flush=True)
        finally:
            subprocess.run([*git, "remove", "--force", str(old)], check=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", default="721ca07", help="a commit")
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--names", nargs="*", default=["lost", "msrcv2", "birdsong", "digits"])
    parser.add_argument("--times", type=int, default=5)
    asked = parser.parse_args()
    main(asked.against, asked.data_dir, asked.names, asked.times)
