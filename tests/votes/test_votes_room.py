"""Free text as labels is refused before a table [items, labels] fills the memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from importlib import import_module

import numpy as np
import pyarrow as pa
import pytest

from oneof.votes import Votes, at_least, fit_annotators, top_p, union, vaguest


def free_text(n: int) -> Votes:
    """As many answers as items, no two alike."""
    each = np.arange(n)
    labels = [f"I would say that this is number {i}." for i in range(n)]
    return Votes(pa.array(each), ["gpt"], labels, each, np.zeros(n, dtype=np.intp), each)


@pytest.mark.parametrize("policy", [union, at_least, vaguest, top_p, fit_annotators])
def test_more_labels_than_memory_are_refused(policy: Callable[[Votes], object]) -> None:
    votes = free_text(1 << 20)  # 1 TiB at least
    with pytest.raises(
        ValueError,
        match=r"few enough .*; 1,048,576 distinct labels \('I would say that this is nu\.\.\.', .*, \.\.\.\) of 1,048,576 items need "
        r"[\d,.]+ GiB, [\d,.]+ GiB are free\. Map the answers to a few labels \(--map\)",
    ):
        policy(votes)


def test_what_is_counted_is_no_more_than_what_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that nothing is refused that would have fitted."""
    counted: list[int] = []
    for module in ("policies", "dawid_skene", "annotators"):
        monkeypatch.setattr(
            import_module(f"oneof.votes.{module}"), "check_table_memory", lambda _, needed: counted.append(needed)
        )
    votes = free_text(600)
    for policy in (union, top_p, fit_annotators):
        tracemalloc.start()
        policy(votes)
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert 0.7 * used < counted.pop() <= used
