"""The reason for a label names what speaks against it."""

from __future__ import annotations

from typing import Any

from oneof.runs.explain import reason

ROW: dict[str, Any] = {
    "label": "5", "probability": 0.37, "margin": -0.11, "agreement": 0.8, "ask": True, "original": ["4", "5", "9"],
    "distribution": [0.48, 0.37, 0.15], "trained": 4, "outside": None, "neighbours": [],
    "removed": [{"label": "4", "round": 0, "margin": 0.6, "trials": 4}, {"label": "9", "round": 0, "margin": 0.7, "trials": 4}],
}  # fmt: skip


def test_a_removed_label_that_is_more_probable_is_named() -> None:
    why = reason(ROW, ["5"], 10)
    assert "'4' is more probable now (0.48), but had been removed" in why
    assert "-0.11" not in why


def test_a_removed_label_that_is_less_probable_is_not() -> None:
    why = reason({**ROW, "probability": 0.6, "margin": 0.2, "distribution": [0.25, 0.6, 0.15]}, ["5"], 10)
    assert "more probable now" not in why
    assert "Its lead over the next candidate is 0.20." in why


def test_a_row_without_votes_and_models_that_agree_are_described() -> None:
    voted = {**ROW, "removed": [], "votes": [{"label": "5", "votes": 2.0}], "agreement": 1.0}
    assert reason(voted, ["5"], 2).startswith(
        "2 of 2 votes are for '5'. Both models predict '5', with probability 0.37."
    )
    assert "'5' is the only label that was named" in reason({**voted, "original": ["5"]}, ["5"], 2)
    alone = reason({**voted, "votes": []}, ["5"], 0)
    assert alone.startswith("Nobody voted on it. The votes on other rows favour '5'")
