"""What commands print: text from files cannot move the cursor, colour the screen or hide itself."""

import logging
from collections.abc import Iterable
from typing import Any

import typer
from rich.console import Console, ConsoleOptions
from rich.segment import Segment

from oneof.storage.printable import bounded, printable


class Terminal(Console):
    """A console that shows control characters of texts as escapes."""

    def render(self, renderable: Any, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for part in super().render(renderable, options):
            yield part if part.control else Segment(printable(part.text), part.style)


def say(text: str, err: bool = False) -> None:
    typer.echo(bounded(text), err=err)


class Told(logging.Handler):
    """Prints what the library warns of, a line each."""

    def emit(self, record: logging.LogRecord) -> None:
        say(f"oneof: {record.getMessage()}", err=True)
