"""Cells of candidate sets as people have them: what is read as a set, and what is refused rather than misread."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from oneof.candidates.cells import parse_candidate_cells
from oneof.data.table import ColumnRoles, read_table

SETS = [["cat", "dog"], ["fox"], ["cat", "fox"]]
FORMS = {
    "printed tuples": [repr(tuple(labels)) for labels in SETS],
    "printed sets": [repr(set(labels)) for labels in SETS],
    "printed frozensets": [repr(frozenset(labels)) for labels in SETS],
    "tuples": [tuple(labels) for labels in SETS],
    "sets": [set(labels) for labels in SETS],
    "frozensets": [frozenset(labels) for labels in SETS],
    "arrays": [np.array(labels) for labels in SETS],
}


@pytest.mark.parametrize("cells", FORMS.values(), ids=FORMS)
def test_sets_are_read_in_any_form(cells: list[Any], tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": [1.5, 2.5, 7.5], "candidates": pd.Series(cells)})
    frame.to_csv(tmp_path / "t.csv", index=False)
    tables = [frame]
    if not isinstance(cells[0], np.ndarray):  # which is printed as a list
        tables.append(tmp_path / "t.csv")
    for table in tables:
        candidates = read_table(table).candidates
        assert candidates.classes.tolist() == ["cat", "dog", "fox"]
        assert candidates.mask.tolist() == [[True, True, False], [False, False, True], [True, False, True]]


def test_a_label_in_quotes_may_hold_the_separator() -> None:
    assert parse_candidate_cells(['"a|b"|c', "c", ' "a|b" ', 'd|"e"'], "|", "the table") == [
        ["a|b", "c"],
        ["c"],
        ["a|b"],
        ["d", '"e"'],
    ]


@pytest.mark.parametrize("other", [", ", "/", "\n", " or "])
def test_another_separator_is_noticed_where_its_parts_are_cells_too(other: str) -> None:
    cells = [other.join(labels) for labels in SETS] * 10
    with pytest.raises(ValueError, match=r"must be separated by '\|'"):
        parse_candidate_cells(cells, "|", "the table")
    assert parse_candidate_cells(cells, other, "the table")[:3] == SETS


def test_a_comma_in_names_is_none() -> None:
    cells = [["Smith, John"], ["Doe, Ann"]]
    assert parse_candidate_cells([labels[0] for labels in cells], "|", "the table") == cells


@pytest.mark.parametrize(
    "cells", [["cat:0.7|dog:0.3", "fox:1.0", "cat: 0.5|fox: 0.5"], ["cat=70%|dog=30%", "cat=100%"]]
)
def test_labels_with_probabilities_are_refused(cells: list[str]) -> None:
    with pytest.raises(ValueError, match="without probabilities; the table has 'cat"):
        parse_candidate_cells(cells, "|", "the table")


def test_labels_with_a_colon_are_labels() -> None:
    assert parse_candidate_cells(["a:1|b:2", "c:3"], "|", "the table") == [["a:1", "b:2"], ["c:3"]]


def test_gold_numbers_with_gaps_are_the_labels_of_the_sets(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": [1.5, 2.5, 7.5], "candidates": ["1|2", "3", "2|3"], "gold": [1, None, 3]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    table = read_table(tmp_path / "t.csv", ColumnRoles(gold="gold"))
    assert table.candidates.classes.tolist() == ["1", "2", "3"]
    assert table.gold is not None
    assert table.gold.tolist() == [0, -1, 2]


def test_a_label_that_may_mean_a_gap_is_named() -> None:
    frame = pd.DataFrame({"x": range(1, 9), "candidates": ["cat|dog", "?", "cat", "dog"] * 2})
    assert any("'?'" in line and "--empty unlabelled" in line for line in read_table(frame).remarks())


@pytest.mark.parametrize("form", ["csv", "frame", "truths"])
def test_sets_may_be_columns_of_0_and_1(form: str, tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"x": [1.5, 2.5, 7.5], "is_cat": [1, 0, 1], "is_dog": [1, 0, 0], "is_fox": [0, 1, 1], "not_fox": [1, 0, 0]}
    )
    table: Any = frame
    if form == "truths":
        table = frame.astype(dict.fromkeys(frame.columns[1:], bool))
    if form == "csv":
        frame.to_csv(tmp_path / "t.csv", index=False)
        table = tmp_path / "t.csv"
    read = read_table(table, ColumnRoles(candidates="is_*", ignore=("not_fox",)))
    assert read.columns.names == ["x"]
    assert read.uses["is_*"].use == "candidates"
    assert read.candidates.classes.tolist() == ["cat", "dog", "fox"]
    assert read.candidates.mask.tolist() == [[True, True, False], [False, False, True], [True, False, True]]
    narrowed = read_table(table, ColumnRoles(candidates="is_*", exclude="not_*"))
    assert narrowed.candidates.mask.tolist() == [[True, True, False], [False, False, True], [True, False, True]]


@pytest.mark.parametrize(
    ("cell", "shown"), [(0.5, "'is_cat', row 1 is 0.5"), (None, "'is_cat', row 1 is nan"), ("b", "'is_cat'")]
)
def test_columns_of_labels_that_hold_something_else_are_refused(cell: Any, shown: str) -> None:
    frame = pd.DataFrame({"x": [1.5, 2.5], "is_cat": [1, cell], "is_dog": [1, 0]})
    with pytest.raises(ValueError, match=shown):
        read_table(frame, ColumnRoles(candidates="is_*"))
