"""Ranks of data-parallel training against one process: accuracy on pictures, bytes sent, and what one NCCL rank costs a step.

    python benchmarks/speed/ranks.py accuracy [--data digits cifar10] [--seeds 5] [--n-jobs 2] [--results results/ranks.jsonl]
    python benchmarks/speed/ranks.py nccl [--epochs 12]

accuracy: PRODEN + POP with LeNet on sklearn's digits (1,297 rows to train on) and on 2,000 rows of CIFAR-10 (ONEOF_DATA), by one process and by
several ranks over gloo, test accuracy of each seed and the paired difference.

nccl (one GPU): seconds of an epoch of WRN-28-2 on 45,000 random pictures by the path of one process, and by the same path as one rank of
NCCL whose gradients really go through all_reduce. Both must be captured; the second may take 5 % more at most. Exits with 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import Tensor

from oneof.data.augment import views
from oneof.methods import Proden
from oneof.networks import LeNet, WideResNet
from oneof.purify import Pop
from oneof.training.fit import fit
from oneof.training.loop import begin, steps
from oneof.training.processes import ProcessGroup
from oneof.training.stack import build
from oneof.training.training_data import make_training_data
from oneof.training.trials import Training, Trial
from oneof_paper.data.catalogue import data_folder, load

MAX_OVERHEAD = 0.05


def pictures(name: str) -> tuple[np.ndarray, np.ndarray, int]:
    """Return pictures, labels, and how many of them are trained on."""
    if name == "digits":
        data = load_digits()
        order = np.random.default_rng(0).permutation(len(data.target))
        images = (data.images * 15.9).astype(np.uint8)[order, None]
        return images, data.target[order], 1297
    folder = data_folder(None)
    if folder is None:
        sys.exit("cifar10 needs the folder of its files: set ONEOF_DATA.")
    data = load("cifar10", folder)
    chosen = np.random.default_rng(0).permutation(len(data.labels))[:4000]
    return np.moveaxis(data.x[chosen], 3, 1).copy(), data.labels[chosen], 2000


def accuracy_of(name: str, seed: int, n_jobs: int, epochs: int) -> float:
    """Return the share of test pictures that is right after the last epoch."""
    images, labels, n_train = pictures(name)
    rng = np.random.default_rng(seed)
    sets = np.eye(10, dtype=bool)[labels] | (rng.random((len(labels), 10)) < 0.2)
    colours = "mnist" if name == "digits" else "cifar10"
    trial = Trial(seed=seed, lr=0.03, scaling="none", rows=np.arange(n_train), test=np.arange(n_train, len(labels)))
    fitted = fit(
        images,
        sets,
        views=views("plain", colours),
        trials=[trial],
        network=LeNet(),
        purify=Pop(warm_up=epochs // 2, interval=2, window=2),
        training=Training(epochs, 100),
        labels=labels,
        n_jobs=n_jobs,
    )
    return float(fitted.history["accuracy"][-1, 0])


def compare_accuracy(names: list[str], n_seeds: int, n_jobs: int, epochs: int, results: Path | None) -> None:
    """Print the accuracy of one process and of several ranks; add a row for each seed to the file."""
    for name in names:
        differences = []
        for seed in range(100, 100 + n_seeds):
            alone = accuracy_of(name, seed, 1, epochs)
            together = accuracy_of(name, seed, n_jobs, epochs)
            differences.append(together - alone)
            row = {"data": name, "seed": seed, "epochs": epochs, "ranks": n_jobs, "alone": alone, "together": together}
            if results is not None:
                with results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({**row, "torch": torch.__version__}) + "\n")
            print(f"{name} seed {seed}: one process {alone:.4f}, {n_jobs} ranks {together:.4f}", flush=True)
        error = np.std(differences, ddof=1) / np.sqrt(n_seeds) if n_seeds > 1 else np.nan
        print(f"{name}: {n_jobs} ranks less one process {np.mean(differences):+.4f} ± {error:.4f}", flush=True)


class OneRank(ProcessGroup):
    """A group of one rank that sends its gradients all the same."""

    @property
    def can_capture(self) -> bool:
        """NCCL can be captured."""
        return True

    def mean(self, tensors: list[Tensor]) -> list[Tensor]:
        """Reduce as several ranks do."""
        with torch.no_grad():
            return self._reduced(tensors)


def seconds_per_epoch(group: ProcessGroup, n_epochs: int) -> tuple[float, int]:
    """Return the median seconds of an epoch after the first three, and how many graphs were captured."""
    device = torch.device("cuda", 0)
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, size=(45_000, 3, 32, 32), dtype=np.uint8)
    sets = rng.random((len(x), 10)) < 0.3
    sets[np.arange(len(x)), rng.integers(10, size=len(x))] = True
    trial = Trial(lr=0.03, scaling="none")
    training = Training(500, 256)
    seen = views("pop", "cifar10", device=device)
    rule = Pop(warm_up=2, interval=2, window=2)
    data = make_training_data(x, sets, [trial], Proden(), rule, training, seen, device=device)
    data = data.shared_with(group)
    stack = build(partial(data.network, WideResNet()), [0], device, data.compile_batch)
    state = begin(data, stack, [0])
    captured: list[int] = []
    original = torch.cuda.CUDAGraph.replay

    def replay(graph: torch.cuda.CUDAGraph) -> None:
        captured.append(1)
        original(graph)

    torch.cuda.CUDAGraph.replay = replay  # type: ignore[method-assign]
    seconds = []
    start = time.perf_counter()
    for record in steps(data, state):
        if record is None:
            continue
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
        start = time.perf_counter()
        if len(seconds) == n_epochs:
            break
    torch.cuda.CUDAGraph.replay = original  # type: ignore[method-assign]
    return float(np.median(seconds[3:])), len(captured)


def compare_nccl(n_epochs: int) -> None:
    """Print the seconds of both paths."""
    alone, alone_replays = seconds_per_epoch(ProcessGroup(), n_epochs)
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29517")
    dist.init_process_group("nccl", rank=0, world_size=1)
    rank, rank_replays = seconds_per_epoch(OneRank(), n_epochs)
    dist.destroy_process_group()
    print(f"one process: {alone:.3f} s an epoch, {alone_replays:,} replays of captured steps")
    print(f"one NCCL rank: {rank:.3f} s an epoch ({rank / alone - 1:+.1%}), {rank_replays:,} replays")
    if rank > (1 + MAX_OVERHEAD) * alone or rank_replays < alone_replays:
        sys.exit(1)


def main() -> None:
    """Run one of the comparisons."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["accuracy", "nccl"])
    parser.add_argument("--data", nargs="+", default=["digits", "cifar10"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--n-jobs", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--results", type=Path, help="of accuracy: a file of rows to add to")
    arguments = parser.parse_args()
    if arguments.what == "nccl":
        compare_nccl(min(arguments.epochs, 12))
    else:
        compare_accuracy(arguments.data, arguments.seeds, arguments.n_jobs, arguments.epochs, arguments.results)


if __name__ == "__main__":
    main()
