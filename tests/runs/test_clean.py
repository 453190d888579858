"""`oneof clean` in batches: the same table as the one made in memory, with decisions, gold labels and copied columns."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from run_folder import write_run

import oneof.runs.clean
from oneof.runs.clean import write_labels
from oneof.runs.decisions import Decision
from oneof.runs.explain import with_explanations
from oneof.runs.folder import Run
from oneof.runs.labels_csv import plain_table, with_named_labels


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(oneof.runs.clean, "_BATCH_ROWS", 64)
    return Run.open(write_run(tmp_path / "run", 300))


def decide(run: Run) -> None:
    """Let a person decide rows of several batches."""
    for row in (0, 63, 64, 299):
        candidates = run.purified["original"][row].as_py()
        run.log.write(Decision(row, "label", (candidates[-1],), "ann", before=tuple(candidates)))


@pytest.mark.parametrize("is_decided", [False, True])
def test_batches_write_what_the_whole_table_has(run: Run, tmp_path: Path, is_decided: bool) -> None:
    if is_decided:
        decide(run)
    expected = with_explanations(run.decided, 3)
    summary = write_labels(run, tmp_path / "labels.parquet", details=True)
    found = pq.read_table(tmp_path / "labels.parquet")
    assert found.column_names == expected.column_names
    for name in expected.column_names:
        assert found[name].to_pylist() == expected[name].to_pylist(), name
    assert summary.n_rows == 300
    assert summary.n_to_ask == sum(expected["ask"].to_pylist())
    assert summary.n_outside == 300 - expected["outside"].null_count
    assert summary.n_decided == sum(expected["decided"].to_pylist())


@pytest.fixture(autouse=True)
def three_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder made up for tests has no model: say that three were fitted."""
    monkeypatch.setattr(Run, "n_models", 3)


def test_the_purified_table_is_never_read_as_a_whole(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Run) -> pa.Table:
        raise AssertionError("the whole table was read")

    monkeypatch.setattr(Run, "purified", property(refuse))
    write_labels(run, tmp_path / "labels.csv")
    assert (tmp_path / "labels.csv").read_text().count("\n") >= 301


VOTED = pa.table(
    {
        "row": [0, 1],
        "original": [["ant", "bee", "cow"]] * 2,
        "kept": [["ant", "bee", "cow"]] * 2,
        "distribution": [[0.1, 0.3, 0.6], [0.2, 0.5, 0.3]],
        "label": ["cow", "bee"],
        "probability": [0.6, 0.5],
        "margin": [0.3, 0.2],
        "votes": pa.array(
            [[{"label": "ant", "votes": 2.0}, {"label": "cow", "votes": 1.0}], []],
            pa.list_(pa.struct([("label", pa.string()), ("votes", pa.float32())])),
        ),
        "outside": pa.nulls(2, pa.string()),
    }
)


def test_where_people_voted_original_has_what_they_named_in_order_of_probability() -> None:
    plain = plain_table(VOTED)
    assert plain.column_names == ["row", "label", "probability", "original", "votes", "probabilities"]
    first, second = plain.to_pylist()
    assert (first["original"], first["votes"], first["probabilities"]) == (["cow", "ant"], [1.0, 2.0], [0.6, 0.1])
    assert (second["original"], second["votes"]) == ([], [])
    named = with_named_labels(VOTED).to_pylist()
    assert [row["kept"] for row in named] == [["cow", "ant"], []]


def test_without_votes_the_whole_set_is_kept(run: Run, tmp_path: Path) -> None:
    write_labels(run, tmp_path / "labels.parquet")
    found = pq.read_table(tmp_path / "labels.parquet").to_pylist()
    for row, stored in zip(found, run.purified.to_pylist(), strict=True):
        assert set(row["original"]) == set(stored["original"])
        assert row["probabilities"] == sorted(row["probabilities"], reverse=True)
        assert "votes" not in row
        assert "margin" not in row
    table = run.purified
    assert with_named_labels(table) is table
