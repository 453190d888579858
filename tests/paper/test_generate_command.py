"""`oneof paper generate`: sets for named data, with the average beside the paper's."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from oneof_paper.cli import app
from oneof_paper.data.catalogue import load


def call(*arguments, ok=True):
    done = CliRunner().invoke(app, ["generate", *map(str, arguments)])
    assert (done.exit_code == 0) == ok, done.output
    return done


@pytest.mark.parametrize(
    ("options", "average"),
    [
        (["--kind", "flip", "--rate", "0.2"], 2.8),
        (["--kind", "pair", "--rate", "0.5"], 1.5),
        (["--kind", "uniform_set"], 5.49),
        (["--kind", "instance", "--average", "3.5", "--teacher-epochs", "2"], 3.5),
        (["--kind", "instance_paper", "--average", "2.5", "--teacher-epochs", "2"], 2.5),
    ],
)
def test_digits(tmp_path, options, average):
    out = tmp_path / "sets.npz"
    done = call("digits", "--out", out, "--seed", "3", *options)
    with np.load(out) as file:
        sets, made = file["candidates"], json.loads(str(file["made"]))
    assert sets[np.arange(1797), load("digits").labels].all()
    assert sets.sum(1).mean() == pytest.approx(average, abs=0.1)
    assert f"{sets.sum(1).mean():.2f} labels per set" in done.output
    assert made["seed"] == 3
    assert list(tmp_path.iterdir()) == [out]


def test_the_same_seed_gives_the_same_sets(tmp_path):
    for name in ("one", "two"):
        call("digits", "--out", tmp_path / f"{name}.npz", "--teacher-epochs", "1")
    with np.load(tmp_path / "one.npz") as one, np.load(tmp_path / "two.npz") as two:
        np.testing.assert_array_equal(one["candidates"], two["candidates"])


def test_class_dependent_sets_need_a_matrix(tmp_path):
    matrix = tmp_path / "matrix.csv"
    np.savetxt(matrix, np.full((10, 10), 0.25), delimiter=",")
    out = tmp_path / "sets.npz"
    assert "3.2" in call("digits", "--out", out, "--kind", "class", "--matrix", matrix).output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["digit"], "Did you mean 'digits'"),
        (["digits", "--kind", "flipp"], "kind must be one of flip, "),
        (["digits", "--kind", "class"], "kind 'class' needs a matrix"),
        (["digits", "--kind", "uniform_set", "--rate", "0.1"], "kind 'uniform_set' has no rate"),
        (["digits", "--kind", "flip", "--average", "3"], "average goes with the instance kinds"),
        (["digits", "--kind", "flip", "--matrix", "x.csv"], "matrix goes with kind 'class'"),
        (["digits", "--kind", "flip", "--rate", "2"], "rate must lie between 0 and 1; got 2.0"),
        (["digits", "--average", "9", "--teacher-epochs", "1"], "average set size must lie between"),
    ],
)
def test_messages(tmp_path, options, message):
    done = call(*options, "--out", tmp_path / "sets.npz", ok=False)
    assert message in str(done.exception)
    assert not (tmp_path / "sets.npz").exists()


def test_a_folder_that_is_not_there(tmp_path):
    done = call("digits", "--out", tmp_path / "none" / "sets.npz", ok=False)
    assert "out must be a file in a folder that is there" in str(done.exception)


@pytest.mark.data
@pytest.mark.skipif("ONEOF_DATA" not in os.environ, reason="needs real data sets: set ONEOF_DATA")
@pytest.mark.parametrize(("name", "paper"), [("lost", "2.23"), ("mnist", "8.71"), ("cifar10", "3.68")])
def test_real_sets(tmp_path, name, paper):
    done = call(name, "--out", Path(tmp_path) / "sets.npz", "--kind", "flip", "--rate", "0.1")
    assert f"the paper prints {paper}" in done.output
