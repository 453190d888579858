"""The paper's tables: data that agree with the paper, rows that are computed once, choices that use no true label."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import readme
import torch
from commands import call
from paper_pages import read_rows
from scipy.io import savemat

import oneof_paper.compute_rows as compute_rows_module
from oneof.cli import main
from oneof.methods import LWS, LWSCrossEntropy, Proden
from oneof.networks import Linear
from oneof.storage.rows import append, read
from oneof.storage.settings import to_serializable
from oneof.training.state import Record
from oneof.training.trials import Training
from oneof_paper import tables
from oneof_paper.cli.table import _parse_seeds
from oneof_paper.compute_rows import Cell, chosen_epoch, compute_rows, missing_cells, rules, run_job, split
from oneof_paper.data.catalogue import NAMED
from oneof_paper.data_sets import data_sets
from oneof_paper.experiments import CHARACTERISTICS, LATE, REAL, TABLES, WIDE, Protocol, System, wide_systems
from oneof_paper.printed import errata, printed

ROOT = Path(__file__).parents[2]
SHORT = Protocol(Linear(), Training(epochs=4, batch=20), lr=(0.01, 0.1), weight_decay=(1e-3,))


def blobs(n: int = 120, c: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, c, n)
    x = rng.normal(size=(n, 4)) + 3 * np.eye(c, 4)[labels]
    sets = np.eye(c, dtype=bool)[labels] | (rng.random((n, c)) < 0.3)
    return x, labels, sets


@pytest.fixture
def folder(tmp_path) -> Path:
    """Lost's file, with something small and separable in it."""
    x, labels, sets = blobs()
    (tmp_path / "data/real").mkdir(parents=True)
    content = {"data": x, "target": np.eye(3)[labels].T, "partial_target": sets.T.astype(float)}
    savemat(tmp_path / "data" / NAMED["lost"].files[0], content)
    return tmp_path / "data"


@pytest.fixture
def oneof(folder, tmp_path, monkeypatch, capsys):
    """The command, in this process, on one process of its own."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(
            sys, "argv", ["oneof", "paper", "table", *arguments, "--rows", str(tmp_path / "rows.jsonl")]
        )
        with pytest.raises(SystemExit) as end:
            main()
        printed_text = capsys.readouterr()
        return int(end.value.code or 0), printed_text.out, printed_text.err

    return run


# ----------------------------------------------------------------------------------------------------------- the data


@pytest.mark.parametrize("number", TABLES)
def test_every_system_of_a_table_is_printed_in_the_paper(number):
    table = TABLES[number]
    for name, system in table.systems.items():
        for dataset in table.datasets:
            assert printed(number, system.title, dataset), (name, dataset)
            assert table.system(name, dataset).title == system.title


def test_numbers_are_those_of_the_paper():
    assert printed(4, "LWS+POP", "msrcv2") == (52.42, 0.86)
    assert printed(5, "warm-up 15", "lost") == (78.72, 0.25)
    assert printed(2, "POP", "lost") == printed(4, "PRODEN+POP", "lost")
    assert printed(2, "PiCO", "lost") is None


def test_the_exchanged_columns_are_put_right_and_said():
    assert printed(1, "POP", "kmnist") == (96.93, 0.07)
    assert any("exchanged" in note for note in errata(1))
    assert not any("exchanged" in note for note in errata(2))


def test_the_package_file_equals_the_transcript_of_the_paper_cell_by_cell():
    source = json.loads((Path(__file__).parents[1] / "data/paper-tables.json").read_text())
    own = json.loads((Path(tables.__file__).parent / "printed.json").read_text())["tables"]
    names = {named.title.lower().replace("! ", "!"): name for name, named in NAMED.items()}
    for number in "1234":
        theirs = {
            (row.replace("LW", "LWS"), names[column.lower()]): cell
            for row, cells in source[f"table{number}"]["rows"].items()
            for column, cell in cells.items()
        }
        assert {(row, name): cell for row, cells in own[number].items() for name, cell in cells.items()} == theirs
    theirs = {
        (f"warm-up {n}", names[row.lower()]): cell
        for row, cells in source["table5"]["rows"].items()
        for n, cell in cells.items()
    }
    assert {(row, name): cell for row, cells in own["5"].items() for name, cell in cells.items()} == theirs


def test_the_pop_of_table_2_is_the_pop_of_table_4():
    settings = [
        Cell("lost", TABLES[n].system(name, "lost"), TABLES[n].protocol("lost"), ()).setting
        for n, name in ((2, "pop"), (4, "proden+pop"), (4, "proden"))
    ]
    assert settings[0] == settings[1] != settings[2]


def test_with_and_without_pop_search_equally_many_settings():
    assert len(TABLES[4].protocol("lost").grid) == 12
    assert TABLES[4].systems["cc"].purify is None
    assert TABLES[4].systems["cc+pop"].purify == LATE


def test_the_appendix_is_there():
    assert all(NAMED[name].paper for names in CHARACTERISTICS.values() for name in names)


# ------------------------------------------------------------------------------------------------------- the protocol


def test_splits_are_as_the_protocol_says():
    train, held_out, test = split(1000, 7, SHORT)
    assert (len(train), len(held_out), len(test)) == (720, 80, 200)
    assert len(set(train) | set(held_out) | set(test)) == 1000
    assert not np.array_equal(train, split(1000, 8, SHORT)[0])


def history(**columns: list[list[float]]) -> Record:
    return {name: torch.tensor(value) for name, value in columns.items()}


def test_truth_free_rules_take_the_last_epoch_and_the_oracle_its_best():
    seen = history(covering=[[0.9, 0.1], [0.5, 0.3]], oracle=[[0.7, 0.2], [0.6, 0.2]])
    assert chosen_epoch(seen, "covering").tolist() == [1, 1]
    assert chosen_epoch(seen, "oracle").tolist() == [0, 1]


@pytest.mark.parametrize("rule", ["covering", "approximated"])
def test_no_truth_free_choice_depends_on_a_label(rule):
    x, labels, sets = blobs()
    data = [np.asarray(labels), np.random.default_rng(1).permutation(labels)]
    chosen = []
    for truth in data:
        rows = compute_rows(Cell("lost", TABLES[4].systems["cc"], SHORT, (0, 1)), _dataset(x, truth, sets))
        chosen.append([(row["lr"], row["epoch"], row[rule]) for row in rows if row.get("rule") == rule])
    assert chosen[0] == chosen[1]


def _dataset(x, labels, sets):
    from oneof_paper.data.catalogue import LabelledData

    return LabelledData("lost", x.astype(np.float32), labels, ["a", "b", "c"], sets, None)


def test_rows_say_what_was_chosen_and_hold_the_whole_grid():
    x, labels, sets = blobs()
    cell = Cell("lost", TABLES[4].systems["proden+pop"], replace(SHORT, training=Training(epochs=90, batch=50)), (3, 4))
    rows = compute_rows(cell, _dataset(x, labels, sets))
    assert [row["kind"] for row in rows] == ["chosen"] * 3 + ["grid"] + ["chosen"] * 3 + ["grid"]
    grid = rows[3]
    for row in rows[:3]:
        best = int(np.argmax(grid["best_oracle" if row["rule"] == "oracle" else "last"][row["rule"]]))
        assert (row["lr"], row["weight_decay"], row["scaling"]) == cell.protocol.grid[best]
        assert row["accuracy"] > 0.8
        assert row["setting"] == cell.setting
        assert row["purify"]["kind"] == "Pop"
    assert rows[0]["epoch"] == 90
    assert rows[0]["set_size"] < sets.sum(1).mean()
    assert "true_labels_removed" in rows[0]


def test_scalings_and_forms_of_a_loss_are_searched_as_settings_are():
    x, labels, sets = blobs()
    protocol = replace(SHORT, other_scalings=("global",), training=Training(epochs=10, batch=20))
    system = System("LWS", LWS(), variants=(LWSCrossEntropy(2.0),))
    cell = Cell("lost", system, protocol, (3, 4))
    assert [setting.scaling for setting in protocol.grid] == ["feature"] * 2 + ["global"] * 2
    assert cell.trials == 16
    data = _dataset(x, labels, sets)
    rows = compute_rows(cell, data)
    for method, part in ((LWS(), slice(0, 4)), (LWSCrossEntropy(2.0), slice(4, 8))):
        alone = compute_rows(Cell("lost", System("LWS", method), protocol, (3, 4)), data)
        for number in (3, 7):  # the grids of the two seeds
            assert rows[number]["last"]["approximated"][part] == alone[number]["last"]["approximated"]
    for number in (0, 4):
        scores = rows[number + 3]["last"]["covering"]
        method, setting = cell.settings[int(np.argmax(scores))]
        assert rows[number]["rule"] == "covering"
        assert rows[number]["scaling"] == setting.scaling
        assert rows[number]["chosen_method"] == to_serializable(method)
    assert cell.setting != Cell("lost", System("LWS", LWS()), protocol, (3, 4)).setting


def test_only_missing_seeds_are_asked_for():
    cell = Cell("lost", TABLES[4].systems["cc"], SHORT, (1, 2, 3))
    there = [
        {"kind": "grid", "setting": cell.setting, "seed": 2},
        {"kind": "chosen", "setting": cell.setting, "seed": 3},
    ]
    (incomplete,) = missing_cells([cell, cell], there)
    assert incomplete.seeds == (1, 3)
    assert missing_cells([cell._replace(seeds=(2,))], there) == []


# --------------------------------------------------------------------------------------------------------- the command


def test_the_command_runs_what_is_missing_and_shows_it(oneof, folder, tmp_path):
    asked = ("4", "--datasets", "lost", "--methods", "cc,cc+pop", "--data-dir", str(folder), "--processes", "1")
    quick = [*asked, "--seeds", "0-1", "--format", "markdown"]
    code, out, err = oneof(*quick)
    assert code == 0, err
    assert "48 trials in" in err
    assert "| Lost | CC+POP |" in out
    assert "POP above its plain loss in the mean in" in out
    count = len(read(tmp_path / "rows.jsonl"))
    code, again, err = oneof(*quick)
    assert again == out
    assert "Nothing to run" in err
    assert len(read(tmp_path / "rows.jsonl")) == count == 2 * 2 * 4
    assert not list(tmp_path.glob(".rows-running"))


@pytest.mark.parametrize("form", ["text", "markdown", "latex"])
def test_showing_runs_nothing_and_names_what_cells_wait_for(oneof, tmp_path, form):
    code, out, _ = oneof("2", "--show", "--format", form)
    assert code == 0
    assert not (tmp_path / "rows.jsonl").exists()
    flat = " ".join(out.split())
    assert "Lost (all): not run yet; 'oneof paper table 2 --datasets lost' does it." in flat
    assert "Soccer Player (all): the data are not at hand here; take them by hand from https://" in flat
    assert "Filled: 0 of 56 cells of the paper." in flat
    assert "POP" in out


def test_images_wait_for_gpu_time(oneof):
    _, out, _ = oneof("3", "--show", "--format", "markdown")
    assert (
        "- Empty: CIFAR-10 (all): GPU time, not run yet; 'oneof paper table 3 --datasets cifar10 --device cuda' does it."
        in out
    )


@pytest.mark.parametrize("number", TABLES)
def test_a_table_fits_a_terminal_and_every_cell_has_rows_or_a_reason(number, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["oneof", "paper", "table", str(number), "--show"])
    with pytest.raises(SystemExit):
        main()
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    rows = read_rows()
    scores = tables.scores_of(number, TABLES[number], rows, range(100, 110))
    some = tables.lines(number, TABLES[number], scores, TABLES[number].datasets, list(TABLES[number].systems))
    empty = [line for line in some if not line.ours]
    assert len(some) - len(empty) == sum(line.startswith(" ") and line[1] != " " for line in out.splitlines()) - 1
    reasons = " ".join(out.split()).split("- Empty: ")[1:]
    for line in empty:
        mine = [reason for reason in reasons if reason.startswith(f"{NAMED[line.dataset].title} (")]
        assert any("(all)" in reason or line.system_title in reason.split(": ")[0].split(" (", 1)[1] for reason in mine)


def test_the_data_sets_as_printed_and_as_they_are_here(oneof, folder):
    code, out, _ = oneof("7", "--data-dir", str(folder), "--format", "markdown")
    sets = blobs()[2]
    assert code == 0
    assert (
        f"| Lost | paper | 898 | 224 | 108 | 16 | 2.23 |\n| Lost | ours | 96 | 24 | 4 | 3 | {sets.sum(1).mean():.2f} |"
        in out
    )
    assert "- Filled: 1 of 7 sets.\n- Empty: BirdSong, MSRCv2," in out
    assert "oneof paper data' says where to take them" in out


def test_figures_of_files_that_were_read_once_are_shown_without_them(oneof, folder):
    assert "Filled: 0 of 7 sets." in oneof("7", "--show", "--format", "markdown")[1]
    _, read_from_files, _ = oneof("7", "--data-dir", str(folder), "--format", "markdown")
    assert oneof("7", "--show", "--format", "markdown")[1] == read_from_files
    assert "Filled: 1 of 7 sets." in read_from_files


def test_malagasy_rebuilt_stands_below_the_papers_figures_and_is_not_counted():
    shown = data_sets(7, {"malagasy-rebuilt": ["4243", "1061", "384", "22", "8.36"]}, "markdown")
    assert "| Malagasy | rebuilt | 4243 | 1061 | 384 | 22 | 8.36 |" in shown
    assert "Filled: 0 of 7 sets." in shown


def test_the_rows_of_the_checkout_are_found_elsewhere(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        sys, "argv", ["oneof", "paper", "table", "2", "--show", "--format", "latex", "--datasets", "lost"]
    )
    with pytest.raises(SystemExit):
        main()
    out = capsys.readouterr().out
    assert "Filled: 8 of 8 cells of the paper. With three seeds or more: 8." in out
    assert r"Lost & PRODEN &" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["9"], "table must be one of 1, 2, 3, 4, 5, 6, 7; got 9"),
        (["2", "--methods", "foo"], "method must be one of pop, pop-printed, valen, proden"),
        (["2", "--methods", "prodn"], "Did you mean 'proden'?"),
        (["2", "--datasets", "lots"], "Did you mean 'lost'?"),
        (["2", "--datasets", "lost", "--data-dir", "/nowhere"], "data set 'lost' must lie in /nowhere"),
        (["2", "--data-dir", "/nowhere"], "no data set of this table is there"),
        (["3", "--datasets", "mnist", "--data-dir", "/nowhere"], "data set 'mnist' must lie in /nowhere"),
        (["2", "--seeds", "x"], "seeds must be a number such as 10 or a range such as 0-9; got 'x'"),
        (["2", "--seeds", "0"], "seeds must be a number"),
        (["2", "--show", "--format", "word"], "format must be one of text, markdown, latex; got 'word'"),
    ],
)
def test_bad_input_gets_one_line(oneof, arguments, message):
    code, _, err = oneof(*arguments)
    assert code == 2
    assert message in err
    assert err.count("\n") == 1


def test_a_corrupted_file_of_rows_gets_one_line(oneof, tmp_path):
    (tmp_path / "rows.jsonl").write_text("nonsense\n{}\n")
    code, _, err = oneof("2", "--show")
    assert code == 2
    assert "rows.jsonl must hold one JSON object per line; line 1" in err


def test_a_killed_run_resumes_and_ends_as_an_undisturbed_one(folder, tmp_path, monkeypatch):
    asked = ["paper", "table", "4", "--datasets", "lost", "--methods", "proden+pop", "--seeds", "0-0", "--data-dir", str(folder), "--processes", "1", "--rows"]  # fmt: skip
    command = [sys.executable, "-c", "from oneof.cli import main; main()", *asked, tmp_path / "cut.jsonl"]
    running = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)
    while not list(tmp_path.glob(".cut-running/*/*")) and running.poll() is None:
        time.sleep(0.02)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    assert not (tmp_path / "cut.jsonl").exists()
    here = lambda jobs, _: ((job, run_job(job)) for job in jobs)  # noqa: E731
    monkeypatch.setattr(
        compute_rows_module, "run_in_processes", here
    )  # the rest in this one: others take seconds to start
    for name in ("whole", "cut"):
        assert call(*asked, str(tmp_path / f"{name}.jsonl")).returncode == 0
    timed = ("seconds", "cpu_seconds")
    whole, cut = ([{k: v for k, v in row.items() if k not in timed} for row in read(tmp_path / f"{name}.jsonl")] for name in ("whole", "cut"))  # fmt: skip
    assert whole == cut


# ---------------------------------------------------------------------------------------------------------- the report


def made_up(system: str, rule: str, seed: int, accuracy: float) -> dict:
    cell = Cell("lost", TABLES[4].systems[system], TABLES[4].protocol("lost"), ())
    return {
        "kind": "chosen",
        "dataset": "lost",
        "setting": cell.setting,
        "rule": rule,
        "seed": seed,
        "accuracy": accuracy,
    }


@pytest.fixture
def scores():
    rows = [made_up("cc", rule, seed, 0.70 + seed / 100) for rule in rules() for seed in range(5)]
    rows += [made_up("cc+pop", rule, seed, 0.72 + seed / 100 + seed**2 / 1000) for rule in rules() for seed in range(5)]
    return tables.scores_of(4, TABLES[4], [*rows, rows[0] | {"accuracy": 0.0}], range(5))


def test_markdown_holds_ours_the_papers_and_the_difference(scores):
    some = tables.lines(4, TABLES[4], scores, ["lost"], ["cc"])
    text = tables.render(4, TABLES[4], some, "markdown")
    assert "| Lost | CC | 72.00 ± 1.58 | 72.00 ± 1.58 | 72.00 ± 1.58 | 63.54 ± 0.25 | +8.46 | 5 |" in text
    assert r"72.00 $\pm$ 1.58 & 63.54 $\pm$ 0.25 & +8.46 & 5 \\" in tables.render(4, TABLES[4], some, "latex")


def test_gains_are_paired_and_corrected(scores):
    (gain,) = tables.gains(TABLES[4], scores, "covering")
    assert gain.system == "CC+POP"
    assert gain.paired.gain == pytest.approx(2.6)
    assert gain.holm_p == gain.paired.t_p < 0.05
    assert "in 1 of 1 pairs" in tables.gains_text([gain], "covering")


def test_agreement_counts_choices_close_to_the_oracles(scores):
    assert readme.agreement(scores, "covering") == (10, 10)
    worse = {key: ({seed: value - 50 for seed, value in one.items()} if key[2] == "covering" else one) for key, one in scores.items()}  # fmt: skip
    assert readme.agreement(worse, "covering") == (0, 10)


def test_table_5_of_real_sets_and_images_have_their_own_rounds():
    table = TABLES[5]
    assert table.system("warm-up-5", "lost").purify.warm_up == table.system("warm-up-5", "kmnist").purify.warm_up == 5
    assert table.protocol("lost") != table.protocol("kmnist")
    assert isinstance(table.system("warm-up-5", "lost").method, Proden)
    assert set(REAL) > {"lost", "soccer"}


def wide_row(dataset: str, title: str, seed: int) -> dict:
    (system,) = [system for system in wide_systems() if system.title == title]
    setting = Cell(dataset, system, WIDE, ()).setting
    return {"kind": "chosen", "dataset": dataset, "setting": setting, "rule": "oracle", "seed": seed, "accuracy": 0.5}


@pytest.mark.parametrize(
    ("number", "title", "shown"),
    [(2, "PRODEN+POP", "POP"), (2, "POP as released", "POP as released"), (2, "LWS", "LWS"),
     (4, "PRODEN+POP", "PRODEN+POP"), (4, "POP as printed", "PRODEN+POP as printed"), (5, "warm-up 5", "warm-up 5")],
)  # fmt: skip
def test_rows_of_the_wide_grid_are_lines_of_their_own(number, title, shown):
    rows = [wide_row("lost", title, seed) for seed in (400, 401, 100)]
    scores = tables.scores_of(number, TABLES[number], rows, range(100, 110))
    assert scores == {("lost/60 settings", shown, "oracle"): {400: 50.0, 401: 50.0}}
    systems = list(TABLES[number].systems)
    (line,) = [line for line in tables.lines(number, TABLES[number], scores, ["lost"], systems) if line.ours]
    assert (line.title, line.trials) == ("Lost, 60 settings", 2)


def test_malagasy_rebuilt_stands_beside_the_papers_row_and_fills_no_cell():
    scores = tables.scores_of(2, TABLES[2], [wide_row("malagasy-rebuilt", "CC", 400)], range(100, 110))
    some = tables.lines(2, TABLES[2], scores, ["malagasy"], ["cc"])
    assert [line.title for line in some] == ["Malagasy", "Malagasy, rebuilt, 60 settings"]
    assert tables.count_filled(some) == "Filled: 0 of 1 cells of the paper."
    *_, paper, difference, trials = tables.cells(some[1], ["oracle"])
    assert (paper.split()[0], difference, trials) == (f"{printed(2, 'CC', 'malagasy').mean:.2f}", "", "1")


@pytest.mark.parametrize(
    ("system", "variant", "epochs", "line"),
    [
        ("POP", "stepped-released", 200, ("cifar10/200 epochs in steps", "POP as released")),
        ("POP", "stepped-printed-20", 200, ("cifar10/200 epochs in steps", "POP as printed")),
        ("PRODEN", "stepped", 500, ("cifar10/500 epochs in steps", "PRODEN")),
        ("CLPL (softmax)", "", 100, ("cifar10/on the softmax", "CLPL")),
        ("PRODEN", "decay.0005", 100, ("cifar10/weight decay 0.0005", "PRODEN")),
        ("PiCO", "", 100, ("cifar10/settings of the others", "PiCO")),
        ("CAVL", "adam.001", 100, ("cifar10/Adam, rate 0.001", "CAVL")),
        ("LWS (cross-entropy)", "", 100, ("cifar10/as cross-entropy", "LWS")),
        ("POP", "swift-last", 100, None),
        ("POP", "released", 100, None),
    ],
)
def test_rows_on_images_say_what_differs_from_the_paper(system, variant, epochs, line):
    row = {
        "dataset": "cifar10", "difficulty": "saturated", "system": system, "variant": variant, "epochs": epochs, "seed": 100,
        "weight_decay": 5e-4, "lr": 0.001, "accuracy": 0.9, "by_oracle": {"accuracy": 0.8},
    }  # fmt: skip
    found = {key[:2] for key in tables.scores_of(1, TABLES[1], [row], [100])}
    assert found == ({line} if line else set())


def test_a_loss_on_the_softmax_with_pop_stands_beside_the_same_on_raw_scores():
    row = {
        "dataset": "cifar10", "difficulty": "saturated", "system": "CLPL (softmax)+POP", "variant": "bare-last", "epochs": 100,
        "seed": 100, "accuracy": 0.9, "by_oracle": {"accuracy": 0.8},
    }  # fmt: skip
    found = {key[:2] for key in tables.scores_of(3, TABLES[3], [row], [100])}
    assert found == {("cifar10/on the softmax", "CLPL+POP")}


def test_the_three_pops_are_named_by_what_they_are():
    names = [
        tables.Line("lost", title, {}, None).system_title for title in ("POP", "POP as printed", "POP as released")
    ]
    assert names == ["POP (ours)", "POP (Algorithm 1)", "POP (released code)"]


def test_rows_without_augmentation_are_not_those_of_table_1():
    cell = Cell("kmnist", TABLES[3].system("rc", "kmnist"), TABLES[3].protocol("kmnist"), ())
    row = {
        "kind": "chosen",
        "dataset": "kmnist",
        "setting": cell.setting,
        "rule": "oracle",
        "seed": 100,
        "accuracy": 0.9,
    }
    assert tables.scores_of(3, TABLES[3], [row], [100])
    assert not tables.scores_of(1, TABLES[1], [row], [100])


def test_appended_rows_come_back(tmp_path):
    append(tmp_path / "a.jsonl", [made_up("cc", "oracle", 1, 0.5)])
    assert read(tmp_path / "a.jsonl")[0]["seed"] == 1


def on_images(system: str, variant: str = "", **changes) -> dict:
    row = {
        "dataset": "cifar10",
        "difficulty": "saturated",
        "system": system,
        "variant": variant,
        "epochs": 100,
        "seed": 100,
    }
    return row | {"accuracy": 0.9, "by_oracle": {"accuracy": 0.91}} | changes


def test_rows_on_images_stand_where_they_belong():
    rows = [
        on_images("POP", "last"), on_images("POP", "printed-last"), on_images("RCR", "authors"), on_images("RCR"),
        on_images("PRODEN", epochs=150), on_images("CC", difficulty="20"), on_images("PRODEN", "fair"), on_images("PRODEN", epochs=30),
        on_images("RC", "upright", dataset="kmnist", epochs=50), on_images("POP", "bare-last"), on_images("CC+POP", "bare-last"),
    ]  # fmt: skip
    found = tables.scores_of(1, TABLES[1], rows, [100])
    assert {key[:2] for key in found} == {
        ("cifar10", "POP"), ("cifar10", "POP as printed"), ("cifar10", "RCR"), ("cifar10/settings of the others", "RCR"),
        ("cifar10/150 epochs", "PRODEN"), ("cifar10/hard sets", "CC"), ("kmnist/upright", "RC"),
    }  # fmt: skip
    assert found["cifar10", "POP", "last"] == {100: 90.0}
    assert found["cifar10", "POP", "oracle"] == {100: 91.0}
    assert {key[:2] for key in tables.scores_of(3, TABLES[3], rows, [100])} == {
        ("cifar10", "PRODEN+POP"),
        ("cifar10", "CC+POP"),
    }


def test_lines_show_other_kinds_of_sets_below_and_count_what_is_filled():
    rows = [on_images("POP", "last"), on_images("CC", difficulty="20"), on_images("POP", "printed-last")]
    scores = tables.scores_of(1, TABLES[1], rows, [100])
    some = tables.lines(1, TABLES[1], scores, ["mnist", "cifar10"], list(TABLES[1].systems))
    assert tables.count_filled(some) == "Filled: 1 of 20 cells of the paper. With three seeds or more: 0."
    text = tables.render(1, TABLES[1], some, "markdown")
    assert "| data set | system | last epoch | oracle | paper (oracle) |" in text  # no number twice
    assert "| CIFAR-10, hard sets | CC | 90.00 | 91.00 |  |  | 1 |" in text  # one seed has no deviation
    assert "- Empty: MNIST (all): GPU time, not run yet" in text
    assert (
        "- Empty: CIFAR-10 (CC): GPU time, not run yet; 'oneof paper table 1 --datasets cifar10 --device cuda' does it. So far only: hard sets."
        in text
    )
    assert "Covering rate" not in text  # by which nothing was chosen here


def test_gains_obey_the_format(scores):
    some = tables.gains(TABLES[4], scores, "covering")
    text = tables.gains_text(some, "covering", "latex")
    assert text.startswith("% Settings chosen by")
    assert r"Lost & CC+POP & +2.60 &" in text
    assert text.endswith(r"\end{tabular}")


def test_seeds_to_report_are_counted_from_a_hundred_and_a_range_says_others():
    assert (_parse_seeds("2"), _parse_seeds("0-2")) == ((100, 101), (0, 1, 2))
