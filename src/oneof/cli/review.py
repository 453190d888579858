"""`oneof review RUN` and `oneof label-studio RUN`: people decide about rows, on a page or in Label Studio."""

import getpass
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from oneof.cli.columns import RunFolder

if TYPE_CHECKING:
    from oneof.review.presence import Presence
    from oneof.review.server import LocalServer, ReviewServer

ServerT = TypeVar("ServerT", bound="LocalServer")


def review(
    run: RunFolder,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the page. Default: the port that the run had last time, else one that is free.", show_default=False)] = 0,
    who: Annotated[str | None, typer.Option(help="Who decides, for the log. Default: your user name; the page can change it.")] = None,
    column: Annotated[list[str] | None, typer.Option(help="A column of the training file to show. May be given again. Default: texts, pictures and a few others.")] = None,
    guidelines: Annotated[Path | None, typer.Option(exists=True, dir_okay=False, help="A text file with the labelling guidelines, shown beside the rows.", show_default=False)] = None,
) -> None:  # fmt: skip
    """Decide doubtful rows by key, on a page that only this machine can open; learn again from the decisions.

    Every decision is written to RUN/decisions.jsonl at once. clean, report and label-studio take it from there.
    """
    from oneof.review.guidelines import read_guidelines
    from oneof.review.presence import Presence
    from oneof.review.server import ReviewServer
    from oneof.review.session import Review

    opened = Review(run, column or ())
    text = "" if guidelines is None else read_guidelines(guidelines)
    make_server = partial(ReviewServer, opened, who or getpass.getuser(), guidelines=text)
    if port:
        server = _bind(make_server, port)
        _remember_port(run, port)
    else:
        server = _bind_port_of_run(make_server, run)
    presence = Presence(f"http://127.0.0.1:{server.server_port}/")
    opened.on_new_run = partial(_take_over, presence=presence, port=server.server_port)
    other = presence.announce(run)
    if other is not None:
        typer.echo(
            f"{run} is being reviewed by {other}. Both servers write to the same log, and may show the same rows: "
            "use that one, or end one of the two.",
            err=True,
        )
    try:
        _serve(server, f"open {server.address}")
    finally:
        presence.close()


def _take_over(run: Path, presence: "Presence", port: int) -> None:
    """Go on with a run that was learned during the review."""
    presence.announce(run)
    _remember_port(run, port)


def _bind_port_of_run(make_server: Callable[[int], "ReviewServer"], run: Path) -> "ReviewServer":
    """Return a server on the port that the run had last time, or on a free one.

    A browser keeps answers that it could not send for the port on which they were given, and sends them nowhere else.
    """
    from oneof.review.ports import bind_free_port, remembered_port

    last_port = remembered_port(run)
    if last_port is None:
        server = bind_free_port(make_server)
        _remember_port(run, server.server_port)
        return server
    try:
        server = make_server(last_port)
    except OSError:  # the port stays remembered: the next start tries it again
        server = bind_free_port(make_server)
        typer.echo(
            f"port {last_port}, which {run} had last time, is in use; this time it is {server.server_port}. "
            f"Answers that a browser could not send wait until {run} has port {last_port} again.",
            err=True,
        )
        return server
    _remember_port(run, last_port)  # the folder may have been renamed
    return server


def _bind(make_server: Callable[[int], ServerT], port: int) -> ServerT:
    try:
        return make_server(port)
    except OSError as error:
        raise ValueError(f"--port must be free on this machine; {port} is not ({error}). Give another one.") from error


def _remember_port(run: Path, port: int) -> None:
    from oneof.review.ports import remember_port

    try:
        remember_port(run, port)
    except OSError as error:
        typer.echo(f"the port cannot be remembered ({error}); give --port {port} next time.", err=True)


def label_studio(
    run: RunFolder,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the backend.")] = 9090,
) -> None:
    """Serve predictions to Label Studio on this machine, and keep its annotations as decisions about the run.

    In Label Studio: Settings, Model, Connect Model, with the address that is printed; Webhooks, with /webhook behind it.
    """
    from oneof.review.label_studio import Backend
    from oneof.review.session import Review

    opened = Review(run)
    server = _bind(partial(Backend, opened), port)
    _serve(server, f"connect http://127.0.0.1:{server.server_port} as a model.")


def _serve(server: "LocalServer", instruction: str) -> None:
    """Answer requests until Ctrl-C; the instruction tells the person how to connect."""
    log = server.review.log
    if log.truncated_bytes:
        typer.echo(f"{log.path} ends in a damaged line; the next decision moves it to a file beside.", err=True)
    typer.echo(f"{len(log.active_decisions):,} decisions so far; {instruction}   (Ctrl-C ends)")
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        log = server.review.log  # of the run that was learned last
        typer.echo(f"{len(log.active_decisions):,} decisions are in {log.path}")
    finally:
        server.server_close()
