"""The paper's figures, ours: purified region and sensitivity on Lost, accuracy by the size of the sets on digits (seeds 0-9); warm-up and ranks from the rows of the tables.

    python benchmarks/accuracy/figures.py --data-dir DIR            # trains what has no rows yet, then draws everything to docs/figures/
    python benchmarks/accuracy/figures.py --draw                    # draws from rows only

Sensitivity on CIFAR-10, which the paper also shows, is drawn by `image_figures.py`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import drawing
import numpy as np
import torch

from oneof.candidates.generate import InstanceRate, generate
from oneof.methods import CC, Proden
from oneof.metrics import purified_region
from oneof.networks import MLP, Linear
from oneof.purify import PopRatio, Purify
from oneof.storage.rows import Row, append, read
from oneof.training.fit import fit
from oneof.training.loop import begin, epochs
from oneof.training.stack import build
from oneof.training.training_data import make_training_data
from oneof.training.trials import Training, Trial
from oneof_paper import ablation, tables
from oneof_paper.compute_rows import split
from oneof_paper.data.catalogue import NAMED, load
from oneof_paper.experiments import LATE, PRINTED, TABLES, TABULAR
from oneof_paper.printed import printed
from oneof_paper.results import origin
from oneof_paper.synthetic import mixture

SEEDS = range(10)
REPORTED = range(100, 110)
TOLERANCE = 0.05
LR, DECAY = 0.1, 1e-2
MARGIN = {
    "e0": (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99),
    "e_end": (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9),
    "e_s": (0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.4),
}
RATIO = {
    "theta": (1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3),
    "inc": (1e-3, 1e-2, 0.03, 0.1, 0.3, 0.6, 1.0),
}
RATES = (
    0.05,
    0.1,
    0.2,
    0.4,
    0.6,
    0.8,
    0.95,
)  # of the wrong label that a classifier likes best; more labels come with it
VARIED = {"margin": (LATE, MARGIN), "ratio": (PopRatio(warm_up=80, theta=1e-2, inc=0.3), RATIO)}  # one number at a time


# ------------------------------------------------------------------------------------------------------------ sensitivity


def sensitivity(data_dir: str | None) -> list[Row]:
    """Every number of both rules varied on Lost, and PRODEN without POP; the last epoch is taken."""
    data = load("lost", data_dir)
    rows = _accuracies(data, [None], "none", "none")
    for title, (rule, numbers) in VARIED.items():
        for name, values in numbers.items():
            rows += _accuracies(data, [replace(rule, **_allowed(rule, name, v)) for v in values], title, name)
    return rows


def _allowed(rule: Purify, name: str, value: float) -> dict[str, float]:
    """The number, and with it what it would otherwise contradict: a floor is at most the start."""
    if name == "e0":
        return {"e0": value, "e_end": min(rule.e_end, value)}
    return {name: value, "e0": max(rule.e0, value)} if name == "e_end" else {name: value}


def _accuracies(data: Any, rules: list[Purify | None], rule: str, name: str) -> list[Row]:
    trials = [
        Trial(seed, *split(len(data.x), seed, TABULAR), LR, DECAY, TABULAR.scaling, purify)
        for purify in rules
        for seed in SEEDS
    ]
    start = time.perf_counter()
    fitted = fit(data.x, data.candidates, trials=trials, method=Proden(), purify=rules[0], network=Linear(), training=TABULAR.training, labels=data.labels)  # fmt: skip
    shared = {"seconds": round((time.perf_counter() - start) / len(trials), 4), **origin("cpu")}
    accuracy = fitted.history["accuracy"][-1].tolist()
    return [
        {
            "figure": "sensitivity",
            "dataset": "lost",
            "rule": rule,
            "name": name,
            "value": purify and getattr(purify, name),
            "seed": t.seed,
            "lr": LR,
            "weight_decay": DECAY,
            "accuracy": round(a, 6),
            **shared,
        }
        for t, purify, a in zip(trials, [p for p in rules for _ in SEEDS], accuracy, strict=True)
    ]


# ------------------------------------------------------------------------------------------------------- size of the sets


def sizes(found: list[Row]) -> Iterator[list[Row]]:
    """Each system of the ablation on digits with sets from small to large, where it has no rows: is POP's advantage stable, as the paper says?"""
    done = {(row["rate"], row["system"]) for row in found if row["figure"] == "sizes"}
    for rate in RATES:
        systems = [one for one in ablation.SYSTEMS if (rate, one.title) not in done]
        data = ablation.digits(SEEDS, rate=rate) if systems else None
        for system in systems:
            about = {"figure": "sizes", "dataset": "digits", "rate": rate, "system": system.title}
            kept = ("seed", "accuracy", "set_size_before", "true_labels_removed", "seconds")
            rows = ablation.run(data, system, ablation.TRAINING, show=False)[1]
            yield [about | {name: row[name] for name in kept} | origin("cpu") for row in rows]


# ----------------------------------------------------------------------------------------------------------------- region


def region(data_dir: str | None) -> list[Row]:
    """The purified region by epoch: on Lost with the posterior of a network trained on true labels, on a mixture with the exact one."""
    lost = load("lost", data_dir)
    truth = np.eye(len(lost.classes), dtype=bool)[lost.labels]
    clean = fit(lost.x, truth, trials=[Trial(seed, scaling="feature", lr=LR, weight_decay=DECAY) for seed in range(5)], method=CC(), network=MLP((128,)), training=Training(epochs=100))  # fmt: skip
    posterior = clean.probabilities(lost.x).mean(0)
    rows = _regions("lost", lost.x, lost.candidates, posterior)
    made = mixture(n=1500, d=5, c=6, separation=1.2, seed=0)  # below: a rate at which no wrong label is in every set
    sets = generate(made.labels, 6, InstanceRate(0.12), seed=0, logits=np.log(made.posterior))
    return rows + _regions("mixture", made.x.astype(np.float32), sets, torch.as_tensor(made.posterior))


def _regions(name: str, x: Any, sets: Any, posterior: torch.Tensor) -> list[Row]:
    rows = []
    for system, purify in (("PRODEN", None), ("PRODEN+POP", LATE)):
        trials = [Trial(seed, scaling="feature", lr=LR, weight_decay=DECAY) for seed in SEEDS]
        problem = make_training_data(x, sets, trials, Proden(), purify, TABULAR.training)
        net = partial(Linear(), tuple(problem.x.shape[1:]), sets.shape[1])
        state = begin(problem, build(net, list(SEEDS), problem.lr.device, 0), list(SEEDS))
        curve = []
        for _ in epochs(problem, state):
            logits = problem.logits(state.stack, problem.rows)
            curve.append([purified_region(one, posterior, TOLERANCE).item() for one in logits])
        rows += [
            {
                "figure": "region",
                "dataset": name,
                "system": system,
                "seed": seed,
                "tolerance": TOLERANCE,
                "region": [round(epoch[i], 4) for epoch in curve],
                **origin("cpu"),
            }
            for i, seed in enumerate(SEEDS)
        ]
    return rows


# ---------------------------------------------------------------------------------------------------------------- drawing


def draw(rows: list[Row], table_rows: list[Row], folder: Path) -> None:
    titles = {"lost": f"Lost, posterior estimated (tolerance {TOLERANCE:g})", "mixture": f"Gaussian mixture, exact (tolerance {TOLERANCE:g})"}  # fmt: skip
    panels = {title: {system: np.array([r["region"] for r in rows if r["figure"] == "region" and r["dataset"] == name and r["system"] == system]).T for system in ("PRODEN", "PRODEN+POP")} for name, title in titles.items()}  # fmt: skip
    drawing.save(drawing.draw_region(panels), folder / "region")
    varied = [row for row in rows if row["figure"] == "sensitivity"]
    without = float(np.mean([row["accuracy"] for row in varied if row["rule"] == "none"]))
    for rule, (usual, numbers) in VARIED.items():
        shown = {}
        for name, values in numbers.items():
            own = [[row["accuracy"] for row in varied if row["rule"] == rule and row["name"] == name and row["value"] == value] for value in values]  # fmt: skip
            shown[name] = (values, np.array(own), getattr(usual, name))
        drawing.save(drawing.draw_sensitivity(shown, without), folder / f"sensitivity-{rule}")
    draw_sizes([row for row in rows if row["figure"] == "sizes"], folder)
    draw_warm_up(table_rows, folder)
    draw_ranks(table_rows, folder)


def draw_sizes(rows: list[Row], folder: Path) -> None:
    lines = {}
    for system in (one.title for one in ablation.SYSTEMS):
        own = [[r for r in rows if (r["system"], r["rate"]) == (system, rate)] for rate in RATES]
        given = [[r for r in rows if (r["system"], r["rate"]) == ("PRODEN", rate)] for rate in RATES]
        at = [float(np.mean([r["set_size_before"] for r in one])) for one in given]
        lines[system] = (at, np.array([[r["accuracy"] for r in one] for one in own]))
    drawing.save(drawing.draw_sizes(lines), folder / "set-size")


def draw_warm_up(rows: list[Row], folder: Path) -> None:
    table = TABLES[5]
    scores = tables.scores_of(5, table, rows, REPORTED)
    lines = {}
    for dataset in table.datasets:
        cells = [(int(one.title.split()[1]), printed(5, one.title, dataset), scores.get((dataset, one.title, "oracle"))) for one in table.systems.values()]  # fmt: skip
        if all(ours for *_, ours in cells):
            ours = [list(own.values()) for *_, own in cells]
            lines[NAMED[dataset].title] = (
                [epochs for epochs, *_ in cells],
                [float(np.mean(own)) for own in ours],
                [float(np.std(own, ddof=1) / len(own) ** 0.5) for own in ours],
                [paper.mean for _, paper, _ in cells],
            )
    drawing.save(drawing.draw_warm_up(lines), folder / "warm-up")


def draw_ranks(rows: list[Row], folder: Path) -> None:
    """Systems of Tables 2 and 4 ranked within each data set and seed."""
    scores = {**tables.scores_of(2, TABLES[2], rows, REPORTED), **tables.scores_of(4, TABLES[4], rows, REPORTED)}
    systems = [*(one.title for one in TABLES[4].systems.values() if one.purify != PRINTED), "VALEN"]
    blocks = [(name, seed) for name in ("lost", "birdsong", "msrcv2") for seed in REPORTED]
    accuracies = np.array([[scores[name, system, "covering"][seed] for system in systems] for name, seed in blocks])
    drawing.save(drawing.draw_ranks(systems, drawing.ranks(accuracies)), folder / "ranks")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir")
    parser.add_argument("--rows", type=Path, default=Path("results/figures.jsonl"))
    parser.add_argument("--tables", type=Path, default=Path("results/tables.jsonl"))
    parser.add_argument("--out", type=Path, default=Path("docs/figures"))
    parser.add_argument("--draw", action="store_true", help="train nothing")
    given = parser.parse_args()
    torch.set_num_threads(1)
    found = read(given.rows) if given.rows.exists() else []
    for name, make in (("sensitivity", sensitivity), ("region", region)):
        if not given.draw and not any(row["figure"] == name for row in found):
            append(given.rows, make(given.data_dir))
    for rows in () if given.draw else sizes(found):
        append(given.rows, rows)
    draw(read(given.rows), read(given.tables), given.out)


if __name__ == "__main__":
    main()
