"""Labels that were written as sets in text: told as soon as there is one, and never where labels merely look so."""

from __future__ import annotations

import warnings

import pytest

from oneof.estimator.arguments import warn_of_joined


@pytest.mark.parametrize("share", [0.01, 0.33, 0.65])
@pytest.mark.parametrize(
    ("joined", "what"),
    [
        ("cat|dog", r"hold '\|', such as 'cat\|dog'"),
        ("cat; dog", "hold ';'"),
        ("['cat', 'dog']", "look like a printed list"),
    ],
)
def test_joined_labels_are_warned_of_however_few_they_are(share: float, joined: str, what: str) -> None:
    count = round(100 * share)
    labels = [joined] * count + ["cat", "dog"] * 50
    with pytest.warns(UserWarning, match=rf"{count} of {len(labels)} {what}.*and count as classes of their own"):
        warn_of_joined(labels)


@pytest.mark.parametrize("odd", ["stop|go", "(other)", "x;y", "Austin, Texas"])
def test_a_label_with_a_sign_of_its_own_is_a_label(odd: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_joined([odd, "cat", "dog", "Texas"] * 10)
