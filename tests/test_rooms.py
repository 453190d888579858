"""The packages: a module of oneof imports only from rooms above its own, never from oneof_paper, and no room has a cycle inside."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import Path

import pytest

import oneof
import oneof_paper

ROOT = Path(oneof.__file__).parent
PAPER_ROOT = Path(oneof_paper.__file__).parent
PYPROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
ROOMS = [
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


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def imported(path: Path) -> set[str]:
    """The modules of both packages that a file imports anywhere in it; `from oneof.data import splits` is oneof.data.splits."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES | PAPER_MODULES else node.module for name in whole}
    return {name for name in found if name.split(".")[0] in ("oneof", "oneof_paper")}


def test_the_package_holds_the_rooms_and_nothing_else():
    print("\n".join(ROOMS))
    entries = {path.name for path in ROOT.iterdir() if path.name != "__pycache__"}
    assert {name.removesuffix(".py") for name in entries - OWN} == set(ROOMS)


@pytest.mark.parametrize("module", [name for name in MODULES if room_of(name) in ROOMS])
def test_imports_only_from_rooms_above(module):
    place = ROOMS.index(room_of(module))
    others = {name for name in imported(MODULES[module]) if name.split(".")[0] == "oneof"}
    rooms = {room_of(name) for name in others} - {"version"} - FACADES.get(module, set())
    assert rooms <= set(ROOMS[: place + 1]), f"{sorted(rooms - set(ROOMS[: place + 1]))} lie below {ROOMS[place]}"


@pytest.mark.parametrize("room", [*ROOMS, "oneof_paper"])
def test_no_room_has_a_cycle_inside(room):
    """Imports under TYPE_CHECKING and inside functions count: a reader follows them too."""
    members = {name: path for name, path in MODULES.items() if room_of(name) == room} or PAPER_MODULES
    own = {name: imported(path) for name, path in members.items()}
    left = {name: {other for other in others if other in own and other != name} for name, others in own.items()}
    while free := [name for name, others in left.items() if not others]:
        left = {name: others - set(free) for name, others in left.items() if name not in free}
    assert not left, f"a cycle among {sorted(left)}"


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
