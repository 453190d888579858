"""From a person's table to a run folder: read, look, search, train, resolve, calibrate, write. Killed, it goes on where it was."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from oneof.data.embed import CACHE
from oneof.data.encode import Encoding, learn_encoding
from oneof.data.roles import Roles
from oneof.data.table import Table, read_table
from oneof.inspect import inspect_table
from oneof.runs.calibrate import ENOUGH, calibrate, estimate
from oneof.runs.folder import FACTS, PURIFIED, ROWS, TRAINING, Run, fingerprint, write_json, write_rows, write_table
from oneof.runs.labels import (
    Opinions,
    ask_networks,
    ensemble_table,
    gather_falls,
    judged_rows,
    kept_sets,
    resolve,
    trained_rows,
)
from oneof.runs.model import Model, member_of, save_model
from oneof.runs.nearest_rows import find_evidence
from oneof.selection.search import Found, search
from oneof.selection.space import Space
from oneof.storage.settings import first_difference, plain_value
from oneof.training.processes import check_rows, crew_here
from oneof.training.state import Fit
from oneof.version import __version__

ASKED = "asked.json"  # in the checkpoint: what the run was asked for


SPACE = Space(parts=5)
"""Five parts: so every row is held out by two networks or more, and what these say of it can be trusted."""


@dataclass(frozen=True)
class Task:
    """What is asked of a run; a run is resumed only by the same task."""

    roles: Roles = Roles()  # noqa: RUF009 - frozen
    seed: int = 0
    train_on_gold: bool = False
    rule: str = "both"  # how settings are chosen: one of oneof.selection.search.RULES
    space: Space = SPACE


def fit_table(
    file: Path,
    out: Path,
    task: Task = Task(),  # noqa: B008 - frozen
    *,
    command: Sequence[str] = (),
    cache: Path = CACHE,
    memory: int | None = None,
    processes: int | None = None,
    progress: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> Run:
    """Learn from a file and write the run folder `out`.

    Parameters
    ----------
    file
        A CSV, TSV, Parquet, npz or .mat table.
    out
        The folder to write. A run that was stopped there goes on; a finished one is opened.
    task
        Which column plays which part, and how to learn.
    command
        Recorded in run.json.
    cache
        Where embeddings of texts and images are kept.
    memory
        Bytes that training may take.
    processes
        As for `oneof.fit`; where torchrun or SLURM started them, only the first reads, says and writes.
    progress
        Show bars in a terminal.
    say
        Called with a line for a person, as things become known.
    """
    begun = time.monotonic()
    crew = crew_here(processes)
    ready = crew.told(partial(_make_ready, file, out, task, cache, processes or crew.size, say))
    if ready is None:
        return Run.open(out)
    found = search(
        ready.x,
        _taught(ready.mixed, task.train_on_gold),
        space=task.space,
        seed=task.seed,
        groups=ready.mixed.groups,
        rule=task.rule,
        gold=_gold(ready.mixed),
        progress="fit" if progress else None,
        checkpoint=out / "checkpoint" / "search",
        memory=memory,
        processes=processes,
    )
    crew.told(partial(_write, file, out, task, ready, found, command, begun))
    return Run.open(out)


class Ready(NamedTuple):
    """What is there when training begins."""

    asked: dict[str, Any]  # what the run is recognised by
    x: NDArray[np.float32]  # [n, d]
    mixed: Table
    encoding: Encoding
    warnings: list[str]


def _make_ready(
    file: Path, out: Path, task: Task, cache: Path, processes: int, say: Callable[[str], None]
) -> Ready | None:
    """Read the table and begin the run; None if it is finished."""
    asked = {"oneof": __version__, "data": fingerprint(file), **plain_value(task)}
    if _is_finished(out, asked):
        say(f"{out} is finished already; nothing to do.")
        return None
    _check_folder(out, asked)
    mixed = read_table(file, task.roles)
    if fingerprint(file) != asked["data"]:
        raise ValueError(f"{file} must not change while it is read; it did. Repeat the command.")
    check_rows(len(mixed.columns), processes)
    encoding = learn_encoding(mixed.columns, mixed.roles, folder=file.parent, cache=cache)
    x = encoding.transform(mixed.columns, folder=file.parent, cache=cache)
    warnings = _look(x, mixed, encoding, task.seed)
    for text in warnings:
        say(text)
    _begin(out, asked)
    return Ready(asked, x, mixed, encoding, warnings)


def _is_finished(out: Path, asked: dict[str, Any]) -> bool:
    if not (out / FACTS).exists():
        return False
    _check_same(out, Run.open(out).facts["asked"], asked)
    shutil.rmtree(out / "checkpoint", ignore_errors=True)  # it may have been killed between its last two acts
    return True


def _check_folder(out: Path, asked: dict[str, Any]) -> None:
    """See that the folder is free, or that the run stopped in it was asked for the same."""
    note = out / "checkpoint" / ASKED
    if note.exists():
        try:
            before = json.loads(note.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{note} must say what the run was asked for; it is damaged. Delete {out}.") from error
        return _check_same(out, before, asked)
    begun = note.parent.is_dir() and all(path.name == f".{ASKED}.part" for path in note.parent.iterdir())
    others = [path for path in out.iterdir() if path != note.parent or not begun] if out.is_dir() else [out]
    if out.exists() and others:
        raise ValueError(f"out must be a new or empty folder; {out} holds something else. Give another one.")
    return None


def _begin(out: Path, asked: dict[str, Any]) -> None:
    """Make the folder and note what is asked: only now, so that a mistake in the command leaves nothing behind."""
    note = out / "checkpoint" / ASKED
    note.parent.mkdir(parents=True, exist_ok=True)
    if not note.exists():
        write_json(asked, note)


def _check_same(out: Path, before: dict[str, Any], asked: dict[str, Any]) -> None:
    difference = first_difference(before, asked)
    if difference:
        raise ValueError(f"{out} holds a run of another task: {difference}. Give another folder, or delete this one.")


def _look(x: NDArray[np.float32], mixed: Table, encoding: Encoding, seed: int) -> list[str]:
    """What to warn of; what cannot be learned is an error."""
    findings = inspect_table(mixed, x, encoding.names, seed=seed).findings
    stop = next((finding.text for finding in findings if finding.severity == "stop"), None)
    if stop is not None:
        raise ValueError(f"{mixed.columns.source} cannot be learned from: {stop}")
    return [finding.text for finding in findings if finding.severity == "warn"]


def _gold(mixed: Table) -> NDArray[np.intp] | None:
    """The gold labels, if there are enough of them to choose settings by."""
    return mixed.gold if mixed.gold is not None and (mixed.gold >= 0).sum() >= ENOUGH else None


def _taught(mixed: Table, train_on_gold: bool) -> NDArray[np.bool_]:
    """The sets to train on: gold labels stay out of them unless they are asked in."""
    mask, gold = mixed.candidates.mask, mixed.gold
    if gold is None or not train_on_gold:
        return mask
    return np.where((gold >= 0)[:, None], np.arange(mask.shape[1]) == gold[:, None], mask)


# ---------------------------------------------------------------------------------------------------------------- results


def _write(file: Path, out: Path, task: Task, ready: Ready, found: Found, command: Sequence[str], begun: float) -> None:
    """Write every part, run.json last: with it the run is finished."""
    x, mixed = ready.x, ready.mixed
    model = Model(mixed.candidates.classes.tolist(), ready.encoding, tuple(map(member_of, found.fits)), {})
    facts = _facts(file, task, ready, found, command)
    original = mixed.candidates.mask
    trained = trained_rows(found.fits, len(x))
    opinions = ask_networks(model, x, original, trained)
    judged = judged_rows(opinions, original, mixed.gold)
    save_model(replace(model, calibration=calibrate(judged)), out)
    write_table(_purified(x, mixed, model, found, trained, opinions), out / PURIFIED)
    write_json(training_record(found.fits), out / TRAINING)
    write_rows(found.tried, out / ROWS)
    facts |= {"estimate": estimate(judged)._asdict(), "seconds": round(time.monotonic() - begun, 1)}
    write_json(facts, out / FACTS)
    shutil.rmtree(out / "checkpoint")


def _purified(
    x: NDArray[np.float32], mixed: Table, model: Model, found: Found, trained: NDArray[np.bool_], opinions: Opinions
) -> Any:
    original, kept = mixed.candidates.mask, kept_sets(found.fits, found.candidates)
    resolved = resolve(opinions, original, kept)
    evidence = find_evidence(model.members[0].seen(x, slice(1))[0].numpy(), 1 - resolved.probability, resolved.ask)
    falls = gather_falls(found.fits, original.shape[1])
    table = ensemble_table(resolved, original, kept, falls, trained.sum(0), evidence, model.classes)
    if mixed.groups is not None:
        table = table.append_column("group", [mixed.groups])
    if mixed.gold is not None:
        table = table.append_column("gold", [[model.classes[j] if j >= 0 else None for j in mixed.gold]])
    return table


def _facts(file: Path, task: Task, ready: Ready, found: Found, command: Sequence[str]) -> dict[str, Any]:
    mixed, names = ready.mixed, ready.encoding.names
    columns = [name for name in (task.roles.candidates, task.roles.exclude) if name]
    return {
        "oneof": __version__,
        "torch": torch.__version__,
        "command": list(command),
        "seed": task.seed,
        "file": str(file.resolve()),
        "fingerprint": ready.asked["data"],
        "n": len(mixed.columns),
        "d": len(names),
        "classes": mixed.candidates.classes.tolist(),
        "features": names,
        "candidates": columns,
        "chosen": plain_value([one._asdict() for one in found.chosen]),
        "rule": task.rule if _gold(mixed) is None else "gold",
        "asked": ready.asked,
        "warnings": ready.warnings,
    }


def training_record(fits: Sequence[Fit]) -> dict[str, Any]:
    """Every column of the histories as lists [epochs][t]; None after the last epoch of a network that had fewer."""
    epochs = max(fitted.history.epoch for fitted in fits)
    names = ("loss", "set_size", "threshold", "removed", "covering", "approximated")
    columns = {}
    for name in names:
        parts = [getattr(fitted.history, name) for fitted in fits]
        if all(part is not None for part in parts):
            columns[name] = [
                [value for part in parts for value in (part[e].tolist() if e < len(part) else [None] * part.shape[1])]
                for e in range(epochs)
            ]
    chosen = [epoch for fitted in fits for epoch in fitted.epoch.tolist()]
    return {"trials": len(chosen), "epochs": epochs, "columns": columns, "chosen": chosen}
