"""What the page "What was reproduced" says of a cell, on made-up lines."""

from __future__ import annotations

import subprocess

import pytest
import reproduced
from paper_pages import ROOT
from reproduced import Book, Place, cells_of_the_paper, explanation

from oneof.storage.rows import read
from oneof_paper.printed import Printed
from oneof_paper.tables import IN_STEPS, WIDE_GRID, Line

PAPER = Printed(60.0, 0.1)


def line(dataset: str, system: str, accuracy: float, seeds: int = 3) -> Line:
    return Line(dataset, system, {"oracle": [accuracy] * seeds}, PAPER)


def explained(table: int, cell: Line, *others: Line, rows: list[dict] | None = None) -> str:
    lines = {number: [] for number in range(1, 6)}
    lines[table] = [cell, *others]
    return explanation(Place(table, cell), Book(rows or [], lines))


@pytest.mark.parametrize(
    ("cell", "other", "text"),
    [
        (line("cifar100", "CAVL", 50), line("cifar100/Adam, rate 0.001", "CAVL", 58), "Adam, rate 0.001: 58.0"),
        (line("cifar100", "LWS", 50), line("cifar100/as cross-entropy", "LWS", 57.5), "As cross-entropy: 57.5"),
        (line("cifar100", "POP", 50), line(f"cifar100/{IN_STEPS}", "POP as released", 61), f"{IN_STEPS}: 61.0"),
        (line("cifar100", "POP", 50), line("cifar100/weight decay 0.0005", "POP", 61), "weight decay 0.0005: 61.0"),
        (line("cifar100", "VALEN", 50), line("cifar100/weight decay 0.0005", "VALEN", 58), "decay 0.0005: 58.0"),
        (line("kmnist", "LWS", 50), line("kmnist/upright", "LWS", 61.5), "On upright ones: 61.5"),
    ],
)
def test_an_experiment_explains_a_cell_if_it_comes_near_print(cell, other, text):
    assert f"{text}. This explains it." in explained(1, cell, other)
    assert text not in explained(1, cell)
    far = other._replace(ours={"oracle": [56.9]})  # print less three points is 57
    assert "56.9. This does not explain it." in explained(1, cell, far)


def test_clpl_on_the_softmax_explains_clpl_above_print():
    cell = line("cifar10", "CLPL", 90)
    assert "On the softmax it has 55.0" in explained(1, cell, line("cifar10/on the softmax", "CLPL", 55))
    assert "Not run" in explained(1, cell)


def test_pico_has_rows_with_another_rate():
    cell = line("cifar10", "PiCO", 50)
    row = {"system": "PiCO", "dataset": "cifar10", "difficulty": "saturated", "variant": "", "lr": 0.05, "epochs": 30}
    row["by_oracle"] = {"accuracy": 0.55}
    assert "Rate 0.05, 30 epochs: 55.0. This does not explain it." in explained(1, cell, rows=[row])
    assert explained(1, cell, rows=[{**row, "variant": "authors"}]).startswith("None yet.")


def test_other_forms_of_pop_stand_beside_a_cell_below_print(monkeypatch):
    monkeypatch.setattr(reproduced, "at_the_edge", lambda *_: (1, 10))
    cell = line(f"msrcv2/{WIDE_GRID}", "RC+POP", 56)
    other = line(f"msrcv2/{WIDE_GRID}", "RC+POP as released", 58)
    assert explained(4, cell, other) == "RC+POP (released code): 58.0. This explains it."
    assert explained(4, cell) == "None yet. The oracle takes the largest learning rate, 3, in 1 of 10 seeds."


def test_without_an_experiment_that_is_said():
    assert explained(1, line("fashion-mnist", "RC", 50)) == "None yet."
    assert explained(1, line("fashion-mnist", "RC", 70)) == "None; ours is above print."


def test_the_wide_grid_counts_from_three_seeds_on():
    narrow = [line("lost", "CC", 50), line("lost", "RC", 50)]
    wide = [line(f"lost/{WIDE_GRID}", "CC", 55), line(f"lost/{WIDE_GRID}", "RC", 55, seeds=2)]
    assert cells_of_the_paper([*narrow, *wide]) == [wide[0], narrow[1]]


def test_the_edge_of_the_grid_is_that_of_the_search(monkeypatch):
    cell = line(f"lost/{WIDE_GRID}", "CC", 50)
    monkeypatch.setattr(reproduced.tables, "lines_by_setting", lambda _: {"s": (cell.dataset, "CC")})
    rows = []
    for seed, rate in ((400, 3.0), (401, 3.0), (402, 0.1), (100, 3.0)):
        rows.append({"rule": "oracle", "seed": seed, "setting": "s", "lr": rate})
    assert reproduced.at_the_edge(Place(2, cell), rows) == (2, 3)


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs the history")
def test_every_row_names_a_commit_of_the_history_or_one_that_the_page_lists():
    def git(*arguments: str) -> str:
        return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True).stdout

    if git("rev-parse", "--is-shallow-repository").strip() == "true":
        pytest.skip("the history is cut off here")
    history = git("rev-list", "HEAD").split()
    named = set()
    for path in (ROOT / "results").glob("*.jsonl"):
        named |= {row["commit"].removesuffix("+") for row in read(path) if row.get("commit")}
    absent = {commit for commit in named if not any(full.startswith(commit) for full in history)}
    assert absent == set(reproduced.ABSENT_COMMITS)
