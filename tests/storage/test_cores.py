"""Processors that a process may use are counted, not those of the machine, and those that others leave idle."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from oneof.storage import cores as counting
from oneof.storage.cores import cores, idle_cores


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of 64 processors, of which three may be used, that says nothing else."""
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3, 5, 8}, raising=False)
    monkeypatch.setattr(counting, "_PROC", tmp_path / "proc")
    monkeypatch.setattr(counting, "_CGROUPS", tmp_path / "cgroup")
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_those_that_are_allowed_count(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    assert cores() == 64
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert cores() == 1


@pytest.mark.parametrize(
    ("own", "files", "count"),
    [
        ("0::/", {"cpu.max": "max 100000\n"}, 3),
        ("0::/", {"cpu.max": "200000 100000\n"}, 2),
        ("0::/", {"cpu.max": "50000 100000\n"}, 1),
        ("0::/a/b", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "100000 100000\n"}, 1),
        ("0::/host/only", {"cpu.max": "200000 100000\n"}, 2),
        ("0::/", {"cpu.max": "no number\n"}, 3),
        ("4:memory:/\n2:cpu:/\n", {"cpu/cpu.cfs_quota_us": "200000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 2),
        ("2:cpu,cpuacct:/x\n", {"cpu,cpuacct/x/cpu.cfs_quota_us": "-1\n", "cpu,cpuacct/x/cpu.cfs_period_us": "9\n"}, 3),
    ],
)
def test_a_container_has_as_many_as_its_quota_allows(
    machine: Path, own: str, files: dict[str, str], count: int
) -> None:
    write(machine / "proc" / "self" / "cgroup", own)
    for name, text in files.items():
        write(machine / "cgroup" / name, text)
    assert cores() == count


@pytest.mark.parametrize(
    ("busy", "idle"),
    [
        ({3: "100 0 0 9 0 0 0 0 0 0", 5: "0 0 0 9 0 0 0 0 0 0", 8: "0 0 0 9 0 0 0 0 0 0"}, 2),
        ({3: "60 0 40 0 0 0 0 0 0 0", 5: "0 0 0 9 0 0 0 100 0 0", 8: "90 0 0 9 0 0 0 0 0 0"}, 0),
        ({3: "0 100 0 9 0 0 0 0 0 0", 5: "0 0 0 9 100 0 0 0 100 0", 8: "0 0 0 9 0 0 0 0 0 0"}, 3),
    ],
)
def test_processors_that_others_keep_busy_are_not_idle(
    machine: Path, monkeypatch: pytest.MonkeyPatch, busy: dict[int, str], idle: int
) -> None:
    """What each processor did in a second, in ticks: for a user, nice, for the system, idle, waiting, ..., stolen."""
    none = " ".join(["0"] * 10)
    lines: Iterator[list[str]] = iter([[none] * 3, [busy[number] for number in (3, 5, 8)]])

    def look() -> None:
        stat = [f"cpu{number} {columns}" for number, columns in zip((3, 5, 8), next(lines), strict=True)]
        write(machine / "proc" / "stat", "\n".join(["cpu 1 1", "cpu0 999 9", *stat, "intr 1"]))

    look()
    clock = iter([0.0, 1.0])
    monkeypatch.setattr(os, "sysconf", lambda name: 100)
    monkeypatch.setattr(time, "sleep", lambda seconds: look())
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    assert idle_cores() == idle


def test_where_the_system_does_not_say_all_are_idle(machine: Path) -> None:
    assert idle_cores() == 3
