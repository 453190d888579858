"""`oneof fit --votes` on a table without features: votes alone decide, and the run can be cleaned, shown and fitted again."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from oneof.cli import main

N = 120
LABELS = np.array(["rain", "snow", "sun"])


def simulated_votes(seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Return three votes on each of N items, by people who are right in 80 % of theirs, and the true labels."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(3, size=N)
    rows = []
    for item in range(N):
        for annotator in rng.permutation(6)[:3]:
            label = truth[item] if rng.random() < 0.8 else rng.integers(3)
            rows.append((f"tweet {item}", f"person {annotator}", LABELS[label]))
    return pd.DataFrame(rows, columns=["item", "annotator", "label"]), LABELS[truth]


def run_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["oneof", *map(str, words)])
    with pytest.raises(SystemExit) as end:
        main()
    printed = capsys.readouterr()
    return int(end.value.code or 0), " ".join((printed.out + printed.err).split())


@pytest.mark.parametrize("more", [{}, {"text": [f"words of tweet {item}" for item in range(N)]}])
def test_votes_alone_resolve_a_table_of_items(tmp_path: Path, monkeypatch, capsys, more) -> None:
    votes, truth = simulated_votes()
    votes.to_csv(tmp_path / "votes.csv", index=False)
    items = pd.DataFrame({"item": [f"tweet {item}" for item in range(N)], **more})
    items.to_csv(tmp_path / "items.csv", index=False)
    left_out = ["--ignore", "text"] if more else []
    run = tmp_path / "run"

    code, printed = run_command(
        monkeypatch, capsys, "fit", tmp_path / "items.csv", "--votes", tmp_path / "votes.csv", "--on", "item", "--out",
        run, *left_out,
    )  # fmt: skip
    assert code == 0, printed
    assert "no features" in printed

    code, printed = run_command(monkeypatch, capsys, "clean", run, "--out", tmp_path / "labels.csv")
    assert code == 0, printed
    with (tmp_path / "labels.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    resolved = np.array([row["label"] for row in rows])
    counts = votes.groupby(["item", "label"]).size().unstack(fill_value=0).loc[items["item"], LABELS]
    majority = LABELS[counts.to_numpy().argmax(1)]
    assert (resolved == truth).mean() >= (majority == truth).mean() - 0.02  # two ties
    assert any("votes favour" in row["why"] for row in rows)

    code, printed = run_command(monkeypatch, capsys, "report", run, "--out", tmp_path / "page.html")
    assert code == 0, printed
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "votes alone decide" in page
    assert "0 features" not in page
    assert "the candidate sets" not in page  # a column that the file does not have
    assert "0 results of the search" not in page

    code, printed = run_command(monkeypatch, capsys, "fit", "--from", run, "--out", tmp_path / "again")
    assert code == 0, printed


def test_new_rows_are_refused_in_words(tmp_path: Path, monkeypatch, capsys) -> None:
    votes, _ = simulated_votes()
    votes.to_csv(tmp_path / "votes.csv", index=False)
    pd.DataFrame({"item": [f"tweet {item}" for item in range(N)]}).to_csv(tmp_path / "items.csv", index=False)
    run_command(monkeypatch, capsys, "fit", tmp_path / "items.csv", "--votes", tmp_path / "votes.csv", "--out", tmp_path / "run")  # fmt: skip
    for words in (["predict", tmp_path / "run", tmp_path / "items.csv"], ["export", tmp_path / "run"]):
        out = ["--onnx", tmp_path / "model.onnx"] if words[0] == "export" else ["--out", tmp_path / "new.csv"]
        code, printed = run_command(monkeypatch, capsys, *words, *out)
        assert code == 2
        assert "votes alone" in printed
        assert "--text" in printed
    assert not (tmp_path / "new.csv").exists()
    assert not (tmp_path / "model.onnx").exists()


def test_an_item_without_votes_gets_the_most_frequent_label_and_is_asked_about(tmp_path, monkeypatch, capsys) -> None:
    votes, truth = simulated_votes()
    votes[votes["item"] != "tweet 7"].to_csv(tmp_path / "votes.csv", index=False)
    pd.DataFrame({"item": [f"tweet {item}" for item in range(N)]}).to_csv(tmp_path / "items.csv", index=False)
    run_command(monkeypatch, capsys, "fit", tmp_path / "items.csv", "--votes", tmp_path / "votes.csv", "--out", tmp_path / "run")  # fmt: skip
    run_command(monkeypatch, capsys, "clean", tmp_path / "run", "--out", tmp_path / "labels.parquet")
    rows = pd.read_parquet(tmp_path / "labels.parquet")
    assert rows["ask"][7]
    assert rows["label"][7] == pd.Series(truth).mode()[0]
    assert rows["probability"][7] < 0.6
    assert rows["why"][7].startswith("Nobody voted on it.")
    assert list(rows["original"][7]) == []


def test_candidates_without_features_are_still_refused(tmp_path: Path, monkeypatch, capsys) -> None:
    pd.DataFrame({"candidates": ["rain|sun"] * 30}).to_csv(tmp_path / "sets.csv", index=False)
    code, printed = run_command(monkeypatch, capsys, "fit", tmp_path / "sets.csv", "--out", tmp_path / "run")
    assert code == 2
    assert "features must be columns to learn from" in printed


def test_a_class_that_no_row_keeps_is_said_on_terminal_and_page_and_in_clean(tmp_path, monkeypatch, capsys) -> None:
    votes, _ = simulated_votes()
    votes.to_csv(tmp_path / "votes.csv", index=False)
    pd.DataFrame({"item": [f"tweet {item}" for item in range(N)]}).to_csv(tmp_path / "items.csv", index=False)
    words = ["fit", tmp_path / "items.csv", "--votes", tmp_path / "votes.csv", "--out", tmp_path / "run"]
    commands = {
        "fit": words,
        "clean": ["clean", tmp_path / "run", "--out", tmp_path / "labels.csv"],
        "report": ["report", tmp_path / "run", "--out", tmp_path / "page.html"],
    }
    for command, words in commands.items():
        code, printed = run_command(monkeypatch, capsys, *words)
        assert code == 0, printed
        assert "no row has" not in printed, command
    path = tmp_path / "run" / "purified.parquet"
    purified = pq.read_table(path)
    place = purified.column_names.index("label")
    all_rain = purified.set_column(place, "label", [pa.array(["rain"] * N)])
    pq.write_table(all_rain, path)
    named = int((votes["label"] == "snow").sum())
    for command in ("fit", "clean"):
        _, printed = run_command(monkeypatch, capsys, *commands[command])
        assert f"'snow' ({named} votes)" in printed, command
        assert "'sun'" in printed
    run_command(monkeypatch, capsys, *commands["report"])
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    first_screen = page[page.index("<header") : page.index("</header>")]
    assert f"snow&#39; ({named} votes)" in first_screen


def test_votes_may_name_every_label_on_every_row(tmp_path: Path, monkeypatch, capsys) -> None:
    """Sets that hold all labels say nothing, but the votes do: two of three people agree on every row."""
    rows = []
    for item in range(60):
        label = "ab"[item % 2]
        other = "ba"[item % 2]
        rows += [(item, "x", label), (item, "y", label), (item, "z", other)]
    pd.DataFrame(rows, columns=["item", "annotator", "label"]).to_csv(tmp_path / "votes.csv", index=False)
    x = np.random.default_rng(0).normal(size=60).round(3)
    pd.DataFrame({"item": range(60), "x": x}).to_csv(tmp_path / "items.csv", index=False)
    code, printed = run_command(
        monkeypatch, capsys, "fit", tmp_path / "items.csv", "--votes", tmp_path / "votes.csv", "--on", "item", "--quick",
        "--out", tmp_path / "run",
    )  # fmt: skip
    assert code == 0, printed
    assert "exclude no label" not in printed
    run_command(monkeypatch, capsys, "clean", tmp_path / "run", "--out", tmp_path / "labels.parquet")
    labels = pd.read_parquet(tmp_path / "labels.parquet")["label"]
    assert (labels == ["a", "b"] * 30).all()
