"""Fit a person's table into a run folder: read, inspect, fit, write. A run that was killed is resumed."""

import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from oneof.data.dataset import Dataset
from oneof.data.embed import MODELS, weights_here
from oneof.data.images import FILE, folder_of
from oneof.data.roles import PATCHES, ColumnRoles
from oneof.data.table import read_table
from oneof.ensemble.model import Model
from oneof.ensemble.pipeline import fit
from oneof.learners.base import Resources, WarmStart
from oneof.learners.config import SETTINGS, EnsembleConfig, FitConfig, ImageConfig
from oneof.methods import METHODS
from oneof.purify import PURIFY
from oneof.runs.decisions import Log
from oneof.runs.file_sets import supervision_columns
from oneof.runs.folder import METADATA, Run, fingerprint, read_sample, write_json
from oneof.runs.read_dataset import (
    add_votes,
    collect_warnings,
    column_metadata,
    dataset_from_table,
    read_table_with_votes,
)
from oneof.runs.refit import Refit
from oneof.runs.write_run import write_run
from oneof.storage.locks import exclusive_lock
from oneof.storage.regular import check_plain_tree, read_regular
from oneof.storage.schema import find_schema_error
from oneof.storage.settings import first_difference, from_serializable, stored_kind, to_serializable
from oneof.storage.strict_json import parse_json
from oneof.training.device import device_for, device_for_pictures, prewarm_gpu
from oneof.training.processes import check_rows, current_group
from oneof.training.threads import blas_threads
from oneof.version import __version__
from oneof.votes.read import VotesFile
from oneof.votes.spelling import write_map

SPEC_FILE = "asked.json"  # in the checkpoint: the spec of the run
LOCK = "lock"  # in the checkpoint: held while a process is at work
TABLE = "table.parquet"  # in a run of many files: the rows that are learned from
FILES = "files.json"  # in a run of many files: which they are, and how the rows were chosen
PIXELS = "pixels.part"  # in the checkpoint: pixels of pictures that are not held in memory; a .npy file
_MAX_SETTING = 100_000  # trees, epochs, networks, widths and the like of a run that is learned from again
_ANY_SIZE = ("seed", "max_rows", "max_cells", "max_kernel_rows", "batch_size")


@dataclass(frozen=True)
class FitSpec:
    """Everything that determines a run; one that was stopped is resumed only by the same spec."""

    roles: ColumnRoles = ColumnRoles()  # noqa: RUF009 - frozen
    votes: VotesFile | None = None  # in place of a column of candidates
    answers: str | None = None  # a filled-in sample.csv: gold labels of rows that were drawn
    config: FitConfig = FitConfig()  # noqa: RUF009 - frozen


@dataclass(frozen=True)
class RunOptions:
    """Options of how a run is made, which do not belong to its spec."""

    resources: Resources = field(default_factory=Resources)
    time_limit: float | None = None  # seconds of learning, about; such a run is not resumed within a stage
    cache: Path | None = None  # where embeddings of texts and pictures are kept; None: ~/.cache/oneof
    stream: bool | None = None  # keep pixels of pictures in a file; None: where they take half of what is free
    command: tuple[str, ...] = ()  # recorded in run.json
    refine: Callable[[Model], tuple[Model, str]] | None = None  # improves the model before it is written, and says how
    map_out: Path | None = None  # where to write what votes in free text were mapped to
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
    """Learn from a table, or from a folder of pictures whose subfolders are named by candidates, and write the run folder `out`.

    A run that was stopped there goes on; a finished one is opened. `refit` is an earlier run of the same spec with the decisions of
    people about it (see `fit_again`).
    """
    begin = time.monotonic()
    resources = options.resources
    group = current_group(resources.n_jobs)
    spec = resolve_image_mode(file, spec, options)
    device_for(str(resources.device), 0, 0)  # refuses one that is not there before anything is read
    n_processes = resources.n_jobs or group.size
    with blas_threads():
        prepared = group.run_on_rank0(partial(prepare_run, file, out, spec, options, n_processes, refit))
    if prepared is None:
        return Run.open(out)
    data = _reopen_pixels(prepared.data, out)
    warm_start = WarmStart()
    if refit is not None:
        warm_start = refit.warm_start(data)
    if options.time_limit is None:
        resources = replace(resources, deadline=None, checkpoint=out / "checkpoint" / "search")
    else:
        deadline = time.monotonic() + options.time_limit
        resources = replace(resources, deadline=deadline, checkpoint=None)
    progress = None
    if options.progress:
        progress = "fit"
    resources = replace(resources, progress=progress)
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


def fit_again(folder: Path, out: Path, options: RunOptions = RunOptions()) -> Run:  # noqa: B008 - frozen
    """Learn again from the table of a run and the decisions of people about it, starting from its settings and weights."""
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
    """Describe the first whole number among a run's settings that would make a fit endless, or is negative; None if there is none.

    A run from a stranger may claim any number of trees, networks or epochs. Seeds and limits may have any size.
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
    voted = None
    if spec.votes is None:
        table = read_table(file, spec.roles)
    else:
        voted = read_table_with_votes(file, spec.votes, spec.roles)
        table = read_table(voted.source, voted.roles, bare=True)  # votes alone can be learned from, without features
        if options.map_out is not None:
            write_map(voted.votes.meanings, options.map_out)
    if fingerprint(file) != spec_json["data"]:
        raise ValueError(f"{file} must not change while it is read; it did. Repeat the command.")
    trains_on_pixels = bool(spec.roles.image) and not spec.roles.image_model
    if trains_on_pixels:
        check_rows(len(table.columns), n_processes)
    if trains_on_pixels and n_processes == 1:
        prewarm_gpu(device_for_pictures(str(options.resources.device)))
    pixel_file = out / "checkpoint" / PIXELS
    data, remarks = dataset_from_table(table, folder_of(file), options.cache, pixel_file, options.stream)
    if spec.answers is not None:
        gold = read_sample(Path(spec.answers), data.candidates, data.gold)
        data = replace(data, gold=gold)
    if refit is None:
        warnings = collect_warnings(data, table, spec.config.seed, from_votes=voted is not None) + remarks
        if voted is not None:
            warnings += voted.remarks
        for line in warnings:
            options.echo(line)
    else:
        warnings = refit.run.metadata["warnings"]
    _store_spec(spec_json, out)  # only now, so that a wrong command leaves nothing behind

    metadata: dict[str, Any] = {
        "file": str(file.resolve()),
        "fingerprint": spec_json["data"],
        "candidates": supervision_columns(spec.roles),
        "asked": spec_json,
        "warnings": warnings,
    }
    files = options.files
    if refit is not None:
        files = refit.run.metadata.get("files")
    if files is not None:
        metadata["files"] = files
    config = spec.config
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
    metadata["columns"] = column_metadata(table, data)
    if isinstance(data.features, np.memmap):  # every process opens the file itself
        data = replace(data, features=data.features[:1])
    return PreparedRun(data, config, metadata)


def _store_spec(spec_json: dict[str, Any], out: Path) -> None:
    """Store the spec in the checkpoint, by which the run is recognised if it is stopped."""
    spec_file = out / "checkpoint" / SPEC_FILE
    spec_file.parent.mkdir(parents=True, exist_ok=True)
    if not spec_file.exists():
        write_json(spec_json, spec_file)


def describe_spec(file: Path, spec: FitSpec, refit: Refit | None) -> dict[str, Any]:
    """Return the spec as JSON, with checksums of the files that it names: what a run is recognised by."""
    described = {"oneof": __version__, "data": fingerprint(file), **to_serializable(spec)}
    described["train_on_gold"] = spec.config.train_on_gold  # where the report looks for it, in every run
    if refit is not None:
        described |= refit.identity
    if spec.votes is not None:
        described["votes"]["data"] = fingerprint(Path(spec.votes.path))
        if spec.votes.taxonomy is not None:
            described["votes"]["tree"] = fingerprint(Path(spec.votes.taxonomy))
        if spec.votes.map is not None:
            described["votes"]["synonyms"] = fingerprint(Path(spec.votes.map))
    if spec.answers is not None:
        described["answers"] = fingerprint(Path(spec.answers))
    return described


def resolve_image_mode(file: Path, spec: FitSpec, options: RunOptions) -> FitSpec:
    """Return the spec with how pictures are learned from.

    They are embedded where that is requested, or where weights are on this machine. Else networks are trained on their pixels, if that
    is requested or there is a GPU; on a CPU features of their patches are learned.
    """
    roles = spec.roles
    config = spec.config
    trains_network = options.stream is not None or replace(config.images, n_networks=None) != ImageConfig()
    if file.is_dir() and not roles.image:
        roles = replace(roles, image=(FILE,))
    if trains_network and (roles.image_model or not roles.image):
        remedy = "Use --image COLUMN without --image-model."
        raise ValueError(
            f"--architecture, --augmentation and --stream are for pictures that a network is trained on. {remedy}"
        )
    if roles.image and not trains_network and not roles.image_model:
        on_cpu = device_for_pictures(str(options.resources.device)).type == "cpu"
        if roles.image_side is None and weights_here(MODELS["image"]):
            roles = replace(roles, image_model=MODELS["image"])
        elif on_cpu:
            roles = replace(roles, image_model=PATCHES)
    if roles.image and not roles.image_model:
        default = EnsembleConfig()
        with_defaults = replace(
            config.ensemble,
            method=default.method,
            purify=default.purify,
            n_networks=default.n_networks,
            epochs=default.epochs,
        )
        if with_defaults != default:  # a setting that networks on pixels do not have
            remedy = "Use --epochs, --networks and --time-limit, or learn from features with --image-model patches."
            raise ValueError(f"--learners, --quick and --settings are not for networks on pixels. {remedy}")
    return replace(spec, roles=roles)


def check_run_folder(out: Path, spec_json: dict[str, Any]) -> bool:
    """Return whether `out` holds the finished run of this spec.

    Raise ValueError if it holds anything else or is in use; remove the checkpoint of a finished run.
    """
    checkpoint = out / "checkpoint"
    check_plain_tree(checkpoint)
    spec_file = checkpoint / SPEC_FILE
    finished = (out / METADATA).exists()
    if finished or spec_file.exists():
        if finished:
            stored = Run.open(out).metadata["asked"]
        else:
            stored = _read_spec(spec_file)
        remedy = "Give another folder, or delete this one."
        if stored.get("kind") == "Task":
            raise ValueError(f"{out} holds a run of an earlier version, which cannot be resumed. {remedy}")
        difference = first_difference(stored, spec_json)
        if difference:
            raise ValueError(f"{out} holds a run of another task: {difference}. {remedy}")
    elif out.exists():
        _check_free(out, checkpoint)
    if finished:
        shutil.rmtree(checkpoint, ignore_errors=True)  # left if the process was killed after it wrote run.json
    elif (checkpoint / LOCK).exists():
        with exclusive_lock(checkpoint / LOCK, str(out)):
            pass
    return finished


def _read_spec(path: Path) -> dict[str, Any]:
    """Return the spec of a run that was stopped."""
    try:
        stored = parse_json(read_regular(path))
        misfit = find_schema_error(stored, dict)
    except ValueError as error:
        misfit = str(error)
    if misfit is not None:
        raise ValueError(f"{path} must be the spec of the run; it is damaged ({misfit}). Delete {path.parent.parent}.")
    return dict(stored)


def _check_free(out: Path, checkpoint: Path) -> None:
    """Refuse a folder that holds anything but a checkpoint that was hardly begun, or the sample of many files."""
    is_free = out.is_dir()
    if is_free:
        for path in out.iterdir():
            is_sample = path.name in (TABLE, FILES)
            if not is_sample and (path != checkpoint or not _is_hardly_begun(checkpoint)):
                is_free = False
    if not is_free:
        raise ValueError(f"out must be a new or empty folder; {out} holds something else. Give another one.")


def _is_hardly_begun(checkpoint: Path) -> bool:
    """Return whether a checkpoint has nothing but a lock and files that were not completed."""
    if not checkpoint.is_dir():
        return False
    return all(path.name == LOCK or path.name.endswith(".part") for path in checkpoint.iterdir())


def _reopen_pixels(data: Dataset, out: Path) -> Dataset:
    """Return the data set with the pixels of the run's file, if they lie there."""
    if not isinstance(data.features, np.memmap):
        return data
    pixels = np.load(out / "checkpoint" / PIXELS, mmap_mode="c")
    return replace(data, features=pixels.reshape(len(pixels), -1))
