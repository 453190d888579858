"""`oneof report RUN`: write one HTML page about a run, to look at and to send on."""

from pathlib import Path
from typing import Annotated

import typer

from oneof.cli.columns import RunFolder
from oneof.cli.terminal import echo

MAX_ROWS = 300_000  # of a page; a larger run is described by rows drawn at random, which some hundred megabytes hold


def report(
    run: RunFolder,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The .html file to write; it needs no other file and no network.")] = Path("report.html"),
    column: Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="Column of the training table to show beside row numbers. Repeatable. Default: texts and columns that are not features.")] = None,
) -> None:  # fmt: skip
    """Write a page about a run: what came in, how training went, what came out, every row, and the rows to ask about."""
    from oneof.storage.sheets import check_out

    check_out(out, (".html", ".htm"), "--out")  # before the imports, which take seconds
    from oneof.report.page import render_page
    from oneof.review.audit import accuracy_in_review
    from oneof.review.cards import sample_rows, shown_table
    from oneof.runs.folder import Run
    from oneof.storage.files import atomic_write

    opened = Run.open(run)
    n_rows = opened.metadata["n"]
    sample = None
    accuracy = None
    reviewed = None
    if n_rows > MAX_ROWS:
        sample = sample_rows(opened, MAX_ROWS)
        accuracy = sample.label_accuracy
        description = f"{MAX_ROWS:,} of {n_rows:,} rows, drawn at random"
    else:
        reviewed = accuracy_in_review(opened)
        description = f"{n_rows:,} rows"
    table = shown_table(opened, column or (), sample)
    page = render_page(
        opened.metadata, table, opened.training, opened.rows, accuracy, folder=str(run), reviewed=reviewed
    ).encode()
    with atomic_write(out) as file:
        file.write(page)
    echo(f"{out}: {description}, {len(page) / 1e6:.1f} MB")
