"""From a person's table to a run folder: read, look, learn, write. Killed, it goes on where it was."""

import json
import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from oneof.data.embed import MODELS, weights_here
from oneof.data.images import FILE, folder_of
from oneof.data.roles import Roles
from oneof.data.table import read_table
from oneof.ensemble.pipeline import SPACE, Examples, learn
from oneof.ensemble.votes_alone import resolve_votes
from oneof.learners.config import Space
from oneof.learners.fitted import Trees
from oneof.learners.kernel import KernelConfig
from oneof.learners.pictures import BY_SIZE, OnPictures
from oneof.learners.scaled_rows import Search
from oneof.methods import METHODS
from oneof.purify import PURIFY
from oneof.runs.examples import column_facts, examples_of, look_at, read_voted, weigh_votes
from oneof.runs.folder import FACTS, Run, fingerprint, read_sample, write_json
from oneof.runs.review.decisions import Log
from oneof.runs.review.teach import Again
from oneof.runs.write import write_run
from oneof.storage.locks import alone
from oneof.storage.regular import check_plain_tree
from oneof.storage.settings import first_difference, plain_value, restored
from oneof.training.device import device_for, device_for_pictures, prewarm_gpu
from oneof.training.optimize import SGD
from oneof.training.processes import check_rows, current_group
from oneof.version import __version__
from oneof.votes.read import VotesFile

ASKED = "asked.json"  # in the checkpoint: what the run was asked for
LOCK = "lock"  # there too: held while a process is at work
PIXELS = "pixels.part"  # there too: levels of pictures that are not held in memory; a .npy file


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


@dataclass(frozen=True)
class How:
    """How a run is made, which is no part of its task."""

    cache: Path | None = None  # where embeddings of texts and images are kept; None: ~/.cache/oneof
    memory: int | None = None  # bytes that training may take
    processes: int | None = None  # as for `oneof.fit`; of those that torchrun started, the first says and writes
    device: str = "auto"  # "cpu", "cuda"; "auto": the GPU, if there is one, for pictures and large tables
    threads: int | None = None  # of torch, to train on pictures; None: by size of the work and idle processors
    time_limit: float | None = None  # seconds of learning, about; such a run is not resumed within a stage
    stream: bool | None = None  # levels of pictures lie in a file; None: where they take half of what is free
    command: tuple[str, ...] = ()  # recorded in run.json
    progress: bool = False  # show bars in a terminal
    say: Callable[[str], None] = lambda text: None  # called with a line for a person, as things become known


def fit_table(
    file: Path,
    out: Path,
    task: Task = Task(),  # noqa: B008 - frozen
    how: How = How(),  # noqa: B008 - frozen
    again: Again | None = None,  # an earlier run of the same task, and what people decided about it: see `fit_again`
) -> Run:
    """Learn from a table, or from a folder of pictures whose subfolders are named by candidates, and write the run folder `out`.

    A run that was stopped there goes on; a finished one is opened.
    """
    begun = time.monotonic()
    crew, limit = current_group(how.processes), how.time_limit
    task = _settled(file, task, how)
    device_for(how.device, 0, 0)  # one that is not there is refused before anything is read
    ready = crew.run_on_rank0(
        partial(_make_ready, file, out, task, replace(how, processes=how.processes or crew.size), again)
    )
    if ready is None:
        return Run.open(out)
    examples, space, facts = ready
    if isinstance(examples.x, np.memmap):
        levels = np.load(out / "checkpoint" / PIXELS, mmap_mode="c")
        examples = replace(examples, x=levels.reshape(len(levels), -1))
    starts = again.search(len(examples.candidates.classes)) if again else {}
    checkpoint = out / "checkpoint" / "search" if limit is None else None
    until, title = None if limit is None else time.monotonic() + limit, "fit" if how.progress else None
    asked = Search(
        space, task.seed, task.rule, progress=title, checkpoint=checkpoint, until=until, memory=how.memory,
        device=how.device, processes=how.processes, threads=how.threads, **starts,
    )  # fmt: skip
    with ExitStack() as held:
        crew.run_on_rank0(partial(held.enter_context, alone(out / "checkpoint" / LOCK, str(out))))
        if examples.x.shape[1] == 0:
            learned = resolve_votes(examples, task.seed)
        else:
            learned = learn(examples, asked, train_on_gold=task.train_on_gold, how=task.pictures)
        for text in learned.left_out:
            how.say(text)
        facts |= {"warnings": facts["warnings"] + learned.left_out, "seconds": round(time.monotonic() - begun, 1)}
        crew.run_on_rank0(partial(write_run, learned, out, facts | {"command": list(how.command)}))
    return Run.open(out)


def fit_again(folder: Path, out: Path, how: How = How()) -> Run:  # noqa: B008 - frozen
    """Learn again from the table of a run and what people decided about it, from its settings and weights on; else as `fit_table`."""
    run = Run.open(folder)
    file = Path(run.facts["file"])
    if run.facts["asked"].get("kind") != "Task" or not file.exists() or fingerprint(file) != run.facts["fingerprint"]:
        gone = f"{file} is gone or another"
        raise ValueError(f"--from needs the table that {folder} was learned from, unchanged; {gone}.")
    known = (Task, Roles, OnPictures, VotesFile, Space, KernelConfig, Trees, SGD, *PURIFY.values(), *METHODS.values())
    asked = run.facts["asked"] | {"answers": None}  # the run's gold labels are in its table
    task: Task = restored(asked, {kind.__name__: kind for kind in known})
    again = Again(run, tuple(Log(run.folder).standing))
    made = fit_table(file, out, task, how, again)
    Log(out).write(*again.standing)
    return made


def _make_ready(
    file: Path, out: Path, task: Task, how: How, again: Again | None
) -> tuple[Examples, Space, dict[str, Any]] | None:
    """Read the table and begin the run; what is learned from, what is tried, and facts for run.json. None: it is finished."""
    asked = {"oneof": __version__, "data": fingerprint(file), **plain_value(task), **(again.asked if again else {})}
    if task.votes is not None:
        read = {"data": task.votes.path, "tree": task.votes.taxonomy}
        asked["votes"] |= {name: fingerprint(Path(path)) for name, path in read.items() if path is not None}
    if task.answers is not None:
        asked["answers"] = fingerprint(Path(task.answers))
    if _is_finished(out, asked):
        how.say(f"{out} is finished already; nothing to do.")
        return None
    voted = None if task.votes is None else read_voted(file, task.votes, task.roles)
    mixed = read_table(file, task.roles) if voted is None else read_table(voted.source, voted.roles, bare=True)
    if fingerprint(file) != asked["data"]:
        raise ValueError(f"{file} must not change while it is read; it did. Repeat the command.")
    check_rows(len(mixed.columns), how.processes or 1)
    if task.roles.image and not task.roles.image_model and how.processes == 1:
        prewarm_gpu(device_for_pictures(how.device))
    examples, remarks = examples_of(mixed, folder_of(file), how.cache, out / "checkpoint" / PIXELS, how.stream)
    if task.answers is not None:
        examples = replace(examples, gold=read_sample(Path(task.answers), examples.candidates, examples.gold))
    if again is None:
        warnings = look_at(examples, mixed, task.seed) + remarks + (voted.remarks if voted else [])
        for text in warnings:
            how.say(text)
    note = out / "checkpoint" / ASKED
    note.parent.mkdir(parents=True, exist_ok=True)  # only now, so that a mistake in the command leaves nothing behind
    if not note.exists():
        write_json(asked, note)
    space, named = task.space, [name for name in (task.roles.candidates, task.roles.exclude) if name]
    facts = {"file": str(file.resolve()), "fingerprint": asked["data"], "candidates": named, "asked": asked}
    if voted is not None:
        examples, space, people = weigh_votes(examples, voted, task.space, task.seed)
        facts |= {"people": people, "rule": "votes"}
    if again is not None:
        warnings = again.run.facts["warnings"]
        examples = again.teach(examples)
        space = again.space(space, *examples.candidates.mask.shape)
        facts |= {"taught": sorted(again.said)} if again.said else {}
    if isinstance(examples.x, np.memmap):  # every process opens the file itself
        examples = replace(examples, x=examples.x[:1])
    return examples, space, facts | {"warnings": warnings, "columns": column_facts(mixed, examples)}


def _settled(file: Path, task: Task, how: How) -> Task:
    """The task with how pictures are learned from: embedded where that is asked for, or where weights for it are on this machine."""
    roles, asked = task.roles, how.stream is not None or replace(task.pictures, networks=None) != BY_SIZE
    if file.is_dir() and not roles.image:
        roles = replace(roles, image=(FILE,))
    if asked and (roles.image_model or not roles.image):
        fix = "Say --image COLUMN, and no --image-model."
        raise ValueError(f"--network, --views and --stream are for pictures that a network is trained on. {fix}")
    if roles.image and not asked and not roles.image_model and weights_here(MODELS["image"]):
        roles = replace(roles, image_model=MODELS["image"])
    if roles.image and not roles.image_model:
        open_ones = {name: getattr(SPACE, name) for name in ("method", "purify", "members", "epochs")}
        if how.time_limit is not None or replace(task.space, **open_ones) != SPACE:
            fix = "Say --epochs and --networks, or embed them: --image-model NAME."
            raise ValueError(f"--learners, --quick, --settings and --time-limit are for tables, not pictures. {fix}")
    return replace(task, roles=roles)


def _is_finished(out: Path, asked: dict[str, Any]) -> bool:
    """Check that the folder is free, or that the run in it, finished or stopped, was asked for the same and is not in use."""
    checkpoint = out / "checkpoint"
    check_plain_tree(checkpoint)
    note = checkpoint / ASKED
    finished = (out / FACTS).exists()
    if finished or note.exists():
        try:
            before = Run.open(out).facts["asked"] if finished else json.loads(note.read_text(encoding="utf-8"))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{note} must say what the run was asked for; it is damaged. Delete {out}.") from error
        if difference := first_difference(before, asked):
            other = "Give another folder, or delete this one."
            raise ValueError(f"{out} holds a run of another task: {difference}. {other}")
    elif out.exists():
        begun = checkpoint.is_dir() and all(
            path.name == LOCK or path.name.endswith(".part") for path in checkpoint.iterdir()
        )
        if not out.is_dir() or any(path != checkpoint or not begun for path in out.iterdir()):
            raise ValueError(f"out must be a new or empty folder; {out} holds something else. Give another one.")
    if finished:
        shutil.rmtree(checkpoint, ignore_errors=True)  # it may have been killed between its last two acts
    elif (checkpoint / LOCK).exists():
        with alone(checkpoint / LOCK, str(out)):
            pass
    return finished
