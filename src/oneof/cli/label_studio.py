"""`oneof label-studio RUN`: be the machine-learning backend of a Label Studio project; `--config` prints its labelling configuration."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from oneof.cli.columns import RunFolder
from oneof.cli.serving import bind, serve
from oneof.storage.printable import describe_error


def label_studio(
    run: RunFolder,
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="N", help="Port of the backend.")] = 9090,
    auth: Annotated[bool, typer.Option("--auth/--no-auth", help="Answer only requests with the password that is printed.")] = True,
    new_password: Annotated[bool, typer.Option("--new-password", help="Make a new password. Default: keep the one that the run had last time.")] = False,
    config: Annotated[bool, typer.Option("--config", help="Print the labelling configuration (XML) for the tasks that `oneof clean RUN --out tasks.json` writes, and exit.")] = False,
) -> None:  # fmt: skip
    """Serve predictions to Label Studio on this machine, and keep its annotations as decisions about the run.

    In Label Studio: Settings, Model, Connect Model, with the address that is printed and basic authentication; Webhooks, with
    /webhook behind the address and the header that is printed.
    """
    if config:
        _print_config(run)
        return
    from oneof.review.label_studio import USER, Backend
    from oneof.review.session import Review
    from oneof.review.tokens import new_token, remembered_token

    session = Review(run)
    token = None
    if auth and not new_password:
        token = remembered_token(run)
    if auth:
        token = token or new_token()
        _remember(run, token)
        session.on_new_run = partial(_remember, token=token)
    server = bind(partial(Backend, session, token=token), port)
    instruction = f"connect http://127.0.0.1:{server.server_port} as a model"
    if token is not None:
        instruction += f", user {USER}, password {token}; the header of webhooks is Authorization: Token {token}"
    serve(server, instruction)


def _print_config(run: Path) -> None:
    """Print the labelling configuration of a project with the tasks of this run."""
    from oneof.review.label_studio_tasks import TaskContent, labelling_config
    from oneof.runs.folder import Run

    opened = Run.open(run)
    typer.echo(labelling_config(TaskContent.of(opened), opened.metadata["classes"]))


def _remember(run: Path, token: str) -> None:
    """Remember the token of a run for the next start; say so if that is impossible."""
    from oneof.review.tokens import remember_token

    try:
        remember_token(run, token)
    except OSError as error:
        typer.echo(
            f"the password cannot be remembered ({describe_error(error)}); next time it will be a new one.", err=True
        )
