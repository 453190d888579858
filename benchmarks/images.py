"""Rows on images: PRODEN, POP and the supervised ceiling on the same sets, views and seeds; meant for a GPU, resumable.

    python benchmarks/images.py --plan search --rows results/images.jsonl --limit-seconds 300
    python benchmarks/images.py --plan mnist-like --variant best --limit-seconds 500
    python benchmarks/images.py --report

Every row is written as soon as its trial ends; a run whose row is in the file is skipped. The last epoch is what a row reports: no
label chooses. Beside it stand the epochs that held-out sets (`by_covering`, `by_approximated`) and held-out labels (`by_oracle`)
would have chosen. Seed 0 is for choosing numbers, seeds from 100 on are for reporting. Sets: `image_sets.py`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from image_report import best_variant, table
from image_sets import path_of, sets_of, training_part

from oneof.data.augment import views
from oneof.data.named import Dataset, load
from oneof.engine import fit
from oneof.methods import RCR, Method, PiCO, Proden, Valen
from oneof.networks import LeNet, Network, WideResNet
from oneof.problem import Training
from oneof.purify import Pop, PopRatio, Purify
from oneof.results import Row, append, read, rows_of
from oneof.state import Fit
from oneof.teacher import channels_first
from oneof.trials import Trial

DIFFICULTIES = {"20": 20, "saturated": 200, "tiny": 1}  # epochs of the classifier that draws the sets
VARIANTS = ("late", "late-strict", "ratio-late", "early")
RECIPES = {"RCR": "rcr", "PiCO": "pico", "VALEN": "plain"}  # views; all others see POP's three
GUESS = {"cifar10": (60.0, 1.4)}  # seconds to compile and per epoch, before a first run has been timed
KEY = ("dataset", "difficulty", "system", "variant", "seed", "epochs")


@dataclass(frozen=True)
class Run:
    """One trial to be done."""

    dataset: str
    difficulty: str  # of DIFFICULTIES; "clean" for true labels
    system: str
    seed: int
    epochs: int
    variant: str = ""  # of VARIANTS, for POP
    images: int | None = None  # of the training part; None: all
    batch: int = 256

    @property
    def key(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in KEY)


# ------------------------------------------------------------------------------------------------------------- the plans


def search(variant: str) -> list[Run]:
    """Which variant of POP, judged by held-out sets alone; seed 0."""
    likes, epochs = ("fashion-mnist", "kmnist"), 40
    runs = [Run(name, "20", "PRODEN", 0, epochs) for name in likes]
    runs += [Run(name, "20", "POP", 0, epochs, one) for one in VARIANTS for name in likes]
    return runs + [Run(name, "clean", "supervised", 0, epochs) for name in likes]


def mnist_like(variant: str) -> list[Run]:
    """Seed by seed, so that what is there when time ends is balanced."""
    likes, epochs, runs = ("fashion-mnist", "kmnist", "mnist"), 50, []
    for seed in range(100, 105):
        for difficulty in ("20", "saturated"):
            for name in likes:
                runs.append(Run(name, difficulty, "PRODEN", seed, epochs))
                runs.append(Run(name, difficulty, "POP", seed, epochs, variant))
        runs += [Run(name, "clean", "supervised", seed, epochs) for name in likes]
    return runs


def methods(variant: str) -> list[Run]:
    return [Run("fashion-mnist", "20", system, 100, 50) for system in ("RCR", "PiCO", "VALEN")]


def cifar(variant: str) -> list[Run]:
    name, epochs, runs = "cifar10", 150, []
    for seed in (100, 101):
        for difficulty in ("saturated", "20"):
            runs.append(Run(name, difficulty, "PRODEN", seed, epochs))
            runs.append(Run(name, difficulty, "POP", seed, epochs, variant))
        runs.append(Run(name, "clean", "supervised", seed, epochs))
    return runs


def tiny(variant: str) -> list[Run]:
    """A look at every part on a CPU: 120 images, two epochs."""
    systems = (("PRODEN", ""), ("POP", "early"), ("POP", "ratio-late"))
    runs = [Run("mnist", "tiny", system, 0, 2, one, 120, batch=12) for system, one in systems]
    return [*runs, Run("mnist", "clean", "supervised", 0, 2, images=120, batch=12)]


PLANS = {"search": search, "mnist-like": mnist_like, "methods": methods, "cifar": cifar, "tiny": tiny}


# ----------------------------------------------------------------------------------------------------------------- a run


def pop(variant: str, epochs: int) -> Purify:
    """POP's numbers for a length of training: an event every twentieth of it, the threshold at its end after 4/5 of the events.

    Early removal costs true labels that never return (RECIPES 5.6, 5.7), so all but `early` let half of the training pass.
    """
    interval = max(1, epochs // 20)
    warm_up = round((0.2 if variant == "early" else 0.5) * epochs)
    steps = max(1, round(0.8 * (len(range(warm_up, epochs, interval)) - 1)))
    if variant == "ratio-late":
        theta, end = 1e-3, 0.4
        # just below its end, so that rounding cannot add a step
        return PopRatio(warm_up, interval, interval, True, theta, 0.97 * end, (end / theta) ** (1 / steps) - 1)
    e0, e_end = (0.99, 0.6) if variant == "late-strict" else (0.95, 0.1)
    return Pop(warm_up, interval, interval, True, e0, e_end, (e0 - e_end) / steps)


def method_of(run: Run) -> Method:
    if run.system == "RCR":
        return RCR(
            ramp=5.0
        )  # the authors' 100 does not get off the ground where a wrong label is nearly always in the set
    if run.system == "PiCO":
        return PiCO(epochs=run.epochs)
    return Valen(warm_up=max(1, run.epochs // 5)) if run.system == "VALEN" else Proden()


@cache
def images(name: str, count: int | None) -> Dataset:
    """A named set; of the training part the first `count` images, and as many of the test part at most."""
    data = load(name)
    if count is None:
        return data
    m = training_part(data)
    keep = np.r_[: min(count, m), m : min(m + count, len(data.x))]
    return Dataset(name, data.x[keep], data.labels[keep], data.classes, None, np.arange(min(count, m), len(keep)))


@cache
def pixels(name: str, count: int | None, device: str) -> torch.Tensor:
    """The images [n, ch, h, w], on the device once for all runs."""
    return torch.as_tensor(channels_first(images(name, count).x).copy(), device=device)


def trial(run: Run, data: Dataset) -> Trial:
    """Nine tenths of the training part to learn from, one tenth whose sets give the signals; the publisher's test part to report."""
    order = np.random.default_rng(run.seed).permutation(training_part(data))
    cut = len(order) // 10
    return Trial(run.seed, np.sort(order[cut:]), np.sort(order[:cut]), data.test, lr=0.05, weight_decay=1e-3)


def candidates(run: Run, data: Dataset, folder: Path, device: str) -> np.ndarray:
    """A mask [n, c]; test rows, whose sets nothing reads, have the full set."""
    if run.difficulty == "clean":
        return np.eye(len(data.classes), dtype=bool)[data.labels]
    mask = sets_of(folder, data, DIFFICULTIES[run.difficulty], device).masks[run.seed]
    return np.concatenate([mask, np.ones((len(data.x) - len(mask), mask.shape[1]), dtype=bool)])


def perform(run: Run, plan: str, folder: Path, device: str) -> Row:
    data = images(run.dataset, run.images)
    mask, own, x = candidates(run, data, folder, device), trial(run, data), pixels(run.dataset, run.images, device)
    recipe = RECIPES.get(run.system, "pop")
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    network: Network = WideResNet() if run.dataset.startswith("cifar") else LeNet()
    setting: dict[str, Any] = {
        "method": method_of(run),
        "purify": pop(run.variant, run.epochs) if run.system == "POP" else None,
        "network": network,
        "training": Training(run.epochs, run.batch),
    }
    seen = views(recipe, run.dataset, device=device, dtype=dtype)
    start = time.perf_counter()
    fitted = fit(x, mask, trials=[own], views=seen, labels=data.labels, device=device, **setting)
    fitted.history.loss.tolist()  # waits for the device
    took = time.perf_counter() - start
    named = {"plan": plan, **{name: getattr(run, name) for name in KEY if name != "seed"}}
    named |= {"views": recipe, "lr": own.lr, "weight_decay": own.weight_decay, "images": len(own.rows), **setting}
    (row,) = rows_of(fitted, seeds=[run.seed], seconds=took, labels=data.labels, **named)
    return row | {"resolved": resolved(fitted, x, data.labels)} | by_signal(fitted) | curves(fitted)


def resolved(fitted: Fit, x: torch.Tensor, labels: np.ndarray) -> float:
    """Share of training rows whose best label among those left is the true one."""
    rows = fitted.rows[0]
    best = fitted.logits(x)[0][rows].masked_fill(~fitted.candidates[0], -torch.inf).argmax(-1)
    truth = torch.as_tensor(labels, device=rows.device)[rows]
    return round(float((best == truth).float().mean()), 6)


def by_signal(fitted: Fit) -> Row:
    """The epoch that each signal would have chosen, of equals the latest, and the test accuracy there."""
    found = {}
    for signal in ("covering", "approximated", "oracle"):
        column = getattr(fitted.history, signal)[:, 0]
        best = int((column == column.max()).nonzero()[-1])
        found[f"by_{signal}"] = {"epoch": best + 1, "accuracy": round(float(fitted.history.accuracy[best, 0]), 6)}
    return found


def curves(fitted: Fit) -> Row:
    history = fitted.history
    return {
        "curves": {
            name: [round(value, 4) for value in getattr(history, name)[:, 0].tolist()]
            for name in ("accuracy", "covering", "set_size")
        }
    }


# -------------------------------------------------------------------------------------------------------------- all runs


def key_of(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in KEY)


def estimate(run: Run, pace: dict[str, float], folder: Path) -> float:
    """Seconds that a run will take: as the last one of its data set, or a guess; a classifier for its sets comes on top."""
    compiling, epoch = GUESS.get(run.dataset, (20.0, 0.3))
    known = pace.get(run.dataset)
    seconds = known * run.epochs if known else compiling + epoch * run.epochs
    if run.difficulty != "clean" and not path_of(folder, run.dataset, DIFFICULTIES[run.difficulty]).exists():
        seconds += compiling + 0.5 * epoch * DIFFICULTIES[run.difficulty]
    return seconds


def do(plan: str, variant: str, path: Path, folder: Path, limit: float, commit: str | None) -> None:
    """Work through a plan, in its order, until it is done or the next run would not fit."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cudnn.benchmark = True
    start, pace = time.perf_counter(), {}
    rows = read(path) if path.exists() else []
    done = {key_of(row) for row in rows}
    for run in PLANS[plan](best_variant(rows) if variant == "best" else variant):
        spent, wanted = time.perf_counter() - start, estimate(run, pace, folder)
        if run.key in done:
            continue
        if spent + wanted > limit:
            print(f"stopped after {spent:.0f} s: {run} would take about {wanted:.0f} s", flush=True)
            return
        row = perform(run, plan, folder, device)
        append(path, [row | ({"commit": commit} if commit else {})])
        pace[run.dataset] = row["seconds"] / run.epochs
        figures = ", ".join(f"{name} {row[name]:.4f}" for name in ("accuracy", "resolved", "covering", "set_size"))
        print(f"{time.perf_counter() - start:6.0f} s  {' '.join(map(str, run.key))}: {figures}", flush=True)
    print(f"plan {plan} is done", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plan", choices=PLANS)
    parser.add_argument(
        "--variant", choices=[*VARIANTS, "best"], default="late", help="of POP; best: by the search's rows"
    )
    parser.add_argument("--rows", type=Path, default=Path("results/images.jsonl"))
    parser.add_argument("--sets", type=Path, default=Path("results/sets"))
    parser.add_argument("--limit-seconds", type=float, default=float("inf"))
    parser.add_argument("--commit", help="of the source, where git cannot say")
    parser.add_argument("--report", action="store_true", help="print the table of all rows")
    given = parser.parse_args(arguments)
    if given.plan:
        do(given.plan, given.variant, given.rows, given.sets, given.limit_seconds, given.commit)
    if given.report:
        print(table(read(given.rows)))


if __name__ == "__main__":
    main()
