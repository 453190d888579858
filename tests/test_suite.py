"""The suite of tables: rows are made once, sets hold the truth, and the report follows the rule by which a system is behind."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import suite
from on_tables.columns import distance_features, piecewise_features, tree_features
from on_tables.forms import FORMS, NESTED, Regression, leave_out_folds, uniform_targets, within_sets
from on_tables.problems import DEVELOP, HELD_BACK, KEEL, KEEL_DEVELOP, KEEL_HELD_BACK, KINDS, TABLES, make_problem
from on_tables.report import (
    behind_table,
    collect,
    compare_with_rivals,
    means_table,
    paired_gap,
    published_rows,
    short_section,
    single_rival_table,
    untouched_section,
)
from on_tables.systems import find_system
from on_tables.trials import missing_trials

from oneof.storage.rows import append, read


def uniform_form(sets, train, test, seed):
    """A form that has learned nothing."""
    c = sets.shape[1]
    return np.full((len(test), c), 1 / c), np.full(sets.shape, 1 / c)


@pytest.fixture
def folder(tmp_path):
    """A data folder with one table of numbers, a gap and a text column, under the name of a table of the suite."""
    rng = np.random.default_rng(0)
    label = np.repeat([0, 1, 2], 30)
    frame = pd.DataFrame({"c0": label + 0.3 * rng.normal(size=90), "c1": rng.normal(size=90)})
    frame["c2"] = np.array(["red", "green", "blue"])[(label + (rng.random(90) < 0.3)) % 3]
    frame.loc[5, "c1"] = np.nan
    frame["target"] = [f"k{j}" for j in label]
    (tmp_path / "tables").mkdir()
    frame.to_csv(tmp_path / "tables/glass.csv", index=False)
    return tmp_path


def run_suite(folder, *more):
    arguments = ["--tables", "glass", "--seeds", "0", "--data-dir", str(folder), "--rows", str(folder / "rows.jsonl")]
    return suite.main([*arguments, *more])


def test_a_table_runs_through_systems_once(folder, capsys):
    systems = ["--systems", "trees", "quick", "test_suite:uniform_form", "--store", str(folder / "store")]
    assert run_suite(folder, "--kinds", "doubts", *systems) == 0
    rows = read(folder / "rows.jsonl")
    assert {row["system"] for row in rows} == {"trees", "quick", "test_suite:uniform_form"}
    assert len(rows) == 3
    by_system = {row["system"]: row for row in rows}
    assert by_system["quick"]["accuracy"] > 0.6
    assert by_system["test_suite:uniform_form"]["accuracy"] < 0.6
    assert 0 <= by_system["quick"]["covering"] <= 1
    assert by_system["trees"]["covering"] is None
    assert all({"cpu_seconds", "wall_seconds", "commit", "pandas", "resolved"} <= row.keys() for row in rows)
    stored = np.load(folder / "store/glass-doubts-0-test_suite_uniform_form.npz")
    assert stored["test"].shape == (28, 3)
    assert stored["train"].shape == (62, 3)
    assert "[3/3]" in capsys.readouterr().out

    assert run_suite(folder, "--kinds", "doubts", "uniform", "--systems", "trees") == 0
    again = read(folder / "rows.jsonl")
    assert again[:3] == rows
    assert [(row["kind"], row["system"]) for row in again[3:]] == [("uniform", "trees")]
    assert "[1/1]" in capsys.readouterr().out

    assert run_suite(folder, "--report") == 0
    assert "| trees |" in capsys.readouterr().out


@pytest.mark.slow
def test_processes_make_the_rows_of_one_process(folder):
    command = ["--systems", "trees", "logistic, EM"]
    assert run_suite(folder, *command, "--jobs", "2") == 0
    several = read(folder / "rows.jsonl")
    (folder / "rows.jsonl").unlink()
    assert run_suite(folder, *command) == 0

    def results(rows):
        return sorted((row["kind"], row["system"], row["accuracy"]) for row in rows)

    assert results(several) == results(read(folder / "rows.jsonl"))


def test_trials_that_do_not_fit_the_time_are_left_out(folder, capsys):
    assert run_suite(folder, "--systems", "trees", "--limit-seconds", "0") == 1
    assert not (folder / "rows.jsonl").exists()
    assert "3 trials" in capsys.readouterr().err


QUICK_FORMS = ("kernel b=0.25", "logistic EM b=0.25")


@pytest.mark.parametrize(
    "name", [name if name in QUICK_FORMS else pytest.param(name, marks=pytest.mark.slow) for name in FORMS]
)
def test_a_form_learns_from_sets(folder, name):
    problem = make_problem("glass", "uniform", 0, str(folder))
    test, train = FORMS[name](problem.sets, problem.train, problem.test, 0)
    assert test.shape == (28, 3)
    assert train.shape == (62, 3)
    np.testing.assert_allclose(test.sum(1), 1, atol=1e-5)
    np.testing.assert_allclose(train.sum(1), 1, atol=1e-5)
    assert (test.argmax(1) == problem.labels_test).mean() > 0.7
    assert (train.argmax(1) == problem.labels_train).mean() > 0.7


def test_a_nested_form_holds_the_set_out(folder):
    problem = make_problem("glass", "uniform", 0, str(folder))
    _, held_out = NESTED["kernel b=0, nested"](problem.sets, problem.train, problem.test, 0)
    sets = problem.sets.copy()
    sets[0] = ~sets[0] | (np.arange(3) == 0)
    _, changed = NESTED["kernel b=0, nested"](sets, problem.train, problem.test, 0)
    np.testing.assert_array_equal(held_out[0], changed[0])
    assert not np.array_equal(held_out, changed)


def test_leave_one_out_is_a_regression_without_the_row():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 3))
    targets = rng.dirichlet(np.ones(3), 20)
    regression = Regression(x, 0, width=1.0, ridge=0.3)
    targets -= targets.mean(0)
    held_out = regression.leave_one_out_scores(targets)
    similarity = regression.kernel(x)
    for row in range(20):
        others = np.arange(20) != row
        normal = similarity[others].T @ similarity[others] + 0.3 * regression.inner
        weights = np.linalg.solve(normal, similarity[others].T @ targets[others])
        np.testing.assert_allclose(held_out[row], similarity[row] @ weights, atol=1e-8)


def test_targets_stay_within_sets_and_balance_lifts_rare_labels():
    sets = np.array([[True, True, False], [True, True, False], [True, False, True], [True, False, False]] * 5)
    targets = uniform_targets(sets)
    p = np.full((20, 3), 1 / 3)
    plain = within_sets(p, sets, targets, 0.0)
    balanced = within_sets(p, sets, targets, 0.5)
    assert (plain[~sets] == 0).all()
    np.testing.assert_allclose(plain, targets)
    assert balanced[2, 2] > balanced[0, 1] > 0.5


def test_every_row_is_left_out_once_in_each_repeat():
    left_out = leave_out_folds(20, 2, np.random.default_rng(0))
    assert left_out.shape == (6, 20)
    assert (left_out[:3].sum(0) == 1).all()
    assert (left_out[3:].sum(0) == 1).all()


def test_features_are_learned_from_training_rows():
    train = pd.DataFrame({"a": [0.0, 1.0, 2.0, np.nan], "b": ["x", None, "y", "x"], "c": [3.0] * 4})
    test = pd.DataFrame({"a": [9.0, np.nan], "b": ["z", "y"], "c": [3.0, 3.0]})
    plain = tree_features(train, test)
    assert plain.test.tolist() == [[9.0, 3.0, 0.0, 0.0, 0.0, 0.0], [1.0, 3.0, 1.0, 0.0, 0.0, 1.0]]
    for encode in (distance_features, piecewise_features):
        features = encode(train, test)
        assert features.train.shape[1] == features.test.shape[1]
        assert np.isfinite(features.test).all()
        assert np.abs(features.test).max() <= 4


@pytest.mark.parametrize("kind", KINDS)
def test_sets_hold_the_truth_and_belong_to_the_seed(folder, kind):
    problem = make_problem("glass", kind, 3, str(folder))
    assert problem.sets[np.arange(62), problem.labels_train].all()
    assert 1 < problem.sets.sum(1).mean() < 3
    assert np.array_equal(problem.sets, make_problem("glass", kind, 3, str(folder)).sets)
    assert not np.array_equal(problem.sets, make_problem("glass", kind, 4, str(folder)).sets)


def test_tables_to_develop_on_and_tables_held_back_are_apart():
    assert len(TABLES) == 12
    assert sorted(DEVELOP + HELD_BACK) == sorted(TABLES)
    assert len(KEEL) == 25
    assert sorted(KEEL_DEVELOP + KEEL_HELD_BACK) == sorted(KEEL)
    assert not set(KEEL) & set(TABLES)


def test_groups_of_tables_are_replaced_by_their_tables():
    assert suite.parse_tables(["keel-develop", "zoo", "keel-held-back"]) == [*KEEL[::2], *KEEL[1::2]]


def rows_of(system, accuracies, table="glass", kind="doubts"):
    rows = []
    for seed, accuracy in enumerate(accuracies):
        row = {"table": table, "kind": kind, "seed": seed, "system": system, "accuracy": accuracy}
        rows.append({**row, "cpu_seconds": 1.0})
    return rows


def made_rows():
    """Cells with three splits: behind, within a point, within two errors, ahead."""
    cells = {
        ("glass", "doubts"): ([0.60, 0.70, 0.80], [0.63, 0.74, 0.83]),
        ("vowel", "doubts"): ([0.60, 0.70, 0.80], [0.608, 0.708, 0.808]),
        ("anneal", "people"): ([0.60, 0.70, 0.80], [0.70, 0.66, 0.83]),
        ("segment", "uniform"): ([0.60, 0.70, 0.80], [0.50, 0.60, 0.70]),
    }
    rows = []
    for key, (ours, theirs) in cells.items():
        rows += rows_of("default", ours, *key) + rows_of("boosting", theirs, *key)
        rows += rows_of("trees", [0.1, 0.9, 0.1], *key) + rows_of("trees on true labels", [1.0, 1.0, 1.0], *key)
        rows += rows_of("trees, cross-fitted", [0.2] * 3, *key) + rows_of("logistic, EM", [0.3] * 3, *key)
    return rows


def test_a_system_is_behind_by_a_point_and_two_errors():
    comparisons = compare_with_rivals(collect(made_rows()), "default")
    assert {one.rival for one in comparisons} == {"boosting"}
    assert [one.key for one in comparisons if one.gap.behind] == [("glass", "doubts")]
    gap = next(one.gap for one in comparisons if one.key == ("glass", "doubts"))
    assert gap.mean == pytest.approx(-0.1 / 3)
    assert gap.error == pytest.approx(0.01 / 3)
    assert gap.splits == 3
    text = behind_table(comparisons, "default")
    assert "1 of 4 cells" in text
    assert "| glass | doubts | 70.0 | 73.3 | boosting | -3.3 ± 0.3 | 3 |" in text


def test_only_splits_that_both_have_are_compared():
    gap = paired_gap({0: 0.5, 1: 0.6, 2: 0.9}, {1: 0.5, 2: 0.8, 7: 0.1})
    assert gap.mean == pytest.approx(0.1)
    assert gap.splits == 2


def test_means_are_over_tables_and_ceilings_are_no_choice():
    cells = collect(made_rows())
    table = means_table(cells, "default")
    assert "| default | 70.0 | 70.0 | 70.0 |" in table
    assert "| boosting | 72.1 (+2.1) | 73.0 (+3.0) | 60.0 (-10.0) |" in table
    assert "| best for each table, by true labels | 72.1 | 73.0 | 70.0 |" in table
    assert "| doubts | 2 | 70.0 | 72.1 | boosting | -2.1 |" in single_rival_table(cells, "default")


def test_the_readme_shows_the_best_rival_and_counts_cases():
    rows = rows_of("default", [0.70, 0.72, 0.71]) + rows_of("trees", [0.74, 0.76, 0.75])
    for other in ("boosting", "trees, cross-fitted", "logistic, EM"):
        rows += rows_of(other, [0.60, 0.62, 0.61])
    further = rows_of("default", [0.70, 0.72], "zoo") + rows_of("trees", [0.60, 0.61], "zoo")
    further += rows_of("default", [0.70, 0.72], "tae") + rows_of("trees", [0.80, 0.83], "tae")
    section = short_section(rows, further)
    assert "mean over 1 tables" in section
    assert "| sets by a weak classifier's doubts | 75.0 (trees) | **71.0** |" in section
    assert "in 1 of 1 cases; on 2 further tables in 1 of 2, " in section
    assert section.endswith("on the 1 of these that it was developed without in 1 of 1.")  # tae
    assert untouched_section(further).startswith(
        "On the 1 of these tables that nothing was chosen on, default is behind in 1 of 1 cells."
    )


def test_the_page_shows_reporting_seeds_as_soon_as_there_are_rows():
    rows = rows_of("default", [0.5, 0.6])
    assert published_rows(rows) == rows
    reporting = {**rows[0], "seed": 400}
    assert published_rows([*rows, reporting]) == [reporting]


def test_reporting_seeds_need_the_word_final(folder, capsys):
    with pytest.raises(SystemExit):
        run_suite(folder, "--seeds", "399-400", "--systems", "trees")
    assert "--final" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("tree", "trees"),
        ("default:quick", "name"),
        ("no_such_module:form", "no_such_module"),
        ("suite:nothing", "nothing"),
    ],
)
def test_a_system_that_is_none_is_refused(name, named):
    with pytest.raises(ValueError, match=named):
        find_system(name)


def test_a_missing_table_is_named(tmp_path, capsys):
    with pytest.raises(SystemExit):
        run_suite(tmp_path, "--systems", "trees")
    assert "glass.csv" in capsys.readouterr().err


def test_rows_of_several_runs_are_read_together(folder):
    append(folder / "rows.jsonl", rows_of("trees", [0.5]))
    trials = missing_trials(["glass", "lost"], ["doubts"], [0, 1], ["trees"], read(folder / "rows.jsonl"))
    assert [tuple(trial)[:3] for trial in trials] == [("glass", "doubts", 1), ("lost", "real", 0), ("lost", "real", 1)]
