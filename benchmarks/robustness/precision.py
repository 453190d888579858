"""Do float32 on the CPU and bfloat16 on the GPU learn alike? POP with PRODEN and LeNet on 5,000 MNIST digits, three seeds each.

    python benchmarks/robustness/precision.py               # rows from the device that is here, appended
    python benchmarks/robustness/precision.py --draw        # the picture and the figures in words, from all rows

Seeds draw other numbers on the two devices (order, views), so curves are compared as samples, not one by one.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np
import torch

from oneof.candidates.generate import Flip, generate
from oneof.data.augment import views
from oneof.methods import Proden
from oneof.networks import LeNet
from oneof.purify import Pop
from oneof.storage.rows import Row, append, read
from oneof.training.fit import fit
from oneof.training.trials import Training, Trial
from oneof_paper.data.catalogue import load
from oneof_paper.results import rows_of

TRAIN, TEST, EPOCHS, SEEDS = 5000, 2000, 15, (0, 1, 2)
RULE = Pop(warm_up=5, interval=3, window=3)
CURVES = {"accuracy": "test accuracy", "loss": "training loss", "set_size": "labels per set"}


def perform(seed: int, folder: str, device: str, commit: str | None) -> Row:
    data = load("mnist", folder)
    rows = np.r_[:TRAIN, 60_000 : 60_000 + TEST]
    x, labels = data.x[rows][:, None], data.labels[rows]
    sets = generate(labels, 10, Flip(0.4), seed=seed)
    trial = Trial(seed, np.arange(TRAIN), None, np.arange(TRAIN, TRAIN + TEST), lr=0.05, weight_decay=1e-3)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    setting = {"method": Proden(), "purify": RULE, "network": LeNet(), "training": Training(EPOCHS, 256)}
    seen, start = views("pop", "mnist", device=device, dtype=dtype), time.perf_counter()
    fitted = fit(x, sets, trials=[trial], views=seen, labels=labels, device=device, **setting)
    history = {name: [round(v, 5) for v in fitted.history[name][:, 0].tolist()] for name in CURVES}
    took = time.perf_counter() - start
    (row,) = rows_of(fitted, seeds=[seed], seconds=took, labels=labels, images=TRAIN, dtype=str(dtype), **setting)
    return row | {"curves": history} | ({"commit": commit} if commit else {})


def draw(rows: list[Row], picture: Path) -> str:
    """The curves of every run, and a line of figures for each device."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.2), layout="constrained")
    for axes, (name, title) in zip(figure.subplots(1, 3), CURVES.items(), strict=True):
        for kind, colour in (("cpu", "tab:blue"), ("cuda", "tab:orange")):
            for i, row in enumerate(of(rows, kind)):
                label = {"cpu": "float32, CPU", "cuda": "bfloat16, GPU"}[kind] if i == 0 else None
                axes.plot(range(1, EPOCHS + 1), row["curves"][name], color=colour, alpha=0.8, lw=1.2, label=label)
        axes.set(title=title, xlabel="epoch")
    axes.legend(frameon=False)
    figure.savefig(picture, dpi=110)
    return "\n".join(words(of(rows, kind), kind) for kind in ("cpu", "cuda"))


def of(rows: list[Row], kind: str) -> list[Row]:
    return [row for row in rows if row["device"].startswith(kind)]


def words(rows: list[Row], kind: str) -> str:
    parts = []
    for name in ("accuracy", "set_size", "true_labels_removed"):
        values = np.array([row[name] for row in rows])
        spread = f" ± {values.std(ddof=1):.4f}" if len(values) > 1 else ""
        parts.append(f"{name} {values.mean():.4f}{spread}")
    return f"{kind} ({len(rows)} seeds): {', '.join(parts)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draw", action="store_true")
    parser.add_argument("--rows", type=Path, default=Path("results/precision.jsonl"))
    parser.add_argument("--picture", type=Path, default=Path("docs/figures/precision.png"))
    parser.add_argument("--data", default=os.environ.get("ONEOF_DATA", "data"))
    parser.add_argument("--commit", help="of the source, where git cannot say")
    given = parser.parse_args()
    if given.draw:
        print(draw(read(given.rows), given.picture))
        return
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_num_threads(1)
    for seed in SEEDS:
        row = perform(seed, given.data, device, given.commit)
        append(given.rows, [row])
        print(
            f"seed {seed}: accuracy {row['accuracy']:.4f}, labels per set {row['set_size']:.3f}, {row['seconds']:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
