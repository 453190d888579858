"""Describe what determines a run, and check that a run folder is new or holds a run of the same spec, which may be resumed."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from oneof.data.embed import MODELS, weights_here
from oneof.data.images import FILE
from oneof.data.roles import PATCHES, ColumnRoles
from oneof.learners.config import EnsembleConfig, FitConfig, ImageConfig
from oneof.runs.folder import METADATA, Run, fingerprint, write_json
from oneof.runs.refit import Refit
from oneof.storage.locks import exclusive_lock
from oneof.storage.regular import check_plain_tree, read_regular
from oneof.storage.schema import find_schema_error
from oneof.storage.settings import first_difference, to_serializable
from oneof.storage.strict_json import parse_json
from oneof.training.device import device_for_pictures
from oneof.version import __version__
from oneof.votes.read import VotesFile

SPEC_FILE = "asked.json"  # in the checkpoint: the spec of the run
_CHECKSUMS = {  # keys of a spec that hold one, and of which file
    ("data",): "the table",
    ("votes", "data"): "the file of votes",
    ("votes", "tree"): "the file of --taxonomy",
    ("votes", "synonyms"): "the file of --map",
    ("answers",): "the file of --gold-file",
}
LOCK = "lock"  # in the checkpoint: held while a process is at work
TABLE = "table.parquet"  # in a run of many files: the rows that are learned from
FILE_COLUMN = "oneof.file"  # of that table: the number of the file that a row is from
ROW_COLUMN = "oneof.row"  # and its number there
FILES = "files.json"  # in a run of many files: their names, and how the rows were chosen


@dataclass(frozen=True)
class FitSpec:
    """Everything that determines a run. A run that was stopped is resumed only by the same spec."""

    roles: ColumnRoles = ColumnRoles()  # noqa: RUF009 - frozen
    votes: VotesFile | None = None  # in place of a column of candidates
    answers: str | None = None  # a filled-in sample.csv: gold labels of rows that were drawn
    config: FitConfig = FitConfig()  # noqa: RUF009 - frozen


def describe_spec(file: Path, spec: FitSpec, refit: Refit | None) -> dict[str, Any]:
    """Return the spec as JSON, with checksums of the files that it names. A run folder is recognised by it."""
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


def resolve_image_mode(file: Path, spec: FitSpec, device: str | torch.device, stream: bool | None) -> FitSpec:
    """Return the spec with the choice of how pictures become features, in `roles.image_model`; empty if a network is trained on pixels.

    The choice is the user's, if there is one. Else pictures are embedded if the weights of the embedder are on this machine; without them, a
    network is trained on pixels on a GPU, and features of patches are learned on a CPU. An option of networks on pixels asks for these.
    """
    roles = spec.roles
    config = spec.config
    wants_pixels = stream is not None or replace(config.images, n_networks=None) != ImageConfig()
    if file.is_dir() and not roles.image:
        roles = replace(roles, image=(FILE,))
    if wants_pixels and (roles.image_model or not roles.image):
        remedy = "Use --image COLUMN without --image-model."
        raise ValueError(
            f"--architecture, --augmentation and --stream are for pictures that a network is trained on. {remedy}"
        )
    if roles.image and not wants_pixels and not roles.image_model:
        on_cpu = device_for_pictures(str(device)).type == "cpu"
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
    """Return whether `out` holds the finished run of this spec; raise ValueError if it holds anything else or is in use.

    The checkpoint of a finished run is removed.
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
        difference = _changed_file(stored, spec_json) or first_difference(stored, spec_json)
        if difference:
            raise ValueError(f"{out} holds a run of other data or options: {difference}. {remedy}")
    elif out.exists():
        _check_free(out, checkpoint)
    if finished:
        shutil.rmtree(checkpoint, ignore_errors=True)  # left if the process was killed after it wrote run.json
    elif (checkpoint / LOCK).exists():
        with exclusive_lock(checkpoint / LOCK, str(out)):  # raises an error if another process holds it
            pass
    return finished


def _changed_file(stored: Mapping[str, Any], spec_json: Mapping[str, Any]) -> str | None:
    """Return in words which file of a spec is another than in the stored one, since checksums tell a reader nothing; None if none is."""
    for path, name in _CHECKSUMS.items():
        before = _value_at(stored, path)
        now = _value_at(spec_json, path)
        if before is not None and now is not None and before != now:
            return f"{name} was another file, or has changed since"
    return None


def _value_at(spec_json: Any, path: tuple[str, ...]) -> Any:
    """Return the value below nested keys; None if there is none."""
    for key in path:
        if not isinstance(spec_json, Mapping):
            return None
        spec_json = spec_json.get(key)
    return spec_json


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


def store_spec(spec_json: dict[str, Any], out: Path) -> None:
    """Store the spec in the checkpoint, by which the run is recognised if it is stopped before it is finished."""
    spec_file = out / "checkpoint" / SPEC_FILE
    spec_file.parent.mkdir(parents=True, exist_ok=True)
    if not spec_file.exists():
        write_json(spec_json, spec_file)
