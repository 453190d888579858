"""The order of the packages: a module imports only from packages above its own, never from oneof_paper, and no package has a cycle."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from graphlib import CycleError, TopologicalSorter
from importlib.util import find_spec
from pathlib import Path

import pytest

import oneof
import oneof_paper

ROOT = Path(oneof.__file__).parent
PAPER_ROOT = Path(oneof_paper.__file__).parent
PYPROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
PACKAGES = [
    "storage", "candidates", "metrics", "data", "votes", "inspect", "methods", "purify", "losses", "networks", "training", "learners",
    "ensemble", "runs", "report", "review", "estimator", "cli",
]  # fmt: skip
FACADES = {"oneof.votes": {"estimator"}}  # packages with a lazy public name that is defined further below, and where
OWN = {"__init__.py", "__main__.py", "version.py", "py.typed"}


def modules_of(root: Path) -> dict[str, Path]:
    """Return the modules of a package by name."""
    modules = {}
    for path in sorted(root.rglob("*.py")):
        name = ".".join(path.relative_to(root.parent).with_suffix("").parts)
        modules[name.removesuffix(".__init__")] = path
    return modules


MODULES = modules_of(ROOT)
PAPER_MODULES = modules_of(PAPER_ROOT)


def package_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def imported(path: Path) -> set[str]:
    """Return the modules of both packages that a file imports anywhere in it; `from oneof.data import splits` is oneof.data.splits."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                is_module = name in MODULES or name in PAPER_MODULES
                names.add(name if is_module else node.module)
    return {name for name in names if name.split(".")[0] in ("oneof", "oneof_paper")}


def test_oneof_holds_these_packages_and_nothing_else():
    print("\n".join(PACKAGES))
    entries = {path.name for path in ROOT.iterdir() if path.name != "__pycache__"}
    assert {name.removesuffix(".py") for name in entries - OWN} == set(PACKAGES)


@pytest.mark.parametrize("module", [name for name in MODULES if package_of(name) in PACKAGES])
def test_imports_only_from_packages_above(module):
    position = PACKAGES.index(package_of(module))
    allowed = set(PACKAGES[: position + 1]) | {"version"} | FACADES.get(module, set())
    below = set()
    for name in imported(MODULES[module]):
        if name.split(".")[0] == "oneof" and package_of(name) not in allowed:
            below.add(package_of(name))
    assert not below, f"{sorted(below)} lie below {PACKAGES[position]}"


@pytest.mark.parametrize("package", [*PACKAGES, "oneof_paper"])
def test_no_package_has_a_cycle_inside(package):
    """Imports under TYPE_CHECKING and inside functions count: a reader follows them too."""
    members = {name: path for name, path in MODULES.items() if package_of(name) == package} or PAPER_MODULES
    graph = {}
    for name, path in members.items():
        graph[name] = imported(path) & members.keys() - {name}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"a cycle among {error.args[1]}")


def test_oneof_never_imports_oneof_paper():
    importers = [module for module, path in MODULES.items() if any("oneof_paper" in name for name in imported(path))]
    assert importers == []


def test_nothing_is_called_utils():
    stems = {path.stem for path in (*MODULES.values(), *PAPER_MODULES.values())}
    assert not {"utils", "common", "misc", "helpers"} & stems


@pytest.mark.parametrize("root", [ROOT, PAPER_ROOT], ids=["oneof", "oneof_paper"])
def test_a_wheel_holds_every_file_that_is_no_module(root):
    patterns = PYPROJECT["tool"]["setuptools"]["package-data"]
    for path in root.rglob("*"):
        if path.is_dir() or path.suffix == ".py" or "__pycache__" in path.parts:
            continue
        below = path.relative_to(root.parent).parts
        packages = [".".join(below[:depth]) for depth in range(1, len(below))]
        covered = False
        for depth, package in enumerate(packages, 1):
            name = "/".join(below[depth:])
            covered = covered or any(fnmatch(name, pattern) for pattern in patterns.get(package, []))
        assert covered, f"package-data of pyproject.toml lacks {path}"


IMPORT_ALL = """
import importlib, sys
sys.modules |= dict.fromkeys(["fcntl", "resource", "pwd", "grp", "termios"])  # None: not to be imported
for name in sys.argv[1:]:
    importlib.import_module(name)
"""


def test_every_module_is_imported_where_there_is_no_unix():
    written = {"oneof.networks.cuda.kernels", "oneof.networks.cuda.view_kernels"}
    kernels = written if find_spec("triton") is None else set()  # Triton comes with torch for CUDA
    names = sorted({*MODULES, *PAPER_MODULES} - {"oneof.__main__"} - kernels)
    done = subprocess.run([sys.executable, "-c", IMPORT_ALL, *names], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
