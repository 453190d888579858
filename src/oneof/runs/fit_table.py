"""Fit a person's table into a run folder: read, inspect, fit, write. A run that was killed is resumed."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from oneof.data.dataset import Dataset
from oneof.data.images import folder_of
from oneof.data.roles import ColumnRoles
from oneof.data.table import Table, read_table
from oneof.ensemble.model import Model
from oneof.ensemble.pipeline import fit
from oneof.learners.base import Resources, WarmStart
from oneof.learners.config import SETTINGS, FitConfig
from oneof.methods import METHODS
from oneof.purify import PURIFY
from oneof.runs.decisions import Log
from oneof.runs.file_sets import supervision_columns
from oneof.runs.fit_spec import (
    FILE_COLUMN,
    LOCK,
    ROW_COLUMN,
    FitSpec,
    check_run_folder,
    describe_spec,
    resolve_image_mode,
    store_spec,
)
from oneof.runs.folder import Run, fingerprint, read_sample
from oneof.runs.read_dataset import (
    TableWithVotes,
    add_votes,
    collect_warnings,
    column_metadata,
    dataset_from_table,
    read_table_with_votes,
    with_uses_of_votes,
)
from oneof.runs.refit import Refit
from oneof.runs.write_run import write_run
from oneof.storage.locks import exclusive_lock
from oneof.storage.settings import from_serializable, stored_kind
from oneof.training.device import device_for, device_for_pictures, prewarm_gpu
from oneof.training.processes import check_rows, current_group
from oneof.training.threads import blas_threads
from oneof.votes.attach import CANDIDATES
from oneof.votes.read import VotesFile
from oneof.votes.spelling import write_map

PIXELS = "pixels.part"  # in the checkpoint: pixels of pictures that are not held in memory; a .npy file
_MAX_SETTING = 100_000  # of trees, epochs, networks, widths and the like in a run that is fitted again
_ANY_SIZE = ("seed", "max_rows", "max_cells", "max_kernel_rows", "batch_size")  # settings that may be larger


@dataclass(frozen=True)
class RunOptions:
    """Options of a run that are not part of its spec."""

    resources: Resources = field(default_factory=Resources)
    time_limit: float | None = None  # approximate seconds of training; such a run is not resumed within a stage
    cache: Path | None = None  # where embeddings of texts and pictures are kept; None: ~/.cache/oneof
    stream: bool | None = None  # keep pixels in a file; None: if they take more than half of the free memory
    command: tuple[str, ...] = ()  # recorded in run.json
    # Improves the model before it is written, and returns a line about it.
    refine: Callable[[Model], tuple[Model, str]] | None = None
    map_out: Path | None = None  # where to write the labels to which votes in free text were mapped
    files: dict[str, Any] | None = None  # recorded in run.json: the files of which the table is a sample
    progress: bool = False  # show progress bars
    echo: Callable[[str], None] = lambda line: None  # called with each line for a person


class PreparedRun(NamedTuple):
    """A run whose table has been read, before anything is fitted."""

    data: Dataset
    config: FitConfig
    metadata: dict[str, Any]  # for run.json


def fit_table(
    file: Path,
    out: Path,
    spec: FitSpec = FitSpec(),  # noqa: B008 - frozen
    options: RunOptions = RunOptions(),  # noqa: B008 - frozen
    refit: Refit | None = None,
) -> Run:
    """Fit a table, or a folder of pictures whose subfolders are named by candidates, and write the run folder `out`.

    A run that was stopped there is resumed; a finished one is opened. `refit` is an earlier run of the same spec with people's decisions
    about its rows (see `fit_again`).
    """
    begin = time.monotonic()
    device = options.resources.device
    group = current_group(options.resources.n_jobs)
    spec = resolve_image_mode(file, spec, device, options.stream)
    device_for(str(device), 0, 0)  # refuses one that is not there before anything is read
    n_processes = options.resources.n_jobs or group.size
    with blas_threads():
        prepared = group.run_on_rank0(partial(prepare_run, file, out, spec, options, n_processes, refit))
    if prepared is None:
        return Run.open(out)
    data = _reopen_pixels(prepared.data, out)
    warm_start = WarmStart()
    if refit is not None:
        warm_start = refit.warm_start(data)
    resources = _resources_of_run(options, out)
    with blas_threads(), ExitStack() as lock:
        group.run_on_rank0(partial(lock.enter_context, exclusive_lock(out / "checkpoint" / LOCK, str(out))))
        result = fit(data, prepared.config, resources, warm_start)
        for line in result.warnings:
            options.echo(line)
        if options.refine is not None and group.rank == 0:
            model, line = options.refine(result.model)
            options.echo(line)
            result = result._replace(model=model)
        metadata = {
            **prepared.metadata,
            "warnings": prepared.metadata["warnings"] + result.warnings,
            "seconds": round(time.monotonic() - begin, 1),
            "command": list(options.command),
        }
        # Wait until all have finished: one that is late would write to the checkpoint that is removed next.
        group.gathered_objects(None)
        group.run_on_rank0(partial(write_run, result, out, metadata))
    return Run.open(out)


def _resources_of_run(options: RunOptions, out: Path) -> Resources:
    """Return the resources with the run's deadline, from now on, or its checkpoint, and the name of its progress bar."""
    deadline = None
    checkpoint: Path | None = out / "checkpoint" / "search"
    if options.time_limit is not None:
        deadline = time.monotonic() + options.time_limit
        checkpoint = None
    progress = None
    if options.progress:
        progress = "fit"
    return replace(options.resources, deadline=deadline, checkpoint=checkpoint, progress=progress)


def fit_again(folder: Path, out: Path, options: RunOptions = RunOptions()) -> Run:  # noqa: B008 - frozen
    """Fit the table of a run again with people's decisions about its rows, starting from its settings and weights."""
    run = Run.open(folder)
    file = Path(run.metadata["file"])
    stored = run.metadata["asked"]
    if stored.get("kind") == "Task":
        raise ValueError(
            f"--from needs a run of this version; {folder} was made by an earlier one. Fit its table again."
        )
    if stored.get("kind") != "FitSpec" or not file.exists() or fingerprint(file) != run.metadata["fingerprint"]:
        problem = f"{file} is missing, or has changed since the fit"
        raise ValueError(f"--from needs the table that {folder} was learned from, unchanged; {problem}.")
    kinds: list[Any] = [FitSpec, ColumnRoles, VotesFile, *SETTINGS, *PURIFY.values(), *METHODS.values()]
    by_name = {stored_kind(kind): kind for kind in kinds}
    excess = _excessive_setting(stored.get("config"), "asked.config")
    if excess is not None:
        raise ValueError(
            f"--from needs a run whose settings can be learned with; {excess} in {folder}. Fit the table again."
        )
    spec: FitSpec = from_serializable({**stored, "answers": None}, by_name)  # the run's gold labels are in its table
    refit = Refit(run, tuple(run.log.active_decisions))
    new_run = fit_table(file, out, spec, options, refit)
    Log(out).write(*refit.active_decisions)
    return new_run


def _excessive_setting(value: Any, path: str) -> str | None:
    """Describe the first whole number in the settings that is negative or would make a fit endless; return None if there is none.

    A run folder from elsewhere may claim any number of trees, networks or epochs. Seeds and limits may have any size.
    """
    if isinstance(value, int) and not 0 <= value <= _MAX_SETTING:
        return f"{path} must lie between 0 and {_MAX_SETTING:,}, and is {value}"
    elements = {}
    if isinstance(value, list):
        for i, element in enumerate(value):
            elements[f"{path}[{i}]"] = element
    elif isinstance(value, dict):
        for name, element in value.items():
            if name not in _ANY_SIZE:
                elements[f"{path}.{name}"] = element
    for element_path, element in elements.items():
        excess = _excessive_setting(element, element_path)
        if excess is not None:
            return excess
    return None


def prepare_run(
    file: Path, out: Path, spec: FitSpec, options: RunOptions, n_processes: int, refit: Refit | None
) -> PreparedRun | None:
    """Read the table and begin the run; None if it is finished already."""
    spec_json = describe_spec(file, spec, refit)
    if check_run_folder(out, spec_json):
        options.echo(f"{out} is finished already; nothing to do.")
        return None
    table, voted = _read_inputs(file, spec, options)
    if fingerprint(file) != spec_json["data"]:
        raise ValueError(f"{file} must not change while it is read; it did. Repeat the command.")

    if spec.roles.image and not spec.roles.image_model:  # a network is trained on pixels
        check_rows(len(table.columns), n_processes)
        if n_processes == 1:
            prewarm_gpu(device_for_pictures(str(options.resources.device)))
    pixel_file = out / "checkpoint" / PIXELS
    data, remarks = dataset_from_table(table, folder_of(file), options.cache, pixel_file, options.stream)
    if spec.answers is not None:
        gold = read_sample(Path(spec.answers), data.candidates, data.gold)
        data = replace(data, gold=gold)
    if refit is None:
        files = options.files
        warnings = collect_warnings(data, table, spec.config.seed, from_votes=voted is not None) + remarks
        if voted is not None:
            warnings += voted.remarks
        for line in warnings:
            options.echo(line)
    else:
        files = refit.run.metadata.get("files")
        warnings = refit.run.metadata["warnings"]
    store_spec(spec_json, out)  # only now, so that a wrong command leaves nothing behind

    metadata: dict[str, Any] = {
        "file": str(file.resolve()),
        "fingerprint": spec_json["data"],
        "candidates": supervision_columns(spec.roles),
        "asked": spec_json,
        "warnings": warnings,
    }
    if files is not None:
        metadata["files"] = files
    data, config, about_evidence = _add_evidence(data, spec.config, voted, refit)
    metadata.update(about_evidence)
    metadata["columns"] = column_metadata(table, data)
    if voted is not None:
        metadata["columns"].pop(CANDIDATES, None)  # made of the votes: the file has no such column
    if files is not None:
        for name in (FILE_COLUMN, ROW_COLUMN):  # of the sample alone
            metadata["columns"].pop(name, None)
    if isinstance(data.features, np.memmap):  # every process opens the file itself
        data = replace(data, features=data.features[:1])
    return PreparedRun(data, config, metadata)


def _read_inputs(file: Path, spec: FitSpec, options: RunOptions) -> tuple[Table, TableWithVotes | None]:
    """Read the table, and the votes on its rows if the spec has any."""
    if spec.votes is None:
        return read_table(file, spec.roles), None
    voted = read_table_with_votes(file, spec.votes, spec.roles)
    # Features are optional: votes alone can be resolved.
    table = read_table(voted.source, voted.roles, bare=True, known_classes=voted.votes.labels)
    table = with_uses_of_votes(table, voted, spec.roles)
    if options.map_out is not None:
        write_map(voted.votes.meanings, options.map_out)
    return table, voted


def _add_evidence(
    data: Dataset, config: FitConfig, voted: TableWithVotes | None, refit: Refit | None
) -> tuple[Dataset, FitConfig, dict[str, Any]]:
    """Return the data set with votes and people's decisions, the config that suits these, and what run.json stores about them."""
    metadata: dict[str, Any] = {}
    if voted is not None:
        data, ensemble, annotators = add_votes(data, voted, config.ensemble, config.seed)
        config = replace(config, ensemble=ensemble)
        metadata["people"] = {**annotators, "on": voted.on}
        metadata["rule"] = "votes"
    if refit is not None:
        data = refit.apply_decisions(data)
        config = replace(config, ensemble=refit.shorten(config.ensemble, *data.candidates.mask.shape))
        if refit.decisions:
            metadata["taught"] = sorted(refit.decisions)
    return data, config, metadata


def _reopen_pixels(data: Dataset, out: Path) -> Dataset:
    """Return the data set with the pixels from the run's file, if they are kept there."""
    if not isinstance(data.features, np.memmap):
        return data
    pixels = np.load(out / "checkpoint" / PIXELS, mmap_mode="c")
    return replace(data, features=pixels.reshape(len(pixels), -1))
