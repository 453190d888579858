"""`oneof clean RUN --out LABELS`: the resolved label of every training row, with reasons."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from oneof.runs.folder import Run


def clean(
    run: Annotated[Path, typer.Argument(help="A folder that oneof fit wrote.")],
    out: Annotated[Path, typer.Option(help="Where to write: .parquet, .csv, or .json for Label Studio.")],
    column: Annotated[
        list[str] | None, typer.Option(help="A column of the training file to carry along; may be given again.")
    ] = None,
    from_name: Annotated[str, typer.Option(help="Label Studio: name of the Choices control.")] = "label",
    to_name: Annotated[str, typer.Option(help="Label Studio: name of the object that is labelled.")] = "text",
    every: Annotated[
        bool, typer.Option("--all", help="Label Studio: write all rows. Default: only those to ask a person about.")
    ] = False,
    separator: Annotated[str, typer.Option(help="CSV: what stands between the labels of a set.")] = "|",
) -> None:
    """Write the label of every training row, why it was chosen, and which rows to ask a person about, in order."""
    from oneof.runs.explain import explained
    from oneof.runs.folder import Run
    from oneof.runs.label_studio import tasks, tasks_of, write_tasks
    from oneof.storage.sheets import ENDINGS, check_out, write_sheet

    check_out(out, (*ENDINGS, ".json"))
    opened = Run.open(run)
    carried = _carried(opened, column or [])
    table = explained(opened.decided, opened.model.t)
    if out.suffix.lower() == ".json":
        table = table if every else table.filter(table["ask"])
        names = {"from_name": from_name, "to_name": to_name}
        write_tasks(tasks(table, carried, known=tasks_of(opened), **names), out)
    else:
        for name, cells in carried.items():
            table = table.append_column(name, [cells])
        write_sheet(table, out, separator)
    asked, outside = sum(table["ask"].to_pylist()), table.num_rows - table["outside"].null_count
    decided = sum(table["decided"].to_pylist())
    typer.echo(
        f"wrote {out}: {table.num_rows:,} rows, {asked:,} to ask a person about, {outside:,} whose set may miss the truth"
        + f", {decided:,} decided by people" * (decided > 0)
    )


def _carried(run: Run, columns: list[str]) -> dict[str, list[Any]]:
    """Columns of the file that was learned from, if it is still the same."""
    from oneof.runs.review.cards import Items

    taken = next((name for name in columns if name in run.decided.column_names), None)
    if taken is not None:
        raise ValueError(f"--column must not have the name of a column of the result; got {taken!r}. Leave it out.")
    return Items(run, columns).cells if columns else {}
