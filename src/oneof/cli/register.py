"""Add commands to the command line: functions, and the commands of other packages."""

from collections.abc import Callable
from importlib.metadata import EntryPoint
from typing import Any, get_type_hints

import typer

from oneof.cli.terminal import Command
from oneof.storage.plugins import COMMANDS, describe_plugin, find_plugins


def add_command(app: typer.Typer, command: Callable[..., Any]) -> None:
    """Add a function as a command of the same name."""
    command.__annotations__ = get_type_hints(command, include_extras=True)
    app.command(cls=Command)(command)


def add_plugins(app: typer.Typer) -> None:
    """Add the commands of other packages; a package is imported when one of its commands runs."""
    for name, plugin in find_plugins(COMMANDS).items():
        _add_plugin(app, name, plugin)


def _add_plugin(app: typer.Typer, name: str, plugin: EntryPoint) -> None:
    """Add a command that hands all its arguments, `--help` included, to the app of another package."""

    def run(context: typer.Context) -> Any:
        commands = plugin.load()
        return commands(context.args, prog_name=f"oneof {name}", standalone_mode=False)

    unparsed = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}
    app.command(name, help=describe_plugin(plugin), add_help_option=False, context_settings=unparsed)(run)
