"""Compute the rows that a table needs and does not have yet. A cell of a table is one stack of trials: seeds by settings.

A cell gives two kinds of rows: for every seed and selection rule the *chosen* setting with everything that is known about it, and for
every seed the whole *grid* in short, so that another rule can be tried later. Held-out candidate sets choose; held-out true labels
do so only for the oracle, as in the paper.
"""

import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oneof.methods import Method
from oneof.metrics import CRITERIA, true_labels_removed
from oneof.storage.cores import cores
from oneof.storage.rows import Row, append
from oneof.storage.settings import digest, to_serializable
from oneof.training.device import make_deterministic
from oneof.training.fit import fit
from oneof.training.state import Record
from oneof.training.trials import Trial
from oneof_paper.data.catalogue import NAMED, LabelledData, data_folder, load
from oneof_paper.experiments import Protocol, Setting, System
from oneof_paper.results import origin

# Bytes of a deterministic stack: how much memory is free now must not decide how trials are cut into stacks.
FIXED_MEMORY = 2**30


def rules() -> tuple[str, ...]:
    """Return the rules that choose a setting: the criteria, which need no true label, and accuracy on held-out rows."""
    return (*CRITERIA, "oracle")


def reported() -> tuple[str, ...]:
    """Return the columns of a history that rows have."""
    return (*rules(), "accuracy", "set_size")


class Cell(NamedTuple):
    """A system on a data set, for some seeds."""

    dataset: str
    system: System
    protocol: Protocol
    seeds: tuple[int, ...]

    @property
    def identity(self) -> Row:
        """Return what two rows of a cell have in common: everything but the seed."""
        about: Row = {"method": self.system.method, "purify": self.system.purify, "protocol": self.protocol}
        if self.system.variants:
            about["variants"] = self.system.variants
        identity: Row = {"dataset": self.dataset}
        for name, value in about.items():
            identity[name] = to_serializable(value)
        return identity

    @property
    def setting(self) -> str:
        """Return the digest by which rows name their cell."""
        return digest(self.identity)

    @property
    def settings(self) -> list[tuple[Method, Setting]]:
        """Return all that is searched: every form of the loss with every setting."""
        return list(product(self.system.methods, self.protocol.grid))

    @property
    def trials(self) -> int:
        return len(self.seeds) * len(self.settings)


def missing_cells(cells: Iterable[Cell], rows: Iterable[Row]) -> list[Cell]:
    """Return the cells that are not complete, each with the seeds that have no rows. Cells that two tables share come once."""
    done = {(row["setting"], row["seed"]) for row in rows if row.get("kind") == "grid"}
    missing: dict[str, Cell] = {}
    for cell in cells:
        seeds = tuple(seed for seed in cell.seeds if (cell.setting, seed) not in done)
        if seeds:
            missing[cell.setting] = cell._replace(seeds=seeds)
    return list(missing.values())


Parts = tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp] | None]  # rows to train on, held out, to test on


def split(n: int, seed: int, protocol: Protocol) -> Parts:
    """Split n rows into those to train on, held-out ones and those to test on.

    >>> from oneof_paper.experiments import TABULAR
    >>> [len(part) for part in split(1122, 0, TABULAR)]
    [808, 89, 225]
    """
    order = np.random.default_rng(seed).permutation(n)
    train_count = int(n * (1 - protocol.test))
    held_out_count = int(train_count * protocol.held_out)
    return order[held_out_count:train_count], order[:held_out_count], order[train_count:]


def compute_rows(
    cell: Cell,
    data: LabelledData,
    parts: Callable[[int], Parts] | None = None,
    *,
    device: str = "cpu",
    checkpoint: Path | None = None,
    memory: int | None = None,
) -> list[Row]:
    """Train every seed with every setting of a cell, those of one loss at once, and return the cell's rows.

    `parts` gives the split of a seed; by default it is random, as the protocol says.
    """
    protocol = cell.protocol
    trials = []
    for seed in cell.seeds:
        parts_of_seed = split(len(data.x), seed, protocol) if parts is None else parts(seed)
        for lr, weight_decay, scaling in protocol.grid:
            trials.append(Trial(seed, *parts_of_seed, lr, weight_decay, scaling))
    histories: list[Record] = []
    removed: list[Tensor] = []
    device_used = device
    start = time.perf_counter()
    cpu_start = time.process_time()
    for number, method in enumerate(cell.system.methods):
        fitted = fit(
            data.x,
            data.candidates,
            trials=trials,
            method=method,
            purify=cell.system.purify,
            network=protocol.network,
            training=protocol.training,
            labels=data.labels,
            device=device,
            memory=memory,
            checkpoint=None if checkpoint is None else checkpoint / f"form-{number}",
        )
        truth = torch.as_tensor(data.labels, device=fitted.rows.device)[fitted.rows]
        removed.append(true_labels_removed(fitted.candidates, truth).cpu())
        histories.append({name: column.cpu() for name, column in fitted.history.items()})
        device_used = str(fitted.rows.device)
    seconds = (time.perf_counter() - start) / cell.trials
    cpu_seconds = (time.process_time() - cpu_start) / cell.trials
    shape = (len(cell.seeds), len(protocol.grid))
    history = {}
    for name in histories[0]:
        history[name] = _group_by_seed([record[name] for record in histories], shape)
    removed_shares = _group_by_seed([column[None] for column in removed], shape)[0].tolist()
    spent = {"seconds": round(seconds, 4), "cpu_seconds": round(cpu_seconds, 4)}
    return _rows(cell, history, removed_shares, {**spent, **origin(device_used)})


def _group_by_seed(columns: Sequence[Tensor], shape: tuple[int, int]) -> Tensor:
    """Join columns [e, seeds x settings] of several losses to one in which all settings of a seed lie together."""
    by_seed = [column.reshape(len(column), *shape) for column in columns]
    return torch.cat(by_seed, dim=-1).flatten(1)


def latest_best(column: Tensor) -> Tensor:
    """Return the epoch of the largest value in each column of [epochs, t]; the latest of equal ones, never one of NaN.

    >>> latest_best(torch.tensor([[1.0, 3.0], [2.0, 3.0], [2.0, 1.0]])).tolist()
    [2, 1]
    """
    without_nan = column.nan_to_num(nan=-torch.inf)
    return len(column) - 1 - without_nan.flip(0).argmax(0)


def chosen_epoch(history: Record, rule: str) -> Tensor:
    """Return the epoch [t], counted from 0, at which a rule reads each trial: the last, or for the oracle the best, as in the paper.

    The best of two hundred epochs on ninety held-out rows is mostly luck, so no other rule chooses an epoch.
    """
    column = history[rule]
    if rule == "oracle":
        return latest_best(column)
    return torch.full_like(column[0], len(column) - 1, dtype=torch.int64)


def _rows(cell: Cell, history: Record, removed: list[float], origin_of_cell: Row) -> list[Row]:
    """Return the rows of a cell: for every seed the chosen setting by each rule, and the grid.

    Columns of `history` are [epochs, t], and `removed` has the share of true labels that each of the t trials removed; the trials are
    ordered by seed, then by setting.
    """
    n_settings = len(cell.settings)
    epochs = {rule: chosen_epoch(history, rule) for rule in rules()}
    choices = {}
    for rule, epoch_of_trial in epochs.items():
        scores = history[rule].gather(0, epoch_of_trial[None]).nan_to_num(nan=-torch.inf)
        choices[rule] = scores.view(len(cell.seeds), n_settings).argmax(-1)  # the first of equal ones
    named = {"system": cell.system.title, "setting": cell.setting}
    rows: list[Row] = []
    for seed_index, seed in enumerate(cell.seeds):
        for rule in rules():
            trial = seed_index * n_settings + int(choices[rule][seed_index])
            epoch = int(epochs[rule][trial])
            chosen = _chosen_setting(cell, history, removed, trial, epoch)
            row = {"kind": "chosen", **named, **cell.identity, "rule": rule, "seed": seed, **chosen, **origin_of_cell}
            rows.append(row)
        first_trial = seed_index * n_settings
        grid = _grid(history, range(first_trial, first_trial + n_settings), epochs["oracle"])
        rows.append({"kind": "grid", **named, "dataset": cell.dataset, "seed": seed, **grid})
    return rows


def _chosen_setting(cell: Cell, history: Record, removed: list[float], trial: int, epoch: int) -> Row:
    """Return the setting of a trial and what it showed at an epoch."""
    method, setting = cell.settings[trial % len(cell.settings)]
    row: Row = {**setting._asdict(), "epoch": epoch + 1}
    if cell.system.variants:
        row["chosen_method"] = to_serializable(method)
    for name in reported():
        row[name] = round(float(history[name][epoch, trial]), 6)
    if epoch == len(history["loss"]) - 1:  # removals are known after the last epoch only
        row["true_labels_removed"] = round(removed[trial], 6)
    return row


def _grid(history: Record, trials: range, best_epochs: Tensor) -> Row:
    """Return what every trial of a seed showed in the last epoch, and in the oracle's."""
    last = len(history["loss"]) - 1
    epochs_by_name = {
        "last": [last] * len(trials),
        "best_oracle": best_epochs[trials.start : trials.stop].tolist(),
    }
    grid: Row = {}
    for name, epochs in epochs_by_name.items():
        shown: Row = {"epoch": [epoch + 1 for epoch in epochs]}
        for column in reported():
            values = history[column]
            shown[column] = [round(float(values[epoch, trial]), 4) for epoch, trial in zip(epochs, trials, strict=True)]
        grid[name] = shown
    return grid


class Job(NamedTuple):
    """A cell to compute in another process, and what is needed there."""

    cell: Cell
    data_dir: Path | None
    device: str
    checkpoint: Path
    deterministic: bool


def run_job(job: Job) -> list[Row]:
    """Compute a cell in a process of its own, with one thread: there are as many processes as cores."""
    torch.set_num_threads(1)
    memory = None
    if job.deterministic:
        make_deterministic()
        memory = FIXED_MEMORY
    data = load(job.cell.dataset, job.data_dir)
    return compute_rows(job.cell, data, device=job.device, checkpoint=job.checkpoint, memory=memory)


FinishedJobs = Iterator[tuple[Job, list[Row]]]
# Runs jobs, so many at a time (0: as many as can be), and yields each with its rows when it is done.
Executor = Callable[[Sequence[Job], int], FinishedJobs]


def compute_cells(
    cells: Sequence[Cell],
    path: Path,
    data_dir: Any,
    processes: int,
    device: str = "cpu",
    *,
    executor: Executor | None = None,
    deterministic: bool = False,
) -> Iterator[tuple[Cell, list[Row]]]:
    """Compute cells in several processes, or by another executor; append the rows of each to `path` when it is done, and yield it.

    Cells are checkpointed beside the file of rows: after an interruption the next call resumes each of them. Every seed is a job of its
    own for another executor, and where rows must be deterministic, since rounding may depend on which trials share a stack.
    """
    checkpoints = path.absolute().parent / f".{path.stem}-running"
    named = {cell.setting: cell for cell in cells}
    if executor is not None or deterministic:
        named = {f"{cell.setting}-{cell.seeds[0]}": cell for cell in split_by_seed(cells)}
    folder = data_folder(data_dir)
    if folder is not None:
        folder = folder.absolute()
    jobs = []
    for name in sorted(named, key=lambda name: -_cost(named[name])):  # no process is left with a long one at the end
        jobs.append(Job(named[name], folder, device, checkpoints / name, deterministic))
    run_jobs = executor or run_in_processes
    for job, rows in run_jobs(jobs, processes):
        append(path, rows)
        shutil.rmtree(job.checkpoint, ignore_errors=True)
        yield job.cell, rows
    if checkpoints.is_dir() and not any(checkpoints.iterdir()):
        checkpoints.rmdir()


def _cost(cell: Cell) -> int:
    """Return a number that grows with the time a cell takes: seeds by training rows by features."""
    figures = NAMED[cell.dataset].paper
    if figures is None:
        return len(cell.seeds)
    return len(cell.seeds) * figures.train * figures.features


def split_by_seed(cells: Iterable[Cell]) -> list[Cell]:
    """Return every cell as several, of one seed each."""
    single = []
    for cell in cells:
        for seed in cell.seeds:
            single.append(cell._replace(seeds=(seed,)))
    return single


def run_in_processes(jobs: Sequence[Job], processes: int) -> FinishedJobs:
    """Run jobs in processes of this machine."""
    with ProcessPoolExecutor(processes or cores(), multiprocessing.get_context("spawn"), _initialize_worker) as pool:
        try:
            running = {pool.submit(run_job, job): job for job in jobs}
            for finished in as_completed(running):
                yield running[finished], finished.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
            raise


def _initialize_worker() -> None:
    """Use one thread from the start, and leave Ctrl-C to the parent process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["OMP_NUM_THREADS"] = "1"
