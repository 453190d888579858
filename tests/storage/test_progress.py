"""Progress: lines with an estimate where there is no terminal, none for short work."""

from __future__ import annotations

import re
import time
from itertools import pairwise

import pytest

from oneof.storage import progress
from oneof.storage.durations import parse_duration


class Clock:
    """A clock that a test advances."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def run(clock: Clock, steps: int, seconds_per_step: float, show: bool = True, done: int = 0) -> None:
    with progress.progress_bar("fit", steps, show, done, unit="epochs") as step:
        for _ in range(steps - done):
            clock.now += seconds_per_step
            step("set size 1.50")


def test_a_long_fit_writes_an_estimate_early_and_lines_at_growing_intervals(clock, capsys):
    run(clock, steps=240, seconds_per_step=2.0)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "fit: 2 of 240 epochs after 4 s, about 8 min left; set size 1.50"
    assert 4 < len(lines) < 12
    done = [int(re.search(r"(\d+) of 240", line)[1]) for line in lines]
    gaps = [2 * (later - earlier) for earlier, later in pairwise(done)]
    assert gaps == sorted(gaps)
    assert max(gaps) <= progress.MAX_INTERVAL + 2


def test_short_work_and_hidden_work_write_nothing(clock, capsys):
    run(clock, steps=10, seconds_per_step=0.2)
    run(clock, steps=240, seconds_per_step=2.0, show=False)
    assert capsys.readouterr().err == ""


def test_steps_of_an_earlier_run_do_not_count_for_the_estimate(clock, capsys):
    run(clock, steps=100, seconds_per_step=5.0, done=90)
    assert "fit: 91 of 100 epochs after 5 s, about 45 s left" in capsys.readouterr().err


def test_a_first_step_that_takes_long_is_announced(monkeypatch, capsys):
    monkeypatch.setattr(progress, "FIRST_LINE", 0.01)
    with progress.progress_bar("fit", 30, True, unit="epochs"):
        deadline = time.monotonic() + 10
        while not (line := capsys.readouterr().err) and time.monotonic() < deadline:
            time.sleep(0.01)
    assert line.startswith("fit: 0 of 30 epochs")


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("2m", 120), ("1h", 3600), ("1h 30m", 5400), ("0.5M", 30)]
)
def test_durations(text, seconds):
    assert parse_duration(text, "--time-limit") == seconds


@pytest.mark.parametrize("text", ["", "soon", "2x", "m", "-3", "0", "0.5s", "1e3"])
def test_what_is_no_duration_is_named(text):
    with pytest.raises(ValueError, match=rf"--time-limit .*such as 90s, 2m or 1h; got {re.escape(repr(text))}"):
        parse_duration(text, "--time-limit")
