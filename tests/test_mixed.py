"""Tables to learn from: which column plays which part, and what every mistake is answered with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from oneof.data.mixed import Roles, read_columns, read_mixed

TABLE = pa.table(
    {
        "size": [1.5, None, 3.0, 4.0],
        "zip": [1, 2, 1, 2],
        "hue": ["red", None, "blue", "red"],
        "note": ["a", "b", "c", "d"],
        "candidates": ["cat|dog", "", "dog", "fox|cat"],
        "not": ["", "dog|fox", "", "fox"],
        "gold": ["cat", "", "", ""],
        "who": ["ann", "bob", "ann", "bob"],
    }
)
PARTS = Roles(features=("size", "hue"), categories=("zip",), exclude="not", gold="gold", group="who", ignore=("note",))


@pytest.fixture(params=["csv", "parquet", "arrow"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "arrow":
        return TABLE
    path = tmp_path / f"t.{request.param}"
    if request.param == "csv":
        TABLE.to_pandas().to_csv(path, index=False)
    else:
        pq.write_table(TABLE, path)
    return path


def test_every_part_is_read_from_every_form(table: Any) -> None:
    mixed = read_mixed(table, PARTS)
    np.testing.assert_array_equal(mixed.columns.numbers, np.array([[1.5], [np.nan], [3], [4]], np.float32))
    assert mixed.columns.words == {"zip": ["1", "2", "1", "2"], "hue": ["red", None, "blue", "red"]}
    assert mixed.candidates.classes.tolist() == ["cat", "dog", "fox"]
    assert mixed.candidates.mask.astype(int).tolist() == [[1, 1, 0], [1, 0, 0], [0, 1, 0], [1, 0, 0]]
    assert mixed.gold is not None
    assert mixed.gold.tolist() == [0, -1, -1, -1]
    assert mixed.groups == ["ann", "bob", "ann", "bob"]


def test_a_glob_takes_numbers_and_says_which_texts_it_left() -> None:
    mixed = read_mixed(TABLE, Roles(exclude="not", ignore=("gold",)))
    assert mixed.roles.features == ("size", "zip")
    assert mixed.left_out == ["hue", "note", "who"]


def test_unlabelled_rows_get_the_full_set() -> None:
    mixed = read_mixed(TABLE, Roles(empty="unlabelled"))
    assert mixed.candidates.mask[1].all()


def test_labels_that_are_numbers_are_sorted_by_value_and_become_text() -> None:
    table = pa.table({"x": [1.0, 2.0], "candidates": pa.array([[10, 9], [9]])})
    assert read_mixed(table, Roles()).candidates.classes.tolist() == ["9", "10"]


def test_files_of_arrays_have_features_and_sets(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.ones((2, 3)), candidates=np.array([[1, 0], [1, 1]]))
    mixed = read_mixed(tmp_path / "a.npz", Roles())
    assert mixed.roles.features == ("x0", "x1", "x2")
    assert mixed.candidates.classes.tolist() == ["0", "1"]
    with pytest.raises(
        ValueError, match=r"column 'truth' must be in a table of columns; .*a\.npz has features and sets"
    ):
        read_mixed(tmp_path / "a.npz", Roles(gold="truth"))
    with pytest.raises(ValueError, match="predictions must be for a table of columns"):
        read_columns(tmp_path / "a.npz", Roles())


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        (Roles(separator=""), "separator must not be empty"),
        (
            Roles(),
            "every row must have candidates; the table, row 1 has none. Drop such rows, or say --empty unlabelled",
        ),
        (Roles(candidates=None), "candidates must be a column of the table, or exclusions; got neither"),
        (Roles(gold="candidats"), "column 'candidats' must be in the table.*Did you mean 'candidates'"),
        (Roles(gold="who", group="who"), "a column must have one part; the table, column 'who' was given two"),
        (Roles(features=("sise",)), "column 'sise' must be in the table.*Did you mean 'size'"),
        (
            Roles(features=("q*",)),
            r"features must be columns to learn from; the table has no column of numbers for q\*",
        ),
        (
            Roles(gold="not", empty="unlabelled"),
            "a gold label must be one label; the table, column 'not', row 1 has several",
        ),
    ],
)
def test_mistakes_are_named(roles: Roles, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_mixed(TABLE, roles)


def test_exclusions_must_leave_a_label() -> None:
    table = pa.table({"x": [1.0, 2.0], "candidates": ["a", "b"], "not": ["b", "b"]})
    with pytest.raises(ValueError, match="exclusions must leave a label; the table, row 1 has none left"):
        read_mixed(table, Roles(exclude="not"))


def test_no_rows() -> None:
    with pytest.raises(ValueError, match="the table must have at least one row"):
        read_mixed(TABLE.slice(0, 0), Roles(exclude="not"))


def test_infinity_is_no_gap() -> None:
    table = pa.table({"x": [1.0, np.inf], "candidates": ["a", "b"]})
    with pytest.raises(ValueError, match="column 'x', row 1 is inf"):
        read_mixed(table, Roles())


def test_to_predict_every_column_must_be_there_and_hold_what_it_held() -> None:
    roles = read_mixed(TABLE, PARTS).roles
    assert read_columns(TABLE.select(["zip", "hue", "size"]), roles).words["hue"] == ["red", None, "blue", "red"]
    with pytest.raises(ValueError, match="column 'zip' must be in the table"):
        read_columns(TABLE.drop(["zip"]), roles)
    with pytest.raises(
        ValueError, match="column 'size' must hold numbers, as in training; the table has something else"
    ):
        read_columns(TABLE.set_column(0, "size", pa.array(["a", "b", "c", "d"])), roles)
    blank = TABLE.set_column(0, "size", pa.nulls(4, pa.string()))
    assert np.isnan(read_columns(blank, roles).numbers).all()
