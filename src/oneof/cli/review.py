"""`oneof review RUN` and `oneof label-studio RUN`: people decide about rows, on a page or in Label Studio."""

import getpass
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oneof.cli.columns import RunFolder

if TYPE_CHECKING:
    from oneof.runs.review.session import Review


def review(
    run: RunFolder,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the page. 0 is one that is free.")] = 0,
    who: Annotated[str | None, typer.Option(help="Who decides, for the log. Default: your user name; the page can change it.")] = None,
    column: Annotated[list[str] | None, typer.Option(help="A column of the training file to show. May be given again. Default: texts, pictures and a few others.")] = None,
) -> None:  # fmt: skip
    """Decide doubtful rows by key, on a page that only this machine can open; learn again from the decisions.

    Every decision is written to RUN/decisions.jsonl at once. clean, report and label-studio take it from there.
    """
    from oneof.runs.review.server import ReviewServer
    from oneof.runs.review.session import Review

    who = who or getpass.getuser()
    _serve(partial(ReviewServer, who=who), Review(run, column or ()), port, lambda server: f"open {server.address}")


def label_studio(
    run: RunFolder,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the backend.")] = 9090,
) -> None:
    """Serve predictions to Label Studio on this machine, and keep its annotations as decisions about the run.

    In Label Studio: Settings, Model, Connect Model, with the address that is printed; Webhooks, with /webhook behind it.
    """
    from oneof.runs.review.label_studio import Backend
    from oneof.runs.review.session import Review

    _serve(Backend, Review(run), port, lambda server: f"connect http://127.0.0.1:{server.server_port} as a model.")


def _serve(make: Callable[..., Any], opened: "Review", port: int, told: Callable[[Any], str]) -> None:
    try:
        server = make(opened, port=port)
    except OSError as error:
        raise ValueError(f"--port must be free on this machine; {port} is not ({error}). Give another one.") from error
    if opened.log.torn:
        typer.echo(f"{opened.log.path} ends in a damaged line; the next decision moves it to a file beside.", err=True)
    typer.echo(f"{len(opened.log.standing):,} decisions so far; {told(server)}   (Ctrl-C ends)")
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        typer.echo(f"{len(opened.log.standing):,} decisions are in {opened.log.path}")
    finally:
        server.server_close()
