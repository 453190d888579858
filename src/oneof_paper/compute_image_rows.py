"""Obtain the rows of a table's cells on images: runs of Tables 1 and 3, and stacks of flat images of Tables 3 and 5."""

import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from oneof.data.augment import views
from oneof.data.augment.views import Views
from oneof.storage.rows import Row, append, read
from oneof.training.fit import fit
from oneof.training.state import Fit
from oneof.training.trials import Training, Trial
from oneof_paper.compute_rows import Cell, latest_best, missing, obtain, rules
from oneof_paper.data.catalogue import Dataset, load
from oneof_paper.experiments import REAL, TABLES
from oneof_paper.image_sets import DRAWS, sets_of, training_part
from oneof_paper.images import KEY, SMALL, Run, key_of, run_of
from oneof_paper.results import rows_of
from oneof_paper.teacher import channels_first

Work = Run | Cell
SETTING = ("method", "purify", "network", "training")


def work_of(
    number: int, datasets: Sequence[str], systems: Sequence[str], seeds: Sequence[int], tiny: bool
) -> list[Work]:
    """What fills these cells of a table; on images for the seeds that have sets. Tiny: for one seed."""
    table, drawn, work = TABLES[number], tuple(seed for seed in seeds if seed in DRAWS), list[Work]()
    if not drawn and set(datasets) - set(REAL):
        known = ", ".join(map(str, DRAWS))
        raise ValueError(f"seeds must be of {known} on images, which have sets; got {seeds[0]}-{seeds[-1]}.")
    for dataset, name in product(datasets, systems):
        some = tuple(seeds) if dataset in REAL else drawn
        if protocol := table.protocol(dataset):
            work.append(Cell(dataset, table.system(name, dataset), protocol, some))
        else:
            work += [run_of(number, name, dataset, seed) for seed in some]
    return [shrunk(one) for one in work if not isinstance(one, Run) or one.seed == drawn[0]] if tiny else work


def shrunk(one: Work) -> Work:
    """Five epochs, sixty images, one seed: does it run?"""
    if isinstance(one, Run):
        return replace(one, **SMALL)
    protocol = replace(one.protocol, training=Training(SMALL["epochs"], SMALL["batch"]), sets="tiny")
    return one._replace(protocol=protocol, seeds=one.seeds[:1])


def lacking(work: Sequence[Work], path: Path) -> list[Work]:
    """What has no rows yet: of runs in images.jsonl beside the tables' rows, of the others in `path`."""
    beside = path.with_name("images.jsonl")
    done = {key_of(row) for row in (read(beside) if beside.exists() else [])}
    cells = missing((one for one in work if isinstance(one, Cell)), read(path) if path.exists() else [])
    return [*cells, *(one for one in work if isinstance(one, Run) and one.key not in done)]


def obtain_images(work: Sequence[Work], number: int, path: Path, data_dir: Path | None, device: str) -> Iterator[Work]:
    """Obtain work on images in turn, since each takes the whole device; append its rows as soon as it is done, and yield it."""
    folder, running = path.with_name("sets"), path.absolute().parent / ".images-running"
    torch.backends.cudnn.benchmark = True
    for one in work:
        tiny = one.images if isinstance(one, Run) else SMALL["images"] if one.protocol.sets == "tiny" else None
        data = first_images(load(one.dataset, data_dir), tiny)
        if isinstance(one, Run):
            append(path.with_name("images.jsonl"), [run_row(one, f"table {number}", data, folder, device, running)])
        else:
            append(path, stack_rows(one, data, folder, device, running))
        shutil.rmtree(running, ignore_errors=True)
        yield one


def first_images(data: Dataset, count: int | None) -> Dataset:
    """Of the training part the first `count` images, and as many of the test part at most; None: all."""
    if count is None:
        return data
    m = training_part(data)
    keep = np.r_[: min(count, m), m : min(m + count, len(data.x))]
    return replace(data, x=data.x[keep], labels=data.labels[keep], test=np.arange(min(count, m), len(keep)))


def halves(data: Dataset, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Nine tenths of the training part to learn from, and one tenth whose sets give the signals."""
    order = np.random.default_rng(seed).permutation(training_part(data))
    return order[len(order) // 10 :], order[: len(order) // 10]


def with_test_rows(mask: NDArray[np.bool_], data: Dataset) -> NDArray[np.bool_]:
    """Sets [n, c]: test rows, whose sets nothing reads, have the full one."""
    return np.concatenate([mask, np.ones((len(data.x) - len(mask), mask.shape[1]), dtype=bool)])


def trial_of(run: Run, data: Dataset) -> Trial:
    """The split of a seed; the publisher's test part reports."""
    rows, held_out = map(np.sort, halves(data, run.seed))
    return Trial(run.seed, rows, held_out, data.test, lr=run.lr, weight_decay=run.weight_decay)


def views_of(run: Run, device: str) -> Views:
    exact = torch.bfloat16 if device.startswith("cuda") else torch.float32
    return views(run.views, run.dataset, device=device, dtype=exact)


def run_row(run: Run, plan: str, data: Dataset, folder: Path, device: str, checkpoint: Path | None = None) -> Row:
    """Train one run, and give its row."""
    start, x = time.perf_counter(), torch.as_tensor(channels_first(data.x).copy(), device=device)
    sets = with_test_rows(sets_of(folder, data, run.difficulty, device).masks[run.seed], data)
    what: dict[str, Any] = {name: getattr(run, name) for name in SETTING} | {"views": views_of(run, device)}
    fitted = fit(
        x, sets, trials=[trial_of(run, data)], labels=data.labels, device=device, checkpoint=checkpoint, **what
    )
    return row_of(run, plan, fitted, x, data.labels, time.perf_counter() - start)


def row_of(
    run: Run, plan: str, fitted: Fit, x: torch.Tensor, labels: NDArray[np.intp], seconds: float, shared: int = 0
) -> Row:
    """What is kept of a run: its setting, the last epoch, what each signal would have chosen, and the curves."""
    named = {"plan": plan, **{name: getattr(run, name) for name in KEY if name != "seed"}}
    named |= {"views": run.views, "lr": run.lr, "weight_decay": run.weight_decay, "images": fitted.rows.shape[1]}
    named |= {name: getattr(run, name) for name in SETTING}
    (row,) = rows_of(fitted, seeds=[run.seed], seconds=seconds, labels=labels, shared_epochs=shared, **named)
    columns = {name: fitted.history[name][:, 0] for name in ("accuracy", "covering", "set_size")}
    curves = {name: [round(value, 4) for value in column.tolist()] for name, column in columns.items()}
    return row | {"resolved": resolved(fitted, x, labels)} | by_signal(fitted) | {"curves": curves}


def resolved(fitted: Fit, x: torch.Tensor, labels: NDArray[np.intp]) -> float:
    """Share of training rows whose best label among those left is the true one."""
    rows = fitted.rows[0]
    best = fitted.logits(x)[0][rows].masked_fill(~fitted.candidates[0], -torch.inf).argmax(-1)
    truth = torch.as_tensor(labels, device=rows.device)[rows]
    return round(float((best == truth).float().mean()), 6)


def by_signal(fitted: Fit) -> Row:
    """The epoch that each signal would have chosen, of equals the latest, and the test accuracy there."""
    found, columns = {}, fitted.history
    for signal in rules():
        at = int(latest_best(columns[signal])[0])
        found[f"by_{signal}"] = {"epoch": at + 1, "accuracy": round(float(columns["accuracy"][at, 0]), 6)}
    return found


def stack_rows(cell: Cell, data: Dataset, folder: Path, device: str, checkpoint: Path | None = None) -> list[Row]:
    """Train all seeds and settings of a cell at once on pixels in [0, 1] as rows."""
    masks = sets_of(folder, data, "tiny" if cell.protocol.sets == "tiny" else "saturated", device).masks
    by_seed = np.stack([with_test_rows(masks[seed], data) for seed in cell.seeds])
    x: Any = torch.as_tensor(data.x.reshape(len(data.x), -1), device=device).float() / 255
    flat = replace(data, x=x, candidates=np.repeat(by_seed, len(cell.protocol.grid), axis=0))
    return obtain(cell, flat, lambda seed: (*halves(data, seed), data.test), device=device, checkpoint=checkpoint)
