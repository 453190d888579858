"""The wide grid of the real sets: jobs in order, rows that are there, rows of another machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import wide_grid

from oneof.storage.rows import append, read
from oneof.training.checks import check_rule
from oneof_paper.compute_rows import Cell
from oneof_paper.experiments import ABOVE_WIDE, WIDE, wide_systems


def rows_of(cell: Cell) -> list[dict]:
    rows = []
    for seed in cell.seeds:
        named = {"system": cell.system.title, "setting": cell.setting, "dataset": cell.dataset, "seed": seed}
        rows.append({"kind": "chosen", "rule": "oracle", **named, "accuracy": 0.5, "commit": None})
        rows.append({"kind": "grid", **named})
    return rows


@pytest.fixture
def jobs(monkeypatch):
    """Jobs that were computed, in their order, in this process or in others; each has rows at once."""
    computed = []

    def compute_rows(cell, data, *, device):
        computed.append((cell.dataset, cell.system.title, cell.seeds))
        return rows_of(cell)

    def run_in_processes(jobs, processes):
        for job in jobs:
            yield job, compute_rows(job.cell, None, device=job.device)

    monkeypatch.setattr(wide_grid, "load", lambda name, folder: None)
    monkeypatch.setattr(wide_grid, "compute_rows", compute_rows)
    monkeypatch.setattr(wide_grid, "run_in_processes", run_in_processes)
    return computed


@pytest.mark.parametrize("processes", [[], ["--processes", "2"]])
def test_every_seed_is_a_job_and_rows_name_the_commit(jobs, tmp_path, processes):
    path = tmp_path / "rows.jsonl"
    command = ["lost", "msrcv2", "--systems", "CC", "--seeds", "400-401", "--rows", str(path), "--commit", "abc"]
    wide_grid.main([*command, "--programs", "7", *processes])
    assert jobs == [(name, "CC", (seed,)) for name in ("lost", "msrcv2") for seed in (400, 401)]
    assert {(row["commit"], row["programs"]) for row in read(path) if row["kind"] == "chosen"} == {("abc", 7)}
    assert all("commit" not in row for row in read(path) if row["kind"] == "grid")


def test_what_has_rows_in_any_file_is_not_run_again(jobs, tmp_path):
    (system,) = [system for system in wide_systems() if system.title == "CC"]
    known = tmp_path / "known.jsonl"
    known.write_text("".join(json.dumps(row) + "\n" for row in rows_of(Cell("lost", system, WIDE, (400,)))))
    path = tmp_path / "rows.jsonl"
    command = ["lost", "--systems", "CC", "--seeds", "400-401", "--rows", str(path), "--known", str(known)]
    wide_grid.main(command)
    assert jobs == [("lost", "CC", (401,))]
    wide_grid.main(command)
    assert len(jobs) == 1


def test_on_a_gpu_a_system_is_one_job(jobs, tmp_path):
    wide_grid.main(["lost", "--systems", "CC", "RC", "--device", "cuda", "--rows", str(tmp_path / "rows.jsonl")])
    assert jobs == [("lost", title, tuple(range(400, 410))) for title in ("RC", "CC")]


def test_programs_that_share_claims_compute_each_seed_once(jobs, tmp_path):
    command = ["lost", "--systems", "CC", "--claims", str(tmp_path / "claims")]
    wide_grid.main([*command, "--seeds", "400-401", "--rows", str(tmp_path / "1.jsonl")])
    wide_grid.main([*command, "--seeds", "400-403", "--rows", str(tmp_path / "2.jsonl"), "--device", "cuda"])
    assert jobs == [("lost", "CC", (400,)), ("lost", "CC", (401,)), ("lost", "CC", (402, 403))]
    assert {row["seed"] for row in read(tmp_path / "2.jsonl")} == {402, 403}


def test_a_program_stops_before_a_job_that_would_not_end_in_time(jobs, tmp_path, monkeypatch, capsys):
    clock = iter(range(0, 10_000, 20))  # every look at the clock is 20 seconds later
    monkeypatch.setattr(wide_grid.time, "perf_counter", lambda: next(clock))
    wide_grid.main(["lost", "--systems", "CC", "--limit-seconds", "130", "--rows", str(tmp_path / "rows.jsonl")])
    assert len(jobs) == 2
    assert "the next cell would take about 20 s" in capsys.readouterr().out


def test_several_processes_and_claims_exclude_each_other(tmp_path, capsys):
    with pytest.raises(SystemExit):
        wide_grid.main(["lost", "--processes", "2", "--claims", str(tmp_path)])
    assert "--processes" in capsys.readouterr().err


def test_rows_of_another_machine_are_merged_once(tmp_path, capsys):
    (system,) = [system for system in wide_systems() if system.title == "CC"]
    old, new = tmp_path / "old.jsonl", tmp_path / "new.jsonl"
    old.write_text("".join(json.dumps(row) + "\n" for row in rows_of(Cell("lost", system, WIDE, (400,)))))
    new.write_text("".join(json.dumps(row) + "\n" for row in rows_of(Cell("lost", system, WIDE, (400, 401)))))
    wide_grid.main(["--rows", str(old), "--merge", str(new)])
    assert [row["seed"] for row in read(old)] == [400, 400, 401, 401]
    assert "had 2 rows and has 4" in capsys.readouterr().out


def test_the_rates_above_the_grid_are_cells_of_their_own(jobs, tmp_path):
    command = ["lost", "--systems", "CC", "--seeds", "400-400", "--rows", str(tmp_path / "rows.jsonl")]
    wide_grid.main(command)
    wide_grid.main([*command, "--above-the-edge"])
    wide_grid.main([*command, "--above-the-edge"])
    assert len(jobs) == 2
    assert len({row["setting"] for row in read(tmp_path / "rows.jsonl")}) == 2
    assert min(ABOVE_WIDE.lr) > max(WIDE.lr)


def test_rows_of_a_set_go_to_its_file(jobs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wide_grid.main(["lost", "msrcv2", "--systems", "CC", "--seeds", "400-400"])
    wide_grid.main(["lost", "msrcv2", "--systems", "CC", "--seeds", "400-401"])
    assert jobs == [("lost", "CC", (400,)), ("msrcv2", "CC", (400,)), ("lost", "CC", (401,)), ("msrcv2", "CC", (401,))]
    (system,) = [system for system in wide_systems() if system.title == "CC"]
    new = tmp_path / "new.jsonl"
    for name in ("lost", "msrcv2", "birdsong"):
        append(new, rows_of(Cell(name, system, WIDE, (401, 402))))
    wide_grid.main(["--merge", str(new)])
    for name, seeds in {"lost": {400, 401, 402}, "msrcv2": {400, 401, 402}, "birdsong": {401, 402}}.items():
        rows = read(Path(f"results/wide_grid_{name}.jsonl"))
        assert {row["dataset"] for row in rows} == {name}
        assert {row["seed"] for row in rows} == seeds
        assert len(rows) == 2 * len(seeds)


def test_every_rule_of_the_wide_grid_can_purify_its_losses():
    for system in wide_systems():
        for method in system.methods:
            if system.purify is not None:
                check_rule(method, system.purify)
