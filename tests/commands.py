"""The command line as a person calls it: in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def call(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from oneof.cli import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=cwd)
