"""The command line as a person calls it: here, or in a process of its own, which takes seconds to import torch."""

from __future__ import annotations

import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from unittest import mock

from oneof.cli import main


def call(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """What the command prints and returns."""
    out, err = StringIO(), StringIO()
    asked = mock.patch.object(sys, "argv", ["oneof", *arguments])
    with chdir(cwd or "."), redirect_stdout(out), redirect_stderr(err), asked:
        try:
            main()
        except SystemExit as end:
            return subprocess.CompletedProcess(arguments, int(end.code or 0), out.getvalue(), err.getvalue())
    raise AssertionError("main did not exit")


def call_alone(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The same in a process of its own."""
    command = [sys.executable, "-c", "from oneof.cli import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
