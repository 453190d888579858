"""Commands of the paper: `oneof paper COMMAND`. They import what is heavy when they run, so that help is quick."""

import typer

from oneof.cli.register import add_command
from oneof.cli.terminal import Group
from oneof_paper.cli.ablation import ablation
from oneof_paper.cli.compare import compare
from oneof_paper.cli.data import data
from oneof_paper.cli.generate import generate
from oneof_paper.cli.table import table
from oneof_paper.cli.theory import theory

_ABOUT = "Reproduce the POP paper: its tables, theorems and data sets, and comparisons with a method of your own."
app = typer.Typer(help=_ABOUT, cls=Group, add_completion=False, pretty_exceptions_enable=False)
for command in (table, theory, ablation, data, generate, compare):
    add_command(app, command)


@app.callback(invoke_without_command=True)
def _show_help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
