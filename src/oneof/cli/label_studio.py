"""`oneof label-studio RUN`: be the machine-learning backend of a Label Studio project."""

from functools import partial
from typing import Annotated

import typer

from oneof.cli.columns import RunFolder
from oneof.cli.serving import bind, serve


def label_studio(
    run: RunFolder,
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="N", help="Port of the backend.")] = 9090,
) -> None:
    """Serve predictions to Label Studio on this machine, and keep its annotations as decisions about the run.

    In Label Studio: Settings, Model, Connect Model, with the address that is printed; Webhooks, with /webhook behind it.
    """
    from oneof.review.label_studio import Backend
    from oneof.review.session import Review

    server = bind(partial(Backend, Review(run)), port)
    serve(server, f"connect http://127.0.0.1:{server.server_port} as a model.")
