"""`oneof label-studio RUN`: a run as Label Studio's ML backend."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def label_studio(
    run: Annotated[Path, typer.Argument(help="A folder that oneof fit wrote.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of the backend.")] = 9090,
) -> None:
    """Serve predictions to Label Studio on this machine, and keep its annotations as decisions about the run.

    In Label Studio: Settings, Model, Connect Model, with the address that is printed; Webhooks, with /webhook behind it.
    """
    from oneof.cli.review import serve
    from oneof.runs.review.label_studio import Backend
    from oneof.runs.review.session import Review

    serve(Backend, Review(run), port, lambda server: f"connect http://127.0.0.1:{server.server_port} as a model.")
