"""Votes in parts on the disk: the sets, the agreement and the posterior of all votes in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from small_table import command

from oneof.votes import (
    alpha,
    annotator_agreement,
    at_least,
    dawid_skene,
    read_long,
    read_votes,
    summarise,
    top_p,
    union,
    vaguest,
)
from oneof.votes.policies import to_table
from oneof.votes.streaming import Agreement, partition_votes, stream_dawid_skene, stream_votes

N_ITEMS = 400
NAMES = ["cat", "dog", "eel", "ape"]


def make_votes(kind: str = "text", *, vague: float = 0.1, seed: int = 0) -> pa.Table:
    """Three to five answers on each item, some of two labels, in random order, with repeated and empty rows."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(4, size=N_ITEMS)
    rows = []
    for item in range(N_ITEMS):
        for annotator in rng.choice(12, rng.integers(3, 6), replace=False):
            right = rng.random() < 0.4 + annotator / 24
            label = truth[item] if right else rng.integers(4)
            rows.append((item, annotator, label, rng.random()))
            if rng.random() < vague:
                rows.append((item, annotator, (label + 1) % 4, rng.random()))
    rows += rows[:20]
    if kind == "uneven":  # an annotator names one label of an answer twice
        rows += [row for row in rows if row[0] % 3 == 0 and row[2] == 1]
    rng.shuffle(rows)
    item = [int(row[0]) for row in rows]
    ids = pa.array(item) if kind == "number" else pa.array([f"item-{i:04d}-é" for i in item])
    labels = [NAMES[int(row[2])] for row in rows]
    labels[7] = ""
    return pa.table(
        {
            "item": ids,
            "annotator": [f"p{int(row[1])}" for row in rows],
            "label": labels,
            "sure": [row[3] for row in rows],
        }
    )


@pytest.fixture(params=["text", "number", "csv", "uneven"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> list[Path]:
    table = make_votes(request.param)
    half = table.num_rows // 2
    paths = []
    for i, rows in enumerate((table.slice(0, half), table.slice(half))):
        if request.param == "csv":
            paths.append(tmp_path / f"{i}.csv")
            pacsv.write_csv(rows, paths[-1])
        else:
            paths.append(tmp_path / f"{i}.parquet")
            pq.write_table(rows, paths[-1])
    return paths


def in_memory(files: list[Path], confidence: str | None = None):
    tables = []
    for path in files:
        tables.append(pacsv.read_csv(path) if path.suffix == ".csv" else pq.read_table(path))
    return read_long(pa.concat_tables(tables), confidence=confidence)


@pytest.mark.parametrize("confidence", [None, "sure"])
def test_the_posterior_is_that_of_votes_in_memory(files: list[Path], tmp_path: Path, confidence: str | None) -> None:
    votes = in_memory(files, confidence)
    expected = dawid_skene(votes)
    parts = partition_votes(files, tmp_path / "parts", confidence=confidence, votes_per_part=300)
    assert parts.n_parts > 3
    fit = stream_dawid_skene(parts)
    assert (fit.rounds, fit.converged) == (expected.rounds, expected.converged)
    row_of = {item: row for row, item in enumerate(votes.items.to_pylist())}
    seen = []
    for part, posterior in fit.posteriors():
        rows = [row_of[item] for item in part.items.to_pylist()]
        np.testing.assert_allclose(posterior, expected.posterior[rows], atol=1e-6)
        seen += rows
    assert sorted(seen) == list(range(len(votes.items)))


def test_agreement_is_that_of_votes_in_memory(files: list[Path], tmp_path: Path) -> None:
    votes = in_memory(files)
    parts = partition_votes(files, tmp_path / "parts", votes_per_part=300)
    agreement = Agreement(parts)
    for part in parts:
        agreement.add(part)
    assert agreement.alpha == pytest.approx(alpha(votes), abs=1e-12)
    expected = {annotator.annotator: annotator for annotator in annotator_agreement(votes)}
    assert {annotator.annotator: annotator for annotator in agreement.annotators} == expected


@pytest.mark.parametrize("policy", ["union", "at-least", "vaguest", "dawid-skene"])
def test_sets_are_those_of_votes_in_memory(files: list[Path], tmp_path: Path, policy: str) -> None:
    votes = in_memory(files)
    sets = {"union": union, "at-least": at_least, "vaguest": vaguest, "dawid-skene": top_p}[policy](votes)
    expected = summarise(votes, sets)
    parts = partition_votes(files, tmp_path / "parts", votes_per_part=300)
    summary = stream_votes(parts, policy, out=tmp_path / "sets.parquet")
    for name in ("items", "annotators", "labels", "answers", "votes", "vague", "repeated", "ties", "fallback", "note"):
        assert getattr(summary, name) == getattr(expected, name), name
    assert summary.remarks == votes.remarks
    assert summary.alpha == pytest.approx(expected.alpha, abs=1e-12)
    assert (summary.average, summary.largest) == (expected.sets.average, expected.sets.largest)
    found = pq.read_table(tmp_path / "sets.parquet").sort_by("item")
    assert found.to_pylist() == to_table(votes, sets).sort_by("item").to_pylist()


def test_space_around_annotators_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "votes.csv").write_text("item,annotator,label\n1, ann ,cat\n2,ann,dog\n")
    assert partition_votes([tmp_path / "votes.csv"], tmp_path / "parts").annotators == ["ann"]


def test_a_vote_without_an_item_is_named(tmp_path: Path) -> None:
    table = pa.table({"item": ["a", None], "annotator": ["x", "y"], "label": ["cat", "dog"]})
    pq.write_table(table, tmp_path / "votes.parquet")
    with pytest.raises(ValueError, match=r"'item' must hold a value.*votes\.parquet has none in row 1"):
        partition_votes([tmp_path / "votes.parquet"], tmp_path / "parts")


@pytest.mark.parametrize("labels", [["cat", None, ""], [1.0, float("nan"), None]])
def test_a_row_without_a_label_is_no_vote(tmp_path: Path, labels: list[object]) -> None:
    table = pa.table({"item": ["a", "a", "b"], "annotator": ["x", "y", "x"], "label": labels})
    pq.write_table(table, tmp_path / "votes.parquet")
    (part,) = partition_votes([tmp_path / "votes.parquet"], tmp_path / "parts")
    assert part.items.to_pylist() == read_votes(tmp_path / "votes.parquet").items.to_pylist() == ["a"]
    assert part.annotators == ["x"]


def test_votes_need_a_label(tmp_path: Path) -> None:
    pq.write_table(pa.table({"item": ["a"], "annotator": ["x"], "label": [""]}), tmp_path / "votes.parquet")
    with pytest.raises(ValueError, match="at least one label"):
        partition_votes([tmp_path / "votes.parquet"], tmp_path / "parts")


@pytest.mark.parametrize("name", ["votes.json", "votes.jsonl", "votes"])
def test_files_that_cannot_be_read_in_batches_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text('{"item": 1, "annotator": "a", "label": "cat"}\n')
    with pytest.raises(ValueError, match=rf"one of \.csv, .*; got .*{name}\. Leave out --stream"):
        partition_votes([tmp_path / name], tmp_path / "parts")


@pytest.mark.parametrize("column", ["item", "annotator", "label"])
def test_nested_columns_are_refused(tmp_path: Path, column: str) -> None:
    columns = {"item": ["a"], "annotator": ["x"], "label": ["cat"]} | {column: [{"cat": 0.9}]}
    pq.write_table(pa.table(columns), tmp_path / "votes.parquet")
    with pytest.raises(
        TypeError, match=rf"'{column}' must hold one text .*votes\.parquet has struct.*Leave out --stream"
    ):
        partition_votes([tmp_path / "votes.parquet"], tmp_path / "parts")


@pytest.mark.parametrize("column", ["annotator", "label"])
def test_bytes_that_are_no_text_are_refused(tmp_path: Path, column: str) -> None:
    columns = {"item": ["a"], "annotator": ["x"], "label": ["cat"]} | {column: [b"\xff"]}
    pq.write_table(pa.table(columns), tmp_path / "votes.parquet")
    with pytest.raises(ValueError, match=r"votes\.parquet cannot be read; .*UTF8"):
        partition_votes([tmp_path / "votes.parquet"], tmp_path / "parts")


@pytest.mark.parametrize("confidence", [1.5, "high"])
def test_confidences_lie_between_0_and_1(tmp_path: Path, confidence: object) -> None:
    table = pa.table({"item": ["a"], "annotator": ["x"], "label": ["cat"], "sure": [confidence]})
    pq.write_table(table, tmp_path / "votes.parquet")
    with pytest.raises(ValueError, match="'sure' must hold confidences from 0 to 1"):
        partition_votes([tmp_path / "votes.parquet"], tmp_path / "parts", confidence="sure")


def test_the_command_streams_files(files: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pattern = files[0].with_name(f"*{files[0].suffix}")
    code, said, _ = command(
        "votes", pattern, "--stream", "--policy", "dawid-skene", "--out", tmp_path / "sets.parquet", capsys=capsys
    )
    assert code == 0
    assert f"{N_ITEMS}" in said
    assert pq.read_metadata(tmp_path / "sets.parquet").num_rows == N_ITEMS
    code, _, said = command("votes", pattern, "--stream", "--normalise", capsys=capsys)
    assert code == 2
    assert "--normalise" in said
