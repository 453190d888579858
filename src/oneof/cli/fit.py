"""`oneof fit FILE --out RUN`: learn from a table with candidate sets."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from oneof.cli.columns import INPUT, PICTURES, path_text, roles_from_options, with_options
from oneof.cli.fit_options import LearningOptions, ResourceOptions, VoteOptions
from oneof.cli.terminal import Terminal
from oneof.data.roles import ColumnRoles
from oneof.storage.cores import cores
from oneof.storage.durations import parse_duration
from oneof.storage.printable import one_line

if TYPE_CHECKING:
    from oneof.runs.fit_spec import FitSpec
    from oneof.runs.fit_table import RunOptions
    from oneof.runs.folder import Run


@with_options(
    vote_options=VoteOptions,
    roles=roles_from_options,
    learning_options=LearningOptions,
    resource_options=ResourceOptions,
)
def fit(
    *,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder to write. A run that was stopped there is resumed.")],
    from_run: Annotated[Path | None, typer.Option("--from", metavar="RUN", rich_help_panel=INPUT, help="Learn again from the table of this run and what people decided in oneof review; in place of FILE.")] = None,
    vote_options: VoteOptions,
    roles: ColumnRoles,
    file: Annotated[Path | None, typer.Argument(metavar="FILE", show_default=False, help="Table: CSV, TSV, Parquet, npz or .mat; many Parquet files, such as 'rows/*.parquet'; or a folder of pictures, with a subfolder per set such as 'cat|fox'.")] = None,
    votes: Annotated[Path | None, typer.Option(metavar="FILE", help="Votes of annotators, in place of --candidates: a row per vote (item, annotator, label), a column per annotator, nested JSON, or an export of Label Studio, Argilla, Prodigy or distilabel.")] = None,
    gold_file: Annotated[Path | None, typer.Option(metavar="FILE", help="File of true labels, which measure the accuracy: sample.csv of an earlier run of this table, filled in. For true labels in a column of the table: --gold.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Give a first answer in seconds, without networks.")] = False,
    time_limit: Annotated[str | None, typer.Option(metavar="TIME", help="Approximate time for learning, such as 90s, 2m or 1h. Networks get fewer epochs or are left out, then trees. The result may then differ from run to run.")] = None,
    architecture: Annotated[str | None, typer.Option(metavar="NAME", rich_help_panel=PICTURES, help="Train this network on the pixels: lenet, wrn, resnet32, or the name of a timm model. Default on a GPU: wrn, or lenet for small grey pictures; on a CPU none, see --image-model.")] = None,
    augmentation: Annotated[str, typer.Option(metavar="KIND", rich_help_panel=PICTURES, help="How pictures are augmented for a network on pixels: upright (shifted, never mirrored), natural (mirrored too) or none. With natural or none, a network is trained on a CPU too.")] = "upright",
    stream: Annotated[bool | None, typer.Option("--stream/--no-stream", rich_help_panel=PICTURES, help="Read pixels batch by batch from a file below the folder of --out. Default: only if they take more than half of the free memory.")] = None,
    learning_options: LearningOptions,
    resource_options: ResourceOptions,
) -> None:  # fmt: skip
    """Learn a classifier and the label of every row, and write both to a folder."""
    screen = Terminal(stderr=True)
    if screen.is_terminal:  # imports and reading take seconds
        screen.print(Text(f"Reading {file or from_run} ..."))
    from oneof.learners.config import ImageConfig
    from oneof.runs.fit_files import table_files
    from oneof.runs.fit_spec import FitSpec
    from oneof.runs.fit_table import RunOptions

    files = table_files(file)
    if learning_options.sample is not None and not files:
        raise ValueError("--sample is for many files, such as 'rows/*.parquet'. Leave it out.")
    is_folder_of_pictures = file is not None and file.is_dir() and not files
    images = ImageConfig(architecture, augmentation)
    asks_for_pixels = images != ImageConfig() or stream is not None
    trains_on_pixels = _trains_on_pixels(roles, is_folder_of_pictures, asks_for_pixels, resource_options.device)
    _set_torch_threads(resource_options.threads, trains_on_pixels, resource_options.deterministic)
    if trains_on_pixels:
        images = replace(images, n_networks=learning_options.networks)
    spec = FitSpec(
        roles,
        votes=vote_options.votes_file(votes, roles.separator),
        answers=path_text(gold_file),
        config=learning_options.fit_config(images, quick),
    )
    seconds = None
    if time_limit is not None:
        seconds = parse_duration(time_limit, "--time-limit")
    console = Terminal()
    options = RunOptions(
        resources=resource_options.resources(pictures=trains_on_pixels),
        cache=resource_options.cache_dir,
        time_limit=seconds,
        stream=stream,
        command=tuple(sys.argv),
        map_out=vote_options.map_out,
        progress=True,
        echo=lambda line: console.print(Text(one_line(line), style="yellow")),
    )
    run = _fit_on_all_ranks(file, files, from_run, out, spec, options, learning_options.sample)
    if run is not None:
        _print_summary(run, console)


def _trains_on_pixels(roles: ColumnRoles, is_folder_of_pictures: bool, is_asked_for: bool, device: str) -> bool:
    """Return whether a network is trained on the pixels of pictures: on a GPU, or where an option asks for it."""
    from oneof.training.device import device_for_pictures

    on_gpu = device_for_pictures(device).type != "cpu"
    has_pictures = bool(roles.image) or is_folder_of_pictures
    return has_pictures and not roles.image_model and (is_asked_for or on_gpu)


def _fit_on_all_ranks(
    file: Path | None,
    files: list[Path],
    from_run: Path | None,
    out: Path,
    spec: FitSpec,
    options: RunOptions,
    sample: int | None,
) -> Run | None:
    """Fit a table, many files, or the table of an earlier run again, on all processes; return the run on the first one, None on others."""
    from oneof.runs.fit_files import fit_files
    from oneof.runs.fit_spec import FitSpec
    from oneof.runs.fit_table import fit_again, fit_table
    from oneof.training.processes import current_group

    rank = current_group(options.resources.n_jobs).rank
    try:
        if from_run:
            if file or spec != FitSpec():
                raise ValueError(
                    f"--from must be without FILE and settings, which it takes from {from_run}; got others too. Leave them out."
                )
            run = fit_again(from_run, out, options)
        elif files:
            run = fit_files(files, out, spec, options, sample)
        elif file:
            run = fit_table(file, out, spec, options)
        else:
            raise ValueError("fit needs FILE, or --from RUN. Give one of them.")
    except (ValueError, TypeError, OSError) as error:
        if rank == 0 or isinstance(error, ChildProcessError):  # rank 0 may be the process that died
            raise
        raise typer.Exit(2) from None  # rank 0 prints the message
    if rank == 0:
        return run
    return None


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
