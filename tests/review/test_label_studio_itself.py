"""Label Studio itself, where it is installed: a project with our tasks and configuration, from predictions to decisions."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

INSTALLED = shutil.which("label-studio")  # best in an environment of its own, whose bin is on the PATH
SCRIPT = Path(__file__).parents[2] / "benchmarks/robustness/label_studio.py"


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.skipif(
    INSTALLED is None, reason="label-studio is not on the PATH: python -m venv V, V/bin/pip install label-studio"
)
def test_a_project_of_label_studio(tmp_path: Path) -> None:
    command = [sys.executable, SCRIPT, "--kinds", "cells", "--screenshots", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "what a person submitted in Chromium is a decision" in done.stdout
    assert (tmp_path / "label-studio-cells.png").stat().st_size > 10_000
