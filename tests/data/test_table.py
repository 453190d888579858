"""Tables to learn from: which column plays which part, and what every mistake is answered with."""

from __future__ import annotations

import gzip
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from oneof.data.not_features import left_out_lines
from oneof.data.table import ColumnRoles, read_columns, read_features, read_table

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
PARTS = ColumnRoles(
    features=("size", "hue"), categories=("zip",), exclude="not", gold="gold", group="who", ignore=("note",)
)


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
    read = read_table(table, PARTS)
    np.testing.assert_array_equal(read.columns.numbers, np.array([[1.5], [np.nan], [3], [4]], np.float32))
    assert read.columns.non_numeric == {"zip": ["1", "2", "1", "2"], "hue": ["red", None, "blue", "red"]}
    assert read.candidates.classes.tolist() == ["cat", "dog", "fox"]
    assert read.candidates.mask.astype(int).tolist() == [[1, 1, 0], [1, 0, 0], [0, 1, 0], [1, 0, 0]]
    assert read.gold is not None
    assert read.gold.tolist() == [0, -1, -1, -1]
    assert read.groups == ["ann", "bob", "ann", "bob"]


def test_a_glob_takes_numbers_and_texts_with_few_values() -> None:
    read = read_table(TABLE, ColumnRoles(exclude="not", ignore=("gold",)))
    assert read.roles.features == ("size", "zip")
    assert read.roles.categories == ("hue", "note", "who")
    assert read.left_out == {}


def test_unlabelled_rows_get_the_full_set() -> None:
    read = read_table(TABLE, ColumnRoles(empty="unlabelled"))
    assert read.candidates.mask[1].all()


def test_labels_that_are_numbers_are_sorted_by_value_and_become_text() -> None:
    table = pa.table({"x": [1.0, 2.0], "candidates": pa.array([[10, 9], [9]])})
    assert read_table(table, ColumnRoles()).candidates.classes.tolist() == ["9", "10"]


def test_files_of_arrays_have_features_and_sets(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.ones((2, 3)), candidates=np.array([[1, 0], [1, 1]]))
    read = read_table(tmp_path / "a.npz", ColumnRoles())
    assert read.roles.features == ("x0", "x1", "x2")
    assert read.candidates.classes.tolist() == ["0", "1"]
    with pytest.raises(
        ValueError, match=r"column 'truth' must be in a table of columns; .*a\.npz has features and sets"
    ):
        read_table(tmp_path / "a.npz", ColumnRoles(gold="truth"))
    columns = read_columns(tmp_path / "a.npz", replace(read.roles, candidates=None))  # new rows in the same form
    assert columns.numbers.tolist() == [[1.0, 1.0, 1.0]] * 2


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        (
            ColumnRoles(),
            "the table, column 'candidates': candidates must hold at least one label per row; 1 of 4 rows are empty, first row 1. .*--empty unlabelled",
        ),
        (ColumnRoles(candidates=None), "candidates must be a column of the table, or exclusions; got neither"),
        (ColumnRoles(gold="candidats"), "column 'candidats' must be in the table.*Did you mean 'candidates'"),
        (ColumnRoles(gold="who", group="who"), "a column must have one role; the table, column 'who' was given two"),
        (ColumnRoles(features=("sise",)), "column 'sise' must be in the table.*Did you mean 'size'"),
        (
            ColumnRoles(features=("q*",)),
            r"features must match a column; the table has none for 'q\*'",
        ),
        (
            ColumnRoles(gold="not", empty="unlabelled"),
            "a gold label must be one label; the table, column 'not', row 1 has several",
        ),
    ],
)
def test_mistakes_are_named(roles: ColumnRoles, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_table(TABLE, roles)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"separator": ""}, "separator must not be empty"),
        ({"empty": "x"}, "empty must be 'error' or 'unlabelled'; got 'x'"),
    ],
)
def test_roles_that_say_nothing_are_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ColumnRoles(**given)


def test_exclusions_must_leave_a_label() -> None:
    table = pa.table({"x": [1.0, 2.0], "candidates": ["a", "b"], "not": ["b", "b"]})
    with pytest.raises(
        ValueError,
        match="the table, column 'not': complementary sets must leave at least one label per row; 1 of 2 rows exclude every class, first row 1",
    ):
        read_table(table, ColumnRoles(exclude="not"))


def test_no_rows() -> None:
    with pytest.raises(ValueError, match="the table must have at least one row"):
        read_table(TABLE.slice(0, 0), ColumnRoles(exclude="not"))


def test_infinity_is_no_gap() -> None:
    table = pa.table({"x": [1.0, np.inf], "candidates": ["a", "b"]})
    with pytest.raises(ValueError, match="column 'x', row 1 is inf"):
        read_table(table, ColumnRoles())


def test_to_predict_every_column_must_be_there_and_hold_what_it_held() -> None:
    roles = read_table(TABLE, PARTS).roles
    assert read_columns(TABLE.select(["zip", "hue", "size"]), roles).non_numeric["hue"] == ["red", None, "blue", "red"]
    with pytest.raises(ValueError, match="column 'zip' must be in the table"):
        read_columns(TABLE.drop(["zip"]), roles)
    with pytest.raises(ValueError, match="column 'size' must hold numbers, as in training; the table, row 0 is "):
        read_columns(TABLE.set_column(0, "size", pa.array(["a", "b", "c", "d"])), roles)
    blank = TABLE.set_column(0, "size", pa.nulls(4, pa.string()))
    assert np.isnan(read_columns(blank, roles).numbers).all()


# ------------------------------------------------------------------------------------------- what a person's table is like


def columns_of(table: Any, **roles: Any) -> Any:
    return read_table(table, ColumnRoles(**roles))


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
    read = columns_of(table)
    expected = (True, {}) if is_feature else (False, {name: "row numbers"})
    assert (name in read.columns.names, read.left_out) == expected
    assert read.columns.numbers.shape[1] == len(read.columns.names) == len(read.roles.features)
    np.testing.assert_allclose(read.columns.numbers[:, -1], np.linspace(0, 1, 40), rtol=1e-6)
    assert name in columns_of(table, features=("size", name)).columns.names


def test_a_table_of_row_numbers_alone_cannot_be_learned_from() -> None:
    table = pa.table({"item": range(30), "candidates": ["cat|dog", "cat"] * 15})
    with pytest.raises(
        ValueError,
        match=r"the table has none\. Join your features to it\. columns that number the rows are left out: item\.",
    ):
        columns_of(table)


@pytest.mark.parametrize(
    "printed",
    ["['cat', 'dog']", '["cat", "dog"]', " ['cat','dog'] ", "[np.str_('cat'), np.str_('dog')]", "['cat' 'dog']"],
)
def test_printed_lists_are_read_as_lists(printed: str) -> None:
    read = columns_of(pa.table({"size": [1.0, 2.0], "candidates": [printed, "['fox']"]}))
    assert read.candidates.classes.tolist() == ["cat", "dog", "fox"]
    assert read.candidates.mask.tolist() == [[True, True, False], [False, False, True]]


@pytest.mark.parametrize(("other", "separator"), [(";", "|"), (", ", "|"), ("|", ";")])
def test_sets_that_another_separator_divides_are_refused(other: str, separator: str) -> None:
    cells = [other.join(pair) for pair in (("cat", "dog"), ("dog", "fox"), ("cat", "fox"), ("fox", "dog"))] + ["cat"]
    sign = other.strip()
    message = f"labels must be separated by {separator!r}; the table, column 'candidates' has none, and 4 of 5 cells hold {sign!r}"
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
    from_file = columns_of(path, categories=("zip",), features=("size",)).columns.non_numeric["zip"]
    from_frame = read_columns(pd.read_csv(path), ColumnRoles(features=("size",), categories=("zip",))).non_numeric[
        "zip"
    ]
    assert from_file == from_frame == ["1", None, "3"]
    pd.read_csv(path).to_csv(path, index=False)  # now it says 1.0 and 3.0
    assert "1.0" in path.read_text()
    assert columns_of(path, categories=("zip",), features=("size",)).columns.non_numeric["zip"] == from_frame


def test_truths_in_a_csv_are_numbers(tmp_path: Path) -> None:
    path = tmp_path / "flag.csv"
    path.write_text("flag,candidates\nTrue,cat\nFalse,dog\n,cat\n")
    np.testing.assert_array_equal(columns_of(path).columns.numbers, [[1], [0], [np.nan]])
    path.write_text("flag\n1\n0\n")
    np.testing.assert_array_equal(read_columns(path, ColumnRoles(features=("flag",))).numbers, [[1], [0]])


def test_to_predict_a_column_may_be_blank_and_a_wrong_cell_is_named(tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    path.write_text("a,b\n1,\n")
    np.testing.assert_array_equal(read_columns(path, ColumnRoles(features=("a", "b"))).numbers, [[1, np.nan]])
    path.write_text("a,b\n1,2\n3,much\n")
    with pytest.raises(ValueError, match=r"column 'b' must hold numbers, as in training; .*new.csv, row 1 is 'much'"):
        read_columns(path, ColumnRoles(features=("a", "b")))


def test_a_packed_csv_is_read(tmp_path: Path) -> None:
    for name, sign in (("t.csv.gz", ","), ("t.tsv.gz", "\t")):
        with gzip.open(tmp_path / name, "wt") as file:
            file.write(f"size{sign}candidates\n1.5{sign}cat|dog\n2.5{sign}dog\n")
        assert columns_of(tmp_path / name).candidates.mask.tolist() == [[True, True], [False, True]]


# -------------------------------------------------------------------------------------------- columns are read as what they are


def test_the_hint_on_identifiers_obeyed_adds_the_column_and_drops_none() -> None:
    names = [f"no. {i}" for i in range(40)]
    table = pa.table({"size": np.linspace(0, 1, 40), "who": names, "candidates": ["cat|dog", "cat"] * 20})
    before = read_table(table)
    (hint,) = before.remarks()
    assert "left out: who." in hint
    assert "--category NAME" in hint
    after = read_table(table, ColumnRoles(categories=("who",)))
    assert after.columns.names == before.columns.names == ["size"]
    assert list(after.columns.non_numeric) == ["who"]


def test_the_hint_on_row_numbers_obeyed_drops_no_column() -> None:
    table = pa.table({"item": range(30), "size": np.linspace(0, 1, 30), "candidates": ["cat|dog", "cat"] * 15})
    (hint,) = read_table(table).remarks()
    assert re.search(r"left out: item\..* --features '\*' --features 'item'", hint)
    assert read_table(table, ColumnRoles(features=("*", "item"))).columns.names == ["item", "size"]


def test_each_hint_names_its_own_columns_alone() -> None:
    rows = {"item": range(30), "truth": [0, 1] * 15, "size": np.linspace(0, 1, 30), "note": ["a", "b"] * 15}
    table = pa.table({**rows, "candidates": ["cat|dog", "cat"] * 15})
    said = {line.split(" are left out")[0]: line for line in read_table(table).remarks()}
    assert said["columns that number the rows"].endswith("--features '*' --features 'item'.")
    assert said["columns that look like true labels"].endswith("--features '*' --features 'truth'.")
    assert read_table(table, ColumnRoles(features=("size",))).remarks() == []  # who names columns has seen the others


DAYS = ["2024-01-05", "2024-03-01", None]


@pytest.mark.parametrize("form", ["csv", "parquet", "parquet of texts", "frame", "frame of texts", "arrow"])
def test_dates_are_numbers_of_days_in_every_form(form: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({"size": [1.0, 2.0, 3.0], "day": DAYS, "candidates": ["cat|dog", "dog", "cat"]})
    typed = frame.assign(day=pd.to_datetime(frame["day"]))
    frame.to_csv(tmp_path / "t.csv", index=False)
    (typed if form == "parquet" else frame).to_parquet(tmp_path / "t.parquet")
    source = {"csv": tmp_path / "t.csv", "frame": typed, "frame of texts": frame, "arrow": pa.Table.from_pandas(typed)}
    table = read_table(source.get(form, tmp_path / "t.parquet"))
    assert table.roles.dates == ("day",)
    np.testing.assert_array_equal(table.columns.numbers, [[1, 19727], [2, 19783], [3, np.nan]])
    assert table.remarks() == ["columns of dates are read as numbers of days: day."]


@pytest.mark.parametrize(
    ("cells", "days"),
    [
        (["2024-01-05 12:00:00", "2024-01-06"], [19727.5, 19728]),
        (["2024-01-05T12:00:00Z", "2024-01-06T00:00:00+06:00"], [19727.5, 19727.75]),
        (["2024-01-05 06:00:00.250", "NA"], [19727.25, np.nan]),
    ],
)
def test_times_are_parts_of_days(cells: list[str], days: list[float], tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("when,candidates\n" + "".join(f"{cell},{label}\n" for cell, label in zip(cells, "ab", strict=True)))
    for source in (path, pd.read_csv(path)):
        np.testing.assert_allclose(read_table(source).columns.numbers.ravel(), days, atol=0.002)


def test_consecutive_days_do_not_number_the_rows() -> None:
    days = pd.date_range("2024-01-01", periods=40)
    assert read_table(pd.DataFrame({"day": days, "candidates": ["cat|dog", "cat"] * 20})).columns.names == ["day"]


def test_a_cell_that_is_no_date_is_named_and_so_is_a_column_that_is_none_when_predicting(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rows = [f"2024-01-05,cat|dog{' ' * 60}\n"] * 20_000  # beyond the first block, from which types come
    path.write_text("day,candidates\n" + "".join(rows) + "soon,dog\n")
    with pytest.raises(ValueError, match=r"dates must all be written in one way.*column 'day', row 20000 is 'soon'"):
        read_table(path)
    roles = ColumnRoles(features=("day",), dates=("day",))
    for cells, wrong in (([5, 6], "row 0 is 5"), (["2024-01-05", None, "soon"], "row 2 is 'soon'")):
        with pytest.raises(
            ValueError, match=rf"dates must all be written in one way.*the table, column 'day', {wrong}"
        ):
            read_columns(pa.table({"day": cells}), roles)
    assert np.isnan(read_columns(pa.table({"day": pa.nulls(2)}), roles).numbers).all()
    with pytest.raises(ValueError, match=r"column 'day' must hold numbers, as in training; .*row 0 is datetime.date"):
        read_columns(pa.table({"day": pd.to_datetime(["2024-01-05"]).date}), ColumnRoles(features=("day",)))


@pytest.mark.parametrize("form", ["csv", "frame"])
def test_blank_columns_are_left_out_and_told(form: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("size,empty,candidates\n1,,cat\n2,,dog\n")
    table = read_table(path if form == "csv" else pd.read_csv(path))
    assert table.columns.names == ["size"]
    assert table.remarks() == ["columns without a value are left out: empty."]


def test_a_column_that_says_it_is_a_category_is_one_unless_it_names_the_rows() -> None:
    names = [f"no. {i}" for i in range(40)]
    frame = pd.DataFrame({"hue": ["red", "blue"] * 20, "who": names, "candidates": ["cat|dog", "cat"] * 20})
    table = read_table(frame.astype({"hue": "category", "who": "category"}))
    assert table.columns.non_numeric == {"hue": ["red", "blue"] * 20}
    assert (table.roles.categories, table.left_out) == (("hue",), {"who": "identifier"})


# ---------------------------------------------------------------------------------------------- the truth is no feature

TRUTH = np.arange(60) % 3
OTHER = np.random.default_rng(0).integers(3, size=60)
SETS = [f"{a}|{b}" for a, b in zip(TRUTH, OTHER, strict=True)]


@pytest.mark.parametrize("name", ["truth", "label", "Target", "gold", "y", "true_label", "y_true"])
def test_numbers_named_like_the_truth_are_no_feature_unless_named(name: str) -> None:
    table = pa.table({"size": np.linspace(0, 1, 60), name: TRUTH, "candidates": ["cat|dog", "dog"] * 30})
    read = read_table(table)
    assert read.columns.names == ["size"]
    (hint,) = read.remarks()
    assert re.search(rf"left out: {name}\..* --gold NAME.* --features '\*' --features '{name}'", hint)
    assert name in read_table(table, ColumnRoles(features=("*", name))).columns.names
    assert read_table(table, ColumnRoles(categories=(name,))).roles.categories == (name,)
    height = table.set_column(1, name, pa.array(TRUTH + 0.5))
    assert name in read_table(height).columns.names  # no label: y beside x, for one


@pytest.mark.parametrize("form", ["whole", "floats with gaps", "category"])
def test_a_column_that_holds_a_label_of_its_own_set_in_nearly_every_row_is_no_feature(form: str) -> None:
    held: Any = {"whole": TRUTH, "category": pd.Categorical(TRUTH), "floats with gaps": TRUTH.astype(float)}[form]
    frame = pd.DataFrame({"size": np.linspace(0, 1, 60), "code": held, "other": OTHER[::-1], "candidates": SETS})
    if form != "category":
        frame.loc[3, "code"] = np.nan if form == "floats with gaps" else (TRUTH[3] + 1) % 3
    read = read_table(frame)
    assert read.left_out == {"code": "truth"}
    assert read.columns.names == ["size", "other"]  # values of the same range, which agree by chance only
    full = frame.assign(candidates="0|1|2")
    full.loc[0, "candidates"] = "0"
    assert "code" not in read_table(full).left_out  # in full sets every value is a label of its set


# ------------------------------------------------------------------------------------------------------ frames of features


def test_a_frame_of_features_is_read_as_the_same_columns_of_a_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "Unnamed: 0": range(40),
            "size": np.where(rng.random(40) < 0.2, np.nan, rng.normal(size=40)),
            "old": [True, False] * 20,
            "day": pd.date_range("2024-01-01", periods=40),
            "hue": ["red", "blue"] * 20,
            "note": [f"note {i}" for i in range(40)],
            "label": TRUTH[:40],
        }
    )
    sets = pd.Series(["cat|dog", "dog"] * 20)
    frame.assign(candidates=sets).to_csv(tmp_path / "t.csv", index=False)
    file = read_table(tmp_path / "t.csv")
    for given in (frame, pd.read_csv(tmp_path / "t.csv").drop(columns="candidates"), pa.Table.from_pandas(frame)):
        caplog.clear()
        columns, roles, uses = read_features(given)
        assert "are left out" in caplog.text
        assert caplog.messages == left_out_lines(file.left_out, of_a_frame=True)
        np.testing.assert_array_equal(columns.numbers, file.columns.numbers)
        assert columns.names == file.columns.names == ["size", "old", "day"]
        assert columns.non_numeric == file.columns.non_numeric == {"hue": ["red", "blue"] * 20}
        assert (roles.features, roles.dates) == (file.roles.features, file.roles.dates)
        assert uses == {name: use for name, use in file.uses.items() if name != "candidates"}
        again = read_columns(given, roles)
        np.testing.assert_array_equal(again.numbers, columns.numbers)
    marked = frame[["size", "hue"]].astype({"hue": "category"})
    columns, roles, _ = read_features(marked)
    assert columns.non_numeric == read_table(tmp_path / "t.csv", ColumnRoles(categories=("hue",))).columns.non_numeric
    assert roles.categories == ("hue",)


def test_a_frame_without_features_or_rows_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"the frame has none\. Join your features to it\. columns of identifiers .*are left out: note"
    ):
        read_features(pd.DataFrame({"note": [f"no. {i}" for i in range(40)]}))
    with pytest.raises(ValueError, match="the frame must have at least one row"):
        read_features(pd.DataFrame({"size": []}))


def test_a_misspelt_candidate_is_pointed_out() -> None:
    cells = ["entity|human"] * 20 + ["human|location"] * 20 + ["enttiy|location"]
    table = pa.table({"size": [float(i % 7) for i in range(len(cells))], "candidates": cells})
    remarks = " ".join(read_table(table, ColumnRoles()).remarks())
    assert "labels may be misspelt: 'enttiy' (1 rows) for 'entity' (20)" in remarks
    remarks = " ".join(read_table(table.slice(0, 40), ColumnRoles()).remarks())
    assert "misspelt" not in remarks
