"""Is what `oneof fit` says of its accuracy true? Fits on tables whose truth is known, with sets of six kinds; and on real sets.

    python benchmarks/robustness/accuracy_claims.py --seeds 200-299
    python benchmarks/robustness/accuracy_claims.py --real --seeds 160-179 --data-dir DIR
    python benchmarks/robustness/accuracy_claims.py --show

Every fit adds a row; only what is missing is run. `claims/data.py` has the tables and the kinds. Simulated fits are small (QUICK), real ones as
`oneof fit` does them, on 80 % of the rows. The truth of training rows is used for nothing; that of new rows measures the accuracy.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import torch
import typer
from claims.data import KINDS, World, world

from oneof.candidates.mask import Candidates
from oneof.data.dataset import Dataset
from oneof.data.encode import Encoding
from oneof.ensemble.pipeline import fit
from oneof.learners.base import Resources
from oneof.learners.config import EnsembleConfig, FitConfig
from oneof.storage.rows import Row, append, read
from oneof_paper.data.catalogue import load
from oneof_paper.results import origin

ROWS = Path(__file__).parents[2] / "results" / "accuracy_claims.jsonl"
REAL = ("lost", "msrcv2", "birdsong")
QUICK = EnsembleConfig(scalings=("feature",), lr=0.1, weight_decay=1e-3, epochs=12)
"""A fit in seconds."""
NO_ENCODING = Encoding((), (), (), {}, ())  # the features are numbers already


def real(name: str, seed: int, folder: Path) -> World:
    """A real set, 80 % to learn from."""
    data = load(name, folder)
    assert data.candidates is not None
    order = np.random.default_rng(seed).permutation(len(data.x))
    train, new = order[len(order) // 5 :], order[: len(order) // 5]
    x = data.x.reshape(len(data.x), -1)
    return World(x[train], data.candidates[train], data.labels[train], x[new], data.labels[new])


def perform(kind: str, seed: int, given: World, config: EnsembleConfig) -> Row:
    """What a fit says of its accuracy, and what is true."""
    begun = time.monotonic()
    classes = np.array([str(j) for j in range(given.sets.shape[1])])
    data = Dataset.build(given.x, Candidates(given.sets, classes), NO_ENCODING)
    result = fit(data, FitConfig(config, seed=seed), Resources("cpu"))
    right = result.model.probabilities(given.new_x).argmax(1) == given.new_truth
    return {
        "kind": kind,
        "seed": seed,
        "n": len(given.x),
        "c": len(classes),
        "new": len(right),
        "accuracy": float(right.mean()),
        **asdict(result.accuracy),
        "seconds": round(time.monotonic() - begun, 1),
        **origin("cpu"),
    }


def show(rows: list[Row]) -> str:
    """A line per kind: how often an interval was given and held, how wide; how often the bound held, and how far it lay off."""
    lines = [
        "| kind | fits | interval given | it held | median width | bound held | most above covering | nothing learned |",
        "|---|---|---|---|---|---|---|---|",
    ]
    frame = pd.DataFrame(rows)
    for kind in [name for name in (*KINDS, *REAL) if name in set(frame["kind"])]:
        part = frame[frame["kind"] == kind]
        given = part[part["verdict"] == "interval"]
        held = (given["low"] <= given["accuracy"]) & (given["accuracy"] <= given["high"])
        width = f"{(given['high'] - given['low']).median():.3f}" if len(given) else ""
        bound, above = (part["accuracy"] <= part["bound"] + 1e-9).mean(), (part["bound"] - part["covering"]).max()
        nothing = (part["verdict"] == "nothing learned").mean()
        lines.append(
            f"| {kind} | {len(part)} | {len(given)} | {held.sum()} | {width} | {bound:.0%} | {above:.3f} | {nothing:.0%} |"
        )
    return "\n".join(lines)


def main(
    seeds: Annotated[str, typer.Option(help="First and last.")] = "200-299",
    kinds: Annotated[str, typer.Option(help="Separated by commas.")] = ",".join(KINDS),
    rows: Annotated[Path, typer.Option(help="Where a row per fit is added.")] = ROWS,
    on_real: Annotated[bool, typer.Option("--real", help="Real sets with default settings.")] = False,
    data_dir: Annotated[Path, typer.Option(help="Where they lie.")] = Path("data"),
    only_show: Annotated[bool, typer.Option("--show", help="Run nothing.")] = False,
) -> None:
    """Fit, and print how often what was said is true."""
    torch.set_num_threads(1)
    first, last = map(int, seeds.split("-"))
    done = read(rows) if rows.exists() else []
    for seed in () if only_show else range(first, last + 1):
        for kind in REAL if on_real else kinds.split(","):
            if not any((row["kind"], row["seed"]) == (kind, seed) for row in done):
                given = real(kind, seed, data_dir) if on_real else world(kind, seed)
                done.append(perform(kind, seed, given, EnsembleConfig() if on_real else QUICK))
                append(rows, done[-1:])
    print(show(done))


if __name__ == "__main__":
    typer.run(main)
