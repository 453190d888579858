"""README's results are those of the rows, and its two commands are there."""

from __future__ import annotations

from pathlib import Path

from oneof.storage.rows import read

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_the_digits_table_is_that_of_the_rows():
    import digits

    rows = [row for row in read(ROOT / "results/digits.jsonl") if 100 <= row["seed"] < 110]
    assert len(rows) == 100
    assert digits.table(rows) in README


def test_the_results_are_those_of_the_rows():
    import readme

    for name in readme.MARKED:
        assert readme.renewed((ROOT / name).read_text()) == (ROOT / name).read_text()
    assert readme.tables_page() == (ROOT / "docs/tables.md").read_text()


def test_where_the_gain_comes_from_is_what_the_rows_say():
    import pop_gain

    page = (ROOT / "docs/decisions/0010-pop-in-the-tables.md").read_text()
    assert pop_gain.table(read(ROOT / "results/tables.jsonl")) in page


def test_how_often_the_interval_held_is_what_the_rows_say(capsys):
    import practice

    practice.show_interval(read(ROOT / "results/interval.jsonl"))
    assert capsys.readouterr().out.strip() in (ROOT / "docs/decisions/0009-accuracy-without-truth.md").read_text()


def test_the_two_commands_are_there():
    assert "make demo" in README
    assert "make test" in README
