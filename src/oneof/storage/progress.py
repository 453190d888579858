"""A progress bar that is silent when nobody watches."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def bar(description: str, total: int, show: bool, done: int = 0) -> Iterator[Callable[..., None]]:
    """Show a bar of `total` steps, `done` of them behind us, with the time left."""
    # The value is called at each step with a few words on how it goes, or once for several steps.
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    words = TextColumn("{task.fields[words]}")
    hidden = not (show and console.is_terminal)
    with Progress(*columns, words, console=console, transient=True, disable=hidden) as progress:
        task = progress.add_task(description, total=total, completed=done, words="")

        def step(words: str = "", steps: int = 1) -> None:
            progress.update(task, advance=steps, words=words)

        yield step
