"""Answers of language models in free text are mapped to classes; labels of people stay apart."""

from __future__ import annotations

import csv
from pathlib import Path

import pyarrow as pa
import pytest
from test_votes_command import invoke
from test_votes_reading import said

from oneof.votes import free_text, read_votes
from oneof.votes.free_text import find_classes, meaning_of

CLASSES = ["ENTITY", "HUMAN", "LOCATION"]
DIRTY = {
    "HUMAN.": ["HUMAN"], "**HUMAN**": ["HUMAN"], "Answer: HUMAN": ["HUMAN"], "Human": ["HUMAN"], "HUMNA": ["HUMAN"],
    "HUMAN or ENTITY": ["HUMAN", "ENTITY"], "N/A": [], "Unsure.": [], "none of the above": [],
    "The answer is **LOCATION**, not HUMAN.": ["LOCATION"],
}  # fmt: skip


@pytest.mark.parametrize("answer", DIRTY)
def test_dirty_answers_are_mapped(answer: str) -> None:
    assert meaning_of(answer, CLASSES) == DIRTY[answer]


@pytest.mark.parametrize(
    ("answer", "classes"), [("3.5", ["3", "4"]), ("C++", ["C", "Java"]), ("atypical", ["typical", "other"])]
)
def test_other_labels_are_not_taken_for_a_class(answer: str, classes: list[str]) -> None:
    assert meaning_of(answer, classes) is None


def jury(answers: list[str]) -> pa.Table:
    return pa.table({"item": list(range(len(answers))), "annotator": ["gpt"] * len(answers), "label": answers})


@pytest.mark.parametrize("classes", [CLASSES, None])
def test_a_jury_in_free_text_has_no_more_classes_than_were_meant(tmp_path: Path, classes: list[str] | None) -> None:
    answers = [name for name in CLASSES for _ in range(30)] + list(DIRTY)
    votes = read_votes(jury(answers), classes=classes)
    assert votes.labels == CLASSES
    votes_of_dirty = {answer: sorted(labels) for answer, labels in DIRTY.items() if labels}
    for item, answer in enumerate(answers[90:], start=90):
        assert said(votes).get((item, "gpt"), []) == votes_of_dirty.get(answer, [])
    assert any("mapped to labels" in remark for remark in votes.remarks)


def test_the_map_is_written_corrected_and_read(tmp_path: Path) -> None:
    table = jury([name for name in CLASSES for _ in range(30)] + list(DIRTY))
    with (tmp_path / "v.csv").open("w", newline="") as file:
        csv.writer(file).writerows([table.column_names, *zip(*table.to_pydict().values(), strict=True)])
    invoke(tmp_path / "v.csv", "--map-out", tmp_path / "map.csv")
    written = (tmp_path / "map.csv").read_text()
    assert "HUMAN or ENTITY,HUMAN|ENTITY,1" in written
    (tmp_path / "map.csv").write_text(written.replace("N/A,,", "N/A,ENTITY,"))
    votes = said(read_votes(tmp_path / "v.csv", map=str(tmp_path / "map.csv")))
    place = 90 + list(DIRTY).index("N/A")
    assert votes[place, "gpt"] == ["ENTITY"]
    assert votes[90 + list(DIRTY).index("HUMAN or ENTITY"), "gpt"] == ["ENTITY", "HUMAN"]


def test_labels_of_people_stay_apart() -> None:
    labels = ["3", "3.5", "C", "C++", "c"]
    votes = read_votes(jury([name for name in labels for _ in range(20)] + ["hot dog", "D"]))
    assert votes.labels == sorted([*labels, "hot dog", "D"])
    assert votes.meanings == ()


def test_minus_one_is_no_vote_among_numbered_labels_and_a_label_beside_0_and_1() -> None:
    votes = read_votes(jury(["-1", "0", "1", "2"]))
    assert votes.labels == ["0", "1", "2"]
    assert any(remark.startswith("-1 is taken for no vote") for remark in votes.remarks)
    votes = read_votes(jury(["-1", "0", "1"]))
    assert votes.labels == ["-1", "0", "1"]
    assert any(remark.startswith("-1 is taken for a label") for remark in votes.remarks)
    assert "-1" in read_votes(jury(["-1", "0", "2"]), classes=["-1", "0", "2"]).labels


def test_labels_of_one_letter_that_differ_by_case_stay_apart() -> None:
    counts = {"C": 30, "c": 25, "**C**": 4, "D": 30}
    classes = find_classes(counts)
    assert {"C", "c"} <= set(classes)
    assert meaning_of("**C**", classes) == ["C"]
    assert meaning_of("c.", classes) == ["c"]


def test_a_long_answer_is_read_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search through everything that stands before each of its words would take minutes."""
    searched: list[int] = []

    class Negation:
        def finditer(self, text: str) -> list[object]:
            searched.append(len(text))
            return []

    monkeypatch.setattr(free_text, "_NEGATED", Negation())
    assert meaning_of("HUMAN beings " * 1000, CLASSES) == ["HUMAN"]
    assert len(searched) == 1000
    assert max(searched) < 300
