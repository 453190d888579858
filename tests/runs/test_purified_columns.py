"""The purified table of a run from elsewhere: types and values that no command could work with are refused at opening."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import call
from run_folder import FALL, write_run

from oneof.review.session import Review
from oneof.runs.folder import Run

N = 20
NAMES = ["cat", "dog", "fox"]
SHARES = ["probability", "margin", "agreement", "distribution", "gain"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", n=N, names=NAMES)


def replace_column(run: Path, name: str, column: pa.Array) -> None:
    table = pq.read_table(run / "purified.parquet")
    position = table.column_names.index(name)
    pq.write_table(table.set_column(position, name, column), run / "purified.parquet")


def refusal(run: Path) -> str:
    with pytest.raises(ValueError, match=r"purified\.parquet must be the file that oneof fit wrote; ") as raised:
        _ = Run.open(run).purified
    assert "\n" not in str(raised.value)
    return str(raised.value)


def removals(**change: Any) -> pa.Array:
    return pa.array([[{"label": "cat", "round": 1, "margin": 0.5, "trials": 1, **change}]] * N, pa.list_(FALL))


COLUMNS = [
    "row", "original", "kept", "label", "probability", "margin", "agreement", "ask", "outside", "removed", "trained", "neighbours",
    "gain", "distribution", "gold", "group",
]  # fmt: skip


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_of_another_type_is_named(run: Path, name: str) -> None:
    for column in (pa.array([b"x"] * N), pa.array([["x", None]] * N), pa.nulls(N), pa.array([{"a": 1}] * N)):
        if column.type == pa.list_(pa.string()) and name in ("original", "kept"):
            continue
        replace_column(run, name, column)
        assert f"column {name!r} must not hold" in refusal(run)


@pytest.mark.parametrize("name", [name for name in COLUMNS if name not in ("outside", "gold", "group")])
def test_a_gap_where_none_can_be_is_named(run: Path, name: str) -> None:
    kind = pq.read_schema(run / "purified.parquet").field(name).type
    replace_column(run, name, pa.array([None] * N, kind))
    assert f"column {name!r} has gaps" in refusal(run)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", SHARES)
def test_numbers_that_are_not_finite_are_named(run: Path, name: str, value: float) -> None:
    column = pq.read_table(run / "purified.parquet")[name]
    if name == "distribution":
        wrong = pa.array([[value] * len(cell) for cell in column.to_pylist()], column.type)
    else:
        wrong = pa.array([value] * N, column.type)
    replace_column(run, name, wrong)
    assert f"column {name!r} must hold finite numbers" in refusal(run)


@pytest.mark.parametrize(
    ("name", "column", "words"),
    [
        ("probability", pa.array([1.5] * N), "from 0 to 1"),
        ("agreement", pa.array([1e300] * N), "from 0 to 1"),
        ("margin", pa.array([-2.0] * N), "from -1 to 1"),
        ("distribution", pa.array([[0.5]] * N), "a number for every label of 'original'"),
        ("neighbours", pa.array([[N]] * N), "rows from 0 to 19"),
        ("neighbours", pa.array([[-1]] * N), "rows from 0 to 19"),
        ("neighbours", pa.array([[None]] * N, pa.list_(pa.int64())), "has gaps"),
        ("row", pa.array(range(N)[::-1]), "must count the rows"),
        ("original", pa.array([[]] * N, pa.list_(pa.string())), "empty set"),
        ("label", pa.array(["cow"] * N), "not a class of the run"),
        ("kept", pa.array([["cow"]] * N), "not a class of the run"),
        ("outside", pa.array(["cow"] * N), "not a class of the run"),
        ("removed", removals(label="cow"), "not a class of the run"),
        ("removed", removals(label=None), "has gaps"),
        ("removed", removals(round=None), "has gaps"),
        ("removed", removals(margin=np.inf), "finite numbers"),
    ],
)
def test_values_that_no_run_can_have_are_named(run: Path, name: str, column: Any, words: str) -> None:
    replace_column(run, name, column)
    message = refusal(run)
    assert f"column {name!r}" in message
    assert words in message


def test_a_row_without_any_probability_is_named(run: Path) -> None:
    column = pq.read_table(run / "purified.parquet")["distribution"]
    replace_column(run, "distribution", pa.array([[0.0] * len(cell) for cell in column.to_pylist()], column.type))
    assert "column 'distribution' must have a positive number in every row" in refusal(run)


@pytest.mark.parametrize("name", ["decided", "by", "why", "queue"])
def test_columns_with_the_names_of_those_that_commands_add_are_not_read(run: Path, name: str) -> None:
    table = pq.read_table(run / "purified.parquet")
    pq.write_table(table.append_column(name, pa.array([1] * N)), run / "purified.parquet")
    opened = Run.open(run)
    assert name not in opened.purified.column_names
    assert opened.decided.column_names.count(name) <= 1
    assert all(name not in batch.column_names for batch in opened.purified_batches(7))


def test_every_door_refuses_it_in_one_line(run: Path, tmp_path: Path) -> None:
    replace_column(run, "neighbours", pa.array([[10**9]] * N))
    for words in (["report", "--out", tmp_path / "p.html"], ["clean", "--out", tmp_path / "l.csv"]):
        done = call(words[0], str(run), *map(str, words[1:]))
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        assert "neighbours" in done.stderr
    with pytest.raises(ValueError, match="neighbours"):
        Review(run)


def test_a_table_that_was_written_is_accepted(run: Path) -> None:
    assert Run.open(run).purified.num_rows == N
