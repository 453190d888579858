"""Files of columns and of arrays: what every form gives, and what is said of bad ones."""

from __future__ import annotations

import datetime
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from commands import call

from oneof.data.table import ColumnRoles, read_table

CSV = "size,kind,weight,candidates,truth\n1,a,0.5,cat|dog,cat\n2,b,1.5, dog ,dog\n3.5,a,2,fox | cat,\n"
SETS = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 0], [0, 0, 1]])  # [n, c]
X = np.arange(8.0).reshape(4, 2)


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


# ------------------------------------------------------------------------------------------------------------------- npz


def test_npz_with_mask_or_text(tmp_path):
    np.savez(
        tmp_path / "a.npz", x=X, candidates=SETS.astype(bool), labels=np.array([0, 1, -1, 2]), classes=["a", "b", "c"]
    )
    table = read_table(tmp_path / "a.npz", ColumnRoles(gold="labels"))
    np.testing.assert_array_equal(table.candidates.mask, SETS)
    assert table.candidates.classes.tolist() == ["a", "b", "c"]
    assert table.gold.tolist() == [0, 1, -1, 2]
    assert read_table(tmp_path / "a.npz").gold is None
    np.savez(tmp_path / "b.npz", x=X, candidates=["p,q", "q", "q,r", "p"], labels=["q", "q", "r", ""])
    table = read_table(tmp_path / "b.npz", ColumnRoles(separator=",", features=("x1",), gold="labels"))
    assert table.candidates.mask.sum(1).tolist() == [2, 1, 2, 1]
    assert table.gold.tolist() == [1, 1, 2, -1]
    assert table.columns.numbers.tolist() == X[:, [1]].tolist()
    assert read_table(tmp_path / "b.npz", ColumnRoles(separator=",", ignore=("x1",))).columns.names == ["x0"]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"candidates": SETS}, r"a\.npz must hold the key 'x'; it has candidates"),
        ({"x": X[0], "candidates": SETS}, r"key 'x' must hold numbers \[n, d\]; got float64 \[2\]"),
        ({"x": X, "candidates": SETS[:2]}, r"key 'candidates' must be \[n, c\] or \[n\] for 4 rows; got \[2, 3\]"),
        (
            {"x": X, "candidates": SETS, "labels": [1]},
            r"key 'labels' must hold one label for each of 4 rows; got \[1\]",
        ),
        (
            {"x": X, "candidates": np.array([{1}] * 4)},
            r"a\.npz must be a whole npz file of plain arrays; Object arrays",
        ),
        ({"x": X, "candidates": SETS, "labels": [0, 1, 0, 7]}, "key 'labels', row 3 is 7"),
    ],
)
def test_wrong_npz_is_described(tmp_path, keys, message):
    np.savez(tmp_path / "a.npz", **keys)
    with pytest.raises(ValueError, match=message):
        read_table(tmp_path / "a.npz")


# ---------------------------------------------------------------------------------------------------------------- tables


def columns() -> dict[str, list[object]]:
    return {
        "size": [1.0, 2.0, 3.5],
        "kind": ["a", "b", "a"],
        "weight": [0.5, 1.5, 2.0],
        "candidates": [["cat", "dog"], ["dog"], ["fox", "cat"]],
        "truth": ["cat", "dog", None],
    }


def sources(tmp_path: Path) -> list[object]:
    table = pa.table(columns())
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=2)
    return [
        write(tmp_path / "a.csv", CSV),
        str(write(tmp_path / "a.tsv", CSV.replace(",", "\t"))),
        tmp_path / "a.parquet",
        table,
        pd.DataFrame(columns()),
        pd.concat(
            [
                table.slice(0, 2).to_pandas(types_mapper=pd.ArrowDtype),
                table.slice(2).to_pandas(types_mapper=pd.ArrowDtype),
            ]
        ),
    ]


def test_every_form_of_table_gives_the_same(tmp_path):
    for source in sources(tmp_path):
        table = read_table(source, ColumnRoles(gold="truth"))
        assert table.columns.names == ["size", "weight"]
        assert table.columns.numbers.tolist() == [[1, 0.5], [2, 1.5], [3.5, 2]]
        assert table.columns.numbers.dtype == np.float32
        assert table.candidates.classes.tolist() == ["cat", "dog", "fox"]
        assert table.candidates.mask.astype(int).tolist() == [[1, 1, 0], [0, 1, 0], [1, 0, 1]]
        assert table.gold.tolist() == [0, 1, -1]
        assert read_table(source, ColumnRoles(features=("w*",))).columns.names == ["weight"]
        assert read_table(source).gold is None


def test_numbers_as_labels_and_types_of_columns():
    table = pa.table({
        "a": pa.array([1, 2], pa.int8()), "b": [True, False], "c": pa.array([1, 2], pa.float16()),
        "when": pa.array([1, 2], pa.timestamp("s")), "sets": [[3, 5], [5]], "y": [3, 5],
    })  # fmt: skip
    read = read_table(table, ColumnRoles(candidates="sets", gold="y"))
    assert read.columns.names == ["a", "b", "c", "when"]
    assert read.candidates.classes.tolist() == ["3", "5"]
    assert read.gold.tolist() == [0, 1]
    coded = pa.table({"a": [1, 2], "candidates": pa.array(["p|q", "q"]).dictionary_encode()})
    assert read_table(coded).candidates.classes.tolist() == ["p", "q"]
    frame = pd.DataFrame({"a": [1, 2], "candidates": [{"p", "q"}, {"q"}], "junk": [object(), 1]})
    assert read_table(frame).candidates.mask.tolist() == [[True, True], [False, True]]


def test_a_csv_of_many_blocks_may_turn_to_fractions(tmp_path):
    n, row = 20_000, "1,p|q" + " " * 60 + "\n"  # above the parser's block of one megabyte
    path = write(tmp_path / "a.csv", "a,candidates\n" + row * n + "2.5,q\n")
    table = read_table(path)
    assert table.columns.numbers.shape == (n + 1, 1)
    assert table.columns.numbers[-1, 0] == 2.5
    write(path, "a,candidates\n" + row * n + "2.5,q\n" + "oops,q\n")
    with pytest.raises(ValueError, match=rf"features must be numbers; .*a\.csv, column 'a', row {n + 1} is 'oops'"):
        read_table(path)
    write(path, "a,candidates\n" + row * n + "2.5\n")
    with pytest.raises(
        ValueError, match=rf"rows must have the header's 2 cells; .*a\.csv, row {n} \(line {n + 2}\) has 1: '2.5'"
    ):
        read_table(path)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a,candidates\n1,p|q\n2\n", {}, r"a\.csv, row 1 \(line 3\) has 1: '2'"),
        ("a,candidates\n1,p|q\n2,q,r\n", {}, r"a\.csv, row 1 \(line 3\) has 3: '2,q,r'"),
        ("", {}, r"a\.csv must have at least one row; it is empty"),
        ("a,candidates\n", {"features": ("a",)}, r"must match|columns of numbers|at least one row"),
        ("a,a,candidates\n1,2,p|q\n", {}, r"distinct names; .*a\.csv has 'a' twice"),
        ("a,candidates\n1,p|q\n-inf,q\n", {}, r"column 'a', row 1 is -inf"),
        ("a,candidates\n1,p|q\n1e39,q\n", {}, r"at most 1e\+30 in size; .*a\.csv, column 'a', row 1 is 1e\+39"),
        ("a,candidates\n1,p|q\n2,\n", {}, r"a\.csv, column 'candidates': candidates must hold at least one label per row; 1 of 2 rows are empty, first row 1"),
        ("a,candidates\n1,p|q\n2,p||q\n", {}, r"column 'candidates', row 1 is 'p\|\|q', with nothing on one side of a separator"),
        ("a,candidate\n1,p|q\n", {}, r"column 'candidates' must be in .*a\.csv; it has a, candidate\. Did you mean 'candidate'\?"),
        ("a,candidates\n1,p|q\n", {"features": ("b",)}, r"column 'b' must be in .*a\.csv; it has a\."),
        ("a,candidates\n1,p|q\n", {"features": ("z*",)}, r"must match a column; .*a\.csv has none for 'z\*'"),
        ("y,candidates\nx,p|q\n", {}, r"features must be columns to learn from; .*a\.csv has none\. Join your features to it\. columns that look like true labels are left out: y\."),
        ("a,candidates\n1,p|q\n", {"separator": ""}, "separator must not be empty"),
        ("a,candidates\n1,p|q\n", {"empty": "maybe"}, "empty must be 'error' or 'unlabelled'"),
    ],
)  # fmt: skip
def test_wrong_csv_names_file_and_row(tmp_path, text, options, message):
    with pytest.raises(ValueError, match=message) as caught:
        read_table(write(tmp_path / "a.csv", text), ColumnRoles(**options))
    assert "\n" not in str(caught.value)


def test_empty_cells_are_unlabelled_only_if_said(tmp_path):
    path = write(tmp_path / "a.csv", "a,candidates\n1,p|q\n2,\n3,r\n")
    assert read_table(path, ColumnRoles(empty="unlabelled")).candidates.mask.sum(1).tolist() == [2, 3, 1]
    missing = pa.table({"a": [1, 2, 3], "candidates": [["p", "q"], None, []]})
    assert read_table(missing, ColumnRoles(empty="unlabelled")).candidates.mask.sum(1).tolist() == [2, 2, 2]
    with pytest.raises(ValueError, match=r"the table, column 'candidates': .* 2 of 3 rows are empty, first row 1"):
        read_table(missing)


def test_wrong_parquet_and_frames(tmp_path):
    with pytest.raises(ValueError, match=r"a\.parquet cannot be read; "):
        read_table(write(tmp_path / "a.parquet", b"PAR1 no parquet"))
    pq.write_table(pa.table({"a": [1]}), tmp_path / "b.parquet")
    with pytest.raises(ValueError, match=r"column 'candidates' must be in .*b\.parquet; it has a\."):
        read_table(tmp_path / "b.parquet")
    with pytest.raises(ValueError, match="the frame, column 'a', row 1 is inf"):
        read_table(pd.DataFrame({"a": [1.0, np.inf], "candidates": ["p", "q"]}))
    with pytest.raises(ValueError, match="the frame has 'a' twice"):
        read_table(pd.DataFrame([[1, 2]], columns=["a", "a"]))
    with pytest.raises(TypeError, match="a table must be a path, an Arrow table or a data frame; got list"):
        read_table([1])
    with pytest.raises(ValueError, match=r"must end in one of .*; got 'a\.xlsx'"):
        read_table("a.xlsx")
    with pytest.raises(FileNotFoundError):
        read_table(tmp_path / "none.csv")
    with pytest.raises(ValueError, match=r"must fit in memory|at least one row"):
        read_table(pa.table({"a": pa.array([], pa.int64()), "candidates": pa.array([], pa.string())}))


def test_reading_parquet_needs_little_beside_the_array(tmp_path):
    """40 MB of doubles in one row group: Arrow itself never holds more than a tenth of them."""
    n, d = 100_000, 50
    rng = np.random.default_rng(0)
    pq.write_table(pa.table({f"f{j}": rng.normal(size=n) for j in range(d)}), tmp_path / "a.parquet", row_group_size=n)
    script = (
        "import sys, pyarrow\nfrom oneof.data.files.columns import open_table, read_numbers\n"
        "source = open_table(sys.argv[1])\nx, _ = read_numbers(source, source.names, [])\n"
        "print(x.shape[0], pyarrow.default_memory_pool().max_memory())"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "a.parquet")]
    rows, peak = map(int, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    assert rows == n
    assert peak < 4_000_000


NANOSECONDS = 1_714_557_600_123_456_789  # in 2024


@pytest.mark.parametrize(
    ("column", "days"),
    [
        (pa.array([NANOSECONDS, 0], pa.timestamp("ns")), [NANOSECONDS / 86_400e9, 0]),
        (pa.array([NANOSECONDS, None], pa.timestamp("ns", "UTC")), [NANOSECONDS / 86_400e9, np.nan]),
        (pa.array(["2024-05-01T10:00:00.123456789", "1970-01-02"]), [NANOSECONDS / 86_400e9, 1]),
        (pa.array(["1600-01-01", "9999-12-31"]), [-135_140, 2_932_896]),
        (pa.array([datetime.date(1600, 1, 1), datetime.date(1, 1, 1)]), [-135_140, -719_162]),
        (pa.array([2**53 + 1, 2**62]), [2**53, 2**62]),
        (pa.array([2**64 - 1, 0], pa.uint64()), [2**64, 0]),
    ],
)
@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_dates_and_whole_numbers_of_any_size_are_read(tmp_path, column, days, ending):
    table = pa.table({"when": column, "candidates": ["p", "q"]})
    path = tmp_path / f"a.{ending}"
    if ending == "parquet":
        pq.write_table(table, path)
    else:
        pa.csv.write_csv(table, path)
    numbers = read_table(path, ColumnRoles(features=("when",))).columns.numbers
    np.testing.assert_allclose(numbers[:, 0], np.array(days, dtype=np.float32), rtol=1e-6)


@pytest.mark.parametrize("size", ["3e38", "-1e31"])
def test_numbers_that_learners_cannot_add_up_are_refused(tmp_path, size):
    path = write(tmp_path / "a.csv", f"a,candidates\n1,p|q\n{size},q\n")
    with pytest.raises(ValueError, match=r"a\.csv, column 'a', row 1 is .*divide the column"):
        read_table(path)


def test_large_numbers_are_learned_from_without_a_warning(tmp_path):
    rng = np.random.default_rng(0)
    rows = [f"{x:.3f},{rng.choice(['1e30', '-1e30', '1'])},{'p|q' if x > 0 else 'q'}" for x in rng.normal(size=60)]
    path = write(tmp_path / "a.csv", "\n".join(["a,b,candidates", *rows]))
    done = call("fit", str(path), "--out", str(tmp_path / "run"), "--quick")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("cell", ["y" * 3_000_000, '"' + "y\n" * 1_500_000 + '"'])
@pytest.mark.parametrize("place", [0, 1999])
def test_a_cell_of_megabytes_is_read_wherever_it_stands(tmp_path, cell, place):
    notes = ["short"] * 2000
    notes[place] = cell
    rows = [f"{i},{note},{'p|q' if i % 2 else 'q'}\n" for i, note in enumerate(notes)]
    path = write(tmp_path / "a.csv", "a,note,candidates\n" + "".join(rows))
    columns = read_table(path, ColumnRoles(features=("a",), text=("note",))).columns
    assert columns.numbers[:, 0].tolist() == list(range(2000))
    assert [len(note) for note in columns.non_numeric["note"]].index(max(len(cell.strip('"')), 5)) == place


def test_a_row_that_is_too_long_names_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr("oneof.data.files.delimited._MAX_BLOCK", 1 << 21)
    path = write(tmp_path / "a.csv", "a,note,candidates\n1,x,p\n2," + "y" * 5_000_000 + ",q\n")
    with pytest.raises(ValueError, match=r"rows must be shorter than .*a\.csv has a longer one"):
        read_table(path)
