"""`fit --from` beside a fresh fit that knows the same decisions: processor time, and how many labels are right.

    ONEOF_DATA=DIR python benchmarks/speed/fit_again.py --seeds 0-4

A table is fitted, a scripted person who knows the truth decides the 100 rows of its queue that teach most, and the model learns
again: from the run (`fit --from`), and afresh from the table with the decided sets in place. Digits get sets
of a weak classifier's errors.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict

from oneof.candidates.generate import InstanceRate, generate
from oneof.learners.config import FitConfig
from oneof.runs.decisions import Decision, Log
from oneof.runs.fit_spec import FitSpec
from oneof.runs.fit_table import fit_again, fit_table
from oneof.runs.folder import Run
from oneof_paper.data.catalogue import load

SETS = ("digits", "birdsong", "msrcv2")


def timed(work: Callable[[], Run]) -> tuple[float, Run]:
    begun = time.process_time()
    run = work()
    return time.process_time() - begun, run


def write(x: Any, sets: Any, path: Path) -> Path:
    table = pd.DataFrame(np.asarray(x, dtype=float)).add_prefix("x")
    table["candidates"] = ["|".join(f"c{j}" for j in np.flatnonzero(row)) for row in sets]
    table.to_csv(path, index=False)
    return path


def right(run: Run, names: list[str], open_rows: Any) -> float:
    """Per cent of the labels that are right, where nobody decided."""
    found = np.array(run.decided["label"].to_pylist())[open_rows]
    return 100 * float((found == np.array(names)[open_rows]).mean())


def once(name: str, seed: int, answers: int, folder: Path) -> tuple[float, ...]:
    data = load(name)
    x = data.x.reshape(len(data.x), -1)
    sets = data.candidates
    if sets is None:  # a weak classifier's errors decide which wrong labels join a set
        weak = LogisticRegression(C=0.002, max_iter=200)
        logits = cross_val_predict(weak, x / x.max(), data.labels, cv=3, method="decision_function")
        sets = generate(data.labels, 10, InstanceRate(0.4), seed=seed, logits=logits)
    rows = np.sort(np.random.default_rng(seed).permutation(len(x))[: round(0.9 * len(x))])
    x, sets, names = x[rows], sets[rows], [f"c{j}" for j in data.labels[rows]]
    spec = FitSpec(config=FitConfig(seed=seed))
    first = fit_table(write(x, sets, folder / "table.csv"), folder / "RUN", spec)
    asked = np.argsort(-np.array(first.purified["gain"].to_pylist()), kind="stable")[:answers]
    log, decided = Log(first.folder), sets.copy()
    for row in asked.tolist():
        log.write(Decision(row, "label", (names[row],), "ann"))
        decided[row] = [f"c{j}" == names[row] for j in range(sets.shape[1])]
    open_rows = np.setdiff1d(np.arange(len(x)), asked)
    again, second = timed(lambda: fit_again(first.folder, folder / "AGAIN"))
    afresh, third = timed(lambda: fit_table(write(x, decided, folder / "decided.csv"), folder / "AFRESH", spec))
    return again, afresh, *(right(run, names, open_rows) for run in (first, second, third))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--seeds", default="0-4")
    parser.add_argument("--answers", type=int, default=100)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    low, high = (int(part) for part in asked.seeds.split("-"))
    print("| set | seconds afresh | seconds from the run | share | right before | afresh | from the run | difference |")
    print("|---|---|---|---|---|---|---|---|")
    for name in asked.sets:
        found = []
        for seed in range(low, high + 1):
            with tempfile.TemporaryDirectory() as folder:
                found.append(once(name, seed, asked.answers, Path(folder)))
        again, afresh, before, second, third = (np.array(part) for part in zip(*found, strict=True))
        gap = second - third
        spread = gap.std(ddof=1) / np.sqrt(len(gap)) if len(gap) > 1 else float("nan")
        print(
            f"| {name} | {afresh.mean():.1f} | {again.mean():.1f} | {again.sum() / afresh.sum():.2f} | {before.mean():.2f} "
            f"| {third.mean():.2f} | {second.mean():.2f} | {gap.mean():+.2f} ± {spread:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
