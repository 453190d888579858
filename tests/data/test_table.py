"""Tables to learn from: which column plays which part, and what every mistake is answered with."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from oneof.data.table import Roles, read_columns, read_mixed

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
            r"features must match a column of numbers; the table has none for 'q\*'",
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
    with pytest.raises(ValueError, match="column 'size' must hold numbers, as in training; the table, row 0 is "):
        read_columns(TABLE.set_column(0, "size", pa.array(["a", "b", "c", "d"])), roles)
    blank = TABLE.set_column(0, "size", pa.nulls(4, pa.string()))
    assert np.isnan(read_columns(blank, roles).numbers).all()


# ------------------------------------------------------------------------------------------- what a person's table is like


def columns_of(table: Any, **roles: Any) -> Any:
    return read_mixed(table, Roles(**roles))


@pytest.mark.parametrize(
    ("name", "values", "is_feature"),
    [
        ("item", np.arange(40)[::-1], False),  # an id by its name, different in every row
        ("user_id", np.arange(40)[::-1] * 7, False),
        ("", np.arange(40), False),  # pandas' index
        ("when", np.arange(40) + 5, False),  # the number of the row, whatever its name
        ("when", np.arange(40)[::-1], True),
        ("item", np.arange(40) // 2, True),  # not different in every row
        ("item", np.arange(40) + 0.5, True),
        ("stamp_id", np.arange(40) * 3 + 2**30, False),  # float32 cannot tell these apart
    ],
)
def test_columns_that_number_the_rows_are_no_features_unless_named(name: str, values: Any, is_feature: bool) -> None:
    table = pa.table({name: values, "size": np.linspace(0, 1, 40), "candidates": ["cat|dog", "cat"] * 20})
    mixed = columns_of(table)
    assert (name in mixed.columns.names, mixed.row_numbers) == ((True, []) if is_feature else (False, [name]))
    assert mixed.columns.numbers.shape[1] == len(mixed.columns.names) == len(mixed.roles.features)
    np.testing.assert_allclose(mixed.columns.numbers[:, -1], np.linspace(0, 1, 40), rtol=1e-6)
    assert name in columns_of(table, features=("size", name)).columns.names


def test_a_table_of_row_numbers_alone_cannot_be_learned_from() -> None:
    table = pa.table({"item": range(30), "candidates": ["cat|dog", "cat"] * 15})
    with pytest.raises(ValueError, match=r"the table has only item, which numbers the rows\. Join your features to it"):
        columns_of(table)


@pytest.mark.parametrize(
    "printed",
    ["['cat', 'dog']", '["cat", "dog"]', " ['cat','dog'] ", "[np.str_('cat'), np.str_('dog')]", "['cat' 'dog']"],
)
def test_printed_lists_are_read_as_lists(printed: str) -> None:
    mixed = columns_of(pa.table({"size": [1.0, 2.0], "candidates": [printed, "['fox']"]}))
    assert mixed.candidates.classes.tolist() == ["cat", "dog", "fox"]
    assert mixed.candidates.mask.tolist() == [[True, True, False], [False, False, True]]


@pytest.mark.parametrize(("other", "separator"), [(";", "|"), (", ", "|"), ("|", ";")])
def test_sets_that_another_separator_divides_are_refused(other: str, separator: str) -> None:
    cells = [other.join(pair) for pair in (("cat", "dog"), ("dog", "fox"), ("cat", "fox"), ("fox", "dog"))] + ["cat"]
    sign = other.strip()
    message = f"labels must be divided by {separator!r}; the table, column 'candidates' has none, and 4 of 5 cells hold {sign!r}"
    with pytest.raises(ValueError, match=re.escape(message)):
        columns_of(pa.table({"size": range(5), "candidates": cells}), separator=separator)
    assert len(columns_of(pa.table({"size": range(5), "candidates": cells}), separator=sign).candidates.classes) == 3


def test_printed_lists_that_cannot_be_read_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"sets must be lists as Python or JSON prints them.*column 'candidates' has '\[1 2\]'"
    ):
        columns_of(pa.table({"size": [1, 2], "candidates": ["[1 2]", "[3]"]}))


def test_more_labels_than_a_table_can_hold_are_refused() -> None:
    cells = [f"answer {i}" for i in range(70_000)]
    message = "column 'candidates' has 70,000 different ones in 70,000 rows: 'answer 0', 'answer 1'"
    with pytest.raises(ValueError, match=message):
        columns_of(pa.table({"size": np.ones(70_000), "candidates": cells}))


def test_labels_with_a_comma_of_their_own_are_labels() -> None:
    cells = ["Austin, Texas", "Dallas, Texas", "Reno, Nevada", "Paris"]
    assert len(columns_of(pa.table({"size": range(4), "candidates": cells})).candidates.classes) == 4


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (["cat", None], "labels must not be missing; the table, column 'candidates', row 1 holds None in its list"),
        (["cat", ""], "row 1 holds '' in its list. Take it out"),
    ],
)
def test_a_missing_label_in_a_list_is_no_class(cell: list[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        columns_of(pa.table({"size": [1.0, 2.0], "candidates": [["dog"], cell]}))


def test_labels_are_texts_or_numbers() -> None:
    table = pa.table({"size": [1.0], "candidates": [[{"label": "cat"}]]})
    with pytest.raises(
        ValueError, match="labels must be texts or numbers; the table, column 'candidates', row 0 holds"
    ):
        columns_of(table)


def test_a_category_is_the_same_whether_read_as_text_or_as_numbers_with_gaps(tmp_path: Path) -> None:
    path = tmp_path / "zip.csv"
    path.write_text("zip,size,candidates\n1,1.5,cat\n,2.5,dog\n3,0.5,cat|dog\n")
    from_file = columns_of(path, categories=("zip",), features=("size",)).columns.words["zip"]
    from_frame = read_columns(pd.read_csv(path), Roles(features=("size",), categories=("zip",))).words["zip"]
    assert from_file == from_frame == ["1", None, "3"]
    pd.read_csv(path).to_csv(path, index=False)  # now it says 1.0 and 3.0
    assert "1.0" in path.read_text()
    assert columns_of(path, categories=("zip",), features=("size",)).columns.words["zip"] == from_frame


def test_truths_in_a_csv_are_numbers(tmp_path: Path) -> None:
    path = tmp_path / "flag.csv"
    path.write_text("flag,candidates\nTrue,cat\nFalse,dog\n,cat\n")
    np.testing.assert_array_equal(columns_of(path).columns.numbers, [[1], [0], [np.nan]])
    path.write_text("flag\n1\n0\n")
    np.testing.assert_array_equal(read_columns(path, Roles(features=("flag",))).numbers, [[1], [0]])


def test_to_predict_a_column_may_be_blank_and_a_wrong_cell_is_named(tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    path.write_text("a,b\n1,\n")
    np.testing.assert_array_equal(read_columns(path, Roles(features=("a", "b"))).numbers, [[1, np.nan]])
    path.write_text("a,b\n1,2\n3,much\n")
    with pytest.raises(ValueError, match=r"column 'b' must hold numbers, as in training; .*new.csv, row 1 is 'much'"):
        read_columns(path, Roles(features=("a", "b")))


def test_a_packed_csv_is_read(tmp_path: Path) -> None:
    for name, sign in (("t.csv.gz", ","), ("t.tsv.gz", "\t")):
        with gzip.open(tmp_path / name, "wt") as file:
            file.write(f"size{sign}candidates\n1.5{sign}cat|dog\n2.5{sign}dog\n")
        assert columns_of(tmp_path / name).candidates.mask.tolist() == [[True, True], [False, True]]
