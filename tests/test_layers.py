"""A module imports only what stands above it, so that the tree can be read from the top."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import oneof

ROOT = Path(oneof.__file__).parent
ORDER = [
    "version", "files", "shapes", "settings", "progress", "sheets", "sets", "candidates", "splits", "others", "data", "embed", "features", "votes", "inspect", "generate", "methods", "purify", "runtime", "processes", "packed",
    "given", "networks", "stack", "trials", "optimize", "events", "border", "problem", "portion", "evaluate", "state", "checkpoint", "step", "loop", "engine", "teacher", "select", "results", "space", "search", "tune",
    "compare", "paper", "experiments", "obtain", "on_ray", "report", "model", "calibrate", "evidence", "predicting", "resolve", "reasons", "run", "export", "arguments", "estimator", "fitting", "demo", "cli", "__main__",
]  # fmt: skip
MODULES = sorted(path.relative_to(ROOT) for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


def part(module: str) -> str:
    """The top-level part of the package that a dotted name such as oneof.methods.cc belongs to."""
    return module.split(".")[1] if "." in module else ""


def imported(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    return {part(name) for name in names if name.split(".")[0] == "oneof"} - {""}


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_imports_only_from_above(path):
    own = path.parts[0].removesuffix(".py")
    assert own in ORDER, f"{own} has no place in the order yet"
    allowed = set(ORDER[: ORDER.index(own) + 1])
    assert imported(ROOT / path) <= allowed


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_no_function_body_is_longer_than_forty_lines(path):
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.FunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            length = body[-1].end_lineno - body[0].lineno + 1 if body else 0
            assert length <= 40, f"{node.name} has {length} lines"


def test_nothing_is_called_utils():
    assert not {"utils", "common", "misc", "helpers"} & {path.stem for path in ROOT.rglob("*.py")}
