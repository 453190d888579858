"""Trials of the suite: run on many cores, longest first, each a row that is appended as soon as it is there."""

from __future__ import annotations

import logging
import multiprocessing
import os
import platform
import re
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from on_tables.problems import REAL, REAL_KIND, Problem, load_table, make_problem
from on_tables.rivals import Outcome
from on_tables.systems import find_system
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from oneof.storage.rows import Row, append, read
from oneof_paper.results import origin

SECONDS_PER_UNIT = 1e-5  # of a system without rows; a table has n c sqrt(d) units
PACKAGES = ("numpy", "pandas", "scikit-learn")


class Trial(NamedTuple):
    """What a row is the result of."""

    table: str
    kind: str
    seed: int
    system: str

    def __str__(self) -> str:
        return f"{self.table}, {self.kind}, seed {self.seed}, {self.system}"


@dataclass(frozen=True)
class Settings:
    """Where trials read from and write to, and how they run."""

    rows: Path
    data_dir: str | None = None
    store: Path | None = None
    jobs: int = 1
    limit_seconds: float = float("inf")
    commit: str | None = None  # of the source, on a machine without git


@dataclass
class Progress:
    """Expected and measured seconds of the trials of a run."""

    expected: dict[Trial, float]
    jobs: int
    started: float = field(default_factory=time.monotonic)
    done: list[Trial] = field(default_factory=list)
    measured: float = 0.0

    def line(self, trial: Trial, row: Row) -> str:
        """Count a finished trial, and describe it and the time left."""
        self.done.append(trial)
        self.measured += row["wall_seconds"]
        expected_done = sum(self.expected[one] for one in self.done)
        expected_left = sum(self.expected.values()) - expected_done
        minutes = expected_left * self.measured / max(expected_done, 1e-9) / self.jobs / 60
        place = f"[{len(self.done)}/{len(self.expected)}]"
        return f"{place} {trial}: {100 * row['accuracy']:.1f} % in {row['cpu_seconds']:.1f} s; {minutes:.1f} min left"


def run_trial(trial: Trial, settings: Settings) -> Row:
    """Fit a system to a problem on one core, and judge it by true labels."""
    with one_quiet_thread():
        problem = make_problem(trial.table, trial.kind, trial.seed, settings.data_dir)
        system = find_system(trial.system)
        wall_start = time.perf_counter()
        cpu_start = time.process_time()
        outcome = system(problem, trial.seed)
        cpu_seconds = time.process_time() - cpu_start
        wall_seconds = time.perf_counter() - wall_start
    if settings.store is not None:
        store_probabilities(settings.store, trial, outcome)
    return {
        **trial._asdict(),
        **measure(problem, outcome),
        "cpu_seconds": round(cpu_seconds, 3),
        "wall_seconds": round(wall_seconds, 3),
        **environment(settings.commit),
    }


@contextmanager
def one_quiet_thread() -> Iterator[None]:
    """Compute on one core, without warnings on convergence and on columns that are left out."""
    logger = logging.getLogger("oneof")
    level = logger.level
    logger.setLevel(logging.ERROR)
    torch.set_num_threads(1)
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            yield
        finally:
            logger.setLevel(level)


def measure(problem: Problem, outcome: Outcome) -> Row:
    """Return the accuracy on test rows and of the labels of training rows, beside what describes the problem."""
    n, n_classes = problem.sets.shape
    labels = outcome.labels
    if labels is None and outcome.train is not None:
        labels = np.where(problem.sets, outcome.train, -1.0).argmax(1)
    resolved = None if labels is None else round(float((labels == problem.labels_train).mean()), 6)
    probability = None
    if labels is not None and outcome.train is not None:
        within_sets = np.where(problem.sets, outcome.train, 0.0)
        of_labels = within_sets[np.arange(n), labels] / np.maximum(within_sets.sum(1), 1e-12)
        probability = round(float(of_labels.mean()), 6)
    covering = None if outcome.covering is None else round(float(outcome.covering), 6)
    return {
        "n": n,
        "d": problem.x_train.shape[1],
        "c": n_classes,
        "set_size": round(float(problem.sets.sum(1).mean()), 4),
        "accuracy": round(float((outcome.test.argmax(1) == problem.labels_test).mean()), 6),
        "resolved": resolved,
        "probability": probability,
        "covering": covering,
    }


def environment(commit: str | None) -> Row:
    """Return device, commit and versions."""
    found = dict(origin("cpu"))
    found["python"] = platform.python_version()
    for package in PACKAGES:
        found[package] = version(package)
    if commit is not None:
        found["commit"] = commit
    return found


def store_path(folder: Path, trial: Trial) -> Path:
    """Return the file of a trial's probabilities."""
    system = re.sub(r"[^\w.=-]+", "_", trial.system)
    return folder / f"{trial.table}-{trial.kind}-{trial.seed}-{system}.npz"


def store_probabilities(folder: Path, trial: Trial, outcome: Outcome) -> None:
    """Write the probabilities of test rows and of training rows in half precision."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {"test": outcome.test.astype(np.float16)}
    if outcome.train is not None:
        arrays["train"] = outcome.train.astype(np.float16)
    np.savez_compressed(store_path(folder, trial), **arrays)


def missing_trials(
    tables: Sequence[str], kinds: Sequence[str], seeds: Sequence[int], systems: Sequence[str], rows: Sequence[Row]
) -> list[Trial]:
    """List the trials that have no row; real sets have one kind of their own."""
    present = {(row["table"], row["kind"], row["seed"], row["system"]) for row in rows}
    trials = []
    for table, seed, system in product(tables, seeds, systems):
        for kind in (REAL_KIND,) if table in REAL else kinds:
            trial = Trial(table, kind, seed, system)
            if trial not in present:
                trials.append(trial)
    return trials


def expected_seconds(trials: Sequence[Trial], rows: Sequence[Row], data_dir: str | None) -> dict[Trial, float]:
    """Estimate how long each trial takes: by rows of the same table and system, else by the size of the table."""
    by_table: dict[tuple[str, str], list[float]] = {}
    by_unit: dict[str, list[float]] = {}
    for row in rows:
        by_table.setdefault((row["table"], row["system"]), []).append(row["cpu_seconds"])
        by_unit.setdefault(row["system"], []).append(row["cpu_seconds"] / units(row["n"], row["d"], row["c"]))
    seconds = {}
    for trial in trials:
        known = by_table.get((trial.table, trial.system))
        if known:
            seconds[trial] = float(np.mean(known))
            continue
        table = load_table(trial.table, data_dir)
        rate = float(np.median(by_unit.get(trial.system, [SECONDS_PER_UNIT])))
        seconds[trial] = rate * units(*table.numbers.shape, table.n_classes)
    return seconds


def units(n: int, d: int, c: int) -> float:
    """Return the size of a table, to which the time of a fit is roughly proportional."""
    return n * c * float(np.sqrt(d))


def run_trials(trials: Sequence[Trial], settings: Settings) -> list[str]:
    """Run trials, longest first, and append their rows; return what failed, or was not run for want of time."""
    rows = read(settings.rows) if settings.rows.exists() else []
    expected = expected_seconds(trials, rows, settings.data_dir)
    queue = sorted(trials, key=lambda trial: -expected[trial])
    progress = Progress(expected, settings.jobs)
    failures = []
    for trial, result in finished_trials(queue, settings):
        if isinstance(result, BaseException):
            failures.append(f"{trial}: {type(result).__name__}: {result}")
            print(f"failed: {failures[-1]}", flush=True)
            continue
        append(settings.rows, [result])
        print(progress.line(trial, result), flush=True)
    unfinished = len(trials) - len(progress.done) - len(failures)
    if unfinished:
        failures.append(f"{unfinished} trials were left out after {settings.limit_seconds:.0f} seconds")
    return failures


def finished_trials(queue: Sequence[Trial], settings: Settings) -> Iterator[tuple[Trial, Row | BaseException]]:
    """Yield trials with their rows, or with what they raised, as they end, until the time is over."""
    deadline = time.monotonic() + settings.limit_seconds
    if settings.jobs == 1:
        for trial in queue:
            if time.monotonic() < deadline:
                yield trial, run_trial(trial, settings)
        return
    # Spawned processes read these when they import NumPy and torch.
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["MKL_NUM_THREADS"] = "1"
    waiting = list(queue)
    running: dict[Future[Row], Trial] = {}
    with ProcessPoolExecutor(settings.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        while waiting or running:
            while waiting and len(running) < settings.jobs and time.monotonic() < deadline:
                trial = waiting.pop(0)
                running[pool.submit(run_trial, trial, settings)] = trial
            remaining = deadline - time.monotonic()
            ended, _ = wait(running, None if remaining == float("inf") else max(remaining, 0.0), FIRST_COMPLETED)
            for future in ended:
                yield running.pop(future), future.exception() or future.result()
            if time.monotonic() >= deadline:
                break
        if running:  # what did not end before the deadline
            for process in multiprocessing.active_children():
                process.terminate()
