"""Show progress: a bar in a terminal, lines elsewhere, such as in the log of a job."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from oneof.storage.durations import format_duration

# Seconds. Work that is done before the first line is due writes none; an estimate after less would be a guess.
FIRST_LINE = 3.0
MIN_INTERVAL = 10.0
MAX_INTERVAL = 120.0
_shown: list[str] = []  # the bar that is on the screen


@contextmanager
def progress_bar(
    description: str, total: int, show: bool, done: int = 0, unit: str = ""
) -> Iterator[Callable[..., None]]:
    """Show the progress of `total` steps, `done` of which are already complete.

    Yields a function to call after each step, or once for several steps, with a few words on the state of the work.
    A bar inside another one is not shown.
    """
    show = show and not _shown
    if show:
        _shown.append(description)
    try:
        with _bar(description, total, show, done, unit) as step:
            yield step
    finally:
        if show:
            _shown.remove(description)


@contextmanager
def _bar(description: str, total: int, show: bool, done: int, unit: str) -> Iterator[Callable[..., None]]:
    console = Console(stderr=True)
    if show and not console.is_terminal:
        lines = ProgressLines(description, total, done, unit)
        timer = Timer(FIRST_LINE, lines.say_that_work_began)
        timer.daemon = True
        timer.start()
        try:
            yield lines
        finally:
            timer.cancel()
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeRemainingColumn(),
        TextColumn("{task.fields[words]}"),
    )
    with Progress(*columns, console=console, transient=True, disable=not show) as progress:
        task = progress.add_task(description, total=total, completed=done, words="")

        def step(words: str = "", steps: int = 1) -> None:
            progress.update(task, advance=steps, words=words)

        yield step


class ProgressLines:
    """Writes a line on standard error now and then: how far the work is, and how long the rest will take.

    The first comes as soon as an estimate means something, the next ones at intervals that grow with the time that has passed, so
    that a log of hours stays short.
    """

    def __init__(self, description: str, total: int, done: int = 0, unit: str = "") -> None:
        self.description = description
        self.total = total
        self.done = done
        self.unit = unit
        self._done_at_start = done
        self._start = time.monotonic()
        self._next_line = self._start + FIRST_LINE

    def __call__(self, words: str = "", steps: int = 1) -> None:
        """Count steps that are complete; write a line if one is due."""
        self.done += steps
        now = time.monotonic()
        if now < self._next_line or self.done >= self.total:
            return
        elapsed = now - self._start
        steps_per_second = (self.done - self._done_at_start) / elapsed
        seconds_left = (self.total - self.done) / steps_per_second
        line = f"{self._counts()} after {format_duration(elapsed)}, about {format_duration(seconds_left)} left"
        if words:
            line += f"; {words}"
        _write(line)
        interval = min(max(MIN_INTERVAL, elapsed / 2), MAX_INTERVAL)
        self._next_line = now + interval

    def say_that_work_began(self) -> None:
        """Write a line without an estimate if not even one step is complete."""
        if self.done == self._done_at_start:
            _write(f"{self._counts()}; the first one takes longer than {format_duration(FIRST_LINE)}")

    def _counts(self) -> str:
        counts = f"{self.description}: {self.done:,} of {self.total:,}"
        if self.unit:
            counts += f" {self.unit}"
        return counts


def announce(line: str) -> None:
    """Write a line on standard error before long work begins."""
    _write(line)


def _write(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
