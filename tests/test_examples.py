"""Every example runs, is short, and does what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_own_loop_learns_in_under_sixty_lines():
    path = EXAMPLES / "own_loop.py"
    assert len(path.read_text().splitlines()) < 60
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=120, check=True)
    accuracy, size, kept = map(float, re.findall(r"\d+\.\d+", done.stdout))
    assert accuracy > 0.85
    assert size < 2
    assert kept > 0.9
