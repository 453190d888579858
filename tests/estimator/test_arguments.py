"""Labels that were written as sets in text: told as soon as there is one, and never where labels merely look so."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
import torch

from oneof.data.table import read_features
from oneof.estimator.arguments import (
    check_gold,
    check_positive_int,
    choose_dtype,
    counts_to_candidates,
    warn_about_joined_labels,
)
from oneof.estimator.classifier import PartialLabelClassifier


@pytest.mark.parametrize("share", [0.01, 0.33, 0.65])
@pytest.mark.parametrize(
    ("joined", "what"),
    [
        ("cat|dog", r"hold '\|', such as 'cat\|dog'"),
        ("cat; dog", "hold ';'"),
        ("['cat', 'dog']", "look like a printed list"),
    ],
)
def test_joined_labels_are_warned_of_however_few_they_are(
    share: float, joined: str, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    count = round(100 * share)
    labels = [joined] * count + ["cat", "dog"] * 50
    warn_about_joined_labels(labels)
    (said,) = caplog.messages
    assert re.search(rf"{count} of {len(labels)} {what}.*and count as classes of their own", said)


@pytest.mark.parametrize("odd", ["stop|go", "(other)", "x;y", "Austin, Texas"])
def test_a_label_with_a_sign_of_its_own_is_a_label(odd: str, caplog: pytest.LogCaptureFixture) -> None:
    warn_about_joined_labels([odd, "cat", "dog", "Texas"] * 10)
    assert caplog.messages == []


def test_messages_in_python_name_no_flag_of_the_command_line(caplog):
    n = 40
    frame = pd.DataFrame(
        {
            "size": np.linspace(0, 1, n) ** 2,
            "note": [f"text {i}" for i in range(n)],
            "id": range(n),
            "label": [0, 1] * 20,
        }
    )
    read_features(frame)
    lines = caplog.messages
    assert all("column" in line for line in lines)
    assert any("give it the dtype 'category'" in line for line in lines)
    assert any("give X as an array" in line for line in lines)
    assert any("rename them" in line for line in lines)
    with pytest.raises(ValueError, match="features must be columns to learn from") as none:
        read_features(frame[["note", "id"]])
    with pytest.raises(ValueError, match=r"oneof.read.*makes them full") as empty:
        PartialLabelClassifier().fit(np.eye(3), [["a"], ["b"], []])
    assert not any("--" in line for line in [*lines, str(none.value), str(empty.value)])


def test_counts_of_votes_are_the_labels_that_anybody_named_and_the_numbers():
    named, counts = counts_to_candidates(np.array([[2, 1, 0], [0, 0, 3]]))
    assert named.tolist() == [[True, True, False], [False, False, True]]
    assert counts.tolist() == [[2.0, 1.0, 0.0], [0.0, 0.0, 3.0]]


def test_gold_labels_are_numbers_and_minus_one_where_they_are_missing():
    assert check_gold(["dog", None, float("nan")], np.array(["cat", "dog"]), 3).tolist() == [1, -1, -1]


def test_time_stamps_keep_double_precision():
    assert choose_dtype(np.array([[0.1], [0.2]])) is np.float32
    assert choose_dtype(np.array([[1.7e9], [1.7e9 + 60]])) is np.float64


def test_a_count_is_a_whole_number_or_the_default():
    assert (check_positive_int(None, "epochs"), check_positive_int(5, "epochs")) == (None, 5)


@pytest.mark.parametrize("fault", [float("nan"), -0.1])
def test_counts_with_a_fault_are_refused_with_its_place(fault):
    probabilities = np.array([[0.2, 0.8], [fault, 0.5]])
    with pytest.raises(ValueError, match=r"counts or probabilities in y .* in row 1, column 0\. .*np\.exp"):
        counts_to_candidates(probabilities)


def test_counts_may_be_a_tensor():
    named, counts = counts_to_candidates(torch.tensor([[0.25, 0.75], [1.0, 0.0]], requires_grad=True))
    assert named.tolist() == [[True, True], [True, False]]
    assert counts.tolist() == [[0.25, 0.75], [1.0, 0.0]]


def test_sets_that_exclude_nothing_are_named(caplog: pytest.LogCaptureFixture, small_forests: None) -> None:
    X = np.random.default_rng(0).normal(size=(30, 2))
    PartialLabelClassifier(quick=True, random_state=0).fit(X, np.ones((30, 3), dtype=bool))
    assert "every set is full" in caplog.text
