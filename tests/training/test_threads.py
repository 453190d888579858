"""Threads: as many as the work is worth, torch may use and others leave idle."""

from __future__ import annotations

import pytest
import torch

from oneof.training import threads
from oneof.training.threads import CELLS_PER_THREAD, threads_for, torch_threads


@pytest.mark.parametrize(
    ("set_to", "idle", "worth", "count"),
    [(8, 8, 100, 8), (8, 8, 3, 3), (8, 8, 0.5, 1), (8, 2, 100, 2), (8, 0, 100, 1), (1, 8, 100, 1), (4, 8, 100, 4)],
)
def test_the_least_of_all_bounds_counts(
    set_to: int, idle: int, worth: float, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: set_to)
    monkeypatch.setattr(threads, "idle_cores", lambda: idle)
    assert threads_for(int(worth * CELLS_PER_THREAD)) == count


def test_they_are_as_before_afterwards() -> None:
    with torch_threads(2):
        assert torch.get_num_threads() == 2
    assert torch.get_num_threads() == 1
