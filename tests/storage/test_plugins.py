"""Other packages add commands and readers of files by entry points."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from commands import call

from oneof.data.table import read_table
from oneof.storage import plugins
from oneof.storage.plugins import COMMANDS, READERS, describe_plugin, find_plugins

PYPROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
TOY = '''"""Count what is given.

More on it.
"""

import typer

app = typer.Typer()


@app.command()
def count(words: list[str], loud: bool = False) -> None:
    print(len(words), loud)
    raise typer.Exit(3)


@app.callback()
def about() -> None:
    print("toy")


def read(path, unpacked):
    import numpy as np  # here: a command need not wait for it

    from oneof.data.files.arrays import ArrayFile

    x = np.loadtxt(path)
    return ArrayFile(x, np.array(["cat|dog", "cat", "dog"]), None, None, ("x", "sets", "labels"))
'''


@pytest.fixture
def toy(tmp_path, monkeypatch) -> Path:
    """A folder with a package that is installed there."""
    (tmp_path / "toy_plugin.py").write_text(TOY)
    metadata = tmp_path / "toy_plugin-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-plugin\nVersion: 1.0\n")
    groups = f"[{COMMANDS}]\ntoy = toy_plugin:app\n\n[{READERS}]\ntoy = toy_plugin:read\n"
    (metadata / "entry_points.txt").write_text(groups)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("toy_plugin", None)


def run_oneof(folder: Path, *words: str, code: str = "") -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(folder), *filter(None, sys.path)])
    program = f"import sys\nfrom oneof.cli import main\ntry:\n    main()\nfinally:\n    {code or 'pass'}\n"
    command = [sys.executable, "-c", program, *words]
    environment = os.environ | {"PYTHONPATH": paths}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)


def test_the_source_tree_offers_what_the_installed_package_does():
    declared = PYPROJECT["project"]["entry-points"]
    listed: dict[str, dict[str, str]] = {}
    for plugin in plugins._OF_THIS_REPOSITORY:
        listed.setdefault(plugin.group, {})[plugin.name] = plugin.value
    assert listed == declared


def test_a_source_tree_without_metadata_has_the_papers_commands_and_reader(monkeypatch):
    monkeypatch.setattr(plugins, "entry_points", lambda group: [])
    assert list(find_plugins(COMMANDS)) == ["paper"]
    assert list(find_plugins(READERS)) == ["mat"]


def test_without_the_papers_package_there_is_neither(monkeypatch, tmp_path):
    monkeypatch.setattr(plugins, "entry_points", lambda group: [])
    monkeypatch.setattr(plugins, "find_spec", lambda name: None)
    assert find_plugins(COMMANDS) == {}
    (tmp_path / "lost.mat").write_bytes(b"MATLAB 5.0 MAT-file")
    with pytest.raises(ValueError, match=r"must end in one of .*\.csv.*\.npz; got .*lost\.mat"):
        read_table(tmp_path / "lost.mat")


def test_help_shows_a_plugin_without_importing_it(toy):
    done = run_oneof(
        toy, "--help", code="print([name for name in ('toy_plugin', 'torch', 'oneof_paper') if name in sys.modules])"
    )
    assert done.returncode == 0, done.stderr
    assert "Count what is given." in done.stdout
    assert "Reproduce the POP paper" in done.stdout
    assert done.stdout.rstrip().endswith("[]")


def test_a_command_of_a_plugin_gets_its_words_and_returns_its_code(toy):
    done = run_oneof(toy, "toy", "count", "a", "--loud", "b")
    assert (done.returncode, done.stdout) == (3, "toy\n2 True\n")
    done = run_oneof(toy, "toy", "count", "--help")
    assert done.returncode == 0
    assert "oneof toy count" in done.stdout
    done = run_oneof(toy, "toy", "sum")
    assert (done.returncode, done.stderr) == (2, "oneof: No such command 'sum'.\n")


def test_a_plugin_without_a_docstring_is_described_by_its_name(toy):
    (toy / "toy_plugin.py").write_text("app = None\n")
    assert describe_plugin(find_plugins(COMMANDS)["toy"]) == "Commands of the package toy_plugin."


def test_a_plugin_reads_files_with_its_ending(toy):
    (toy / "pets.toy").write_text("1 2\n3 4\n5 6\n")
    table = read_table(toy / "pets.toy")
    assert table.columns.numbers.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert table.candidates.mask.tolist() == [[True, True], [True, False], [False, True]]


def test_bad_input_of_the_papers_commands_is_one_line_and_exit_code_2():
    done = call("paper", "table", "9")
    assert done.returncode == 2
    assert done.stderr == "oneof: table must be one of 1, 2, 3, 4, 5, 6, 7; got 9.\n"
