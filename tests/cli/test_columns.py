"""Every command that reads a table takes the same options, and says the same about the same table."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

from oneof.cli import app
from oneof.cli.columns import TableFile, with_column_options
from oneof.data.roles import ColumnRoles
from oneof.learners.config import EnsembleConfig, FitConfig
from oneof.runs.fit_spec import FitSpec
from oneof.runs.fit_table import fit_table

pytestmark = pytest.mark.usefixtures("small_forests")

OPTIONS = [
    "candidates",
    "not",
    "gold",
    "features",
    "category",
    "text",
    "text-model",
    "image",
    "image-model",
    "group",
    "ignore",
    "separator",
    "empty",
]
SMALL = EnsembleConfig(scalings=("feature",), lr=0.1, weight_decay=1e-3, n_networks=2, epochs=2, n_folds=None)


@pytest.mark.parametrize("name", ["fit", "inspect"])
def test_every_command_that_reads_a_table_has_every_option(name: str) -> None:
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    flags = {flag for parameter in command.params for flag in parameter.opts}
    assert {f"--{option}" for option in OPTIONS} <= flags


@pytest.mark.parametrize(
    ("arguments", "roles"),
    [
        ([], ColumnRoles()),
        (["--not", "no"], ColumnRoles(candidates=None, exclude="no")),
        (["--not", "no", "--candidates", "maybe"], ColumnRoles(candidates="maybe", exclude="no")),
        (
            ["--features", "x*", "--features", "y", "--category", "zip", "--text", "note", "--image", "file"],
            ColumnRoles(features=("x*", "y"), categories=("zip",), text=("note",), image=("file",)),
        ),
        (
            ["--text", "note", "--text-model", "m", "--image", "file", "--image-model", "f.safetensors"],
            ColumnRoles(text=("note",), text_model="m", image=("file",), image_model="f.safetensors"),
        ),
        (
            [
                "--gold",
                "g",
                "--group",
                "who",
                "--ignore",
                "a",
                "--ignore",
                "b",
                "--separator",
                ";",
                "--empty",
                "unlabelled",
            ],
            ColumnRoles(gold="g", group="who", ignore=("a", "b"), separator=";", empty="unlabelled"),
        ),
    ],
)
def test_options_become_roles(arguments: list[str], roles: ColumnRoles) -> None:
    seen: list[Any] = []

    def command(file: TableFile, roles: ColumnRoles, seed: int = 3) -> None:
        """Say what was given."""
        seen.extend([file, roles, seed])

    one = typer.Typer()
    one.command()(with_column_options(command))
    done = CliRunner().invoke(one, ["t.csv", *arguments])
    assert done.exit_code == 0, done.output
    assert seen == [Path("t.csv"), roles, 3]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--separator", ""], "separator must not be empty"),
        (["--text-model", "m"], "--text-model needs a column to embed. Add --text COLUMN"),
        (["--image-model", "m"], "--image-model needs a column to embed. Add --image COLUMN"),
        (["--empty", "maybe"], "empty must be 'error' or 'unlabelled'; got 'maybe'"),
    ],
)
@pytest.mark.parametrize("command", [["fit", "--out", "RUN"], ["inspect"]])
def test_bad_options_are_named(command: list[str], arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(app, [command[0], "t.csv", *command[1:], *arguments])
    assert isinstance(done.exception, ValueError)
    assert message in str(done.exception)


# ------------------------------------------------------------------------------------------------ inspect sees what fit sees


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Gaps, categories, dates, free text, an id and a truth of numbers; the sets of two rows exclude a label."""
    rng = np.random.default_rng(0)
    n = 60
    truth = rng.integers(3, size=n)
    frame = pd.DataFrame(
        {
            "id": rng.permutation(n),
            "size": np.where(rng.random(n) < 0.2, np.nan, truth + 0.3 * rng.normal(size=n)),
            "hue": np.array(["red", "blue", "green"])[truth],
            "day": pd.to_datetime("2024-01-01") + pd.to_timedelta(rng.integers(99, size=n), unit="D"),
            "note": [f"note {i}" for i in range(n)],
            "truth": truth,
            "candidates": [f"{a}|{b}" for a, b in zip(truth, (truth + 1 + rng.integers(2, size=n)) % 3, strict=True)],
        }
    )
    frame.to_csv(tmp_path / "t.csv", index=False)
    return tmp_path / "t.csv"


def inspected(*arguments: object) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["inspect", *map(str, arguments), "--json"])
    assert done.exit_code == 0, (done.output, done.exception)
    return json.loads(done.output)  # type: ignore[no-any-return]


@pytest.mark.parametrize("more", [[], ["--category", "hue", "--gold", "truth"], ["--not", "hue", "--ignore", "note"]])
def test_inspect_and_fit_say_the_same_of_the_same_table(table: Path, more: list[str]) -> None:
    found = inspected(table, *more)
    warned = [finding["text"] for finding in found["findings"] if finding["severity"] == "warn"]
    parts = dict(zip(more[::2], more[1::2], strict=True))
    roles = ColumnRoles(
        gold=parts.get("--gold"), exclude=parts.get("--not"), ignore=("note",) if "--ignore" in parts else ()
    )
    roles = replace(roles, categories=("hue",) if "--category" in parts else ())
    run = fit_table(table, table.parent / "RUN", FitSpec(roles, config=FitConfig(SMALL)))
    assert run.metadata["warnings"] == warned
    assert any(line.startswith("columns of dates are read as numbers of days: day.") for line in warned)
    assert run.metadata["classes"] == found["counts"]["classes"]
    left_out = [line.split(": ")[1].split(".")[0] for line in warned if "are left out" in line]
    assert ("truth" in left_out) == ("--gold" not in parts)
    assert {"id", "truth"}.isdisjoint(run.metadata["features"])


def test_inspect_imputes_what_fit_imputes(table: Path) -> None:
    found = inspected(table, "--category", "hue")
    assert found["faults"]["nonfinite"] == []
    assert "stop" not in [finding["severity"] for finding in found["findings"]]


def test_inspect_leaves_texts_aside_and_says_so(table: Path) -> None:
    texts = [finding["text"] for finding in inspected(table, "--text", "note")["findings"]]
    assert any("skipped here: note. `oneof fit` uses them." in text for text in texts)
    alone = inspected(
        table, "--text", "note", *(word for name in ("size", "day", "hue") for word in ("--ignore", name))
    )
    assert alone["faults"] is None


def test_the_hint_on_identifiers_holds_on_the_command_line(table: Path) -> None:
    before = inspected(table)
    hint = next(one["text"] for one in before["findings"] if "columns of identifiers" in one["text"])
    assert "left out: note." in hint
    assert "--category NAME" in hint
    after = inspected(table, "--category", "note")
    assert not any("columns of identifiers" in one["text"] for one in after["findings"])


def test_exclusions_alone_are_inspected(tmp_path: Path) -> None:
    path = tmp_path / "no.csv"
    path.write_text("size,no\n1,cat\n2,dog\n3,fox\n")
    assert inspected(path, "--not", "no")["counts"]["sizes"] == [0, 0, 3, 0]
