"""`oneof clean RUN --out LABELS`: the resolved label of every training row, with reasons."""

from pathlib import Path
from typing import Annotated

import typer

from oneof.cli.columns import RunFolder
from oneof.cli.terminal import say


def clean(
    run: RunFolder,
    out: Annotated[Path, typer.Option(help="Where to write: .parquet, .csv, or .json for Label Studio.")],
    column: Annotated[list[str] | None, typer.Option(help="A column of the training file to copy to the result. May be given again.")] = None,
    from_name: Annotated[str, typer.Option(help="With .json: name of the Choices control in Label Studio.")] = "label",
    to_name: Annotated[str, typer.Option(help="With .json: name of the object in Label Studio that is labelled.")] = "text",
    every: Annotated[bool, typer.Option("--all", help="With .json: write all rows. Without it only those to ask a person about.")] = False,
    separator: Annotated[str, typer.Option(help="With .csv: what separates the labels of a set.")] = "|",
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
    table = explained(opened.decided, opened.voices)
    lost = lost_labels(table)
    taken = next((name for name in column or () if name in table.column_names), None)
    if taken is not None:
        raise ValueError(f"--column must not have the name of a column of the result; got {taken!r}. Leave it out.")
    read = Items(opened, column).cells if column else {}
    carried = {name: read[name] for name in column or ()}
    if out.suffix.lower() == ".json":
        table = table if every else table.filter(table["ask"])
        write_tasks(tasks(table, carried, from_name=from_name, to_name=to_name, known=tasks_of(opened)), out)
    else:
        for name, cells in carried.items():
            table = table.append_column(name, [cells])
        write_sheet(table, out, separator)
    asked, outside = sum(table["ask"].to_pylist()), table.num_rows - table["outside"].null_count
    decided = sum(table["decided"].to_pylist())
    say(
        f"wrote {out}: {table.num_rows:,} rows, {asked:,} to ask a person about, {outside:,} whose set seems to miss the truth"
        + f", {decided:,} decided by people" * (decided > 0)
    )
    if lost:
        say(lost)
