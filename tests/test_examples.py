"""Every example runs, is short, and does what it says."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import torch

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_own_loop_learns_in_under_sixty_lines(capsys):
    path = EXAMPLES / "own_loop.py"
    assert len(path.read_text().splitlines()) < 60
    with torch.random.fork_rng():
        torch.manual_seed(0)
        runpy.run_path(str(path), run_name="__main__")
    accuracy, size, kept = map(float, re.findall(r"\d+\.\d+", capsys.readouterr().out))
    assert accuracy > 0.85
    assert size < 2
    assert kept > 0.9
