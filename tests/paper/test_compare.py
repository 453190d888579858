"""A method of one's own, compared: the same splits and search as its rivals, paired tests, one line for bad input."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from oneof.methods import CC
from oneof.storage.rows import read
from oneof.training.trials import Training
from oneof_paper import compare as comparing
from oneof_paper.cli.compare import compare
from oneof_paper.data.catalogue import load
from oneof_paper.experiments import TABULAR
from oneof_paper.paired_tests import holm, paired

METHOD = """
from dataclasses import dataclass
from oneof.methods import CC, Method

@dataclass(frozen=True)
class Mine(CC):
    "CC by another name."

number = 3
"""


@pytest.fixture
def mine(tmp_path, monkeypatch) -> str:
    monkeypatch.setattr(
        comparing, "TABULAR", replace(TABULAR, training=Training(4, 20), lr=(0.1,), weight_decay=(1e-3, 1e-2))
    )
    (tmp_path / "mine.py").write_text(METHOD)
    return f"{tmp_path / 'mine.py'}:Mine"


@pytest.fixture
def table(tmp_path) -> Path:
    """Three blobs as a table with sets and true labels."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 120)
    x = rng.normal(size=(120, 2)) + 3 * np.eye(3, 2)[labels]
    with (tmp_path / "blobs.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["a", "b", "candidates", "label"])
        for point, y in zip(x, labels, strict=True):
            other = rng.integers(0, 3)
            writer.writerow([*point, "|".join(sorted({f"c{y}", f"c{other}"})), f"c{y}"])
    return tmp_path / "blobs.csv"


def test_a_method_of_ones_own_is_compared_on_equal_terms(mine, table, tmp_path, capsys):
    path = tmp_path / "rows.jsonl"
    compare(mine, str(table), seeds=3, against="proden,cc", rows=path)
    out, err = capsys.readouterr()
    assert err.count("is done") == 3
    lines = out.strip().splitlines()
    assert lines[0].startswith("| chosen by | against | Mine | it | gain |")
    assert [line.split(" | ")[:2] for line in lines[2:4]] == [["| covering rate", "CC"], ["| covering rate", "PRODEN"]]
    rows = read(path)
    assert {row["seed"] for row in rows} == {130, 131, 132}
    by = {(row["system"], row["rule"], row["seed"]): row["accuracy"] for row in rows if row["kind"] == "chosen"}
    assert all(by["Mine", "covering", seed] == by["CC", "covering", seed] for seed in (130, 131, 132))  # the same loss
    others = [
        [100 * by[name, rule, s] for s in (130, 131, 132)] for rule in comparing.rules() for name in ("CC", "PRODEN")
    ]
    ours = [[100 * by["Mine", rule, s] for s in (130, 131, 132)] for rule in comparing.rules() for _ in range(2)]
    corrected = holm([paired(a, b).t_p for a, b in zip(ours, others, strict=True)])
    assert [line.split(" | ")[6] for line in lines[2:]] == [f"{p:.2g}" for p in corrected]
    compare(mine, str(table), seeds=3, against="proden,cc", rows=path, latex=True)
    out, err = capsys.readouterr()
    assert "is done" not in err  # all rows were there
    assert out.startswith(r"\begin{tabular}{llrrrrrrr}")


def test_a_table_is_the_data_that_it_holds(table):
    data = comparing.open_data(str(table), "label", None)
    assert data.x.shape == (120, 2)
    assert data.classes == ["c0", "c1", "c2"]
    assert data.candidates[np.arange(120), data.labels].all()


def test_names_and_instances_are_methods_too(tmp_path):
    assert comparing.own_method("cc") == CC()
    (tmp_path / "made.py").write_text("from oneof.methods import CC\nmade = CC()\n")
    assert comparing.own_method(f"{tmp_path / 'made.py'}:made") == CC()


def test_bad_input_gets_one_line(mine, table, tmp_path, monkeypatch):
    file = mine.removesuffix(":Mine")
    for given, message in (
        ("prodn", r"method must be FILE.py:NAME or one of proden.*Did you mean 'proden'\?"),
        ("nowhere.py:Mine", r"method must name a Python file before the colon; 'nowhere.py' is none"),
        (f"{file}:number", r"method must name a oneof.Method in .*mine.py; 'number' is int"),
        (f"{file}:Yours", r"'Yours' is NoneType"),
    ):
        with pytest.raises(ValueError, match=message):
            comparing.own_method(given)
    with pytest.raises(ValueError, match=r"against must be of proden.*got 'prodn'\. Did you mean 'proden'\?"):
        list(
            comparing.compare(
                CC(), comparing.open_data(str(table), "label", None), ["prodn"], [0, 1], tmp_path / "rows.jsonl"
            )
        )
    monkeypatch.setattr(comparing, "load", lambda name, folder: replace(load("digits"), name=name))
    with pytest.raises(
        ValueError, match=r"data must have candidate sets and a true label in every row; digits does not"
    ):
        comparing.open_data("digits", "label", None)
