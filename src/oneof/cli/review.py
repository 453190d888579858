"""`oneof review RUN`: decide about doubtful rows on a page."""

import getpass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oneof.cli.columns import RunFolder
from oneof.cli.serving import bind, bind_port_of_run, remember_port, serve

if TYPE_CHECKING:
    from oneof.review.presence import Presence


def review(
    run: RunFolder,
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="N", show_default=False, help="Port of the page. Default: the port that the run had last time, else any free one.")] = 0,
    who: Annotated[str | None, typer.Option(metavar="NAME", help="Who decides, for the log. Default: your user name; the page can change it.")] = None,
    column: Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="Column of the training table to show. Repeatable. Default: texts, pictures and a few others.")] = None,
    guidelines: Annotated[Path | None, typer.Option(exists=True, dir_okay=False, metavar="FILE", show_default=False, help="Text file with the labelling guidelines, shown beside the rows.")] = None,
) -> None:  # fmt: skip
    """Decide doubtful rows with the keyboard, on a page that only this machine can open, and learn again from the decisions.

    Every decision is written to RUN/decisions.jsonl at once. clean, report and label-studio take it from there.
    """
    from oneof.review.guidelines import read_guidelines
    from oneof.review.presence import Presence
    from oneof.review.server import ReviewServer
    from oneof.review.session import Review

    session = Review(run, column or ())
    text = ""
    if guidelines is not None:
        text = read_guidelines(guidelines)
    make_server = partial(ReviewServer, session, who or getpass.getuser(), guidelines=text)
    if port:
        server = bind(make_server, port)
        remember_port(run, port)
    else:
        server = bind_port_of_run(make_server, run)
    presence = Presence(f"http://127.0.0.1:{server.server_port}/")
    session.on_new_run = partial(_take_over, presence=presence, port=server.server_port)
    other = presence.announce(run)
    if other is not None:
        typer.echo(
            f"{run} is being reviewed by {other}. Both servers write to the same log, and may show the same rows: "
            "use that one, or stop one of the two.",
            err=True,
        )
    try:
        serve(server, f"open {server.address}")
    finally:
        presence.close()


def _take_over(run: Path, presence: "Presence", port: int) -> None:
    """Go on with a run that was learned during the review."""
    presence.announce(run)
    remember_port(run, port)
