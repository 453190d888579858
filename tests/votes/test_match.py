"""Items of votes are matched with rows by their ids, however a program wrote these."""

from __future__ import annotations

import pytest

from oneof.votes.match import match_ids


@pytest.mark.parametrize("item", ["{}.0", "{:03d}", " {}", "{}. "])
def test_whole_numbers_match_however_they_are_written(item: str) -> None:
    items = [item.format(number) for number in (3, 1, 2)]
    matched, remarks = match_ids(["1", "2", "3", "4", ""], items)
    assert matched.tolist() == [1, 2, 0, -1, -1]
    assert len(remarks) == 1
    assert remarks[0].startswith("3 ids are written in another way")
    assert repr(items[1]) in remarks[0]


@pytest.mark.parametrize(("rows", "items"), [(["1", "01", "x"], ["1", "2"]), (["1", "x"], ["1", "1.0"])])
def test_ids_that_would_become_one_are_compared_as_they_are_written(rows: list[str], items: list[str]) -> None:
    matched, remarks = match_ids(rows, items)
    assert matched.tolist() == [0, *[-1] * (len(rows) - 1)]
    assert remarks == []


def test_texts_match_only_as_they_are_written() -> None:
    assert match_ids(["a", "A", "1.5"], ["a", "1.50"])[0].tolist() == [0, -1, -1]
