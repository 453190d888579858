"""`oneof report RUN`: one HTML page about a run, to look at and to send on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    run: Annotated[Path, typer.Argument(help="The folder that `oneof fit` wrote.")],
    out: Annotated[Path, typer.Option(help="The page; it needs no other file and no network.")] = Path("report.html"),
    column: Annotated[
        list[str] | None,
        typer.Option(
            help="A column of the training file to show beside row numbers; may be given again. Default: texts and columns that are no features."
        ),
    ] = None,
) -> None:
    """Make a page of a run: what came in, how training went, what came out, every row, and the rows to ask about."""
    _check_out(out)
    from oneof.runs.folder import Run
    from oneof.runs.page import render_page
    from oneof.runs.review.cards import shown_table
    from oneof.storage.files import written_beside

    opened = Run.open(run)
    text = render_page(opened.facts, shown_table(opened, column or ()), opened.training, opened.rows).encode()
    with written_beside(out) as file:
        file.write(text)
    typer.echo(f"{out}: {opened.purified.num_rows:,} rows, {len(text) / 1e6:.1f} MB")


def _check_out(out: Path) -> None:
    """Before the work, not after it."""
    if out.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"--out must end in .html; got {str(out)!r}.")
    if not out.parent.is_dir():
        raise ValueError(f"--out must lie in a folder that exists; got {str(out)!r}. Make {str(out.parent)!r} first.")
