"""The command line: `oneof COMMAND`. Commands import what is heavy when they run, so that help is quick."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer

from oneof.cli.register import add_command, add_plugins
from oneof.cli.terminal import CliLogHandler, Group, describe_error, echo
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

# typer carries its own click in newer versions and uses the real one in older: this is ClickException of either
UsageProblem: Any = typer.BadParameter.__mro__[2]

_RESUMABLE = ("fit", "tune", "paper data", "paper table", "paper compare")
_PASSIVE = {
    "OMP_WAIT_POLICY": "PASSIVE",
    "GOMP_SPINCOUNT": "0",
    "KMP_BLOCKTIME": "0",
}  # of any, GNU's and Intel's OpenMP
_SAFE_PATH = "PYTHONSAFEPATH"  # as python -P
_INTERRUPTED = 130  # what newer versions of typer return for Ctrl-C, where older raise Abort


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
    """Run a command. Bad input ends with one line on standard error and exit code 2; so does a file that cannot be had."""
    _wait_passively()
    try:
        with _safe_path_for_children():
            code = app(standalone_mode=False)
    except UsageProblem as error:
        _fail(error.format_message())
    except (ValueError, TypeError, OSError) as error:
        _fail(describe_error(error))
    except (MemoryError, RuntimeError) as error:
        if not (isinstance(error, MemoryError) or "alloc" in str(error)):
            raise
        _fail(f"out of memory ({error}); use fewer rows, features or labels.")
    except (typer.Abort, KeyboardInterrupt):
        code = _INTERRUPTED
    if code == _INTERRUPTED:
        remedy = " The same command goes on where it was." if _is_resumable(sys.argv[1:]) else ""
        typer.echo(f"oneof: stopped.{remedy}", err=True)
    sys.exit(code)


def _wait_passively() -> None:
    """Let threads sleep while they wait for one another, unless the user has said how they wait.

    By default they spin, which takes the processor from whoever they wait for where other programs run. OpenMP reads these
    variables when torch or scikit-learn is imported, which commands do later.
    """
    if not any(name in os.environ for name in _PASSIVE):
        os.environ.update(_PASSIVE)


@contextmanager
def _safe_path_for_children() -> Iterator[None]:
    """Keep Python processes that a command starts from importing modules of the current folder, which may be a stranger's."""
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
    """Return whether the command keeps what it had done when it is stopped; a fit against the clock does not."""
    limited = any(word.split("=")[0] == "--time-limit" for word in words)
    typed = " ".join([*words, ""])
    return any(typed.startswith(f"{command} ") for command in _RESUMABLE) and not limited


def _fail(message: str) -> NoReturn:
    echo(f"oneof: {message}", err=True)
    sys.exit(2)
