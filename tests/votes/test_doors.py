"""The commands and Python read votes alike, and say how they were read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_votes_command import invoke
from typer.testing import CliRunner

import oneof
from oneof import PartialLabelClassifier
from oneof.cli import app
from oneof.data.roles import ColumnRoles
from oneof.runs.read_dataset import read_table_with_votes
from oneof.votes import read_votes
from oneof.votes.read import VotesFile

N = 30


def jury() -> pd.DataFrame:
    """A column per model, with dirty answers, and a column to learn from."""
    labels = np.where(np.arange(N) % 2, "cat", "dog")
    return pd.DataFrame(
        {
            "size": np.arange(N) % 2 + 0.01 * np.arange(N),
            "gpt": labels,
            "llama": labels,
            "qwen": [f"**{label}**." for label in labels],
        }
    )


def fit(*arguments: object) -> str:
    done = CliRunner().invoke(app, ["fit", *map(str, arguments)])
    assert done.exit_code == 0, done.output
    return done.output


def test_votes_of_a_table_without_ids_belong_to_its_rows(tmp_path: Path) -> None:
    table = jury().assign(truth="cat")
    table.to_csv(tmp_path / "t.csv", index=False)
    voted = read_table_with_votes(tmp_path / "t.csv", VotesFile(str(tmp_path / "t.csv")), ColumnRoles())
    assert voted.item.tolist() == list(range(N))
    assert set(voted.roles.ignore) == {"gpt", "llama", "qwen", "truth"}  # no features


def test_the_column_of_items_may_have_another_usual_name(tmp_path: Path) -> None:
    table = jury().assign(id=range(N))
    table[["id", "size"]].to_csv(tmp_path / "t.csv", index=False)
    table.drop(columns="size").to_csv(tmp_path / "v.csv", index=False)
    voted = read_table_with_votes(tmp_path / "t.csv", VotesFile(str(tmp_path / "v.csv")), ColumnRoles())
    assert voted.item.tolist() == list(range(N))


@pytest.mark.parametrize("name", ["id", None])
def test_labels_have_the_ids_that_the_table_has(tmp_path: Path, name: str | None) -> None:
    table = jury()
    if name is not None:
        table[name] = [f"r{i}" for i in range(N)]
    table.to_csv(tmp_path / "t.csv", index=False)
    fit(tmp_path / "t.csv", "--votes", tmp_path / "t.csv", "--quick", "--out", tmp_path / "run")
    cleaned = CliRunner().invoke(app, ["clean", str(tmp_path / "run"), "--out", str(tmp_path / "labels.csv")])
    assert cleaned.exit_code == 0, cleaned.output
    labels = pd.read_csv(tmp_path / "labels.csv")
    assert labels["label"].tolist() == table["gpt"].tolist()
    assert ("id" in labels) == (name is not None)


def test_fit_writes_the_map_and_takes_it_back(tmp_path: Path) -> None:
    jury().assign(item=range(N)).to_csv(tmp_path / "t.csv", index=False)
    pd.DataFrame({"item": range(N)}).to_csv(tmp_path / "items.csv", index=False)
    arguments = [tmp_path / "items.csv", "--votes", tmp_path / "t.csv", "--kind", "wide", "--quick"]
    output = fit(*arguments, "--map-out", tmp_path / "map.csv", "--out", tmp_path / "run")
    assert "were mapped to labels" in " ".join(output.split())
    written = pd.read_csv(tmp_path / "map.csv")
    assert set(written["answer"]) == {"**cat**.", "**dog**."}
    written.assign(label="fox").to_csv(tmp_path / "map.csv", index=False)
    fit(*arguments, "--map", tmp_path / "map.csv", "--out", tmp_path / "again")
    stored = json.loads((tmp_path / "again" / "run.json").read_text())
    assert stored["asked"]["votes"]["synonyms"]
    assert "fox" in stored["classes"]


def test_labels_of_one_answer_are_separated_alike(tmp_path: Path) -> None:
    frame = pd.DataFrame({"item": [1, 1], "annotator": ["a", "b"], "label": ["cat|dog", "cat"]})
    frame.to_csv(tmp_path / "v.csv", index=False)
    assert json.loads(invoke(tmp_path / "v.csv", "--json"))["labels"] == 2
    assert read_votes(frame).labels == ["cat", "dog"]
    assert read_votes(frame, separator=None).labels == ["cat", "cat|dog"]


def test_parts_of_an_answer_are_mapped_each(tmp_path: Path) -> None:
    frame = pd.DataFrame({"item": [1, 1], "annotator": ["a", "b"], "label": ["Cat. | **dog**", "cat"]})
    votes = read_votes(frame, classes=["cat", "dog", "fox"])
    assert votes.label.tolist() == [0, 1, 0]


def test_python_says_how_votes_were_read(caplog: pytest.LogCaptureFixture) -> None:
    wide = jury().drop(columns="size").assign(note=[f"remark {i}" for i in range(N)])
    labels = oneof.votes.resolve(wide)
    assert labels.classes == ["cat", "dog"]
    assert "Each of these columns is an annotator: gpt, llama, qwen" in caplog.text
    assert "Not used: note." in caplog.text
    caplog.clear()
    fitted = PartialLabelClassifier(quick=True, random_state=0).fit(jury()[["size"]], votes=wide)
    assert "Not used: note." in caplog.text
    assert fitted.transduction_.tolist() == jury()["gpt"].tolist()
