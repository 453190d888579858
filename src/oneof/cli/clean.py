"""`oneof clean RUN --out LABELS`: the resolved label of every training row, with reasons."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oneof.cli.columns import RunFolder

if TYPE_CHECKING:
    from oneof.runs.folder import Run


def clean(
    run: RunFolder,
    out: Annotated[Path, typer.Option(help="Where to write: .parquet, .csv, or .json for Label Studio.")],
    column: Annotated[list[str] | None, typer.Option(help="A column of the training file to copy to the result. May be given again.")] = None,
    from_name: Annotated[str, typer.Option(help="With .json: name of the Choices control in Label Studio.")] = "label",
    to_name: Annotated[str, typer.Option(help="With .json: name of the object in Label Studio that is labelled.")] = "text",
    separator: Annotated[str, typer.Option(help="With .csv: what separates the labels of a set.")] = "|",
) -> None:  # fmt: skip
    """Write the label of every training row, why it was chosen, and which rows to ask a person about, in order."""
    from oneof.runs.explain import explained
    from oneof.runs.folder import Run
    from oneof.runs.label_studio import tasks, write_tasks
    from oneof.storage.sheets import ENDINGS, check_out, write_sheet

    check_out(out, (*ENDINGS, ".json"))
    opened = Run.open(run)
    carried = _carried(opened, column or [])
    table = explained(opened.purified, opened.model.voices)
    if out.suffix.lower() == ".json":
        write_tasks(tasks(table, carried, from_name=from_name, to_name=to_name), out)
    else:
        for name, cells in carried.items():
            table = table.append_column(name, [cells])
        write_sheet(table, out, separator)
    asked, outside = sum(table["ask"].to_pylist()), table.num_rows - table["outside"].null_count
    typer.echo(
        f"wrote {out}: {table.num_rows:,} rows, {asked:,} to ask a person about, {outside:,} where the networks are sure of a label outside the set"
    )


def _carried(run: Run, columns: list[str]) -> dict[str, list[Any]]:
    """Columns of the file that was learned from, if it is still the same."""
    from oneof.data.files.columns import open_table, read_numbers
    from oneof.data.roles import check_column
    from oneof.runs.folder import fingerprint

    if not columns:
        return {}
    path = Path(run.facts["file"])
    if not path.is_file() or fingerprint(path) != run.facts["fingerprint"]:
        raise ValueError(
            f"--column needs the file that was learned from, unchanged; {path} is gone or another. Leave it out."
        )
    source = open_table(path)
    taken = next((name for name in columns if name in run.purified.column_names), None)
    if taken is not None:
        raise ValueError(f"--column must not have the name of a column of the result; got {taken!r}. Leave it out.")
    for name in columns:
        check_column(name, source.names, source.name)
    return read_numbers(source, [], columns)[1]
