"""The commands on real data as a new user has them, beside simple baselines.

    python benchmarks/accuracy/practice.py --data-dir DIR

It writes a table with an `a|b|c` column, withholds the truth, and runs fit, predict, clean (and report, where it is).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import typer
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import StandardScaler

from oneof.ensemble.accuracy import AccuracyEstimate
from oneof_paper.data.catalogue import Dataset, load

app = typer.Typer(add_completion=False)
NEAR = 10  # neighbours that vote


def split(n: int, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows to train on and to test on, 80/20."""
    order = np.random.default_rng(seed).permutation(n)
    return order[n // 5 :], order[: n // 5]


def as_frame(data: Dataset, rows: NDArray[np.intp]) -> pd.DataFrame:
    """A table as a new user has it: numbers, and a column of sets as text."""
    x, names = data.x[rows], np.asarray(data.classes).astype(str)
    frame = pd.DataFrame(x.reshape(len(x), -1)).add_prefix("x")
    assert data.candidates is not None
    return frame.assign(candidates=["|".join(names[one]) for one in data.candidates[rows]])


def neighbours_vote(
    x: NDArray[np.float64], sets: NDArray[np.bool_], at: NDArray[np.float64], skip: int
) -> NDArray[np.float64]:
    """How many of a row's neighbours have each label in their set [n, c]; `skip` leaves out the row itself."""
    scaler = StandardScaler().fit(x)
    found = NearestNeighbors(n_neighbors=NEAR + skip).fit(scaler.transform(x))
    near = found.kneighbors(scaler.transform(at), return_distance=False)[:, skip:]
    return np.asarray((sets[near] / sets[near].sum(-1, keepdims=True)).sum(1))


def baselines(data: Dataset, train: NDArray[np.intp], test: NDArray[np.intp]) -> dict[str, tuple[float, float | None]]:
    """Accuracy of resolved training labels and of predictions by rules that need no model."""
    x, truth = data.x.reshape(len(data.x), -1).astype(float), data.labels
    assert data.candidates is not None
    sets = data.candidates[train]
    often = sets.sum(0)
    near = neighbours_vote(x[train], sets, x[train], 1)
    far = neighbours_vote(x[train], sets, x[test], 0)
    return {
        "random candidate": (float((1 / sets.sum(1)).mean()), None),
        "most frequent candidate": (
            float((np.where(sets, often, -1).argmax(1) == truth[train]).mean()),
            float((often.argmax() == truth[test]).mean()),
        ),
        f"{NEAR} nearest neighbours (within the set)": (
            float((np.where(sets, near, -1).argmax(1) == truth[train]).mean()),
            float((far.argmax(1) == truth[test]).mean()),
        ),
    }


def timed(*arguments: str | Path) -> float:
    """Seconds that a command takes, as a process of its own."""
    begun = time.monotonic()
    run = "import sys; from oneof.cli import main; sys.argv[0] = 'oneof'; main()"
    subprocess.run([sys.executable, "-c", run, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - begun


def run_commands(data: Dataset, folder: Path, seed: int) -> tuple[dict[str, float], tuple[float, float]]:
    """Seconds of each command, and the accuracy of resolved labels and of predictions."""
    train, test = split(len(data.x), seed)
    as_frame(data, train).to_csv(folder / "train.csv", index=False)
    as_frame(data, test).drop(columns="candidates").to_csv(folder / "test.csv", index=False)
    out = folder / "run"
    seconds = {"fit": timed("fit", folder / "train.csv", "--out", out, "--seed", str(seed))}
    seconds["predict"] = timed("predict", out, folder / "test.csv", "--out", folder / "p.csv")
    seconds["clean"] = timed("clean", out, "--out", folder / "labels.csv")
    if "report" in {command.name or command.callback.__name__ for command in _commands() if command.callback}:
        seconds["report"] = timed("report", out, "--out", folder / "report.html")
    names = np.asarray(data.classes).astype(str)
    labels, predicted = (pd.read_csv(folder / name, dtype={"label": str})["label"] for name in ("labels.csv", "p.csv"))
    right = (labels == names[data.labels[train]]).mean(), (predicted == names[data.labels[test]]).mean()
    return seconds, (float(right[0]), float(right[1]))


def _commands() -> Sequence[typer.models.CommandInfo]:
    from oneof.cli import app as cli

    return cli.registered_commands


@app.command()
def commands(
    data_dir: Annotated[Path, typer.Option(help="Where the real data sets lie.")],
    names: Annotated[str, typer.Option(help="Data sets, separated by commas.")] = "birdsong,msrcv2",
    seed: int = 0,
) -> None:
    """Time the commands and print accuracies against the withheld truth."""
    for name in names.split(","):
        data = load(name, data_dir)
        with tempfile.TemporaryDirectory() as folder:
            seconds, ours = run_commands(data, Path(folder), seed)
            facts = json.loads((Path(folder) / "run" / "run.json").read_text())["estimate"]
        told = ", ".join(f"{command} {value:.1f}" for command, value in seconds.items())
        print(f"\n## {name}, seed {seed}\n\nseconds: {told}; in all {sum(seconds.values()):.1f}")
        print(f"said of the accuracy: {AccuracyEstimate(**facts).in_words}\n")
        print("| | labels of training rows | predictions of new rows |\n|---|---|---|")
        for rule, (labels, predicted) in {"oneof": ours, **baselines(data, *split(len(data.x), seed))}.items():
            print(f"| {rule} | {100 * labels:.1f} | {'' if predicted is None else f'{100 * predicted:.1f}'} |")


if __name__ == "__main__":
    app()
