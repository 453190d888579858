"""Obtain the rows that a table needs and does not have yet: a cell is one stack of seeds by settings.

A cell leaves two kinds of rows: for every seed and rule the *chosen* setting with all that is known of it, and for every seed the
whole *grid* in short, so that any other rule can be tried later. Held-out *sets* choose; held-out true labels only where a table asks
for the paper's oracle.
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
from oneof.storage.settings import digest, plain_value
from oneof.training.device import make_deterministic
from oneof.training.fit import fit
from oneof.training.state import Record
from oneof.training.trials import Trial
from oneof_paper.data.catalogue import NAMED, Dataset, data_folder, load
from oneof_paper.experiments import Protocol, Setting, System
from oneof_paper.results import origin

FIXED_MEMORY = 2**30  # of a deterministic stack: what is free now must not decide how trials are cut into stacks


def rules() -> tuple[str, ...]:
    """What a setting may be chosen by: the criteria, which need no true label, or accuracy on held-out rows."""
    return (*CRITERIA, "oracle")


def reported() -> tuple[str, ...]:
    """The columns of a history that rows have."""
    return (*rules(), "accuracy", "set_size")


class Cell(NamedTuple):
    """A system on a data set, for some seeds."""

    dataset: str
    system: System
    protocol: Protocol
    seeds: tuple[int, ...]

    @property
    def identity(self) -> Row:
        """What makes two rows of a seed the same: everything but the seed."""
        about: Row = {"method": self.system.method, "purify": self.system.purify, "protocol": self.protocol}
        about |= {"variants": self.system.variants} if self.system.variants else {}
        return {"dataset": self.dataset, **{name: plain_value(value) for name, value in about.items()}}

    @property
    def setting(self) -> str:
        return digest(self.identity)

    @property
    def settings(self) -> list[tuple[Method, Setting]]:
        """All that is searched: every form of the loss with every setting."""
        return list(product(self.system.methods, self.protocol.grid))

    @property
    def trials(self) -> int:
        return len(self.seeds) * len(self.settings)


def missing(cells: Iterable[Cell], rows: Iterable[Row]) -> list[Cell]:
    """The cells that are not complete, each with the seeds that it lacks."""
    done = {(row["setting"], row["seed"]) for row in rows if row.get("kind") == "grid"}
    lacking = {}
    for cell in cells:  # two tables may share a cell
        seeds = tuple(seed for seed in cell.seeds if (cell.setting, seed) not in done)
        if seeds:
            lacking[cell.setting] = cell._replace(seeds=seeds)
    return list(lacking.values())


Parts = tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp] | None]  # rows to train on, held out, to test on


def split(n: int, seed: int, protocol: Protocol) -> Parts:
    """The parts of n rows for a seed.

    >>> from oneof_paper.experiments import TABULAR
    >>> [len(part) for part in split(1122, 0, TABULAR)]
    [808, 89, 225]
    """
    order = np.random.default_rng(seed).permutation(n)
    train = int(n * (1 - protocol.test))
    held_out = int(train * protocol.held_out)
    return order[held_out:train], order[:held_out], order[train:]


def obtain(
    cell: Cell, data: Dataset, parts: Callable[[int], Parts] | None = None, *,
    device: str = "cpu", checkpoint: Path | None = None, memory: int | None = None,
) -> list[Row]:  # fmt: skip
    """Train every seed with every setting of a cell, those of one loss at once, and return the cell's rows."""
    protocol = cell.protocol
    parts_of = {seed: parts(seed) if parts else split(len(data.x), seed, protocol) for seed in cell.seeds}
    trials = []
    for seed in cell.seeds:
        for lr, weight_decay, scaling in protocol.grid:
            trials.append(Trial(seed, *parts_of[seed], lr, weight_decay, scaling))
    histories: list[Record] = []
    removed: list[Tensor] = []
    place = device
    start = time.perf_counter()
    start_of_process = time.process_time()
    for number, method in enumerate(cell.system.methods):
        fitted = fit(
            data.x, data.candidates, trials=trials, method=method, purify=cell.system.purify, network=protocol.network,
            training=protocol.training, labels=data.labels, device=device, memory=memory,
            checkpoint=checkpoint and checkpoint / f"form-{number}",
        )  # fmt: skip
        truth = torch.as_tensor(data.labels, device=fitted.rows.device)[fitted.rows]
        removed.append(true_labels_removed(fitted.candidates, truth).cpu())
        histories.append({name: column.cpu() for name, column in fitted.history.items()})
        place = str(fitted.rows.device)
    spent = time.perf_counter() - start, time.process_time() - start_of_process
    shape = (len(cell.seeds), len(protocol.grid))
    history = {name: _seed_by_seed([one[name] for one in histories], shape) for name in histories[0]}
    lost = _seed_by_seed([column[None] for column in removed], shape)[0]
    return _rows(cell, history, lost.tolist(), tuple(seconds / cell.trials for seconds in spent), place)


def _seed_by_seed(columns: Sequence[Tensor], shape: tuple[int, int]) -> Tensor:
    """Return columns [e, seeds x settings] of several losses as one, in which all settings of a seed lie together."""
    by_seed = [column.reshape(len(column), *shape) for column in columns]
    return torch.cat(by_seed, dim=-1).flatten(1)


def latest_best(column: Tensor) -> Tensor:
    """The row of the largest value of each column [epochs, t]; of equals the latest, of NaN none.

    >>> latest_best(torch.tensor([[1.0, 3.0], [2.0, 3.0], [2.0, 1.0]])).tolist()
    [2, 1]
    """
    clean = column.nan_to_num(nan=-torch.inf)
    return len(column) - 1 - clean.flip(0).argmax(0)


def taken_epoch(history: Record, rule: str) -> Tensor:
    """The epoch that a rule takes of each trial [t], counted from 0: the last, or the oracle's best, as in the paper.

    The best of two hundred epochs on ninety held-out rows is mostly luck.
    """
    column = history[rule]
    return latest_best(column) if rule == "oracle" else torch.full_like(column[0], len(column) - 1, dtype=torch.int64)


def _rows(cell: Cell, history: Record, lost: list[float], seconds: tuple[float, ...], device: str) -> list[Row]:
    settings = cell.settings
    shape = (len(cell.seeds), len(settings))
    epochs = {rule: taken_epoch(history, rule) for rule in rules()}
    scores = {rule: history[rule].gather(0, at[None]).nan_to_num(nan=-torch.inf) for rule, at in epochs.items()}
    taken = {rule: of_trial.view(shape).argmax(-1) for rule, of_trial in scores.items()}  # of equals the first
    last = len(history["loss"]) - 1
    named = {"system": cell.system.title, "setting": cell.setting}
    spent = {"seconds": round(seconds[0], 4), "cpu_seconds": round(seconds[1], 4)}  # of one trial
    rows: list[Row] = []
    for s, seed in enumerate(cell.seeds):
        for rule in epochs:
            at = s * shape[1] + int(taken[rule][s])
            method, setting = settings[at % shape[1]]
            epoch = int(epochs[rule][at])
            own: Row = {"rule": rule, "seed": seed, **setting._asdict(), "epoch": epoch + 1}
            own |= {"chosen_method": plain_value(method)} if cell.system.variants else {}
            own |= {name: round(float(history[name][epoch, at]), 6) for name in reported()}
            own |= {"true_labels_removed": round(lost[at], 6)} if epoch == last else {}
            rows.append({"kind": "chosen", **named, **cell.identity, **own, **spent, **origin(device)})
        row: Row = {"kind": "grid", **named, "dataset": cell.dataset, "seed": seed}
        for name, epoch_of in (("last", [last] * shape[1]), ("best_oracle", epochs["oracle"].view(shape)[s].tolist())):
            places = [(epoch, s * shape[1] + i) for i, epoch in enumerate(epoch_of)]
            short = {one: [round(float(history[one][place]), 4) for place in places] for one in reported()}
            row[name] = {"epoch": [epoch + 1 for epoch in epoch_of], **short}
        rows.append(row)
    return rows


class Errand(NamedTuple):
    """A cell to obtain somewhere else, and what it takes there."""

    cell: Cell
    data_dir: Path | None
    device: str
    checkpoint: Path
    deterministic: bool


def run_errand(errand: Errand) -> list[Row]:
    """Obtain a cell in a process of its own: one thread, since there are as many processes as cores."""
    torch.set_num_threads(1)
    if errand.deterministic:
        make_deterministic()
    data = load(errand.cell.dataset, errand.data_dir)
    memory = FIXED_MEMORY if errand.deterministic else None
    return obtain(errand.cell, data, device=errand.device, checkpoint=errand.checkpoint, memory=memory)


Done = Iterator[tuple[Errand, list[Row]]]
Place = Callable[[Sequence[Errand], int], Done]
"""Where errands are run, so many at a time (0: as many as can be): each is yielded with its rows when it is done."""


def obtain_all(
    cells: Sequence[Cell], path: Path, data_dir: Any, processes: int, device: str = "cpu", *,
    place: Place | None = None, deterministic: bool = False,
) -> Iterator[tuple[Cell, list[Row]]]:  # fmt: skip
    """Obtain cells in several processes, or in another place; append each one's rows as soon as it is done, and yield it.

    Stopped or killed, the next call goes on where each cell stood: it is checkpointed beside the file of rows. Elsewhere than in
    processes here a seed is an errand of its own; so it is where rows are deterministic, since a rounding may depend on the stack.
    """
    running = path.absolute().parent / f".{path.stem}-running"
    named = {cell.setting: cell for cell in cells}
    if place is not None or deterministic:
        named = {f"{cell.setting}-{cell.seeds[0]}": cell for cell in seed_by_seed(cells)}
    sizes = {name: NAMED[cell.dataset].paper or (1, 0, 1) for name, cell in named.items()}
    # the largest first, so that no process is left with a long one at the end
    largest_first = sorted(named, key=lambda name: -len(named[name].seeds) * sizes[name][0] * sizes[name][2])
    data_dir = data_folder(data_dir)
    folder = data_dir and data_dir.absolute()
    errands = [Errand(named[name], folder, device, running / name, deterministic) for name in largest_first]
    for errand, rows in (place or in_processes)(errands, processes):
        append(path, rows)
        shutil.rmtree(errand.checkpoint, ignore_errors=True)
        yield errand.cell, rows
    if running.is_dir() and not any(running.iterdir()):
        running.rmdir()


def seed_by_seed(cells: Iterable[Cell]) -> list[Cell]:
    """Every cell as many, of one seed each."""
    return [cell._replace(seeds=(seed,)) for cell in cells for seed in cell.seeds]


def in_processes(errands: Sequence[Errand], processes: int) -> Done:
    """Run errands in processes of this machine."""
    with ProcessPoolExecutor(processes or cores(), multiprocessing.get_context("spawn"), _quiet) as pool:
        try:
            at_work = {pool.submit(run_errand, errand): errand for errand in errands}
            for done in as_completed(at_work):
                yield at_work[done], done.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
            raise


def _quiet() -> None:
    """In a process of its own: one thread from the start; the parent hears Ctrl-C for all."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["OMP_NUM_THREADS"] = "1"
