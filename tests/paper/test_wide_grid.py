"""The wide grid of the real sets: jobs in order, rows that are there, rows of another machine."""

from __future__ import annotations

import json

import pytest
import wide_grid

from oneof.storage.rows import read
from oneof_paper.compute_rows import Cell
from oneof_paper.experiments import WIDE, wide_systems


def rows_of(cell: Cell) -> list[dict]:
    rows = []
    for seed in cell.seeds:
        named = {"system": cell.system.title, "setting": cell.setting, "dataset": cell.dataset, "seed": seed}
        rows.append({"kind": "chosen", "rule": "oracle", **named, "accuracy": 0.5, "commit": None})
        rows.append({"kind": "grid", **named})
    return rows


@pytest.fixture
def jobs(monkeypatch):
    """Jobs that were run, in their order; each has rows at once."""
    started = []

    def run_in_processes(jobs, processes):
        for job in jobs:
            started.append((job.cell.dataset, job.cell.system.title, job.cell.seeds))
            yield job, rows_of(job.cell)

    monkeypatch.setattr(wide_grid, "run_in_processes", run_in_processes)
    return started


def test_every_seed_is_a_job_and_rows_name_the_commit(jobs, tmp_path):
    path = tmp_path / "rows.jsonl"
    wide_grid.main(["lost", "msrcv2", "--systems", "CC", "--seeds", "400-401", "--rows", str(path), "--commit", "abc"])
    assert jobs == [(name, "CC", (seed,)) for name in ("lost", "msrcv2") for seed in (400, 401)]
    assert {row["commit"] for row in read(path) if row["kind"] == "chosen"} == {"abc"}
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


def test_rows_of_another_machine_are_merged_once(tmp_path, capsys):
    (system,) = [system for system in wide_systems() if system.title == "CC"]
    old, new = tmp_path / "old.jsonl", tmp_path / "new.jsonl"
    old.write_text("".join(json.dumps(row) + "\n" for row in rows_of(Cell("lost", system, WIDE, (400,)))))
    new.write_text("".join(json.dumps(row) + "\n" for row in rows_of(Cell("lost", system, WIDE, (400, 401)))))
    wide_grid.main(["--rows", str(old), "--merge", str(new)])
    assert [row["seed"] for row in read(old)] == [400, 400, 401, 401]
    assert "had 2 rows and has 4" in capsys.readouterr().out
