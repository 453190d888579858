"""`oneof clean RUN --out LABELS`: write the label of every training row, and why it was chosen."""

from pathlib import Path
from typing import Annotated

import typer

from oneof.cli.columns import RunFolder
from oneof.cli.terminal import echo

LABEL_STUDIO = "Label Studio (with .json)"


def clean(
    run: RunFolder,
    out: Annotated[Path, typer.Option(metavar="FILE", help="File to write: .parquet, .csv, or .json for Label Studio.")],
    column: Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="Column of the training table to copy to the result. Repeatable.")] = None,
    separator: Annotated[str, typer.Option(metavar="TEXT", help="With .csv: separator of the labels in a cell.")] = "|",
    all_rows: Annotated[bool, typer.Option("--all", rich_help_panel=LABEL_STUDIO, help="Write all rows, not only those to ask a person about.")] = False,
    from_name: Annotated[str, typer.Option(metavar="NAME", rich_help_panel=LABEL_STUDIO, help="Name of the Choices control.")] = "label",
    to_name: Annotated[str, typer.Option(metavar="NAME", rich_help_panel=LABEL_STUDIO, help="Name of the object that is labelled.")] = "text",
) -> None:  # fmt: skip
    """Write the label of every training row, why it was chosen, and which rows to ask a person about, in order."""
    from oneof.review.cards import Items
    from oneof.review.label_studio import tasks, tasks_of, write_tasks
    from oneof.runs.explain import explained
    from oneof.runs.folder import Run
    from oneof.runs.purified import lost_labels
    from oneof.storage.sheets import ENDINGS, check_out, write_sheet

    check_out(out, (*ENDINGS, ".json"))
    opened = Run.open(run)
    table = explained(opened.decided, opened.n_models)
    warning = lost_labels(table)
    copied = {}
    if column:
        for name in column:
            if name in table.column_names:
                raise ValueError(
                    f"--column must not have the name of a column of the result; got {name!r}. Leave it out."
                )
        cells = Items(opened, column).cells
        copied = {name: cells[name] for name in column}
    if out.suffix.lower() == ".json":
        if not all_rows:
            table = table.filter(table["ask"])
        write_tasks(tasks(table, copied, from_name=from_name, to_name=to_name, known=tasks_of(opened)), out)
    else:
        for name, values in copied.items():
            table = table.append_column(name, [values])
        write_sheet(table, out, separator)
    n_to_ask = sum(table["ask"].to_pylist())
    n_outside = table.num_rows - table["outside"].null_count
    n_decided = sum(table["decided"].to_pylist())
    message = (
        f"wrote {out}: {table.num_rows:,} rows, {n_to_ask:,} to ask a person about, "
        f"{n_outside:,} whose set seems to miss the truth"
    )
    if n_decided:
        message += f", {n_decided:,} decided by people"
    echo(message)
    if warning:
        echo(warning)
