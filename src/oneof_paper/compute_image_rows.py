"""Compute the rows of a table's cells on images: runs of Tables 1 and 3, and stacks of flat images of Tables 3 and 5."""

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
from oneof_paper.compute_rows import Cell, Parts, compute_rows, latest_best, missing_cells, rules
from oneof_paper.data.catalogue import LabelledData, load
from oneof_paper.experiments import REAL, TABLES
from oneof_paper.image_sets import DRAWS, sets_of, training_part
from oneof_paper.images import KEY, SMALL, ImageRun, key_of, run_of
from oneof_paper.results import rows_of
from oneof_paper.teacher import channels_first

Work = ImageRun | Cell  # one trial of a network on images, or a stack of trials
SETTING = ("method", "purify", "network", "training")


def work_of_table(
    number: int, datasets: Sequence[str], systems: Sequence[str], seeds: Sequence[int], tiny: bool
) -> list[Work]:
    """Return the work that fills these cells of a table: on images for the seeds that have candidate sets.

    `tiny` makes it small, for one seed each, to see that it runs.
    """
    table = TABLES[number]
    image_seeds = tuple(seed for seed in seeds if seed in DRAWS)
    if not image_seeds and set(datasets) - set(REAL):
        known = ", ".join(map(str, DRAWS))
        raise ValueError(f"seeds must be of {known} on images, which have sets; got {seeds[0]}-{seeds[-1]}.")
    work: list[Work] = []
    for dataset, name in product(datasets, systems):
        seeds_here = tuple(seeds) if dataset in REAL else image_seeds
        protocol = table.protocol(dataset)
        if protocol is not None:
            work.append(Cell(dataset, table.system(name, dataset), protocol, seeds_here))
            continue
        for seed in seeds_here:
            work.append(run_of(number, name, dataset, seed))
    if not tiny:
        return work
    small_work = []
    for item in work:
        if isinstance(item, Cell) or item.seed == image_seeds[0]:
            small_work.append(_shrink(item))
    return small_work


def _shrink(item: Work) -> Work:
    """Return the work with five epochs, sixty images and one seed."""
    if isinstance(item, ImageRun):
        return replace(item, **SMALL)
    protocol = replace(item.protocol, training=Training(SMALL["epochs"], SMALL["batch"]), sets="tiny")
    return item._replace(protocol=protocol, seeds=item.seeds[:1])


def missing_runs(work: Sequence[Work], path: Path) -> list[Work]:
    """Return the work that has no rows yet: runs in images.jsonl beside the tables' rows, cells in `path`."""
    done = {key_of(row) for row in _read_if_present(path.with_name("images.jsonl"))}
    cells = []
    runs = []
    for item in work:
        if isinstance(item, Cell):
            cells.append(item)
        elif item.key not in done:
            runs.append(item)
    return [*missing_cells(cells, _read_if_present(path)), *runs]


def _read_if_present(path: Path) -> list[Row]:
    return list(read(path)) if path.exists() else []


def compute_image_rows(
    work: Sequence[Work], number: int, path: Path, data_dir: Path | None, device: str
) -> Iterator[Work]:
    """Compute the rows on images one after the other, since each takes the whole device; append them when they are done.

    Yields each piece of work when its rows are written.
    """
    sets_folder = path.with_name("sets")
    checkpoint = path.absolute().parent / ".images-running"
    torch.backends.cudnn.benchmark = True
    for item in work:
        if isinstance(item, ImageRun):
            data = first_images(load(item.dataset, data_dir), item.images)
            row = run_row(item, f"table {number}", data, sets_folder, device, checkpoint)
            append(path.with_name("images.jsonl"), [row])
        else:
            count = SMALL["images"] if item.protocol.sets == "tiny" else None
            data = first_images(load(item.dataset, data_dir), count)
            append(path, stack_rows(item, data, sets_folder, device, checkpoint))
        shutil.rmtree(checkpoint, ignore_errors=True)
        yield item


def first_images(data: LabelledData, count: int | None) -> LabelledData:
    """Return the first `count` images of the training part, and at most as many of the test part; None: all."""
    if count is None:
        return data
    train_count = training_part(data)
    kept_train_count = min(count, train_count)
    test_end = min(train_count + count, len(data.x))
    rows = np.r_[:kept_train_count, train_count:test_end]
    return replace(data, x=data.x[rows], labels=data.labels[rows], test=np.arange(kept_train_count, len(rows)))


def train_holdout_split(data: LabelledData, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Split the training part into nine tenths to learn from and one tenth whose candidate sets choose."""
    order = np.random.default_rng(seed).permutation(training_part(data))
    held_out_count = len(order) // 10
    return order[held_out_count:], order[:held_out_count]


def with_test_rows(mask: NDArray[np.bool_], data: LabelledData) -> NDArray[np.bool_]:
    """Append the full set for each test row; nothing reads it."""
    test_count = len(data.x) - len(mask)
    full_sets = np.ones((test_count, mask.shape[1]), dtype=bool)
    return np.concatenate([mask, full_sets])


def trial_of(run: ImageRun, data: LabelledData) -> Trial:
    """Return the trial of a run: the split of its seed, tested on the publisher's test part."""
    rows, held_out = train_holdout_split(data, run.seed)
    return Trial(run.seed, np.sort(rows), np.sort(held_out), data.test, lr=run.lr, weight_decay=run.weight_decay)


def views_of(run: ImageRun, device: str) -> Views:
    """Return the augmentation of a run, in the precision of the device."""
    dtype = torch.bfloat16 if device.startswith("cuda") else torch.float32
    return views(run.views, run.dataset, device=device, dtype=dtype)


def run_row(
    run: ImageRun, plan: str, data: LabelledData, folder: Path, device: str, checkpoint: Path | None = None
) -> Row:
    """Train one run, and return its row."""
    start = time.perf_counter()
    x = torch.as_tensor(channels_first(data.x).copy(), device=device)
    sets = sets_of(folder, data, run.difficulty, device)
    fitted = fit(
        x,
        with_test_rows(sets.masks[run.seed], data),
        trials=[trial_of(run, data)],
        method=run.method,
        purify=run.purify,
        network=run.network,
        training=run.training,
        views=views_of(run, device),
        labels=data.labels,
        device=device,
        checkpoint=checkpoint,
    )
    return row_of(run, plan, fitted, x, data.labels, time.perf_counter() - start)


def row_of(
    run: ImageRun, plan: str, fitted: Fit, x: torch.Tensor, labels: NDArray[np.intp], seconds: float, shared: int = 0
) -> Row:
    """Return the row of a run: its setting, the last epoch, what each rule would have chosen, and the curves."""
    setting: dict[str, Any] = {"plan": plan}
    for name in KEY:
        if name != "seed":
            setting[name] = getattr(run, name)
    setting["views"] = run.views
    setting["lr"] = run.lr
    setting["weight_decay"] = run.weight_decay
    setting["images"] = fitted.rows.shape[1]
    for name in SETTING:
        setting[name] = getattr(run, name)
    (row,) = rows_of(fitted, seeds=[run.seed], seconds=seconds, labels=labels, shared_epochs=shared, **setting)
    curves = {}
    for name in ("accuracy", "covering", "set_size"):
        curves[name] = [round(value, 4) for value in fitted.history[name][:, 0].tolist()]
    return {**row, "resolved": resolved_accuracy(fitted, x, labels), **by_signal(fitted), "curves": curves}


def resolved_accuracy(fitted: Fit, x: torch.Tensor, labels: NDArray[np.intp]) -> float:
    """Return the share of training rows whose best label among the remaining candidates is the true one."""
    rows = fitted.rows[0]
    logits = fitted.logits(x)[0][rows]
    best = logits.masked_fill(~fitted.candidates[0], -torch.inf).argmax(-1)
    truth = torch.as_tensor(labels, device=rows.device)[rows]
    return round(float((best == truth).float().mean()), 6)


def by_signal(fitted: Fit) -> Row:
    """Return the epoch that each rule would have chosen, the latest of equal ones, and the test accuracy there."""
    history = fitted.history
    row: Row = {}
    for rule in rules():
        epoch = int(latest_best(history[rule])[0])
        accuracy = float(history["accuracy"][epoch, 0])
        row[f"by_{rule}"] = {"epoch": epoch + 1, "accuracy": round(accuracy, 6)}
    return row


def stack_rows(cell: Cell, data: LabelledData, folder: Path, device: str, checkpoint: Path | None = None) -> list[Row]:
    """Train all seeds and settings of a cell at once on flat images, with pixels in [0, 1]; return the cell's rows."""
    difficulty = "tiny" if cell.protocol.sets == "tiny" else "saturated"
    masks = sets_of(folder, data, difficulty, device).masks
    mask_of_seed = np.stack([with_test_rows(masks[seed], data) for seed in cell.seeds])
    mask_of_trial = np.repeat(mask_of_seed, len(cell.protocol.grid), axis=0)
    x: Any = torch.as_tensor(data.x.reshape(len(data.x), -1), device=device).float() / 255
    flat = replace(data, x=x, candidates=mask_of_trial)

    def parts(seed: int) -> Parts:
        rows, held_out = train_holdout_split(data, seed)
        return rows, held_out, data.test

    return compute_rows(cell, flat, parts, device=device, checkpoint=checkpoint)
