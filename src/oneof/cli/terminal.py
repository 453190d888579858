"""Print safely: text from files cannot move the cursor, colour the screen or hide itself."""

import logging
from collections.abc import Iterable
from typing import Any

import typer
from rich.console import Console, ConsoleOptions
from rich.segment import Segment
from typer.core import TyperCommand, TyperGroup

from oneof.storage.printable import one_line, printable


class Terminal(Console):
    """A console that shows control characters in texts as escapes."""

    def render(self, renderable: Any, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render with every text made printable."""
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield Segment(printable(segment.text), segment.style)


def echo(text: str, err: bool = False) -> None:
    """Print a text on one line."""
    typer.echo(one_line(text), err=err)


class CliLogHandler(logging.Handler):
    """Prints warnings of the library on standard error, a line each."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record."""
        echo(f"oneof: {record.getMessage()}", err=True)


class FlagsWithoutType:
    """Shows flags in the help as `--json`; newer versions of typer write `--json <bool>`."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, `--help` among them."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if getattr(param, "is_flag", False):
                param.metavar = ""
        return params


class Command(FlagsWithoutType, TyperCommand):
    """A command of `oneof`."""


class Group(FlagsWithoutType, TyperGroup):
    """`oneof` itself, and groups of commands below it."""
