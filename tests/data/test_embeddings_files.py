"""Embeddings by the front door: .npy and .npz files, and columns of lists."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from oneof.data.files.batches import read_batches
from oneof.data.files.columns import open_table, read_numbers
from oneof.data.roles import ColumnRoles
from oneof.data.table import read_columns, read_features, read_table

VECTORS = np.arange(12, dtype=np.float32).reshape(4, 3)
SETS = ["a|b", "a", "b", "a|b"]


def lists(values: np.ndarray = VECTORS) -> pa.Array:
    return pa.array(values.tolist(), pa.list_(pa.float32()))


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.large_list(pa.float64()), pa.list_(pa.float32(), 3)])
def test_a_column_of_lists_is_a_column_for_each_number(tmp_path: Path, kind: pa.DataType) -> None:
    table = pa.table({"emb": pa.array(VECTORS.tolist(), kind), "candidates": SETS})
    pq.write_table(table, tmp_path / "t.parquet")
    read = read_table(tmp_path / "t.parquet", ColumnRoles())
    assert read.roles.features == ("emb[0]", "emb[1]", "emb[2]")
    assert (read.columns.numbers == VECTORS).all()
    new = read_columns(tmp_path / "t.parquet", ColumnRoles(features=read.roles.features, candidates=None))
    assert (new.numbers == VECTORS).all()


def test_lists_of_a_frame_are_read_as_those_of_a_file() -> None:
    frame = pd.DataFrame({"emb": list(VECTORS)})
    assert (read_features(frame).columns.numbers == VECTORS).all()


def test_a_missing_list_is_a_row_of_gaps_and_one_of_another_length_is_refused() -> None:
    with_gap = pa.table({"emb": pa.array([[1.0, 2.0], None, [3.0, 4.0]]), "candidates": ["a", "a|b", "b"]})
    numbers = read_table(with_gap, ColumnRoles()).columns.numbers
    assert np.isnan(numbers).tolist() == [[False, False], [True, True], [False, False]]
    ragged = pa.table({"emb": pa.array([[1.0, 2.0], [1.0]]), "candidates": ["a", "b"]})
    with pytest.raises(ValueError, match=r"column 'emb' must hold 2 numbers in every row; row 1 has 1"):
        read_table(ragged, ColumnRoles())


def test_lists_of_labels_stay_lists() -> None:
    table = pa.table({"x": [1.0, 2.0], "candidates": pa.array([[1.5, 2.5], [1.5, 2.5]])})
    assert read_table(table, ColumnRoles()).candidates.classes.tolist() == ["1.5", "2.5"]


def test_batches_of_a_file_with_lists_hold_them(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [0, 1, 2, 3], "emb": lists()}), tmp_path / "t.parquet")
    names = ("emb[0]", "emb[1]", "emb[2]")
    rows = []
    for batch in read_batches(tmp_path / "t.parquet", names, [], 2):
        rows.append(read_columns(batch, ColumnRoles(features=names, candidates=None)).numbers)
    assert len(rows) == 2
    assert (np.vstack(rows) == VECTORS).all()


def test_an_npz_has_ids_and_other_columns(tmp_path: Path) -> None:
    np.savez(tmp_path / "e.npz", embeddings=VECTORS, ids=np.array(["p", "q", "r", "s"]), candidates=np.array(SETS))
    source = open_table(tmp_path / "e.npz")
    numbers, cells = read_numbers(source, ["x0", "x1", "x2"], ["item", "candidates"])
    assert (numbers == VECTORS).all()
    assert cells == {"item": ["p", "q", "r", "s"], "candidates": SETS}


def test_an_npy_numbers_its_rows(tmp_path: Path) -> None:
    np.save(tmp_path / "e.npy", VECTORS)
    _, cells = read_numbers(open_table(tmp_path / "e.npy"), [], ["item"])
    assert cells == {"item": [0, 1, 2, 3]}
    with pytest.raises(ValueError, match=r"e\.npy has numbers alone\. Add --votes FILE"):
        read_table(tmp_path / "e.npy", ColumnRoles())


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": VECTORS}, "must hold one of x, embeddings, features, vectors; it has a"),
        ({"x": VECTORS[0]}, "'x' must hold numbers [n, d]; got float32 [3]"),
        ({"x": VECTORS, "ids": np.arange(3)}, "'ids' must hold an id for each of 4 rows; got [3]"),
    ],
)
def test_files_without_embeddings_are_refused(tmp_path: Path, arrays: dict[str, np.ndarray], message: str) -> None:
    np.savez(tmp_path / "e.npz", **arrays)
    with pytest.raises(ValueError, match=re.escape(message)):
        open_table(tmp_path / "e.npz")


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "e.npy").write_bytes(b"no array")
    with pytest.raises(ValueError, match=r"e\.npy must be a whole file of plain arrays"):
        open_table(tmp_path / "e.npy")


def test_a_column_of_picture_names_points_to_the_option() -> None:
    table = pa.table({"x": [1.0, 2.0], "photo": ["a.png", "b.JPG"], "candidates": ["a", "a|b"]})
    read = read_table(table, ColumnRoles())
    assert read.roles.features == ("x",)
    assert any("photo" in line and "--image" in line for line in read.remarks())
