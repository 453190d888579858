"""The file of candidate sets, and `oneof votes` that makes it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from typer.testing import CliRunner

from oneof.candidates.read import read as read_sets
from oneof.cli.votes import votes as command
from oneof.data.table import ColumnRoles, read_table
from oneof.votes import at_least, read_long, union, write

FIXTURES = Path(__file__).parents[1] / "fixtures" / "votes"


def test_the_file_goes_back_into_candidates(tmp_path: Path) -> None:
    votes = read_long(FIXTURES / "long.csv")
    sets = at_least(votes, 2)
    write(votes, sets, tmp_path / "sets.parquet")
    table = pq.read_table(tmp_path / "sets.parquet")
    assert str(table.schema.field("candidates").type) == "list<element: string>"
    assert table["item"].to_pylist() == votes.items.to_pylist()
    assert table["votes"][0].as_py() == [
        {"label": name, "votes": n} for name, n in [("cat", 2), ("dog", 1), ("fox", 1)]
    ]
    read = read_sets(table["candidates"])
    np.testing.assert_array_equal(read.mask, sets.mask)
    assert read.classes.tolist() == votes.labels


def test_a_csv_gives_fit_the_same_sets_as_parquet(tmp_path: Path) -> None:
    llm = [FIXTURES / "llm.csv", *LLM, "--normalise", "--map", FIXTURES / "llm_map.csv"]
    for name, arguments in {"long": [FIXTURES / "long.csv"], "llm": llm}.items():
        read = {}
        for ending in ("csv", "parquet"):
            path = tmp_path / f"{name}.{ending}"
            invoke(*arguments, "--out", path)
            assert (path.read_bytes()[:4] == b"PAR1") is (ending == "parquet")
            read[ending] = read_table(path, ColumnRoles(features=("item",))).candidates
        np.testing.assert_array_equal(read["csv"].mask, read["parquet"].mask)
        assert read["csv"].classes.tolist() == read["parquet"].classes.tolist()
    assert "na" in read["csv"].classes.tolist()  # a label, not a gap


def test_a_label_that_a_csv_would_change_is_refused(tmp_path: Path) -> None:
    for label in ("cat|dog", " cat", "  "):
        votes = read_long(pa.table({"item": [1, 1], "annotator": ["a", "b"], "label": [label, "fox"]}))
        with pytest.raises(
            ValueError, match=r"labels in a CSV must have no '\|' and no blanks around them; got '.*'\. Write"
        ):
            write(votes, union(votes), tmp_path / "sets.csv")
        write(votes, union(votes), tmp_path / "sets.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["sets.parquet"]


def test_a_file_that_is_read_is_never_written_over(tmp_path: Path) -> None:
    votes, synonyms = tmp_path / "votes.csv", tmp_path / "map.csv"
    votes.write_text("item,annotator,label\n1,a,x\n1,b,y\n")
    synonyms.write_text("from,to\nx,z\n")
    (tmp_path / "link.csv").symlink_to(votes)
    for out in (votes, synonyms, tmp_path / "link.csv"):
        with pytest.raises(
            ValueError, match=r"out must be another file than those that are read; got '.*\.csv' for both"
        ):
            invoke(votes, "--map", synonyms, "--out", out)
    assert votes.read_text().startswith("item,annotator")


def test_an_out_that_cannot_be_written_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"out must end in one of \.parquet, \.csv; got '.*sets\.xlsx'"):
        invoke(tmp_path / "missing.csv", "--out", tmp_path / "sets.xlsx")
    with pytest.raises(ValueError, match=r"out must lie in a folder that exists; got"):
        invoke(tmp_path / "missing.csv", "--out", tmp_path / "no" / "sets.csv")


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    votes = read_long(FIXTURES / "long.csv")
    (tmp_path / "sets.parquet").write_text("old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        write(votes, union(votes), tmp_path / "sets.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["sets.parquet"]
    assert (tmp_path / "sets.parquet").read_text() == "old"


def invoke(*arguments: str | Path) -> str:
    app = typer.Typer()
    app.command()(command)
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None:
        raise result.exception
    return result.output


LLM = ["--item", "id", "--columns", "gpt", "--columns", "claude", "--columns", "gemini", "--separator", "|"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["long.csv"], ["cat|dog|fox", "dog", "cat|fox", "cat|dog|fox"]),
        (["long.csv", "--kind", "long", "--policy", "at-least", "--k", "2"], ["cat", "dog", "cat|fox", "dog"]),
        (["long.csv", "--policy", "vaguest"], ["cat|dog", "dog", "cat|fox", "cat|dog|fox"]),
        (["long.csv", "--policy", "dawid-skene", "--p", "1", "--classes", "cat, dog,fox"], ["cat|dog|fox"] * 4),
        (["label_studio.json", "--from-name", "animal"], ["Cat|Dog", "Dog|Fox", "Fox"]),
        (
            ["llm.csv", *LLM, "--normalise", "--map", f"{FIXTURES}/llm_map.csv"],
            ["cat", "cat|dog", "dog|fox", "cat|fox|na"],
        ),
    ],
)
def test_the_command_writes_sets_of_every_kind(tmp_path: Path, arguments: list[str], expected: list[str]) -> None:
    out = tmp_path / "sets.parquet"
    shown = invoke(FIXTURES / arguments[0], *arguments[1:], "--out", out)
    assert ["|".join(row) for row in pq.read_table(out)["candidates"].to_pylist()] == expected
    assert "Krippendorff's alpha" in shown
    assert "join your features on its column item" in shown.replace("\n", " ")


def test_the_command_prints_json_and_writes_nothing_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    summary = json.loads(invoke(FIXTURES / "long.csv", "--json"))
    assert (summary["items"], summary["ties"], summary["sets"]["average"]) == (4, 1, 2.25)
    assert {who["annotator"] for who in summary["agreement"]} == {"ann", "bob", "eve"}
    assert list(tmp_path.iterdir()) == []


def test_the_command_names_annotators_far_from_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "votes.csv"
    rows = [f"{i},{a},{'ab'[i % 2]}" for i in range(40) for a in ("ann", "bob", "cid")] + [
        f"{i},[red]eve,a" for i in range(40)
    ]
    path.write_text("\n".join(["item,annotator,label", *rows, "1,dan,A"]))
    shown = invoke(path)
    assert "[red]eve" in shown
    assert "35.2% - 64.8%" in shown
    assert "'A' = 'a'" in shown


def test_the_command_says_a_long_spread_of_answers_in_short(tmp_path: Path) -> None:
    path = tmp_path / "votes.csv"
    path.write_text(
        "item,annotator,label\n" + "".join(f"{i},{a},{'ab'[a % 2]}\n" for i in range(9) for a in range(i + 1))
    )
    assert "from 1 to 9 answers per item" in invoke(path)


def test_the_command_leaves_no_file_behind_bad_input(tmp_path: Path) -> None:
    out = tmp_path / "sets.parquet"
    for arguments, message in (
        (["long.csv", "--label", "lable"], "Did you mean 'label'"),
        (["long.csv", "--policy", "at-least", "--k", "0"], "k must be at least 1"),
        (["long.csv", "--classes", "cat,dog"], "got 'fox' in .*long.csv, column 'label', row 3"),
        (["llm.csv", *LLM, "--confidence", "gpt"], "confidence must be left out for a wide table; got 'gpt'"),
    ):
        with pytest.raises(ValueError, match=message):
            invoke(FIXTURES / arguments[0], *arguments[1:], "--out", out)
    assert list(tmp_path.iterdir()) == []
