"""Find what other packages add to oneof by entry points: commands, and readers of further file formats."""

import ast
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path

COMMANDS = "oneof.commands"  # name of a command -> a typer app with its subcommands
READERS = "oneof.readers"  # ending of a file, without the dot -> a function as `oneof.data.files.arrays.Reader`

# Entry points are part of the metadata of an installed package. A source tree that is used as it is (`PYTHONPATH=src`, on a
# machine where nothing can be installed) has none, so those of this repository are listed here as well as in pyproject.toml.
_OF_THIS_REPOSITORY = (
    EntryPoint("paper", "oneof_paper.cli:app", COMMANDS),
    EntryPoint("mat", "oneof_paper.readers.mat:read_array_file", READERS),
)


def find_plugins(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name; the packages behind them are not imported."""
    plugins = {plugin.name: plugin for plugin in entry_points(group=group)}
    for plugin in _OF_THIS_REPOSITORY:
        if plugin.group != group or plugin.name in plugins:
            continue
        if find_spec(_package_of(plugin)) is not None:
            plugins[plugin.name] = plugin
    return plugins


def describe_plugin(plugin: EntryPoint) -> str:
    """Return the first line of the docstring of the package behind an entry point, read from its source without an import."""
    package = _package_of(plugin)
    spec = find_spec(package)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return f"Commands of the package {package}."
    source = Path(spec.origin).read_text(encoding="utf-8")
    docstring = ast.get_docstring(ast.parse(source))
    if not docstring:
        return f"Commands of the package {package}."
    return docstring.splitlines()[0]


def _package_of(plugin: EntryPoint) -> str:
    """Return the name of the package that an entry point refers to."""
    return plugin.module.split(".")[0]
