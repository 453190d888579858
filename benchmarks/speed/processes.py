"""Two processes against one: seconds of an epoch, and whether they end with the same.

    python benchmarks/speed/processes.py [--rows 20000] [--width 512]
    python benchmarks/speed/processes.py --whole [--rows 100000] [--features 20]
    python benchmarks/speed/processes.py --images [--rows 64] [--device cuda]

PRODEN + POP on a table of 64 features and 50 classes, batches of 512, one thread a process. Starting processes takes seconds, so an
epoch's time is that of a long run less that of a short one, over the epochs between. Only the ratio means anything.

--whole: all that `oneof fit` does between reading and writing (10 classes, 12 networks), the start of processes included.

--images: POP with four methods on images: how far two processes end from one, and one process from itself where its first weights
were changed by a rounding. In float32 a rounding flips ReLUs and maxima of LeNet here and there, which training amplifies; a network of the
same layers without kinks has none to flip. On CUDA networks run in bfloat16.
"""

from __future__ import annotations

import argparse
import itertools
import time

import numpy as np
import torch
from torch import nn

from oneof.data.augment import views
from oneof.data.synthetic import mixture
from oneof.methods import METHODS
from oneof.networks import MLP, Classifier, LeNet, Network
from oneof.purify import Pop
from oneof.runs.learn import SPACE
from oneof.selection.search import search
from oneof.selection.trying import Search
from oneof.training.fit import fit
from oneof.training.problem import Training
from oneof.training.state import Fit
from oneof.training.trials import Trial

CLASSES, SHORT, LONG = 50, 2, 8


def run(rows: int, width: int, epochs: int, processes: int) -> tuple[float, Fit]:
    data = mixture(n=rows + 5_000, d=64, c=CLASSES, separation=4.0, seed=0)
    sets = np.eye(CLASSES, dtype=bool)[data.labels] | (np.random.default_rng(0).random((rows + 5_000, CLASSES)) < 0.05)
    trial = Trial(lr=0.1, rows=np.arange(rows), test=np.arange(rows, rows + 5_000))
    start = time.perf_counter()
    fitted = fit(
        data.x.astype(np.float32), sets, trials=[trial], labels=data.labels, network=MLP((width, width)), processes=processes,
        purify=Pop(warm_up=1, interval=1, window=1), training=Training(epochs, 512),
    )  # fmt: skip
    return time.perf_counter() - start, fitted


def whole(rows: int, features: int) -> None:
    data = mixture(n=rows, d=features, c=10, separation=4.0, seed=0)
    sets = np.eye(10, dtype=bool)[data.labels] | (np.random.default_rng(0).random((rows, 10)) < 0.15)
    seconds, ends = [], []
    for processes in (1, 2):
        start = time.perf_counter()
        ends.append(search(data.x.astype(np.float32), sets, Search(SPACE, memory=2**30, processes=processes)))
        seconds.append(time.perf_counter() - start)
        print(f"{processes} process(es): {seconds[-1]:.1f} s for {rows:,} rows x {features} features", flush=True)
    apart = sum((a.candidates != b.candidates).sum().item() for a, b in zip(*(end.fits for end in ends), strict=True))
    total = sum(one.candidates.numel() for one in ends[0].fits)
    print(f"two against one: {seconds[0] / seconds[1]:.2f} x as fast; sets differ in {apart} of {total:,} entries")


def images(rows: int, device: str) -> None:
    dtypes = (torch.float32, torch.float64) if device == "cpu" else (torch.float32,)
    for dtype, network, (name, recipe) in itertools.product(dtypes, (LeNet(), Smooth()), SEEN.items()):
        torch.set_default_dtype(dtype)
        torch.manual_seed(0)
        first = METHODS[name]().network(network((1, 28, 28), 10), 10, (1, 28, 28)).state_dict()
        nudge = torch.finfo(dtype).eps / 2
        near = {key: w * (1 + nudge * torch.randn_like(w)) if w.is_floating_point() else w for key, w in first.items()}
        one, other, two = (
            on_images(rows, device, network, name, recipe, start, processes)
            for start, processes in ((first, 1), (near, 1), (first, 2))
        )
        which = f"{str(dtype)[6:]}, {type(network).__name__}, {name}"
        print(f"{which}: two against one {apart(two, one)}; nudged {apart(other, one)}", flush=True)


class Smooth:
    """LeNet without kinks."""

    def __call__(self, shape: tuple[int, ...], classes: int) -> Classifier:
        smooth = {nn.ReLU: nn.SiLU(), nn.MaxPool2d: nn.AvgPool2d(2)}
        built = LeNet()(shape, classes)
        body = nn.Sequential(*(smooth.get(type(layer), layer) for layer in built.body))
        return Classifier(body, built.width, classes)


SEEN = {"proden": "pop", "rcr": "rcr", "pico": "pico", "valen": "plain"}


def on_images(rows: int, device: str, network: Network, name: str, recipe: str, start: dict, processes: int) -> tuple:
    draws = np.random.default_rng(0)
    labels = draws.integers(0, 10, rows)
    x = (draws.integers(0, 256, (10, 1, 28, 28))[labels] * 0.5 + draws.integers(0, 128, (rows, 1, 28, 28))).astype(
        np.uint8
    )
    sets = np.eye(10, dtype=bool)[labels] | (draws.random((rows, 10)) < 0.3)
    dtype = torch.get_default_dtype() if device == "cpu" else torch.bfloat16
    seen, rule = views(recipe, "mnist", dtype=dtype, device=device), Pop(warm_up=1, interval=1, window=1)
    begin = time.perf_counter()
    fitted = fit(
        x, sets, method=METHODS[name](), network=network, views=seen, purify=rule, trials=[Trial(start=start)], device=device,
        processes=processes, training=Training(12 if name == "valen" else 4, 16),
    )  # fmt: skip
    seconds = time.perf_counter() - begin
    return fitted.probabilities(x).cpu(), fitted.candidates.cpu(), seconds


def apart(ours: tuple, theirs: tuple) -> str:
    """Two ends of a run, and how long the first took."""
    labels = (ours[0].argmax(-1) != theirs[0].argmax(-1)).sum().item()
    sets = (ours[1] != theirs[1]).sum().item()
    most = (ours[0] - theirs[0]).abs().max().item()
    return f"probabilities {most:.0e} apart, {labels} labels, {sets} candidates ({ours[2]:.0f} s)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--features", type=int, default=20)
    parser.add_argument("--images", action="store_true")
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.images:
        images(asked.rows or 64, asked.device)
    elif asked.whole:
        whole(asked.rows or 100_000, asked.features)
    else:
        epoch(asked.rows or 20_000, asked.width)


def epoch(rows: int, width: int) -> None:
    seconds, ends = {}, {}
    for processes in (1, 2):
        short, _ = run(rows, width, SHORT, processes)
        long, ends[processes] = run(rows, width, LONG, processes)
        seconds[processes] = (long - short) / (LONG - SHORT)
        print(
            f"{processes} process(es): {seconds[processes]:.2f} s an epoch; {long:.1f} s for {LONG} epochs, start included",
            flush=True,
        )
    one, two = ends[1], ends[2]
    apart = (one.candidates != two.candidates).sum().item()
    print(f"two against one: {seconds[1] / seconds[2]:.2f} x as fast")
    print(f"accuracy {one.history.accuracy[-1].item():.4f} and {two.history.accuracy[-1].item():.4f}; ", end="")
    print(
        f"{len(one.removals.row):,} and {len(two.removals.row):,} labels removed, sets differ in {apart} of {one.candidates.numel():,} entries (float32)"
    )


if __name__ == "__main__":
    main()
