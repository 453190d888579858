"""The command line: `oneof COMMAND`. Commands import heavy packages when they run, so that help is quick."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from oneof.cli.register import add_command, add_plugins
from oneof.cli.terminal import CliLogHandler, Group, echo
from oneof.storage.printable import describe_error, shortened
from oneof.version import __version__

_ABOUT = "Learn classifiers from candidate labels: each example has a set of labels, and one of them is right."
app = typer.Typer(help=_ABOUT, cls=Group, pretty_exceptions_enable=False)
logging.getLogger("oneof").addHandler(CliLogHandler())
_COMMANDS = (
    "demo", "votes", "inspect", "fit", "predict", "clean", "review", "label_studio", "report", "export", "tune",
)  # fmt: skip
for name in _COMMANDS:
    module = import_module(f"oneof.cli.{name}")
    add_command(app, getattr(module, name))
add_plugins(app)

# ClickException of the click that typer uses: newer versions of typer contain their own
ClickError: Any = typer.BadParameter.__mro__[2]

_RESUMABLE = ("fit", "tune", "paper data", "paper table", "paper compare")
_PASSIVE_WAITING = {
    "OMP_WAIT_POLICY": "PASSIVE",  # any OpenMP
    "GOMP_SPINCOUNT": "0",  # GNU's
    "KMP_BLOCKTIME": "0",  # Intel's
}
_SAFE_PATH = "PYTHONSAFEPATH"  # as python -P
_UNEXPECTED = 1
_INTERRUPTED = 130  # newer versions of typer return it on Ctrl-C; older ones raise Abort


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    if version:
        typer.echo(f"oneof {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> None:
    """Run a command. Bad input, or a file that cannot be read or written, ends with one line on standard error and exit code 2."""
    _wait_passively()
    _escape_what_cannot_be_printed()
    try:
        _check_current_folder()
        with _safe_path_for_children():
            code = app(standalone_mode=False)
    except ClickError as error:
        _fail(error.format_message())
    except UnicodeEncodeError as error:
        _fail(
            f"names and texts must consist of characters that {error.encoding} can encode; got {shortened(error.object)!r}. "
            "Rename it, or set PYTHONUTF8=1."
        )
    except (ValueError, TypeError, OSError) as error:
        _fail(describe_error(error))
    except (MemoryError, RuntimeError) as error:
        if not (isinstance(error, MemoryError) or "alloc" in str(error)):
            _fail_unexpectedly(error)
        _fail(f"out of memory ({error}); use fewer rows, features or labels.")
    except (typer.Abort, KeyboardInterrupt):
        code = _INTERRUPTED
    except Exception as error:  # a fault of ours: no input should lead here
        _fail_unexpectedly(error)
    if code == _INTERRUPTED:
        message = "oneof: stopped."
        if _is_resumable(sys.argv[1:]):
            message += " Run the same command again to continue."
        typer.echo(message, err=True)
    sys.exit(code)


def _wait_passively() -> None:
    """Let OpenMP's threads sleep while they wait for one another, unless the user has set how they wait.

    By default they spin, which on a busy machine takes the processor from the thread that they wait for. OpenMP reads these
    variables when torch or scikit-learn is imported, which commands do later.
    """
    if not any(name in os.environ for name in _PASSIVE_WAITING):
        os.environ.update(_PASSIVE_WAITING)


def _escape_what_cannot_be_printed() -> None:
    """Print characters that the terminal's encoding does not have as escapes; by default Python would stop there."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="backslashreplace")


def _check_current_folder() -> None:
    """Raise ValueError if the current folder was deleted: compiled libraries stop the process there without a word of ours."""
    try:
        Path.cwd()
    except FileNotFoundError as error:
        raise ValueError("the current folder must exist; it was deleted. Change to another one.") from error


@contextmanager
def _safe_path_for_children() -> Iterator[None]:
    """Keep Python processes that a command starts from importing modules of the current folder, which may not be trusted."""
    before = os.environ.get(_SAFE_PATH)
    os.environ[_SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_SAFE_PATH]
        else:
            os.environ[_SAFE_PATH] = before


def _is_resumable(words: list[str]) -> bool:
    """Return whether the command, stopped, resumes where it was; a fit with a time limit does not."""
    for word in words:
        if word.split("=")[0] == "--time-limit":
            return False
    typed = " ".join([*words, ""])
    return any(typed.startswith(f"{command} ") for command in _RESUMABLE)


def _fail(message: str) -> NoReturn:
    echo(f"oneof: {message}", err=True)
    sys.exit(2)


def _fail_unexpectedly(error: Exception) -> NoReturn:
    """End with one line that names the file with the traceback, which has the whole of the error, and exit code 1."""
    from oneof.storage.user_state import write_traceback

    try:
        where = f"the traceback is in {write_traceback(error)}"
    except OSError as failure:
        where = f"the traceback cannot be saved ({describe_error(failure)})"
    echo(f"oneof: unexpected {type(error).__name__}: {error}; {where}. Please report it.", err=True)
    sys.exit(_UNEXPECTED)
