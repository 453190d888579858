"""The memory that is free is what the system reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from oneof.storage import memory


def test_memory_is_what_the_system_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = tmp_path / "meminfo"
    report.write_text("MemTotal:       9 kB\nMemFree:        1 kB\nMemAvailable:   3 kB\n")
    monkeypatch.setattr(memory, "_MEMINFO", report)
    assert memory.available_memory() == 3 * 1024
    monkeypatch.setattr(memory, "_MEMINFO", tmp_path / "missing")
    assert memory.available_memory() > 2**28
    monkeypatch.setattr(memory.os, "sysconf_names", {})
    assert memory.available_memory() == float("inf")
