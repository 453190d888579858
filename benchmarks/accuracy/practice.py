"""The commands on real data as a new user has them, beside simple baselines; and how often the truth-free interval holds.

    python benchmarks/accuracy/practice.py commands --data-dir DIR
    python benchmarks/accuracy/practice.py interval --data-dir DIR --seeds 20 --rows results/interval.jsonl

`commands` writes a table with an `a|b|c` column, withholds the truth, and runs fit, predict, clean (and report, where it is).
`interval` splits every set 80/20 for every seed, trains on the larger part, and asks whether the accuracy on the smaller one lies
in the interval that candidate sets alone gave. It adds a row per split and goes on where it was stopped.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import torch
import typer
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import StandardScaler

from oneof.data.encode import Encoding
from oneof.data.named.catalogue import Dataset, load
from oneof.paper.results import origin
from oneof.runs.calibrate import by_set_size, by_two_guesses, estimate
from oneof.runs.labels import ask_networks, judged_rows, trained_rows
from oneof.runs.learn import SPACE
from oneof.runs.model import Model, member_of
from oneof.selection.search import search
from oneof.selection.trying import Search
from oneof.storage.rows import Row, append, read

app = typer.Typer(add_completion=False)
NEAR = 10  # neighbours that vote
NO_ENCODING = Encoding((), (), (), {}, ())  # the features are numbers already
QUICK = replace(SPACE, lr=(0.1,), weight_decay=(1e-3,), members=10, epochs=30)
"""A search in a third of the time."""


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
    seconds["predict"] = timed("predict", out, folder / "test.csv", "--out", folder / "p.csv", "--sets", "0.9")
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
        print(f"truth-free accuracy: {facts['value']:.3f} ({facts['low']:.3f} to {facts['high']:.3f})\n")
        print("| | labels of training rows | predictions of new rows |\n|---|---|---|")
        for rule, (labels, predicted) in {"oneof": ours, **baselines(data, *split(len(data.x), seed))}.items():
            print(f"| {rule} | {100 * labels:.1f} | {'' if predicted is None else f'{100 * predicted:.1f}'} |")


@app.command()
def interval(
    data_dir: Annotated[Path, typer.Option(help="Where the real data sets lie.")],
    rows: Annotated[Path, typer.Option(help="Where a row per split is added.")],
    names: Annotated[str, typer.Option(help="Data sets, separated by commas.")] = "lost,msrcv2,birdsong",
    seeds: Annotated[int, typer.Option(help="Splits of each.")] = 20,
    quick: Annotated[bool, typer.Option("--quick", help="A search in a third of the time.")] = False,
) -> None:
    """See how often the truth-free interval holds the accuracy on rows that were not trained on."""
    torch.set_num_threads(1)
    done = read(rows) if rows.exists() else []
    for seed in range(seeds):
        for name in names.split(","):
            if not any((row["data"], row["seed"], row["quick"]) == (name, seed, quick) for row in done):
                done.append(one_split(load(name, data_dir), seed, quick))
                append(rows, done[-1:])
    show_interval([row for row in done if row["quick"] == quick and row["seed"] < seeds])


def one_split(data: Dataset, seed: int, quick: bool) -> Row:
    """Train on 80 %, estimate from the sets alone, and look at the truth of the rest."""
    train, test = split(len(data.x), seed)
    x = data.x.reshape(len(data.x), -1)
    assert data.candidates is not None
    begun = time.monotonic()
    found = search(x[train], data.candidates[train], Search(QUICK if quick else SPACE, seed))
    model = Model(data.classes, NO_ENCODING, tuple(map(member_of, found.fits)), {})
    opinions = ask_networks(model, x[train], data.candidates[train], trained_rows(found.fits, len(train)))
    judged = judged_rows(opinions, data.candidates[train], None)
    return {
        "data": data.name,
        "seed": seed,
        "quick": quick,
        "accuracy": float((model.probabilities(x[test]).argmax(1) == data.labels[test]).mean()),
        "covering": float(judged.covered.mean()),
        "held_out_accuracy": float((opinions.mean.argmax(1) == data.labels[train])[opinions.held_out].mean()),
        "two_guesses": by_two_guesses(judged),
        "set_size": by_set_size(judged),
        **estimate(judged)._asdict(),
        "seconds": round(time.monotonic() - begun, 1),
        **origin("cpu"),
    }


def show_interval(rows: list[Row]) -> None:
    """Print per data set and pooled how often the interval held, and how wide it was."""
    frame = pd.DataFrame(rows)
    frame["held"] = (frame["low"] <= frame["accuracy"]) & (frame["accuracy"] <= frame["high"])
    frame["width"] = frame["high"] - frame["low"]
    print("| | splits | accuracy | estimate | covering rate | held | mean width |\n|---|---|---|---|---|---|---|")
    for name, part in [*frame.groupby("data"), ("all", frame)]:
        means = part[["accuracy", "value", "covering"]].mean()
        told = " | ".join(f"{mean:.3f}" for mean in means)
        print(f"| {name} | {len(part)} | {told} | {part['held'].sum()} | {part['width'].mean():.3f} |")


if __name__ == "__main__":
    app()
