"""Serve a review or Label Studio's backend on this machine, until Ctrl-C."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer

from oneof.storage.printable import describe_error

if TYPE_CHECKING:
    from oneof.review.server import LocalServer, ReviewServer

ServerT = TypeVar("ServerT", bound="LocalServer")


def bind(make_server: Callable[[int], ServerT], port: int) -> ServerT:
    """Return a server on this port."""
    try:
        return make_server(port)
    except OSError as error:
        raise ValueError(
            f"--port must be free on this machine; {port} is not ({describe_error(error)}). Give another one."
        ) from error


def bind_port_of_run(make_server: Callable[[int], "ReviewServer"], run: Path) -> "ReviewServer":
    """Return a server on the port that the run had last time, or on a free one.

    A browser keeps answers that it could not send for the port on which they were given, and sends them nowhere else.
    """
    from oneof.review.ports import bind_free_port, remembered_port

    last_port = remembered_port(run)
    if last_port is None:
        server = bind_free_port(make_server)
        remember_port(run, server.server_port)
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
    remember_port(run, last_port)  # the folder may have been renamed
    return server


def remember_port(run: Path, port: int) -> None:
    """Remember the port of a run for the next start; say so if that is impossible."""
    from oneof.review import ports

    try:
        ports.remember_port(run, port)
    except OSError as error:
        typer.echo(f"the port cannot be remembered ({describe_error(error)}); give --port {port} next time.", err=True)


def serve(server: "LocalServer", instruction: str) -> None:
    """Answer requests until Ctrl-C; the instruction tells the person how to connect."""
    log = server.review.log
    if log.truncated_bytes:
        typer.echo(f"{log.path} ends in a damaged line; the next decision moves it to a file of its own.", err=True)
    typer.echo(f"{len(log.active_decisions):,} decisions so far; {instruction}   (Ctrl-C ends)")
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        log = server.review.log  # a run that was learned meanwhile has another one
        typer.echo(f"{len(log.active_decisions):,} decisions are in {log.path}")
    finally:
        server.server_close()
