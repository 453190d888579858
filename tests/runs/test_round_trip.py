"""From votes to a classifier, through the files that the commands write and read."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
from typer.testing import CliRunner

from oneof import PartialLabelClassifier
from oneof.cli import app
from oneof.data.table import ColumnRoles, read_table
from oneof_paper.synthetic import mixture

NAMES = np.array(["ant", "bee", "cow"])


def call(*arguments):
    done = CliRunner().invoke(app, [*map(str, arguments)])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output


def voted(folder):
    """Three annotators of 200 items, each right four times in five; features beside them."""
    data = mixture(n=200, d=3, c=3, separation=5.0, seed=0)
    rng = np.random.default_rng(1)
    right = rng.random((200, 3)) < 0.8
    votes = np.where(right, data.labels[:, None], rng.integers(3, size=(200, 3)))
    long = {"item": np.repeat(np.arange(200), 3), "annotator": ["x", "y", "z"] * 200, "label": NAMES[votes.ravel()]}
    pd.DataFrame(long).to_csv(folder / "votes.csv", index=False)
    return data


def test_votes_become_sets_become_a_classifier(tmp_path):
    data = voted(tmp_path)
    call("votes", tmp_path / "votes.csv", "--policy", "union", "--out", tmp_path / "sets.parquet")
    sets = pd.read_parquet(tmp_path / "sets.parquet").set_index("item").loc[range(200)]
    table = pd.DataFrame(data.x, columns=["a", "b", "c"]).assign(
        candidates=sets["candidates"].to_numpy(), truth=NAMES[data.labels]
    )
    table.to_parquet(tmp_path / "table.parquet")
    read = read_table(tmp_path / "table.parquet", ColumnRoles(features=("a", "b", "c")))
    x = read.columns.numbers
    clf = PartialLabelClassifier(epochs=40, random_state=0).fit(x, read.candidates.mask)
    assert (read.candidates.classes[clf.predict(x)] == NAMES[data.labels]).mean() > 0.9
    assert (read.candidates.classes[clf.transduction_] == NAMES[data.labels]).mean() > 0.9


def test_inspect_keeps_true_labels_out_of_the_features(tmp_path):
    data = voted(tmp_path)
    table = pd.DataFrame(data.x, columns=["a", "b", "c"]).assign(candidates=NAMES[data.labels], truth=data.labels)
    table["candidates"] = table["candidates"] + "|bee"
    table.assign(truth=table["truth"].map(dict(enumerate(NAMES)))).to_csv(tmp_path / "named.csv", index=False)
    with_label = json.loads(call("inspect", tmp_path / "named.csv", "--gold", "truth", "--json"))
    without = json.loads(call("inspect", tmp_path / "named.csv", "--features", "*", "--ignore", "truth", "--json"))
    assert with_label.pop("columns")["truth"]["use"] == "gold"
    assert without.pop("columns")["truth"]["use"] == "left out"
    assert with_label == without
