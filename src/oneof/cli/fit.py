"""`oneof fit FILE --out RUN`: learn from a table with candidate sets."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from oneof.cli.columns import CacheFolder, takes_roles
from oneof.cli.terminal import Terminal
from oneof.data.roles import Roles
from oneof.storage.cores import cores
from oneof.storage.printable import bounded

if TYPE_CHECKING:
    from oneof.runs.folder import Run
    from oneof.votes.read import VotesFile


@takes_roles
def fit(
    out: Annotated[Path, typer.Option(help="The folder to write. A run that was stopped there goes on.")],
    roles: Roles,
    file: Annotated[Path | None, typer.Argument(help="A CSV, TSV, Parquet or npz table, a .mat file as partial-label data sets have it, or a folder of pictures with a subfolder for each set, such as 'cat|fox'.")] = None,
    from_run: Annotated[Path | None, typer.Option("--from", help="A run, in place of FILE: learn again from its table and what people decided in oneof review, starting from its settings and networks. Default: none.")] = None,
    votes: Annotated[Path | None, typer.Option(help="A file of votes in place of a column of candidates: a row per vote (item, annotator, label), a column per annotator, JSON Lines, or a Label Studio export. Default: none.")] = None,
    on: Annotated[str, typer.Option(help="With --votes: the column, in both files, by which votes and rows belong together.")] = "item",
    annotators: Annotated[list[str] | None, typer.Option(help="With --votes: an annotator's column, or a glob such as 'llm_*', where each has one. May be given again. Default: guessed.")] = None,
    taxonomy: Annotated[Path | None, typer.Option(help="With --votes: a table of child and parent. A vote for a parent is a vote for all labels below it. Default: none.")] = None,
    gold_file: Annotated[Path | None, typer.Option(help="True labels of some rows: the sample.csv of an earlier run of this table, filled in. Rows that were drawn measure the accuracy. Default: none.")] = None,
    train_on_gold: Annotated[bool, typer.Option("--train-on-gold", help="Train on the gold labels too. What they say about accuracy then flatters the run.")] = False,
    method: Annotated[str | None, typer.Option(help="The loss to train with, such as proden, lws or cc. Default: balanced PRODEN, which suits most tables.")] = None,
    purify: Annotated[bool, typer.Option("--purify/--no-purify", help="Let the networks remove candidates that they have ruled out. Turn it off to compare, where wrong labels look right.")] = True,
    settings: Annotated[Path | None, typer.Option(help="Settings to take, as JSON that oneof tune wrote. Default: one that suits most tables; how features are seen is tried on held-out sets.")] = None,
    networks: Annotated[int | None, typer.Option(min=1, help="Networks in the ensemble. Default: 5, on pictures 3 or 1; more are slower and steadier.")] = None,
    network: Annotated[str | None, typer.Option(help="With --image or a folder: train this network on the pictures: lenet, wrn, resnet32, or a name that timm knows. Default: lenet, or wrn for colour on a GPU.")] = None,
    views: Annotated[str, typer.Option(help="How pictures may be varied in training: upright (moved, never mirrored), natural (mirrored too), or none.")] = "upright",
    stream: Annotated[bool | None, typer.Option("--stream/--no-stream", help="Keep the pixels of pictures in a file below RUN while it learns, and read each batch from it. Default: where they take more than half of the memory that is free, of the GPU or beside it.")] = None,
    learners: Annotated[list[str] | None, typer.Option(help="A learner to try: networks, linear, trees or kernel. May be given again. Default: all four; held-out sets say how much each counts.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Give a first answer in a second or two, by the kernel and trees, without networks.")] = False,
    epochs: Annotated[int | None, typer.Option(min=1, help="Epochs to train the ensemble. Default: 30, fewer above 40,000 rows or 5,000,000 cells of rows by labels; on pictures 100 on a GPU, 5 to 60 on a CPU.")] = None,
    time_limit: Annotated[float | None, typer.Option(min=1, help="Seconds that learning may take, about. Networks get fewer epochs or are left out, then trees, and the run says so. The clock decides, so such a run is not repeated to the bit. Default: none.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything that is drawn.")] = 0,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of torch. Default: 1, with which small networks are fastest; on pictures as many as a batch is worth and idle cores can run, at most OMP_NUM_THREADS.")] = None,
    processes: Annotated[int | None, typer.Option("--devices", "--processes", help="Processes that share the work, with the same result up to rounding. On pictures each takes a GPU of its own, where there are as many; else they share. Starting them takes seconds, and on two cores little is gained. Default: those that torchrun or SLURM started, else one.")] = None,
    device: Annotated[str, typer.Option(help="Where to learn: cpu, cuda or auto. The result is the same up to rounding. auto: the GPU, if there is one, for pictures and for tables from 20,000 rows on.")] = "auto",
    memory: Annotated[float, typer.Option(min=0.001, help="Gigabytes that training may take.")] = 1.0,
    cache_dir: CacheFolder = None,
    deterministic: Annotated[bool, typer.Option("--deterministic", help="Give the same run to the bit, whenever it is repeated on one machine. Without it rounding may differ.")] = False,
) -> None:  # fmt: skip
    """Learn a classifier and the right label of every row; write both, with what is known about them, to a folder."""
    screen = Terminal(stderr=True)
    if screen.is_terminal:  # what follows imports and reads for seconds
        screen.print(Text(f"Reading {file or from_run} ..."))
    from oneof.ensemble.pipeline import SPACE, space_for
    from oneof.ensemble.tune import read_setting
    from oneof.learners.pictures import OnPictures
    from oneof.runs.fit_table import How, Task, fit_again, fit_table
    from oneof.training.processes import current_group

    on_levels = bool((file and file.is_dir()) or roles.image) and not roles.image_model
    _set_torch(threads, on_levels, deterministic)
    said, console = read_setting(settings) if settings else {}, Terminal()
    count = {"members": networks or SPACE.members, "epochs": epochs or SPACE.epochs}
    space = space_for(said, method, SPACE.purify if purify else None, learners or None, quick, **count)
    voted, answers = _votes(votes, on, annotators, taxonomy, roles.separator), str(gold_file) if gold_file else None
    pictures = OnPictures(network, views, networks if on_levels else None)
    task = Task(roles, seed, train_on_gold, space=space, votes=voted, answers=answers, pictures=pictures)
    how = How(
        cache=cache_dir, memory=int(memory * 2**30), processes=processes, device=device, threads=threads,
        time_limit=time_limit, stream=stream, command=tuple(sys.argv), progress=True,
        say=lambda line: console.print(Text(bounded(line), style="yellow")),
    )  # fmt: skip
    rank = current_group(processes).rank
    try:
        if file and not from_run:
            run = fit_table(file, out, task, how)
        elif from_run and not file and task == Task():
            run = fit_again(from_run, out, how)
        else:
            raise ValueError("fit needs FILE, or --from RUN, which brings table and settings along. Give one of them.")
    except (ValueError, TypeError, OSError) as error:
        if rank == 0 or isinstance(error, ChildProcessError):  # the first process may be the one that died
            raise
        raise typer.Exit(2) from None  # the first says what is wrong
    if rank == 0:
        show(run, console)


def _votes(
    file: Path | None, on: str, annotators: list[str] | None, taxonomy: Path | None, separator: str
) -> VotesFile | None:
    from oneof.votes.read import VotesFile

    for name, given in (("annotators", annotators), ("taxonomy", taxonomy)):
        if file is None and given:
            raise ValueError(f"--{name} must stand beside --votes, of which it speaks. Add --votes FILE.")
    if file is None:
        return None
    tree = None if taxonomy is None else str(taxonomy)
    return VotesFile(str(file), on, columns=tuple(annotators or ()), separator=separator, taxonomy=tree)


def _set_torch(threads: int | None, on_pictures: bool, deterministic: bool) -> None:
    """Set how many threads torch uses; on pictures, unless they are named, as many as it finds: OMP_NUM_THREADS, or the cores."""
    import torch

    from oneof.training.device import make_deterministic

    if deterministic:
        if threads not in (None, 1):
            raise ValueError(f"--deterministic needs one thread; got --threads {threads}. Leave one of them out.")
        make_deterministic()
    elif threads is not None:
        torch.set_num_threads(threads)
    elif on_pictures:
        torch.set_num_threads(min(torch.get_num_threads(), cores()))
    else:
        torch.set_num_threads(1)


def labels_in_words(run: Run) -> str:
    """Say how many resolved labels are right, where gold labels of a random sample show it."""
    import numpy as np
    import pyarrow.compute as pc

    from oneof.ensemble.accuracy import measure_labels

    rows = run.purified
    measured = None
    if "gold" in rows.column_names:
        is_known = np.asarray(pc.is_valid(rows["gold"]))
        is_right = np.asarray(pc.fill_null(pc.equal(rows["label"], rows["gold"]), False))
        measured = measure_labels(is_right, is_known)
    if measured is None:
        return "not known how many are right: no random sample of them has gold labels"
    return measured.in_words


def show(run: Run, console: Terminal) -> None:
    """What was learned, in a few lines."""
    import pyarrow.compute as pc

    from oneof.data.column_uses import summary_lines
    from oneof.ensemble.accuracy import Claim
    from oneof.metrics import in_words
    from oneof.runs.folder import SAMPLE_CSV
    from oneof.runs.purified import lost_labels

    facts, purified = run.facts, run.decided
    asked = pc.sum(purified["ask"]).as_py() or 0
    table = Table(title=str(run.folder), show_header=False, title_justify="left")
    kept, given = (pc.mean(pc.list_value_length(purified[name])).as_py() for name in ("kept", "original"))
    columns = summary_lines(facts.get("columns", {}))
    for name, value in (
        ("labels of this table", labels_in_words(run)),
        ("rows, features, classes", f"{facts['n']:,}, {facts['d']:,}, {len(facts['classes']):,}"),
        ("columns", "\n".join(bounded(line) for line in columns)),
        ("labels per set", f"{given:.2f} given, {kept:.2f} kept"),
        ("learners", ", ".join(f"{name} {share:.0%}" for name, share in facts["learners"].items()) or "votes alone"),
        ("chosen by", in_words(facts["rule"])),
        ("accuracy on new rows", Claim(**facts["estimate"]).in_words),
        ("rows to ask a person about", f"{asked:,} ({asked / facts['n']:.1%})"),
        ("seconds", f"{facts['seconds']:,}"),
    ):
        if value:
            table.add_row(name, Text(value))
    console.print(table)
    if lost := lost_labels(purified):
        console.print(Text(bounded(lost), style="yellow"))
    if facts["estimate"]["by"] != "gold labels":
        console.print(Text(f"To know the accuracy: fill in {run.folder / SAMPLE_CSV} and fit again with --gold-file."))
