"""Sweeps: rows on Ray are those without it and survive a killed worker; the search on Optuna uses no truth and goes on."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import call, call_alone
from scipy.io import savemat
from stages import make_dataset

from oneof import PartialLabelClassifier
from oneof.candidates.generate import Flip, generate
from oneof.cli import main
from oneof.ensemble.tune import FIRST, RANGES, load_optuna, make_folds, read_setting, scores, search_settings
from oneof.networks import Linear
from oneof.runs.folder import Run
from oneof.storage.rows import read
from oneof.training.trials import Training
from oneof_paper.compute_rows import Cell, compute_cells, run_job, split_by_seed
from oneof_paper.data.catalogue import NAMED
from oneof_paper.experiments import TABLES, Protocol
from oneof_paper.ray_executor import load_ray
from oneof_paper.synthetic import mixture

DATA = mixture(n=300, d=3, c=3, separation=4.0, seed=0)
MASK = generate(DATA.labels, 3, Flip(0.4), seed=1)
PROTOCOL = Protocol(Linear(), Training(epochs=10, batch=20), lr=(0.01, 0.1), weight_decay=(1e-3,))
CELLS = [Cell("lost", TABLES[4].systems[name], PROTOCOL, (0, 1, 2)) for name in ("proden+pop", "cc")]


@pytest.fixture
def folder(tmp_path) -> Path:
    """Lost's file, with something small in it."""
    path = tmp_path / "data" / NAMED["lost"].files[0]
    path.parent.mkdir(parents=True)
    content = {"data": DATA.x, "target": np.eye(3)[DATA.labels].T, "partial_target": MASK.T.astype(float)}
    savemat(path, content)
    return tmp_path / "data"


def compared(path: Path) -> list[dict]:
    """The rows without seconds, in one order."""
    rows = [{key: value for key, value in row.items() if not key.endswith("seconds")} for row in read(path)]
    return sorted(rows, key=lambda row: (row["setting"], row["seed"], row["kind"], row.get("rule", "")))


def command(monkeypatch, capsys, *arguments: object) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["oneof", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        main()
    return (int(end.value.code or 0), *capsys.readouterr())


# ------------------------------------------------------------------------------------------------------------------- Ray


def killing(job):
    """Obtain a cell; the first worker that is given seed 1 is killed in the middle of it."""
    from oneof_paper.compute_rows import run_job

    mark = job.checkpoint.parent.parent / f"killed-{job.checkpoint.name}"
    if job.cell.seeds == (1,) and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return run_job(job)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # Ray's own
def test_rows_on_ray_are_those_of_processes_and_a_killed_worker_costs_none(folder, tmp_path, monkeypatch):
    pytest.importorskip("ray", reason="Ray is not installed: the extra sweep has it")
    from oneof_paper import ray_executor

    monkeypatch.setattr(ray_executor, "run_job", killing)
    known = [str(Path(__file__).parents[1]), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(known))  # workers must find `killing`
    for _ in compute_cells(CELLS, tmp_path / "ray.jsonl", folder, 2, executor=ray_executor.run_on_ray):
        pass
    for _ in compute_cells(CELLS, tmp_path / "here.jsonl", folder, 2):
        pass
    assert len(list(tmp_path.glob("killed-*"))) == 2
    assert compared(tmp_path / "ray.jsonl") == compared(tmp_path / "here.jsonl")
    once = Counter((row["setting"], row["seed"]) for row in read(tmp_path / "ray.jsonl") if row["kind"] == "grid")
    assert len(once) == 6
    assert set(once.values()) == {1}
    assert not list(tmp_path.glob(".ray-running"))


def test_a_cell_is_cut_by_seed():
    assert [cell.seeds for cell in split_by_seed(CELLS)] == [(0,), (1,), (2,)] * 2
    assert {cell.setting for cell in split_by_seed(CELLS)} == {cell.setting for cell in CELLS}


@pytest.mark.parametrize(("name", "load"), [("ray", load_ray), ("optuna", load_optuna)])
def test_a_missing_extra_is_named(monkeypatch, name, load):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ValueError, match=rf"needs the package {name}; it is not installed\. Run: pip install {name}"):
        load()


def test_an_unknown_executor_gets_one_line(monkeypatch, capsys):
    code, _, err = command(monkeypatch, capsys, "paper", "table", "4", "--on", "moon")
    assert (code, err) == (2, "oneof: on must be one of processes, ray; got 'moon'.\n")


# --------------------------------------------------------------------------------------------------------- determinism


@pytest.fixture
def deterministic(monkeypatch):
    """What a deterministic command sets for all of torch does not stay here."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    yield
    torch.use_deterministic_algorithms(False)


def here(jobs, processes):
    """Run jobs in this process."""
    return ((job, run_job(job)) for job in jobs)


@pytest.mark.usefixtures("deterministic")
def test_deterministic_rows_are_equal_to_the_bit(folder, tmp_path):
    """Whichever seeds are run together, in this process or another: a seed is a stack of its own."""
    for _ in compute_cells(CELLS[:1], tmp_path / "all.jsonl", folder, 1, deterministic=True):
        pass
    one = split_by_seed(CELLS[:1])[1:2]
    for _ in compute_cells(one, tmp_path / "each.jsonl", folder, 1, executor=here, deterministic=True):
        pass
    both, one = compared(tmp_path / "all.jsonl"), compared(tmp_path / "each.jsonl")
    assert [row for row in both if row["seed"] == 1] == one


@pytest.mark.usefixtures("deterministic")
def test_deterministic_fits_write_the_same_weights(tmp_path, monkeypatch, capsys):
    """In this process and in another."""
    file = write_table(tmp_path, rows=100)
    for name, run in (("one", call), ("two", call_alone)):
        words = ("fit", file, "--out", tmp_path / name, "--networks", 2, "--epochs", 3, "--deterministic")
        done = run(*map(str, words))
        assert done.returncode == 0, done.stderr
    models = [next((tmp_path / name).glob("*.safetensors")).read_bytes() for name in ("one", "two")]
    assert models[0] == models[1]
    code, _, err = command(monkeypatch, capsys, "fit", file, "--out", tmp_path / "x", "--deterministic", "--threads", 2)
    assert code == 2
    assert "--deterministic needs one thread; got --threads 2. Leave one of them out." in err


def write_table(folder: Path, rows: int = 300) -> Path:
    lines = ["a,b,c,candidates"]
    for x, sets in zip(DATA.x[:rows], MASK[:rows], strict=True):
        lines.append(",".join(f"{value:.6f}" for value in x) + "," + "|".join("xyz"[j] for j in np.flatnonzero(sets)))
    (folder / "table.csv").write_text("\n".join(lines))
    return folder / "table.csv"


# -------------------------------------------------------------------------------------------------------------- search

TABLE = make_dataset(DATA.x, MASK)


@pytest.fixture
def _few_settings(monkeypatch):
    few = RANGES | {"hidden": ["", "16", "256"], "scaling": ["feature", "ranks"]}
    monkeypatch.setattr("oneof.ensemble.tune.RANGES", few)


@pytest.fixture(scope="module")
def folds():
    return make_folds(TABLE, epochs=4)


def test_held_out_sets_are_the_given_ones_and_others_are_purified(folds):
    sets = folds.sets("feature")
    for own, (rows, held) in zip(sets, folds.splits, strict=True):
        assert (own[held] == MASK[held]).all()
        assert own[rows].sum() < MASK[rows].sum()
        assert not (own & ~MASK).any()


def test_scores_rise_and_a_diverging_rate_scores_nothing(folds):
    setting = FIRST | {"hidden": [16]}
    values = list(scores(folds, setting))
    assert len(values) == 4
    untrained = list(scores(folds, setting | {"lr": 1e-9}))[-1]
    assert values[-1] > untrained + 0.1
    assert list(scores(folds, setting | {"lr": 1e6}))[-1] < values[-1]


@pytest.mark.usefixtures("_few_settings")
def test_a_search_goes_on_and_ends_as_an_undisturbed_one(folds, tmp_path):
    optuna = pytest.importorskip("optuna", reason="Optuna is not installed: the extra sweep has it")
    storages = [f"sqlite:///{tmp_path / name}.db" for name in ("whole", "cut")]
    whole = search_settings(folds, 7, storages[0], {"seed": 0})
    search_settings(folds, 3, storages[1], {"seed": 0})
    begun = optuna.load_study(study_name="oneof", storage=storages[1])
    begun.ask()  # a trial whose process was killed
    again = search_settings(folds, 7, storages[1], {"seed": 0})
    assert again == whole
    assert whole.tried == 7
    assert search_settings(folds, 5, storages[1], {"seed": 0}) == whole
    with pytest.raises(ValueError, match=r"holds another search: seed was 0, now 1. Give another storage"):
        search_settings(folds, 7, storages[1], {"seed": 1})
    with pytest.raises(ValueError, match="storage must be a database that Optuna can open, such as sqlite"):
        search_settings(folds, 7, "nonsense", {"seed": 0})


@pytest.mark.usefixtures("_few_settings")
def test_a_poor_setting_is_stopped_early(tmp_path):
    pytest.importorskip("optuna", reason="Optuna is not installed: the extra sweep has it")
    many = search_settings(
        make_folds(TABLE, epochs=6),
        14,
        f"sqlite:///{tmp_path}/x.db",
        {},
    )
    assert 0 < many.stopped < many.tried == 14


def test_too_few_rows_cannot_be_searched():
    with pytest.raises(
        ValueError, match="a search needs 200 rows or more, and groups that can be held out; got 50 rows"
    ):
        make_folds(make_dataset(DATA.x[:50], MASK[:50]))


def test_the_command_writes_what_the_estimator_takes(tmp_path, monkeypatch, capsys):
    pytest.importorskip("optuna", reason="Optuna is not installed: the extra sweep has it")
    file, out = write_table(tmp_path), tmp_path / "best.json"
    asked = ("tune", file, "--features", "*", "--epochs", 2, "--trials", 2, "--out", out)
    code, text, err = command(monkeypatch, capsys, *asked)
    assert code == 0, err
    assert "best of 2" in text
    assert f"oneof fit {file} --settings {out}" in text
    best = read_setting(out)
    model = PartialLabelClassifier(**best, n_estimators=2, epochs=5, random_state=0).fit(DATA.x, MASK)
    assert (model.predict(DATA.x) == DATA.labels).mean() > 0.8
    code, text, _ = command(monkeypatch, capsys, *asked)
    assert (code, json.loads(out.read_text())) == (0, best)
    assert "1/2" not in text  # nothing was tried again
    code, _, err = command(monkeypatch, capsys, *asked[:-2], "--out", out, "--trials", 0)
    assert code == 2
    assert re.fullmatch(r"oneof: Invalid value for '--trials': .*1\.?\n", err)  # typer's own words
    taken = ("fit", file, "--out", tmp_path / "run", "--settings", out, "--networks", 2, "--epochs", 2)
    code, _, err = command(monkeypatch, capsys, *taken)
    assert code == 0, err
    (chosen,) = Run.open(tmp_path / "run").metadata["chosen"]
    chosen["hidden_layer_sizes"] = chosen.pop("hidden")
    assert chosen == {name: best[name] for name in chosen}
