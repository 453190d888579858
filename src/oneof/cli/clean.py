"""`oneof clean RUN --out LABELS`: write the label of every training row, and why it was chosen."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oneof.cli.columns import RunFolder
from oneof.cli.terminal import echo

if TYPE_CHECKING:
    from oneof.review.label_studio_tasks import TaskContent
    from oneof.runs.clean import CleanSummary
    from oneof.runs.folder import Run

LABEL_STUDIO = "Label Studio (with .json)"


def clean(
    run: RunFolder,
    out: Annotated[Path, typer.Option(metavar="FILE", help="File to write: .parquet, .csv, or .json for Label Studio. For a run of many files: a folder.")],
    column: Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="Column of the training table to copy to the result. Repeatable.")] = None,
    separator: Annotated[str, typer.Option(metavar="TEXT", help="With .csv: separator of the labels in a cell.")] = "|",
    details: Annotated[bool, typer.Option("--details", help="Write everything that is known about a row: also margin, agreement, removals, similar rows and the gain of a review.")] = False,
    all_rows: Annotated[bool, typer.Option("--all", rich_help_panel=LABEL_STUDIO, help="Write all rows, not only those to ask a person about.")] = False,
    from_name: Annotated[str, typer.Option(metavar="NAME", rich_help_panel=LABEL_STUDIO, help="Name of the Choices control.")] = "label",
    to_name: Annotated[str | None, typer.Option(metavar="NAME", rich_help_panel=LABEL_STUDIO, help="Name of the object that is labelled. Default: image, text or cells, as in `oneof label-studio RUN --config`.")] = None,
    picture_url: Annotated[str | None, typer.Option(metavar="PREFIX", rich_help_panel=LABEL_STUDIO, help="What to write before the names of picture files, such as https://example.org/pictures/. Default: Label Studio serves them from the disk.")] = None,
) -> None:  # fmt: skip
    """Write the label of every training row, why it was chosen, and which rows to ask a person about, in order."""
    from oneof.runs.folder import Run
    from oneof.storage.sheets import ENDINGS, check_out

    opened = Run.open(run)
    is_for_many_files = "files" in opened.metadata and not out.suffix
    if not is_for_many_files:
        check_out(out, (*ENDINGS, ".json"))
    content = None
    if is_for_many_files:
        from oneof.runs.clean_files import write_file_labels

        summary = write_file_labels(opened, out, list(dict.fromkeys(column or ())))
    elif out.suffix.lower() == ".json":
        from oneof.review.label_studio_tasks import TaskContent

        content = TaskContent.of(opened, picture_url)
        names = (from_name, to_name or content.to_name)
        summary = _write_tasks(opened, content, out, column or [], all_rows=all_rows, names=names)
    else:
        from oneof.runs.clean import write_labels

        summary = write_labels(opened, out, list(dict.fromkeys(column or ())), separator, details=details)
    message = (
        f"wrote {out}: {summary.n_rows:,} rows, {summary.n_to_ask:,} to ask a person about, "
        f"{summary.n_outside:,} whose set seems to miss the truth"
    )
    if summary.n_decided:
        message += f", {summary.n_decided:,} decided by people"
    echo(message)
    if summary.warning:
        echo(summary.warning)
    if content is not None and summary.n_rows == 0:
        echo("no row needs a person; --all writes every row.")
    elif content is not None:
        _echo_next_step(run, content)


def _write_tasks(
    run: "Run", content: "TaskContent", out: Path, columns: list[str], *, all_rows: bool, names: tuple[str, str]
) -> "CleanSummary":
    """Write tasks for Label Studio, in memory: it shows no more rows than people look at."""
    from oneof.data.files.columns import check_not_taken
    from oneof.review.cards import Items
    from oneof.review.label_studio_tasks import tasks, tasks_of, write_tasks
    from oneof.runs.clean import CleanSummary
    from oneof.runs.explain import with_explanations
    from oneof.runs.purified import lost_labels

    table = with_explanations(run.decided, run.n_models)
    warning = lost_labels(table)
    for name in columns:
        check_not_taken(name, table.column_names)
    copied = {}
    if columns:
        cells = Items(run, columns).cells
        copied = {name: cells[name] for name in columns}
    if not all_rows:
        table = table.filter(table["ask"])
    from_name, to_name = names
    write_tasks(tasks(table, run.metadata["classes"], content, copied, from_name, to_name, tasks_of(run)), out)
    n_outside = table.num_rows - table["outside"].null_count
    return CleanSummary(
        table.num_rows, sum(table["ask"].to_pylist()), n_outside, sum(table["decided"].to_pylist()), warning
    )


def _echo_next_step(run: Path, content: "TaskContent") -> None:
    """Say how Label Studio shows the tasks."""
    if not content.items.cells:
        echo("the tasks show row numbers alone: the training file is missing, or has changed since the fit.")
    echo(f"the labelling interface for them: oneof label-studio {shlex.quote(str(run))} --config")
    if content.images and content.picture_url is None:
        folder = content.items.folder.resolve()
        echo(
            f"to show pictures: start Label Studio with LABEL_STUDIO_LOCAL_FILES_SERVING_ENABLED=true "
            f"LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT={shlex.quote(str(folder.parent))}, and add {folder} "
            "to the project as a source storage of local files"
        )
