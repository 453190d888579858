"""What the page "What was reproduced" says of a cell, on made-up lines."""

from __future__ import annotations

import subprocess

import pytest
import reproduced
from paper_pages import ROOT
from reproduced import Book, Explanation, Place, cells_of_the_paper, count_explained, explanation

from oneof.storage.rows import read
from oneof_paper.compute_rows import Cell
from oneof_paper.experiments import ABOVE_WIDE, WIDE, Protocol, wide_systems
from oneof_paper.printed import Printed
from oneof_paper.tables import IN_STEPS, WIDE_GRID, Line

PAPER = Printed(60.0, 0.1)


def line(dataset: str, system: str, accuracy: float, seeds: int = 3) -> Line:
    return Line(dataset, system, {"oracle": [accuracy] * seeds}, PAPER)


def explained(table: int, cell: Line, *others: Line, rows: list[dict] | None = None) -> Explanation:
    lines = {number: [] for number in range(1, 6)}
    lines[table] = [cell, *others]
    return explanation(Place(table, cell), Book(rows or [], lines))


@pytest.mark.parametrize(
    ("cell", "other", "text"),
    [
        (line("cifar100", "CAVL", 50), line("cifar100/Adam, rate 0.001", "CAVL", 59), "Adam, rate 0.001: 59.0."),
        (line("cifar100", "LWS", 50), line("cifar100/as cross-entropy", "LWS", 59.5), "As cross-entropy: 59.5."),
        (line("cifar100", "POP", 50), line(f"cifar100/{IN_STEPS}", "POP as released", 61), f"{IN_STEPS}: 61.0."),
        (line("cifar100", "POP", 50), line("cifar100/weight decay 0.0005", "POP", 61), "weight decay 0.0005: 61.0."),
        (line("cifar100", "VALEN", 50), line("cifar100/weight decay 0.0005", "VALEN", 60), "decay 0.0005: 60.0."),
        (line("kmnist", "LWS", 50), line("kmnist/upright", "LWS", 60.5), "On upright ones: 60.5."),
    ],
)
def test_an_experiment_explains_a_cell_if_it_ends_near_print(cell, other, text):
    result = explained(1, cell, other)
    assert text in result.text
    assert result.verdict == "explained"
    alone = explained(1, cell)
    assert text not in alone.text
    assert alone.verdict == "no experiment"


@pytest.mark.parametrize(
    ("accuracies", "verdict"),
    [
        ([58.9], "in part: 1.1 of 10.0 points remain"),  # print is 60, ours 50
        ([53.4], "in part: 6.6 of 10.0 points remain"),
        ([53.3], "not explained"),
        ([45.0], "not explained"),
        ([61.1], "print lies between, 1.1 away"),
        ([45.0, 53.4], "in part: 6.6 of 10.0 points remain"),
        ([53.4, 61.0], "explained"),
    ],
)
@pytest.mark.parametrize("sign", [1, -1])
def test_the_verdict_goes_by_the_experiment_nearest_to_print_on_either_side(accuracies, verdict, sign):
    place = Place(1, line("cifar100", "RC", 60 + sign * (50 - 60)))
    experiments = {f"experiment {number}": 60 + sign * (value - 60) for number, value in enumerate(accuracies)}
    assert reproduced.judged(place, experiments).verdict == verdict


def test_verdicts_are_counted():
    book = Book([], {1: [line("kmnist/upright", "LWS", 60.5)]})
    places = [Place(1, line("kmnist", "LWS", 50)), Place(1, line("mnist", "RC", 50)), Place(1, line("mnist", "CC", 50))]
    assert count_explained(places, book) == "3 cells: 1 explained, 2 no experiment."


def test_clpl_on_the_softmax_explains_clpl_above_print():
    cell = line("cifar10", "CLPL", 90)
    assert explained(1, cell, line("cifar10/on the softmax", "CLPL", 60.5)).verdict == "explained"
    assert explained(1, cell).verdict == "no experiment"
    assert "Not run" in explained(1, cell).text


def test_a_loss_above_print_stands_beside_its_plain_view():
    cell = line("cifar10", "CC", 90)
    lines = {number: [] for number in range(1, 6)} | {1: [cell], 3: [line("cifar10", "CC", 70)]}
    result = explanation(Place(1, cell), Book([], lines))
    assert result == ("On one plain view (Table 3): 70.0.", "in part: 10.0 of 30.0 points remain")


def test_pico_has_rows_with_another_rate():
    cell = line("cifar10", "PiCO", 50)
    row = {"system": "PiCO", "dataset": "cifar10", "difficulty": "saturated", "variant": "", "lr": 0.05, "epochs": 30}
    row["by_oracle"] = {"accuracy": 0.55}
    result = explained(1, cell, rows=[row])
    assert "Rate 0.05, 30 epochs: 55.0." in result.text
    assert result.verdict == "in part: 5.0 of 10.0 points remain"
    assert explained(1, cell, rows=[{**row, "variant": "authors"}]).verdict == "no experiment"


def test_other_forms_of_pop_stand_beside_a_cell_below_print(monkeypatch):
    monkeypatch.setattr(reproduced, "at_the_edge", lambda *_: (1, 10))
    cell = line(f"msrcv2/{WIDE_GRID}", "RC+POP", 56)
    other = line(f"msrcv2/{WIDE_GRID}", "RC+POP as released", 59)
    edge = "The oracle takes the largest learning rate, 3, in 1 of 10 seeds."
    reached = "Seeds at print or above: 0 of 3."
    assert explained(4, cell, other) == (f"RC+POP (released code): 59.0. {edge} {reached}", "explained")
    assert explained(4, cell) == (edge, "no experiment")


def test_the_usual_grid_stands_beside_the_wide_one(monkeypatch):
    monkeypatch.setattr(reproduced, "at_the_edge", lambda *_: (1, 10))
    cell = line(f"msrcv2/{WIDE_GRID}", "VALEN", 56)
    text = "With 12 settings: 54.0. The oracle takes the largest learning rate, 3, in 1 of 10 seeds."
    assert explained(2, cell, line("msrcv2", "VALEN", 54)) == (text, "not explained")
    usual = explained(2, line("msrcv2", "VALEN", 54))
    assert usual.text.endswith("0.1, in 1 of 10 seeds. Not run: 60 settings.")
    assert usual.verdict == "no experiment"


def row_of(protocol: Protocol, seed: int, **values: object) -> dict:
    (system,) = [system for system in wide_systems() if system.title == "RC+POP"]
    purify = {"warm_up": 80}
    return {"setting": Cell("msrcv2", system, protocol, ()).setting, "seed": seed, "purify": purify, **values}


def test_one_setting_for_all_seeds_has_the_best_mean_on_held_out_labels():
    cell = line(f"msrcv2/{WIDE_GRID}", "RC+POP", 50, seeds=2)
    rows = []
    for seed, held_out in ((400, [0.9, 0.8, 0.1]), (401, [0.1, 0.8, 0.9])):
        rows.append(row_of(WIDE, seed, kind="grid", best_oracle={"oracle": held_out, "accuracy": [0.5, 0.6, 0.7]}))
    assert reproduced.with_one_setting(Place(4, cell), rows) == pytest.approx(60)
    assert reproduced.with_one_setting(Place(4, cell), rows[:1]) is None
    assert "One setting for all seeds: 60.0." in explained(4, cell, rows=rows).text


def test_the_oracle_may_choose_larger_rates_than_the_grids():
    cell = line(f"msrcv2/{WIDE_GRID}", "RC+POP", 50, seeds=2)
    rows = []
    for seed, larger in ((400, 0.9), (401, 0.7)):
        rows.append(row_of(WIDE, seed, rule="oracle", oracle=0.8, accuracy=0.4, lr=3.0, epoch=80))
        rows.append(row_of(ABOVE_WIDE, seed, rule="oracle", oracle=larger, accuracy=0.5, lr=10.0, epoch=81))
    assert reproduced.with_larger_rates(Place(4, cell), rows) == pytest.approx(45)
    assert reproduced.with_larger_rates(Place(4, cell), rows[:3]) is None
    text = explained(4, cell, rows=rows).text
    assert "Learning rates to 30: 45.0." in text
    assert "Its epoch is before POP's first round in 2." in text


def test_without_an_experiment_that_is_said():
    assert explained(1, line("fashion-mnist", "RC", 50)) == ("", "no experiment")


def test_a_distance_has_a_standard_error_from_three_seeds_on():
    cell = Line("lost", "CC", {"oracle": [57.0, 60.0, 63.0]}, PAPER)
    assert Place(2, cell).distance_with_error == "+0.00 ± 1.73"
    assert Place(2, line("lost", "CC", 57, seeds=2)).distance_with_error == "-3.00"


def test_the_three_pops_stand_beside_proden_on_real_sets_where_all_have_rows():
    lines = []
    for system in ("PRODEN", "POP", "POP as printed", "POP as released"):
        lines.append(line(f"lost/{WIDE_GRID}", system, 55))
    lines.append(line(f"birdsong/{WIDE_GRID}", "PRODEN", 55))
    text = reproduced.forms_of_pop_on_real_sets(Book([], {2: lines}))
    assert "Lost" in text
    assert "BirdSong" not in text


def test_systems_without_rows_on_malagasy_rebuilt_are_named():
    lines = [line("malagasy/rebuilt/60 settings", "CC", 70)]
    for system in ("CC", "VALEN", "POP as printed"):
        lines.append(Line("malagasy", system, {}, PAPER))
    assert reproduced.malagasy(Book([], {2: lines})).endswith("Not run: VALEN.")


def test_on_malagasy_rebuilt_proden_has_the_same_seeds_beside_each_system():
    setting_of = {}
    for system in wide_systems():
        setting_of[system.title] = Cell("malagasy-rebuilt", system, WIDE, ()).setting
    rows = []
    for title, seed, accuracy in (("PRODEN", 400, 0.7), ("PRODEN", 401, 0.8), ("CC", 401, 0.9)):
        rows.append({"setting": setting_of[title], "rule": "oracle", "seed": seed, "accuracy": accuracy})
    lines = []
    for system, seeds in (("PRODEN", 2), ("CC", 1)):
        lines.append(line("malagasy/rebuilt/60 settings", system, 75, seeds))
    text = reproduced.malagasy(Book(rows, {2: lines}))
    assert "| PRODEN |  | 75.00 ± 0.00 | 75.00 | 60.00 | 2 |" in text
    assert "| CC |  | 75.00 | 80.00 | 60.00 | 1 |" in text


def test_empty_cells_of_several_tables_stand_together():
    def empty(dataset: str, system: str) -> Line:
        return Line(dataset, system, {}, PAPER)

    cells = {
        2: [empty("soccer", "CC"), empty("soccer", "RC"), empty("yahoo", "CC"), line("lost", "RC", 50)],
        5: [empty("soccer", "warm-up 0")],
    }
    note = reproduced.empty_cells(cells)
    assert note.startswith("- Soccer Player (Tables 2, 5); Yahoo! News (Table 2: CC): the data are not at hand")


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


def test_the_edge_of_the_wide_grid_is_counted_over_its_runs(monkeypatch):
    by_setting = {"s": (f"lost/{WIDE_GRID}", "CC"), "t": ("lost", "CC")}
    monkeypatch.setattr(reproduced.tables, "lines_by_setting", lambda _: by_setting)
    rows = []
    for setting, seed, rate in (("s", 400, 3.0), ("s", 401, 1.0), ("s", 100, 3.0), ("t", 400, 3.0)):
        rows.append({"rule": "oracle", "dataset": "lost", "seed": seed, "setting": setting, "lr": rate})
    text = reproduced.edge_of_the_wide_grid(rows)
    assert text == "The oracle takes the largest learning rate, 3, in 1 of 2 runs on Lost."


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
