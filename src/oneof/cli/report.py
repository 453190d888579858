"""`oneof report RUN`: one HTML page about a run, to look at and to send on."""

from pathlib import Path
from typing import Annotated

import typer

from oneof.cli.columns import RunFolder
from oneof.cli.terminal import say


def report(
    run: RunFolder,
    out: Annotated[Path, typer.Option(help="The .html file to write; it needs no other file and no network.")] = Path("report.html"),
    column: Annotated[list[str] | None, typer.Option(help="A column of the training file to show beside row numbers. May be given again. Default: texts and columns that are no features.")] = None,
) -> None:  # fmt: skip
    """Make a page of a run: what came in, how training went, what came out, every row, and the rows to ask about."""
    from oneof.storage.sheets import check_out

    check_out(out, (".html", ".htm"), "--out")  # before the imports, which take seconds
    from oneof.report.page import render_page
    from oneof.review.cards import shown_table
    from oneof.runs.folder import Run
    from oneof.storage.files import written_beside

    opened = Run.open(run)
    text = render_page(opened.facts, shown_table(opened, column or ()), opened.training, opened.rows).encode()
    with written_beside(out) as file:
        file.write(text)
    say(f"{out}: {opened.purified.num_rows:,} rows, {len(text) / 1e6:.1f} MB")
