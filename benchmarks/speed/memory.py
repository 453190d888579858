"""What tables take when they are kept for the candidates alone, and what a step costs as the classes grow.

    python benchmarks/speed/memory.py

Each size runs in a process of its own: PRODEN + POP, one trial, one to nine candidates a row (five on average) given as a SciPy
sparse matrix, a linear model on two features, so that the tables dominate. Tables are counted tensor by tensor; the peak is that
of the process's resident memory, PyTorch and the matrix that was given included. An epoch at 10,000,000 x 20,000 would compute
2e11 logits, so some steps are taken and then an event over all rows, whose running sums are filled with random numbers so that
labels do fall. Bounds of the issue: 250 MB of tables at 1,281,167 x 1,000; a peak of 4 GB at 10,000,000 x 20,000. Exits with 1
where one is passed.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from scipy import sparse

from oneof.methods import Proden
from oneof.networks import Linear
from oneof.purify import Pop
from oneof.training.checkpoint import Keeper
from oneof.training.events import event
from oneof.training.loop import begin, steps
from oneof.training.problem import Problem, pose
from oneof.training.processes import Crew
from oneof.training.set_input import read_sets, worth_packing
from oneof.training.stack import build
from oneof.training.state import Best, State
from oneof.training.trials import Training, Trial

CPU = torch.device("cpu")
SIZES = [(1_281_167, 1_000, 250e6, np.inf), (10_000_000, 20_000, np.inf, 4e9)]  # n, c, bounds of tables and of the peak
CLASSES = [500, 2_000, 8_000, 20_000]
STEPS = 30


def make(folder: Path, n: int, c: int) -> None:
    """Sets of one to nine labels, as the two arrays of a sparse matrix."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 10, size=n)
    ends = np.concatenate([[0], lengths.cumsum()])
    gaps = rng.integers(1, (c - 100) // 10, size=ends[-1], dtype=np.int32).cumsum()
    before = np.concatenate([[0], gaps])[ends[:-1]]
    np.save(folder / "indices.npy", (gaps - before.repeat(lengths)).astype(np.int32))
    np.save(folder / "indptr.npy", ends)


def given(folder: Path, n: int, c: int) -> sparse.csr_array:
    indices, ends = np.load(folder / "indices.npy"), np.load(folder / "indptr.npy")
    return sparse.csr_array((np.ones(len(indices), dtype=bool), indices, ends), shape=(n, c))


def posed(sets: object, n: int, c: int, packed: bool, batch: int = 100) -> tuple[Problem, State]:
    """A problem and the state before the first step; POP observes from the first epoch on."""
    x = torch.randn(n, 2, generator=torch.Generator().manual_seed(0))
    rule = Pop(warm_up=0, interval=1, window=1, e0=0.3)
    problem = pose(x, sets, [Trial()], Proden(), rule, Training(2, batch), packed=packed)
    return problem, begin(problem, build(lambda: Linear()((2,), c), [0], CPU), [0])


def tables(state: State) -> dict[str, int]:
    """Bytes of everything that is kept per row and label."""
    sets, memory, pop = state.candidates, state.memory, state.pop
    named = {
        "labels": sets.cells.labels, "starts": sets.cells.starts, "sets": sets.values, "memory": memory.values,
        "POP's sum": pop.seen.values, "its rest": pop.seen.rest, "round": pop.fell.values, "margin": pop.margin.values,
    }  # fmt: skip
    return {name: tensor.nbytes for name, tensor in named.items()}


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def run(folder: Path, n: int, c: int, most_tables: float, most_peak: float) -> None:
    """Lay out the tables, take steps, hold an event, save; print what it took."""
    start = time.perf_counter()
    sets = read_sets(given(folder, n, c), n, 1, CPU)
    assert worth_packing(sets, 1)
    problem, state = posed(sets, n, c, packed=True)
    ready = time.perf_counter()
    train = steps(problem, state)
    next(train)
    opened = time.perf_counter()
    for _ in range(STEPS):
        next(train)
    stepped = time.perf_counter()
    state.pop.seen.values.uniform_()
    state.pop.seen.rest.uniform_()
    removed, state.pop = event(problem.purify, state.candidates, state.pop, Crew(), n * c)
    purified = time.perf_counter()
    sizes = tables(state)
    total, dense = sum(sizes.values()), n * c * 9
    print(f"n = {n:,}, c = {c:,}, {len(sets.values) / n:.2f} candidates a row")
    print("  " + "   ".join(f"{name} {size / 1e6:,.0f} MB" for name, size in sizes.items()))
    print(
        f"  all tables {total / 1e6:,.0f} MB; dense (sets, memory, POP's sum; its log apart) {dense / 1e6:,.0f} MB: {dense / total:,.0f} x"
    )
    print(
        f"  laid out in {ready - start:.1f} s, {(stepped - opened) / STEPS * 1e3:.0f} ms a step of 100 rows, ", end=""
    )
    print(
        f"event over all rows {purified - stepped:.1f} s ({int(removed):,} labels fell); peak {peak() / 1e9:.2f} GB",
        flush=True,
    )
    passed = peak() > most_peak  # saving copies the tables once more: told apart
    Keeper(folder, {}, 0).save(state, Best(state, "last"), [], now=True)
    saved = max(path.stat().st_size for path in folder.glob("*.safetensors"))
    print(
        f"  checkpoint {saved / 1e6:,.0f} MB in {time.perf_counter() - purified:.1f} s; peak with it {peak() / 1e9:.2f} GB"
    )
    sys.exit(int(total > most_tables or passed))


def step_times() -> None:
    """Milliseconds a step, packed and dense, in turns, and those of the network alone."""
    n = 2_000
    print(f"\na step of 100 rows, five candidates on average, n = {n:,}; ms, least of five turns")
    for c in CLASSES:
        with tempfile.TemporaryDirectory() as name:
            make(Path(name), n, c)
            matrix = given(Path(name), n, c)
        sources = [matrix, matrix.toarray()]
        runs: list[Iterator[object]] = [
            steps(*posed(sets, n, c, packed)) for sets, packed in zip(sources, (True, False), strict=True)
        ]
        packed, dense, bare = least([*(lambda one=one: next(one) for one in runs), network_alone(c)])
        print(
            f"  c = {c:>6,}: packed {packed:6.2f}   dense {dense:6.2f}   packed/dense {packed / dense:.2f}   ", end=""
        )
        print(f"network alone (forward, cross-entropy, backward, SGD) {bare:6.2f}   packed/alone {packed / bare:.2f}")


def network_alone(c: int):
    net, x = torch.nn.Linear(2, c), torch.randn(100, 2)
    optimizer, labels = (
        torch.optim.SGD(net.parameters(), 0.05, 0.9, weight_decay=1e-3),
        torch.zeros(100, dtype=torch.long),
    )

    def work() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x), labels).backward()
        optimizer.step()

    return work


def least(works: list) -> list[float]:
    """Milliseconds a call: the least mean of five turns of six calls, after one turn to warm up."""
    times: list[list[float]] = [[] for _ in works]
    for turn in range(6):
        for work, own in zip(works, times, strict=True):
            start = time.perf_counter()
            for _ in range(6):
                work()
            if turn:
                own.append((time.perf_counter() - start) / 6 * 1e3)
    return [min(own) for own in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", nargs=5, metavar=("FOLDER", "N", "C", "TABLES", "PEAK"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.one:
        folder, n, c, *bounds = asked.one
        run(Path(folder), int(n), int(c), *map(float, bounds))
    codes = []
    for n, c, *bounds in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            make(Path(folder), n, c)
            codes.append(
                subprocess.run([sys.executable, __file__, "--one", folder, *map(str, (n, c, *bounds))]).returncode
            )
    step_times()
    sys.exit(max(codes))


if __name__ == "__main__":
    main()
