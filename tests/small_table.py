"""A small table of animals with candidate sets, small settings to fit it with, and commands called in this process."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from oneof.cli import main
from oneof.data.table import ColumnRoles
from oneof.learners.config import EnsembleConfig

LABELS = np.array(["ant", "bee", "cow"])
ROLES = ColumnRoles(features=("x*", "hue"), ignore=("truth",))
SMALL = EnsembleConfig(scalings=("feature", "ranks"), lr=0.1, weight_decay=1e-3, n_networks=3, epochs=25, n_folds=None)


def frame(n: int = 150, seed: int = 0) -> pd.DataFrame:
    """A table as people have them: numbers with gaps, a category, sets as text, and the truth, which is withheld."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(3, size=n)
    x = np.eye(3)[truth] * 3 + rng.normal(size=(n, 3))
    x[rng.random((n, 3)) < 0.03] = np.nan
    sets = (rng.random((n, 3)) < 0.35) | (np.arange(3) == truth[:, None])
    table = pd.DataFrame(x, columns=["x0", "x1", "x2"])
    table["hue"] = np.where(rng.random(n) < 0.8, np.array(["red", "blue", "grey"])[truth], "red")
    table["candidates"] = ["|".join(LABELS[row]) for row in sets]
    table["truth"] = LABELS[truth]
    return table


def command(*arguments: str | Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Run a command as a person would, and give its exit code and what it printed."""
    old, sys.argv = sys.argv, ["oneof", *map(str, arguments)]
    try:
        with pytest.raises(SystemExit) as stopped:
            main()
    finally:
        sys.argv = old
    printed = capsys.readouterr()
    return int(stopped.value.code or 0), printed.out, printed.err
