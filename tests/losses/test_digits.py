"""Digits by a loop of one's own and by `oneof.fit`: the quick version of benchmarks/accuracy/own_loop.py."""

from __future__ import annotations

import own_loop
import pytest

from oneof.methods import METHODS


@pytest.mark.parametrize("name", ["proden"])
def test_a_loop_is_as_accurate_as_fit(name):
    for _, _, fitted, looped in own_loop.compare([name], range(1), epochs=8):
        assert looped > 80
        assert abs(looped - fitted) <= 0.5


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_as_accurate_as_fit(name):
    for _, _, fitted, looped in own_loop.compare([name], range(2), epochs=20):
        assert abs(looped - fitted) <= 0.5
