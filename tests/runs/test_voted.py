"""`oneof fit --votes`: from votes and features to labels better than the votes, in every form that people have votes in."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from oneof.cli import main
from oneof.data.roles import ColumnRoles
from oneof.estimator.classifier import PartialLabelClassifier
from oneof.runs.folder import Run
from oneof.runs.read_dataset import read_table_with_votes
from oneof.votes.read import VotesFile, read_votes, table_layout
from oneof_paper.synthetic import mixture

pytestmark = pytest.mark.usefixtures("small_forests")
N, C = 240, 4
DATA = mixture(n=N, d=4, c=C, separation=4.0, seed=0)
NAMES = np.array(["ant", "bee", "cow", "dog"])
CARE = {"ann": 0.85, "bob": 0.7, "cleo": 0.25, "dora": 0.6}


def cast(seed: int = 0) -> pd.DataFrame:
    """A column per person; who is careless names anything. A fifth of the cells are empty."""
    rng = np.random.default_rng(seed)
    table = {}
    for who, care in CARE.items():
        said = np.where(rng.random(N) < care, DATA.labels, rng.integers(C, size=N))
        table[who] = np.where(rng.random(N) < 0.2, None, NAMES[said])
    table["ann"] = np.where(pd.DataFrame(table).isna().all(axis=1), NAMES[DATA.labels], table["ann"])
    return pd.DataFrame(table)


WIDE = cast()
LONG = WIDE.assign(item=range(N)).melt("item", var_name="annotator", value_name="label").dropna()
FEATURES = pd.DataFrame(DATA.x, columns=[f"x{j}" for j in range(4)]).assign(item=range(N))


def command(monkeypatch, capsys, *words: object) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["oneof", *map(str, words)])
    with pytest.raises(SystemExit) as end:
        main()
    said = capsys.readouterr()
    return int(end.value.code or 0), said.out + said.err


def fitted(
    monkeypatch, capsys, folder: Path, votes: Path, *words: object, features: pd.DataFrame = FEATURES
) -> tuple[Run, str]:
    features.to_csv(folder / "features.csv", index=False)
    code, said = command(
        monkeypatch, capsys, "fit", folder / "features.csv", "--votes", votes, "--out", folder / "run", "--networks", 5,
        "--epochs", 15, *words,
    )  # fmt: skip
    assert code == 0, said
    return Run.open(folder / "run"), said


def test_labels_are_better_than_majority(tmp_path, monkeypatch, capsys):
    LONG.to_csv(tmp_path / "votes.csv", index=False)
    run, _ = fitted(monkeypatch, capsys, tmp_path, tmp_path / "votes.csv")
    counts = LONG.assign(n=1).pivot_table(index="item", columns="label", values="n", aggfunc="sum").fillna(0)[NAMES]
    shuffled = counts + np.random.default_rng(0).random(counts.shape) / 10
    majority = (shuffled.to_numpy().argmax(1) == DATA.labels).mean()
    ours = (np.array(run.purified["label"].to_pylist()) == NAMES[DATA.labels]).mean()
    assert ours > majority + 0.05
    assert run.metadata["features"] == ["x0", "x1", "x2", "x3"]
    people = {row["annotator"]: row["accuracy"] for row in run.metadata["people"]["annotators"]}
    assert max(people, key=people.get) == "ann"
    assert min(people, key=people.get) == "cleo"
    assert {row["label"] for row in run.purified["votes"][0].as_py()} == set(LONG.label[LONG.item == 0])


def test_every_form_of_votes_is_read_alike(tmp_path):
    LONG.to_csv(tmp_path / "long.csv", index=False)
    WIDE.assign(item=range(N)).to_csv(tmp_path / "wide.csv", index=False)
    nested = [
        {"item": i, "votes": {who: label for who, label in row.items() if isinstance(label, str)}}
        for i, row in enumerate(WIDE.to_dict("records"))
    ]
    (tmp_path / "jury.jsonl").write_text("".join(json.dumps(row) + "\n" for row in nested))
    (tmp_path / "flat.jsonl").write_text("".join(json.dumps(row) + "\n" for row in LONG.to_dict("records")))
    triples = [
        sorted(zip(*(np.array(names)[where].tolist() for names, where in (
            ([str(key) for key in votes.items.to_pylist()], votes.item), (votes.annotators, votes.annotator), (votes.labels, votes.label)
        )), strict=True))
        for votes in (read_votes(VotesFile(str(tmp_path / name))) for name in ("long.csv", "wide.csv", "jury.jsonl", "flat.jsonl"))
    ]  # fmt: skip
    assert triples[0] == triples[1] == triples[2] == triples[3]


def test_annotators_are_found_by_a_glob_or_guessed(tmp_path):
    table = WIDE.rename(columns=lambda name: f"llm_{name}").assign(
        item=range(N), text="some words " + LONG.item.astype(str)
    )
    table.to_csv(tmp_path / "wide.csv", index=False)
    path = str(tmp_path / "wide.csv")
    expected = [f"llm_{name}" for name in CARE]
    assert table_layout(VotesFile(path, columns=("llm_*",))).columns == tuple(expected)
    assert table_layout(VotesFile(path)).columns == tuple(expected)
    with pytest.raises(ValueError, match=r"annotators must be columns of .*; none matches 'gpt_\*'"):
        table_layout(VotesFile(path, columns=("gpt_*",)))


def test_votes_in_the_table_itself_are_no_features(tmp_path, monkeypatch, capsys):
    numbers = {name: {label: j for j, label in enumerate(NAMES)} for name in CARE}
    own = pd.concat([FEATURES, WIDE.replace(numbers)], axis=1)
    own["note"] = 1.5 * own["x0"]
    votes = tmp_path / "features.csv"
    words = ("--ignore", "note", *(word for name in CARE for word in ("--columns", name)))
    run, _ = fitted(monkeypatch, capsys, tmp_path, votes, *words, features=own)
    assert run.metadata["features"] == ["x0", "x1", "x2", "x3"]
    assert run.metadata["classes"] == ["0", "1", "2", "3"]
    reasons = {name: run.metadata["columns"][name]["reason"] for name in ("item", "ann", "note")}
    assert reasons == {"item": "ids of the items", "ann": "part of the votes", "note": "ignored as requested"}


def test_a_class_that_no_row_was_given_is_known_and_ids_may_be_written_as_decimals(tmp_path, monkeypatch, capsys):
    others = pd.DataFrame({"item": [1000.0], "annotator": ["ann"], "label": ["fox"]})
    votes = pd.concat([LONG.assign(item=LONG["item"].astype(float)), others])
    votes.to_csv(tmp_path / "votes.csv", index=False)
    run, said = fitted(
        monkeypatch, capsys, tmp_path, tmp_path / "votes.csv", "--quick", "--classes", "ant,bee,cow,dog,eel,fox"
    )
    assert set(run.metadata["classes"]) == {*NAMES, "eel", "fox"}
    assert set(run.purified["label"].to_pylist()) <= set(NAMES)
    assert f"{N} ids are written in another way in the votes, such as '0.0' for '0'" in " ".join(said.split())


def test_a_missing_column_of_ids_is_named_with_its_option(tmp_path, monkeypatch, capsys):
    LONG.to_csv(tmp_path / "votes.csv", index=False)
    FEATURES.rename(columns={"item": "key"}).to_csv(tmp_path / "features.csv", index=False)
    words = ["fit", tmp_path / "features.csv", "--votes", tmp_path / "votes.csv", "--out", tmp_path / "run"]
    code, said = command(monkeypatch, capsys, *words)
    assert (code, (tmp_path / "run").exists()) == (2, False)
    assert "with --on" in said
    (tmp_path / "features.csv").write_text("item,x\n")
    code, said = command(monkeypatch, capsys, *words)
    assert code == 2
    assert "features.csv must have at least one row" in said


def test_rows_without_votes_and_votes_without_rows(tmp_path, monkeypatch, capsys):
    LONG[LONG.item >= 20].to_csv(tmp_path / "votes.csv", index=False)
    run, said = fitted(monkeypatch, capsys, tmp_path, tmp_path / "votes.csv", features=FEATURES[:230])
    said = " ".join(said.split())
    assert "20 of 230 rows have no votes: any label may be theirs." in said
    assert re.search(r"10 items with votes are not in .*: they help to tell careful people", said)
    right = np.array(run.purified["label"].to_pylist())[:20] == NAMES[DATA.labels[:20]]
    assert right.mean() > 0.7


@pytest.mark.parametrize(
    ("change", "words", "message"),
    [
        (
            lambda t: t.assign(item=t.item + 1000),
            [],
            "votes and features must belong together by 'item'; no item of the votes",
        ),
        (lambda t: t, ["--on", "song"], "column 'song' must be in"),
        (lambda t: t.drop(columns="label"), [], "column 'label'|'label' must be"),
    ],
)
def test_what_does_not_fit_is_said_in_one_line(tmp_path, monkeypatch, capsys, change, words, message):
    change(LONG).to_csv(tmp_path / "votes.csv", index=False)
    FEATURES.to_csv(tmp_path / "features.csv", index=False)
    code, said = command(
        monkeypatch,
        capsys,
        "fit",
        tmp_path / "features.csv",
        "--votes",
        tmp_path / "votes.csv",
        "--out",
        tmp_path / "run",
        *words,
    )
    assert code == 2, said
    assert re.search(message, said), said
    assert said.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_an_item_that_stands_twice_and_candidates_beside_votes_are_refused(tmp_path, monkeypatch, capsys):
    LONG.to_csv(tmp_path / "votes.csv", index=False)
    for table, message in (
        (pd.concat([FEATURES, FEATURES[:1]]), "an item must be one row; .* has '0' in rows 0 and 240. Drop one."),
        (FEATURES.assign(candidates="ant|bee"), "must have no column 'candidates' beside votes"),
    ):
        table.to_csv(tmp_path / "features.csv", index=False)
        code, said = command(
            monkeypatch,
            capsys,
            "fit",
            tmp_path / "features.csv",
            "--votes",
            tmp_path / "votes.csv",
            "--out",
            tmp_path / "run",
        )
        assert code == 2
        assert re.search(message, said), said


def test_the_same_run_is_opened_and_other_votes_are_another_run(tmp_path, monkeypatch, capsys):
    LONG.to_csv(tmp_path / "votes.csv", index=False)
    run, _ = fitted(monkeypatch, capsys, tmp_path, tmp_path / "votes.csv")
    words = [
        "fit",
        tmp_path / "features.csv",
        "--votes",
        tmp_path / "votes.csv",
        "--out",
        tmp_path / "run",
        "--networks",
        5,
        "--epochs",
        15,
    ]
    assert "finished already" in " ".join(command(monkeypatch, capsys, *words)[1].split())
    LONG[1:].to_csv(tmp_path / "votes.csv", index=False)
    code, said = command(monkeypatch, capsys, *words)
    assert code == 2
    assert "options: the file of votes was another file, or has changed" in " ".join(said.split())
    assert PartialLabelClassifier.from_run(run.folder).predict(FEATURES).shape == (N,)
    for name, words in (("labels.csv", ["clean"]), ("page.html", ["report"])):
        code, said = command(monkeypatch, capsys, *words, run.folder, "--out", tmp_path / name)
        assert code == 0, said


def test_the_column_that_names_the_items_of_the_votes_names_those_of_the_table_too(tmp_path):
    """Both files have the column ticket, which --item names; --on is as it is by default."""
    (tmp_path / "tickets.csv").write_text("ticket,length\nT1,3\nT2,5\n")
    (tmp_path / "votes.csv").write_text("ticket,annotator,label\nT2,ann,login\nT1,bob,refund\n")
    votes_file = VotesFile(str(tmp_path / "votes.csv"), item="ticket", on="item")
    voted = read_table_with_votes(tmp_path / "tickets.csv", votes_file, ColumnRoles())
    assert voted.on == "ticket"
    assert [voted.votes.items[item].as_py() for item in voted.item] == ["T1", "T2"]
