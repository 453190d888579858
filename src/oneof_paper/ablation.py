"""Run the paper's ablation in small: digits with candidate sets that the doubts of a classifier made (`oneof paper ablation`)."""

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
from oneof.storage.files import atomic_write
from oneof.storage.rows import Row, append
from oneof.training.fit import fit
from oneof.training.state import Fit, Record
from oneof.training.trials import Training, Trial
from oneof_paper.compute_rows import split
from oneof_paper.experiments import TABULAR, System
from oneof_paper.results import rows_of
from oneof_paper.typeset import typeset

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#555555")  # colour-blind readers can tell them apart
PANELS = (("accuracy", "test accuracy"), ("set_size", "labels per set"), ("threshold", "threshold"))
CLASSES = 10
TRAINING = Training(epochs=100, batch=32)  # small batches: fast early learning decides more than the method does


class AblationDigits(NamedTuple):
    """Digits with a split and candidate sets for every trial."""

    x: NDArray[np.float32]  # [n, 64]
    labels: NDArray[np.intp]  # [n]
    candidates: NDArray[np.bool_]  # [t, n, c]
    trials: list[Trial]


CEILING = "true labels (ceiling)"  # trained on true labels
SYSTEMS = (
    System("PRODEN", Proden()),
    System("PRODEN + POP", Proden(), Pop()),
    System("CC", CC()),
    System("CC + POP", CC(), Pop()),
    System(CEILING, Proden()),
)


def digits(seeds: Sequence[int], *, teacher_epochs: int = 20, rate: float = 0.4) -> AblationDigits:
    """Split digits 80/20 with a tenth of the training rows held out, and draw instance-dependent sets by an MLP trained on true labels."""
    source = load_digits()
    x = (source.data / 16).astype(np.float32)
    labels = source.target
    trials = []
    teacher_trials = []
    for seed in seeds:
        trial = Trial(seed, *split(len(x), seed, TABULAR), scaling="feature")
        trials.append(trial)
        teacher_trials.append(replace(trial, rows=np.concatenate([trial.rows, trial.held_out])))
    truth = np.eye(CLASSES, dtype=bool)[labels]
    teachers = fit(x, truth, trials=teacher_trials, training=replace(TRAINING, epochs=teacher_epochs))
    logits = teachers.logits(x).double().numpy()
    kind = InstanceRate(rate=rate)
    sets = []
    for seed, logits_of_trial in zip(seeds, logits, strict=True):
        sets.append(generate(labels, CLASSES, kind, seed=seed, logits=logits_of_trial))
    return AblationDigits(x, labels, np.stack(sets), trials)


def run(data: AblationDigits, system: System, training: Training, *, show: bool = True) -> tuple[Fit, list[Row]]:
    """Train one system on all trials at once, and return the fit and its rows; true labels report, the last epoch is taken."""
    is_ceiling = system.title == CEILING
    candidates = np.eye(CLASSES, dtype=bool)[data.labels] if is_ceiling else data.candidates
    setting: Any = {"method": system.method, "purify": system.purify, "training": training}
    start = time.perf_counter()
    fitted = fit(
        data.x,
        candidates,
        trials=data.trials,
        labels=data.labels,
        progress=system.title if show else None,
        **setting,
    )
    rows = rows_of(
        fitted,
        seeds=[trial.seed for trial in data.trials],
        seconds=time.perf_counter() - start,
        labels=data.labels,
        dataset="digits",
        system=system.title,
        **setting,
        selection="last epoch",
    )
    for row, trial, mask in zip(rows, data.trials, data.candidates, strict=True):
        row["set_size_before"] = 1.0 if is_ceiling else float(mask[trial.rows].sum(1).mean())
    return fitted, rows


def show(out: Path, seeds: int, epochs: int) -> None:
    """Train every system, print a table, and write the rows and a picture of the curves to a folder."""
    torch.set_num_threads(1)  # its tensors are so small that further threads only wait
    data = digits(range(seeds))
    print(
        f"scikit-learn's digits, {seeds} splits. A classifier's own doubts add wrong labels: "
        f"{data.candidates.sum(-1).mean():.2f} candidates per image, and one of them is right."
    )
    training = replace(TRAINING, epochs=epochs)
    lines = []
    all_rows: list[Row] = []
    histories = {}
    for system in SYSTEMS:
        fitted, rows = run(data, system, training)
        lines.append(_cells(system.title, rows))
        all_rows += rows
        histories[system.title] = fitted.history
    print(typeset(HEAD, lines, "text"))
    print(BELOW)
    path = out / "rows.jsonl"
    path.unlink(missing_ok=True)
    append(path, all_rows)
    draw_curves(histories, out / "curves.png", title="Digits, candidate labels")
    print(f"Written to {out}: rows.jsonl (every trial) and curves.png.")


HEAD = ["system", "test accuracy %", "labels per set", "after", "true labels removed %"]
BELOW = "mean ± standard deviation over trials; the last epoch is taken, true labels only report"


def _cells(name: str, rows: list[Row]) -> list[str]:
    """Return a line of the printed table."""
    accuracy = np.array([row["accuracy"] for row in rows])
    before = np.mean([row["set_size_before"] for row in rows])
    after = np.mean([row["set_size"] for row in rows])
    removed = np.mean([row["true_labels_removed"] for row in rows])
    accuracy_text = f"{100 * accuracy.mean():.2f}"
    if len(rows) > 1:
        accuracy_text += f" ± {100 * accuracy.std(ddof=1):.2f}"
    return [name, accuracy_text, f"{before:.2f}", f"{after:.2f}", f"{100 * removed:.1f}"]


def draw_curves(histories: Mapping[str, Record], path: Path, *, title: str) -> None:
    """Write a picture with one panel per quantity: the mean over trials, shaded by one standard deviation."""
    figure, axes = plt.subplots(1, len(PANELS), figsize=(12, 3.8), layout="constrained")
    for axis, (name, label) in zip(axes, PANELS, strict=True):
        for (system, history), colour in zip(histories.items(), COLOURS, strict=False):
            column = history.get(name)
            if column is None:
                continue
            mean = column.mean(1).cpu().double().numpy()
            std = column.std(1, correction=0).cpu().double().numpy()
            epochs = range(1, len(mean) + 1)
            axis.plot(epochs, mean, "-" if "POP" in system else "--", color=colour, label=system)
            axis.fill_between(epochs, mean - std, mean + std, color=colour, alpha=0.15, linewidth=0)
        axis.set(xlabel="epoch", title=label)
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    with atomic_write(path) as file:
        figure.savefig(file, format="png", dpi=130)
    plt.close(figure)
