"""Call oneof as a person does, in this process or in another one, and tell whether it ended in a fault."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from oneof.cli import main as oneof_main

SMALL = ("--networks", "2", "--epochs", "2", "--seed", "0")
QUICK = ("--quick", "--seed", "0")
REFUSALS = (ValueError, TypeError, OSError)  # what the command line turns into one line
_LIMIT_SECONDS = 150
_LIMIT_ALONE_SECONDS = 400
_EXIT_CODES = (0, 2)
_FOREIGN_NOISE = ("Warning:", "Traceback", "Exception ignored", "Segmentation")


class Attempt(NamedTuple):
    """One attack, and what was wrong with the answer."""

    name: str
    problem: str | None  # None: it was answered as it should be


class TookTooLong(BaseException):
    """Raised in a call that does not end; a BaseException, so that nothing in the call catches it."""


Done = subprocess.CompletedProcess[str]


def call_alone(*arguments: object, **options: Any) -> Done:
    """Run a command in a process of its own."""
    words = [sys.executable, "-m", "oneof", *map(str, arguments)]
    options = {"capture_output": True, "text": True, "timeout": _LIMIT_ALONE_SECONDS, "check": False, **options}
    return subprocess.run(words, **options)


def start_alone(*arguments: object) -> subprocess.Popen[str]:
    """Start a command in a process of its own, without waiting for its end."""
    words = [sys.executable, "-m", "oneof", *map(str, arguments)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def call(*arguments: object) -> Done:
    """Run a command in this process, which has imported everything already."""
    out = io.StringIO()
    err = io.StringIO()
    code = 0
    argv_before = sys.argv
    sys.argv = ["oneof", *map(str, arguments)]
    try:
        with redirect_stdout(out), redirect_stderr(err), time_limit(_LIMIT_SECONDS):
            oneof_main()
    except SystemExit as end:
        code = int(end.code or 0)
    except (Exception, TookTooLong):  # whatever it is, it is a fault
        code = 1
        err.write(traceback.format_exc())
    finally:
        sys.argv = argv_before
    return subprocess.CompletedProcess(list(arguments), code, out.getvalue(), err.getvalue())


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Raise TookTooLong after so many seconds."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TookTooLong(f"no end after {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def problem_of(done: Done, *, codes: tuple[int, ...] = _EXIT_CODES, names: tuple[str, ...] = ()) -> str | None:
    """Return what is wrong with how a command ended, or None.

    A refusal is one line that starts with `oneof: `; `names` must stand in it.
    """
    lines = done.stderr.splitlines()
    for noise in _FOREIGN_NOISE:
        if noise in done.stderr:
            return f"{noise} on the terminal: {lines[-1]}"
    if done.returncode not in codes:
        return f"exit code {done.returncode}: {done.stderr[-200:]!r}"
    if done.returncode != 2:
        return None
    if len(lines) == 0 or not lines[-1].startswith("oneof: "):
        return f"not a line of error: {done.stderr[-200:]!r}"
    missing = [name for name in names if name not in lines[-1]]
    if missing:
        return f"the line must name {missing}: {lines[-1]!r}"
    return None


def problem_of_call(act: Callable[[], object]) -> str | None:
    """Return what is wrong with how a call of the library ended, or None; a refusal in one line is right."""
    err = io.StringIO()
    try:
        with redirect_stderr(err), warnings.catch_warnings(), time_limit(_LIMIT_SECONDS):
            warnings.simplefilter("error")
            act()
    except REFUSALS as error:
        return "a message of several lines" if "\n" in str(error) else None
    except (Exception, TookTooLong) as error:
        return f"{type(error).__name__}: {error}"
    return None


def wait_for(condition: Callable[[], object], seconds: float = 60) -> bool:
    """Return whether a condition came true within so many seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


def write_table(path: Path, n: int = 80) -> Path:
    """Write a table of two numbers with candidate sets."""
    rng = np.random.default_rng(0)
    lines = ["x,y,candidates"]
    for i, (x, y) in enumerate(rng.normal(size=(n, 2))):
        truth = "cat" if x > 0 else "dog"
        cell = "cat|dog" if i % 2 else truth
        lines.append(f"{x:.3f},{y:.3f},{cell}")
    path.write_text("\n".join(lines) + "\n")
    return path
