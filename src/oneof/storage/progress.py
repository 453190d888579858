"""Show progress bars, in terminals only."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def bar(description: str, total: int, show: bool, done: int = 0) -> Iterator[Callable[..., None]]:
    """Show a progress bar of `total` steps, `done` of which are already complete.

    Yields a function to call after each step, or once for several steps, with a few words on the state of the work.
    """
    console = Console(stderr=True)
    is_hidden = not (show and console.is_terminal)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[words]}"),
    )
    with Progress(*columns, console=console, transient=True, disable=is_hidden) as progress:
        task = progress.add_task(description, total=total, completed=done, words="")

        def step(words: str = "", steps: int = 1) -> None:
            progress.update(task, advance=steps, words=words)

        yield step
