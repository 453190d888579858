"""The rooms of the package: a module imports only from rooms above its own, and no room has a cycle inside."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import oneof

ROOT = Path(oneof.__file__).parent
ROOMS = [
    "storage", "candidates", "metrics", "data", "votes", "inspect", "methods", "purify", "losses", "networks", "training", "learners",
    "ensemble", "runs", "report", "review", "estimator", "paper", "cli",
]  # fmt: skip
OWN = {"__init__.py", "__main__.py", "version.py", "py.typed"}
MODULES = {
    ".".join(("oneof", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in sorted(ROOT.rglob("*.py"))
}


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def imported(path: Path) -> set[str]:
    """The modules of the package that a file imports anywhere in it; `from oneof.data import splits` is oneof.data.splits."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else node.module for name in whole}
    return {name for name in found if name.split(".")[0] == "oneof"}


def test_the_package_holds_the_rooms_and_nothing_else():
    print("\n".join(ROOMS))
    entries = {path.name for path in ROOT.iterdir() if path.name != "__pycache__"}
    assert {name.removesuffix(".py") for name in entries - OWN} == set(ROOMS)


@pytest.mark.parametrize("module", [name for name in MODULES if room_of(name) in ROOMS])
def test_imports_only_from_rooms_above(module):
    place = ROOMS.index(room_of(module))
    rooms = {room_of(name) for name in imported(MODULES[module])} - {"version"}
    assert rooms <= set(ROOMS[: place + 1]), f"{sorted(rooms - set(ROOMS[: place + 1]))} lie below {ROOMS[place]}"


@pytest.mark.parametrize("room", ROOMS)
def test_no_room_has_a_cycle_inside(room):
    """Imports under TYPE_CHECKING and inside functions count: a reader follows them too."""
    own = {name: imported(path) for name, path in MODULES.items() if room_of(name) == room}
    left = {name: {other for other in others if other in own and other != name} for name, others in own.items()}
    while free := [name for name, others in left.items() if not others]:
        left = {name: others - set(free) for name, others in left.items() if name not in free}
    assert not left, f"a cycle among {sorted(left)}"


def test_nothing_is_called_utils():
    assert not {"utils", "common", "misc", "helpers"} & {path.stem for path in ROOT.rglob("*.py")}


IMPORT_ALL = """
import importlib, sys
sys.modules |= dict.fromkeys(["fcntl", "resource", "pwd", "grp", "termios"])  # None: not to be imported
for name in sys.argv[1:]:
    importlib.import_module(name)
"""


def test_every_module_is_imported_where_there_is_no_unix():
    written = {"oneof.networks.cuda.kernels", "oneof.networks.cuda.view_kernels"}
    kernels = written if find_spec("triton") is None else set()  # Triton comes with torch for CUDA
    names = sorted(set(MODULES) - {"oneof.__main__"} - kernels)
    done = subprocess.run([sys.executable, "-c", IMPORT_ALL, *names], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
