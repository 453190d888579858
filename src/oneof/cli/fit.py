"""`oneof fit FILE --out RUN`: learn from a table with candidate sets."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from oneof.cli.columns import (
    INPUT,
    LEARNING,
    PICTURES,
    RESOURCES,
    VOTES,
    CacheFolder,
    path_text,
    split_classes,
    with_column_options,
)
from oneof.cli.terminal import Terminal
from oneof.cli.votes import Kind
from oneof.data.roles import ColumnRoles
from oneof.storage.cores import cores
from oneof.storage.durations import parse_duration
from oneof.storage.printable import one_line

if TYPE_CHECKING:
    from oneof.runs.folder import Run


@with_column_options
def fit(
    *,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder to write. A run that was stopped there is resumed.")],
    from_run: Annotated[Path | None, typer.Option("--from", metavar="RUN", rich_help_panel=INPUT, help="Learn again from the table of this run and what people decided in oneof review; in place of FILE.")] = None,
    on: Annotated[str, typer.Option(metavar="COLUMN", rich_help_panel=VOTES, help="Column in both files that says which votes belong to which row.")] = "item",
    annotators: Annotated[list[str] | None, typer.Option(metavar="COLUMN", hidden=True, help="The same as --columns.")] = None,
    columns: Annotated[list[str] | None, typer.Option(metavar="COLUMN", rich_help_panel=VOTES, help="Column of an annotator, or a pattern such as 'llm_*', where the file has a column for each. Repeatable. Default: guessed.")] = None,
    item: Annotated[str | None, typer.Option(metavar="COLUMN", rich_help_panel=VOTES, help="Column of the item's id in the votes. Default: that of --on.")] = None,
    annotator: Annotated[str, typer.Option(metavar="COLUMN", rich_help_panel=VOTES, help="Column of the annotator, where there is a row per vote.")] = "annotator",
    label: Annotated[str, typer.Option(metavar="COLUMN", rich_help_panel=VOTES, help="Column of the label, where there is a row per vote.")] = "label",
    confidence: Annotated[str | None, typer.Option(metavar="COLUMN", rich_help_panel=VOTES, help="Column of the weight of a vote, 0 to 1. Default: every vote counts 1.")] = None,
    map_file: Annotated[Path | None, typer.Option("--map", metavar="FILE", rich_help_panel=VOTES, help="What answers mean: a CSV with the columns answer and label. An empty label is no vote.")] = None,
    map_out: Annotated[Path | None, typer.Option("--map-out", metavar="FILE", rich_help_panel=VOTES, help="CSV to write what answers in free text were mapped to: answer, label, count. Correct it and give it to --map.")] = None,
    normalise: Annotated[bool, typer.Option("--normalise", rich_help_panel=VOTES, help="Ignore case and surrounding space of labels.")] = False,
    classes: Annotated[str | None, typer.Option(metavar="LABELS", rich_help_panel=VOTES, help="All labels, separated by commas; answers are mapped to them, and it is an error if many answers name none of them. Default: the labels that occur.")] = None,
    kind: Annotated[Kind | None, typer.Option(rich_help_panel=VOTES, help="long: a row per vote; wide: a column per annotator. Default: guessed from the file.")] = None,
    from_name: Annotated[str | None, typer.Option(metavar="NAME", rich_help_panel=VOTES, help="Label Studio: the control whose choices are votes. Needed where there are several.")] = None,
    ranked: Annotated[bool, typer.Option("--ranked", rich_help_panel=VOTES, help="The first label of a list counts most. Default: the labels of a list are equally plausible.")] = False,
    taxonomy: Annotated[Path | None, typer.Option(metavar="FILE", rich_help_panel=VOTES, help="Table of child and parent labels: a vote for a parent is a vote for all labels below it.")] = None,
    roles: ColumnRoles,
    file: Annotated[Path | None, typer.Argument(metavar="FILE", show_default=False, help="Table: CSV, TSV, Parquet, npz or .mat; many Parquet files, such as 'rows/*.parquet'; or a folder of pictures, with a subfolder per set such as 'cat|fox'.")] = None,
    votes: Annotated[Path | None, typer.Option(metavar="FILE", help="Votes of annotators, in place of --candidates: a row per vote (item, annotator, label), a column per annotator, nested JSON, or an export of Label Studio, Argilla, Prodigy or distilabel.")] = None,
    gold_file: Annotated[Path | None, typer.Option(metavar="FILE", help="File of true labels, which measure the accuracy: sample.csv of an earlier run of this table, filled in. For true labels in a column of the table: --gold.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Give a first answer in seconds, without networks.")] = False,
    time_limit: Annotated[str | None, typer.Option(metavar="TIME", help="Approximate time for learning, such as 90s, 2m or 1h. Networks get fewer epochs or are left out, then trees. The result may then differ from run to run.")] = None,
    architecture: Annotated[str | None, typer.Option(metavar="NAME", rich_help_panel=PICTURES, help="Train this network on the pixels: lenet, wrn, resnet32, or the name of a timm model. Default on a GPU: wrn, or lenet for small grey pictures; on a CPU none, see --image-model.")] = None,
    augmentation: Annotated[str, typer.Option(metavar="KIND", rich_help_panel=PICTURES, help="How pictures are augmented for a network on pixels: upright (shifted, never mirrored), natural (mirrored too) or none. With natural or none, a network is trained on a CPU too.")] = "upright",
    stream: Annotated[bool | None, typer.Option("--stream/--no-stream", rich_help_panel=PICTURES, help="Read pixels batch by batch from a file below the folder of --out. Default: only if they take more than half of the free memory.")] = None,
    method: Annotated[str | None, typer.Option(metavar="NAME", rich_help_panel=LEARNING, help="Loss to train with, such as proden, lws or cc. Default: balanced PRODEN, which suits most tables.")] = None,
    purify: Annotated[bool, typer.Option("--purify/--no-purify", rich_help_panel=LEARNING, help="Remove candidates that the networks rule out while they train.")] = True,
    train_on_gold: Annotated[bool, typer.Option("--train-on-gold", rich_help_panel=LEARNING, help="Train on the labels of --gold or --gold-file too. The accuracy that they measure is then too high.")] = False,
    learners: Annotated[list[str] | None, typer.Option(metavar="NAME", rich_help_panel=LEARNING, help="Learner to use: networks, linear, trees, set_trees or kernel. Repeatable. Default: all; held-out sets decide their weights.")] = None,
    networks: Annotated[int | None, typer.Option(min=1, metavar="N", rich_help_panel=LEARNING, help="Number of networks to train; more take longer and give steadier results. Default: 5, on pictures 3 or 1.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, metavar="N", rich_help_panel=LEARNING, help="Epochs of training. Default: 30, fewer on large tables; on pictures 100 on a GPU, 5 to 60 on a CPU.")] = None,
    settings: Annotated[Path | None, typer.Option(metavar="FILE", rich_help_panel=LEARNING, help="Settings of the networks, as oneof tune writes them. Default: settings that suit most tables.")] = None,
    sample: Annotated[int | None, typer.Option(min=10, metavar="ROWS", rich_help_panel=LEARNING, help="With many files: number of rows to learn from. Default: as many as improve the predictions of other rows, at most 100,000.")] = None,
    seed: Annotated[int, typer.Option(min=0, metavar="N", rich_help_panel=LEARNING, help="Seed of all random choices.")] = 0,
    device: Annotated[str, typer.Option(metavar="NAME", rich_help_panel=RESOURCES, help="Where to train: cpu, cuda or auto, which takes the GPU, if there is one, for pictures and for tables of 20,000 rows or more.")] = "auto",
    n_jobs: Annotated[int | None, typer.Option(metavar="N", rich_help_panel=RESOURCES, help="Number of processes; -1: all processors. On tables the result is the same for any number. On pictures each takes a GPU of its own, where there are as many; more processes than networks share the rows, and give the same accuracy. Default: one, or those that torchrun or SLURM started.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, metavar="N", rich_help_panel=RESOURCES, help="Number of threads of torch. Default: 1, which is fastest for small networks; for pictures by their number and the idle cores.")] = None,
    memory: Annotated[float, typer.Option(min=0.001, metavar="GB", rich_help_panel=RESOURCES, help="Gigabytes of memory that training may take.")] = 1.0,
    cache_dir: CacheFolder = None,
    deterministic: Annotated[bool, typer.Option("--deterministic", rich_help_panel=RESOURCES, help="Give identical results, to the last bit, on the same machine. Without it, rounding may differ.")] = False,
) -> None:  # fmt: skip
    """Learn a classifier and the label of every row, and write both to a folder."""
    screen = Terminal(stderr=True)
    if screen.is_terminal:  # imports and reading take seconds
        screen.print(Text(f"Reading {file or from_run} ..."))
    from oneof.estimator.settings_file import read_settings
    from oneof.learners.base import Resources
    from oneof.learners.config import EnsembleConfig, FitConfig, ImageConfig, make_ensemble_config
    from oneof.runs.fit_files import fit_files, table_files
    from oneof.runs.fit_spec import FitSpec
    from oneof.runs.fit_table import RunOptions, fit_again, fit_table
    from oneof.training.device import device_for_pictures
    from oneof.training.parallel import resolve_n_jobs
    from oneof.training.processes import current_group
    from oneof.votes.read import VotesFile

    files = table_files(file)
    if sample is not None and not files:
        raise ValueError("--sample is for many files, such as 'rows/*.parquet'. Leave it out.")
    has_pictures = bool(roles.image) or (file is not None and file.is_dir() and not files)
    images = ImageConfig(architecture, augmentation)
    wants_network = images != ImageConfig() or stream is not None
    on_gpu = device_for_pictures(device).type != "cpu"
    trains_on_pixels = has_pictures and not roles.image_model and (wants_network or on_gpu)
    _set_torch_threads(threads, trains_on_pixels, deterministic)
    network_settings = {}
    if settings is not None:
        network_settings = read_settings(settings)
    rule = None
    if purify:
        rule = EnsembleConfig.purify
    ensemble = make_ensemble_config(
        network_settings,
        method,
        rule,
        learners or None,
        quick,
        n_networks=networks or EnsembleConfig.n_networks,
        epochs=epochs,
    )
    votes_file = None
    if votes is not None:
        votes_file = VotesFile(
            str(votes),
            item or on,
            annotator,
            label,
            columns=(*(columns or ()), *(annotators or ())),
            separator=roles.separator,
            taxonomy=path_text(taxonomy),
            confidence=confidence,
            map=path_text(map_file),
            normalise=normalise,
            classes=split_classes(classes),
            from_name=from_name,
            ranked=ranked,
            form=kind.value if kind is not None else None,
        )
        if item:  # the id has another name in the table
            votes_file = replace(votes_file, on=on)
    else:
        _check_no_vote_options(
            {
                "--annotators": annotators,
                "--columns": columns,
                "--item": item,
                "--confidence": confidence,
                "--map": map_file,
                "--map-out": map_out,
                "--kind": kind,
                "--classes": classes,
                "--normalise": normalise,
                "--from-name": from_name,
                "--ranked": ranked,
                "--taxonomy": taxonomy,
            }
        )
    if trains_on_pixels:
        images = replace(images, n_networks=networks)
    spec = FitSpec(
        roles,
        votes=votes_file,
        answers=path_text(gold_file),
        config=FitConfig(ensemble, images, train_on_gold=train_on_gold, seed=seed),
    )
    seconds = None
    if time_limit is not None:
        seconds = parse_duration(time_limit, "--time-limit")
    console = Terminal()
    n_jobs = resolve_n_jobs(n_jobs, pictures=trains_on_pixels)
    options = RunOptions(
        resources=Resources(device=device, n_jobs=n_jobs, threads=threads, memory=int(memory * 2**30)),
        cache=cache_dir,
        time_limit=seconds,
        stream=stream,
        command=tuple(sys.argv),
        map_out=map_out,
        progress=True,
        echo=lambda line: console.print(Text(one_line(line), style="yellow")),
    )
    rank = current_group(n_jobs).rank
    try:
        if files and not from_run:
            run = fit_files(files, out, spec, options, sample)
        elif file and not from_run:
            run = fit_table(file, out, spec, options)
        elif from_run and not file and spec == FitSpec():
            run = fit_again(from_run, out, options)
        else:
            raise ValueError("fit needs FILE, or --from RUN, which brings table and settings along. Give one of them.")
    except (ValueError, TypeError, OSError) as error:
        if rank == 0 or isinstance(error, ChildProcessError):  # rank 0 may be the process that died
            raise
        raise typer.Exit(2) from None  # rank 0 prints the message
    if rank == 0:
        _print_summary(run, console)


def _check_no_vote_options(options: dict[str, object]) -> None:
    """Raise ValueError if an option that describes votes is set."""
    for option, value in options.items():
        if value:
            raise ValueError(f"{option} requires --votes. Add --votes FILE.")


def _set_torch_threads(threads: int | None, trains_on_pixels: bool, deterministic: bool) -> None:
    """Set how many threads torch may use: as `--threads` says, else one, or for networks on pixels one per core."""
    import torch

    from oneof.training.device import make_deterministic

    if deterministic:
        if threads not in (None, 1):
            raise ValueError(f"--deterministic needs one thread; got --threads {threads}. Leave one of them out.")
        make_deterministic()
    elif threads is not None:
        torch.set_num_threads(threads)
    elif trains_on_pixels:
        torch.set_num_threads(min(torch.get_num_threads(), cores()))
    else:
        torch.set_num_threads(1)


def _print_summary(run: Run, console: Terminal) -> None:
    """Print what was learned, and what to do next."""
    from oneof.runs.summary import next_steps, summary_rows, warning_about_lost_labels

    table = Table(title=str(run.folder), show_header=False, title_justify="left")
    for name, value in summary_rows(run):
        table.add_row(name, Text(value))
    console.print(table)
    warning = warning_about_lost_labels(run)
    if warning:
        console.print(Text(one_line(warning), style="yellow"))
    for step in next_steps(run):
        console.print(Text(step), soft_wrap=True)
    if "files" in run.metadata:
        n_rows = run.metadata["files"]["rows"]
        console.print(Text(f"To label all {n_rows:,} rows: oneof clean {run.folder} --out FOLDER"))
