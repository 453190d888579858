"""`oneof review RUN`: decide about doubtful rows on a page."""

import getpass
from functools import partial
from typing import Annotated

import typer

from oneof.cli.columns import RunFolder
from oneof.cli.serving import bind, bind_port_of_run, remember_port, serve


def review(
    run: RunFolder,
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="N", show_default=False, help="Port of the page. Default: the port that the run had last time, else one that is free.")] = 0,
    who: Annotated[str | None, typer.Option(metavar="NAME", help="Who decides, for the log. Default: your user name; the page can change it.")] = None,
    column: Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="Column of the training table to show. Repeatable. Default: texts, pictures and a few others.")] = None,
) -> None:  # fmt: skip
    """Decide doubtful rows by key, on a page that only this machine can open; learn again from the decisions.

    Every decision is written to RUN/decisions.jsonl at once. clean, report and label-studio take it from there.
    """
    from oneof.review.server import ReviewServer
    from oneof.review.session import Review

    session = Review(run, column or ())
    make_server = partial(ReviewServer, session, who or getpass.getuser())
    if port:
        server = bind(make_server, port)
        remember_port(run, port)
    else:
        server = bind_port_of_run(make_server, run)
    session.on_new_run = partial(remember_port, port=server.server_port)
    serve(server, f"open {server.address}")
