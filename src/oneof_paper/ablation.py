"""The paper's ablation in small (`oneof paper ablation`): digits with candidate sets that a classifier's own doubts made up."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from oneof.candidates.generate import InstanceRate, generate
from oneof.methods import CC, Proden
from oneof.purify import Pop
from oneof.storage.files import written_beside
from oneof.storage.rows import Row, append
from oneof.training.fit import fit
from oneof.training.state import Fit, Record
from oneof.training.trials import Training, Trial
from oneof_paper.compute_rows import split
from oneof_paper.experiments import TABULAR, System
from oneof_paper.results import rows_of
from oneof_paper.typeset import typeset

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#555555")  # told apart by colour-blind readers
PANELS = (("accuracy", "test accuracy"), ("set_size", "labels per set"), ("threshold", "threshold"))
CLASSES = 10
TRAINING = Training(epochs=100, batch=32)  # small batches: fast early learning decides more than the method does


class Digits(NamedTuple):
    """Digits with a split and sets of its own for every trial."""

    x: NDArray[np.float32]  # [n, 64]
    labels: NDArray[np.intp]  # [n]
    candidates: NDArray[np.bool_]  # [t, n, c]
    trials: list[Trial]


CEILING = "true labels (ceiling)"  # trained on true labels
SYSTEMS = (
    System("PRODEN", Proden()), System("PRODEN + POP", Proden(), Pop()), System("CC", CC()),
    System("CC + POP", CC(), Pop()), System(CEILING, Proden()),
)  # fmt: skip


def digits(seeds: Sequence[int], *, teacher_epochs: int = 20, rate: float = 0.4) -> Digits:
    """Digits, split 80/20 with a tenth of the training rows held out; instance-dependent sets of a clean-trained MLP."""
    source = load_digits()
    x, labels = (source.data / 16).astype(np.float32), source.target
    trials = [Trial(seed, *split(len(x), seed, TABULAR), scaling="feature") for seed in seeds]
    everything = [replace(trial, rows=np.concatenate([trial.rows, trial.held_out])) for trial in trials]
    known, training = np.eye(CLASSES, dtype=bool)[labels], replace(TRAINING, epochs=teacher_epochs)
    logits = fit(x, known, trials=everything, training=training).logits(x).double().numpy()
    kind = InstanceRate(rate=rate)
    sets = [generate(labels, CLASSES, kind, seed=seed, logits=z) for seed, z in zip(seeds, logits, strict=True)]
    return Digits(x, labels, np.stack(sets), trials)


def run(data: Digits, system: System, training: Training, *, show: bool = True) -> tuple[Fit, list[Row]]:
    """Train one system on all trials at once; true labels are reported, the last epoch is taken."""
    candidates = np.eye(CLASSES, dtype=bool)[data.labels] if system.title == CEILING else data.candidates
    start = time.perf_counter()
    setting: Any = {"method": system.method, "purify": system.purify, "training": training}
    watched = system.title if show else None
    fitted = fit(data.x, candidates, trials=data.trials, labels=data.labels, progress=watched, **setting)
    about = {"dataset": "digits", "system": system.title, **setting, "selection": "last epoch"}
    spent, seeds = time.perf_counter() - start, [trial.seed for trial in data.trials]
    rows = rows_of(fitted, seeds=seeds, seconds=spent, labels=data.labels, **about)
    sizes = [float(data.candidates[i][trial.rows].sum(1).mean()) for i, trial in enumerate(data.trials)]
    before = [1.0] * len(rows) if system.title == CEILING else sizes
    return fitted, [row | {"set_size_before": size} for row, size in zip(rows, before, strict=True)]


def show(out: Path, seeds: int, epochs: int) -> None:
    """Train every system, print a table, and write the rows and a picture of the curves to a folder."""
    torch.set_num_threads(1)  # its tensors are so small that a second thread only waits
    data = digits(range(seeds))
    print(
        f"scikit-learn's digits, {seeds} splits. A classifier's own doubts add wrong labels: "
        f"{data.candidates.sum(-1).mean():.2f} candidates per image, and one of them is right."
    )
    training = replace(TRAINING, epochs=epochs)
    results = {system.title: run(data, system, training) for system in SYSTEMS}
    print(f"{typeset(HEAD, [_cells(name, rows) for name, (_, rows) in results.items()], 'text')}\n{BELOW}")
    path = out / "rows.jsonl"
    path.unlink(missing_ok=True)
    append(path, [row for _, rows in results.values() for row in rows])
    histories = {name: fitted.history for name, (fitted, _) in results.items()}
    draw_curves(histories, out / "curves.png", title="Digits, candidate labels")
    print(f"Written to {out}: rows.jsonl (every trial) and curves.png.")


HEAD = ["system", "test accuracy %", "labels per set", "after", "true labels removed %"]
BELOW = "mean ± standard deviation over trials; the last epoch is taken, true labels only report"


def _cells(name: str, rows: list[Row]) -> list[str]:
    """A line of the table that is printed."""
    named = ("accuracy", "set_size_before", "set_size", "true_labels_removed")
    accuracy, before, after, removed = (np.array([row[key] for row in rows]) for key in named)
    spread = f" ± {100 * accuracy.std(ddof=1):.2f}" if len(rows) > 1 else ""
    sizes = [f"{before.mean():.2f}", f"{after.mean():.2f}"]
    return [name, f"{100 * accuracy.mean():.2f}{spread}", *sizes, f"{100 * removed.mean():.1f}"]


def draw_curves(histories: Mapping[str, Record], path: Path, *, title: str) -> None:
    """Write a picture with one panel per quantity: the mean over trials, shaded by one standard deviation."""
    figure, axes = plt.subplots(1, len(PANELS), figsize=(12, 3.8), layout="constrained")
    for axis, (name, label) in zip(axes, PANELS, strict=True):
        for (system, history), colour in zip(histories.items(), COLOURS, strict=False):
            if (column := history.get(name)) is None:
                continue
            mean, spread = (values.cpu().double().numpy() for values in (column.mean(1), column.std(1, correction=0)))
            at = range(1, len(mean) + 1)
            axis.plot(at, mean, "-" if "POP" in system else "--", color=colour, label=system)
            axis.fill_between(at, mean - spread, mean + spread, color=colour, alpha=0.15, linewidth=0)
        axis.set(xlabel="epoch", title=label)
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    with written_beside(path) as file:
        figure.savefig(file, format="png", dpi=130)
    plt.close(figure)
