"""`oneof report RUN`: one HTML page about a run, to look at and to send on."""

from pathlib import Path
from typing import Annotated

import typer

from oneof.cli.columns import RunFolder


def report(
    run: RunFolder,
    out: Annotated[Path, typer.Option(help="The .html file to write; it needs no other file and no network.")] = Path("report.html"),
) -> None:  # fmt: skip
    """Make a page of a run: what came in, how training went, what came out, every row, and the rows to ask about."""
    from oneof.storage.sheets import check_out

    check_out(out, (".html", ".htm"), "--out")  # before the imports, which take seconds
    from oneof.runs.folder import Run
    from oneof.runs.page import render_page
    from oneof.storage.files import written_beside

    opened = Run.open(run)
    text = render_page(opened.facts, opened.purified, opened.training, opened.rows).encode()
    with written_beside(out) as file:
        file.write(text)
    typer.echo(f"{out}: {opened.purified.num_rows:,} rows, {len(text) / 1e6:.1f} MB")
