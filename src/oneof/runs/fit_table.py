"""From a person's table to a run folder: read, look, learn, write. Killed, it goes on where it was."""

import json
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from oneof.data.embed import MODELS, weights_here
from oneof.data.images import FILE, folder_of
from oneof.data.roles import Roles
from oneof.data.table import read_table
from oneof.methods import METHODS
from oneof.purify import PURIFY
from oneof.runs.examples import examples_of, look_at, with_answers
from oneof.runs.folder import FACTS, Run, fingerprint, write_json
from oneof.runs.learn import SPACE, Examples, Learned, learn, write_learned
from oneof.runs.pictures import BY_SIZE, OnPictures, check_for_pictures
from oneof.runs.review.log import Log
from oneof.runs.review.teach import Again
from oneof.runs.voted import read_voted, weigh_votes
from oneof.selection.learners import Trees
from oneof.selection.leave_one_out import Kernel
from oneof.selection.space import Space
from oneof.selection.trying import Search
from oneof.storage.locks import alone
from oneof.storage.settings import first_difference, plain_value, restored
from oneof.training.device import device_for
from oneof.training.optimize import SGD
from oneof.training.processes import check_rows, crew_here
from oneof.version import __version__
from oneof.votes.opening import VotesFile

ASKED = "asked.json"  # in the checkpoint: what the run was asked for
LOCK = "lock"  # there too: held while a process is at work


@dataclass(frozen=True)
class Task:
    """What is asked of a run; a run is resumed only by the same task."""

    roles: Roles = Roles()  # noqa: RUF009 - frozen
    seed: int = 0
    train_on_gold: bool = False
    rule: str = "both"  # how settings are chosen: a key of oneof.metrics.CRITERIA or MEANS
    space: Space = SPACE
    votes: VotesFile | None = None  # in place of a column of candidates
    answers: str | None = None  # a filled-in sample.csv: gold labels of rows that were drawn
    pictures: OnPictures = BY_SIZE


def fit_table(
    file: Path,
    out: Path,
    task: Task = Task(),  # noqa: B008 - frozen
    *,
    command: Sequence[str] = (),
    cache: Path | None = None,
    memory: int | None = None,
    processes: int | None = None,
    device: str = "auto",
    time_limit: float | None = None,
    progress: bool = False,
    say: Callable[[str], None] = lambda text: None,
    again: Again | None = None,
) -> Run:
    """Learn from a file and write the run folder `out`.

    Parameters
    ----------
    file
        A CSV, TSV, Parquet, npz or .mat table; or a folder of pictures, whose subfolders are named by candidates.
    out
        The folder to write. A run that was stopped there goes on; a finished one is opened.
    task
        Which column plays which part, and how to learn.
    command
        Recorded in run.json.
    cache
        Where embeddings of texts and images are kept. Default: ~/.cache/oneof.
    memory
        Bytes that training may take.
    processes
        As for `oneof.fit`; where torchrun or SLURM started them, only the first reads, says and writes.
    device
        "cpu", "cuda", or "auto": the GPU, if there is one, for pictures and for large tables. It is no part of the task.
    time_limit
        Seconds that learning may take, about; what is left out for it is said. Such a run is not resumed within a stage.
    progress
        Show bars in a terminal.
    say
        Called with a line for a person, as things become known.
    again
        An earlier run of the same task, and what people decided about it: see `fit_again`.
    """
    begun = time.monotonic()
    crew = crew_here(processes)
    task = _settled(file, task, time_limit)
    device_for(device, 0, 0)  # one that is not there is refused before anything is read
    ready = crew.told(partial(_make_ready, file, out, task, cache, processes or crew.size, say, again))
    if ready is None:
        return Run.open(out)
    asked = Search(
        space=ready.space,
        seed=task.seed,
        rule=task.rule,
        progress="fit" if progress else None,
        checkpoint=out / "checkpoint" / "search" if time_limit is None else None,
        until=None if time_limit is None else time.monotonic() + time_limit,
        memory=memory,
        device=device,
        processes=processes,
        settings=again.settings if again else (),
        starts=again.starts(len(ready.examples.candidates.classes)) if again else {},
        forest=again.forest(len(ready.examples.candidates.classes)) if again else None,
    )
    with ExitStack() as held:
        crew.told(partial(held.enter_context, alone(out / "checkpoint" / LOCK, str(out))))
        learned = learn(ready.examples, asked, train_on_gold=task.train_on_gold, how=task.pictures)
        for text in learned.left_out:
            say(text)
        ready.warnings.extend(learned.left_out)
        crew.told(partial(_write, file, out, task, ready, learned, command, begun))
    return Run.open(out)


def fit_again(folder: Path, out: Path, **how: Any) -> Run:
    """Learn again from the table of a run and what people decided about it, from its settings and weights on; else as `fit_table`."""
    run = Run.open(folder)
    file = Path(run.facts["file"])
    if run.facts["asked"].get("kind") != "Task" or not file.exists() or fingerprint(file) != run.facts["fingerprint"]:
        raise ValueError(
            f"--from needs the table that {folder} was learned from, unchanged; {file} is gone or another."
        )
    known = (Task, Roles, OnPictures, VotesFile, Space, Kernel, Trees, SGD, *PURIFY.values(), *METHODS.values())
    asked = run.facts["asked"] | {"answers": None}  # the run's gold labels are in its table
    task: Task = restored(asked, {kind.__name__: kind for kind in known})
    again = Again.of(run)
    made = fit_table(file, out, task, again=again, **how)
    Log(out).carry(again.standing)
    return made


class Ready(NamedTuple):
    """What is there when training begins."""

    asked: dict[str, Any]  # what the run is recognised by
    examples: Examples
    space: Space
    warnings: list[str]
    people: dict[str, Any]  # what is known of those who voted; empty where nobody did
    taught: list[int]  # rows about which people had decided


def _make_ready(
    file: Path,
    out: Path,
    task: Task,
    cache: Path | None,
    processes: int,
    say: Callable[[str], None],
    again: Again | None,
) -> Ready | None:
    """Read the table and begin the run; None if it is finished."""
    asked = {"oneof": __version__, "data": fingerprint(file), **plain_value(task), **(again.asked if again else {})}
    if task.votes is not None:
        read = {"data": task.votes.path, "tree": task.votes.taxonomy}
        asked["votes"] |= {name: fingerprint(Path(path)) for name, path in read.items() if path is not None}
    if task.answers is not None:
        asked["answers"] = fingerprint(Path(task.answers))
    if _is_finished(out, asked):
        say(f"{out} is finished already; nothing to do.")
        return None
    _check_folder(out, asked)
    voted = None if task.votes is None else read_voted(file, task.votes)
    mixed = read_table(file, task.roles) if voted is None else read_table(voted.source, voted.roles(task.roles))
    if fingerprint(file) != asked["data"]:
        raise ValueError(f"{file} must not change while it is read; it did. Repeat the command.")
    check_rows(len(mixed.columns), processes)
    examples, remarks = examples_of(mixed, folder_of(file), cache)
    examples = with_answers(examples, task.answers)
    if again is None:
        warnings = look_at(examples, mixed, task.seed) + remarks + (voted.remarks if voted else [])
        for text in warnings:
            say(text)
    _begin(out, asked)
    people: dict[str, Any] = {}
    space = task.space
    if voted is not None:
        examples, space, people = weigh_votes(examples, voted, task.space, task.seed)
    if again is not None:
        warnings = again.run.facts["warnings"]
        examples = again.teach(examples)
        space = again.space(space, *examples.candidates.mask.shape)
    return Ready(asked, examples, space, warnings, people, sorted(again.said) if again else [])


def _settled(file: Path, task: Task, time_limit: float | None) -> Task:
    """The task with how pictures are learned from: embedded where that is asked for, or where weights for it are on this machine."""
    roles, asked = task.roles, replace(task.pictures, networks=None) != BY_SIZE
    if file.is_dir() and not roles.image:
        roles = replace(roles, image=(FILE,))
    if asked and (roles.image_model or not roles.image):
        raise ValueError(
            "--network and --views are for pictures that a network is trained on. Say --image COLUMN, and no --image-model."
        )
    if roles.image and not asked and not roles.image_model and weights_here(MODELS["image"]):
        roles = replace(roles, image_model=MODELS["image"])
    if roles.image and not roles.image_model:
        check_for_pictures(task.space, SPACE, time_limit)
    return replace(task, roles=roles)


def _is_finished(out: Path, asked: dict[str, Any]) -> bool:
    if not (out / FACTS).exists():
        return False
    _check_same(out, Run.open(out).facts["asked"], asked)
    shutil.rmtree(out / "checkpoint", ignore_errors=True)  # it may have been killed between its last two acts
    return True


def _check_folder(out: Path, asked: dict[str, Any]) -> None:
    """See that the folder is free, or that the run stopped in it was asked for the same."""
    note = out / "checkpoint" / ASKED
    if note.with_name(LOCK).exists():
        with alone(note.with_name(LOCK), str(out)):
            pass
    if note.exists():
        try:
            before = json.loads(note.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{note} must say what the run was asked for; it is damaged. Delete {out}.") from error
        return _check_same(out, before, asked)
    begun = note.parent.is_dir() and all(path.name.endswith(".part") for path in note.parent.iterdir())
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


def _write(
    file: Path, out: Path, task: Task, ready: Ready, learned: Learned, command: Sequence[str], begun: float
) -> None:
    """Write the run, then forget how far it had come."""
    facts = {
        "command": list(command),
        "file": str(file.resolve()),
        "fingerprint": ready.asked["data"],
        "candidates": [name for name in (task.roles.candidates, task.roles.exclude) if name],
        "asked": ready.asked,
        "warnings": ready.warnings,
        **({"taught": ready.taught} if ready.taught else {}),
        **({"people": ready.people, "rule": "votes"} if ready.people else {}),
        "seconds": round(time.monotonic() - begun, 1),
    }
    write_learned(learned, out, facts)
    shutil.rmtree(out / "checkpoint", ignore_errors=True)
