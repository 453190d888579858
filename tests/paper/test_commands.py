"""The paper's commands: help is quick, every option is explained, and the ablation runs."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import typer
from commands import call

from oneof_paper.cli import app

HEAVY = ("torch", "sklearn", "pyarrow", "matplotlib", "numpy")
COMMANDS = typer.main.get_command(app).commands


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_explained_and_flags_have_no_type(command):
    assert all(option.help for option in COMMANDS[command].params)
    assert "<bool>" not in call("paper", command, "--help").stdout


def test_help_imports_nothing_heavy():
    code = f"import sys, oneof_paper.cli; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_lists_the_commands(arguments):
    done = call("paper", *arguments)
    assert done.returncode == 0
    for command in COMMANDS:
        assert f" {command} " in done.stdout


def test_the_ablation_writes_rows_and_a_picture(tmp_path):
    done = call("paper", "ablation", "--seeds", "2", "--epochs", "3", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "PRODEN + POP" in done.stdout
    rows = [json.loads(line) for line in (tmp_path / "oneof-ablation/rows.jsonl").read_text().splitlines()]
    assert len(rows) == 10
    assert {row["seed"] for row in rows} == {0, 1}
    assert (tmp_path / "oneof-ablation/curves.png").read_bytes().startswith(b"\x89PNG")
