"""What the page "What was reproduced" says of a cell, on made-up lines."""

from __future__ import annotations

import pytest
import reproduced
from reproduced import Book, Place, cells_of_the_paper, explanation

from oneof_paper.printed import Printed
from oneof_paper.tables import IN_STEPS, WIDE_GRID, Line

PAPER = Printed(60.0, 0.1)


def line(dataset: str, system: str, accuracy: float, seeds: int = 3) -> Line:
    return Line(dataset, system, {"oracle": [accuracy] * seeds}, PAPER)


def explained(table: int, cell: Line, *others: Line) -> str:
    lines = {number: [] for number in range(1, 6)}
    lines[table] = [cell, *others]
    return explanation(Place(table, cell), Book([], lines))


@pytest.mark.parametrize(
    ("cell", "other", "text"),
    [
        (line("cifar100", "CAVL", 50), line("cifar100/Adam, rate 0.001", "CAVL", 58), "Adam, rate 0.001 58.0"),
        (line("cifar100", "LWS", 50), line("cifar100/as cross-entropy", "LWS", 57), "as cross-entropy 57.0"),
        (line("cifar10", "PiCO", 50), line("cifar10/settings of the others", "PiCO", 56), "0.01 it has 56.0"),
        (line("cifar10", "CLPL", 90), line("cifar10/on the softmax", "CLPL", 55), "On the softmax it has 55.0"),
        (line("cifar100", "POP", 50), line(f"cifar100/{IN_STEPS}", "POP as released", 61), "(released code) 61.0"),
        (line("kmnist", "LWS", 50), line("kmnist/upright", "LWS", 61.5), "on upright ones it has 61.5 (+1.5)"),
    ],
)
def test_an_experiment_explains_a_cell_once_it_has_rows(cell, other, text):
    assert text in explained(1, cell, other)
    assert text not in explained(1, cell)


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
