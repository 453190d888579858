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


HUMAN = [
    "HUMANS", "human being", "My answer: HUMAN", "Final answer: HUMAN", "Label = HUMAN", "```HUMAN```", "```\nHUMAN\n```",
    "\u201eHUMAN\u201c", "\u00abHUMAN\u00bb", "\u300cHUMAN\u300d", "HUMAN \U0001f60a", "- HUMAN", "1. HUMAN", "\u2022 HUMAN", "# HUMAN",
    "Antwort: HUMAN", "R\u00e9ponse : HUMAN", "\u7b54\u6848\uff1aHUMAN", "\u7b54\u6848\u662fHUMAN", "HUM", "HUMAN (90 %)", "HUMAN: 0.9",
    '{"label": "HUMAN"}', "{'label': 'HUMAN'}", '```json\n{"answer": "Human", "confidence": 0.9}\n```', '["HUMAN"]',
    'Here it is:\n{"category": "Human", "reason": "It is no LOCATION."}', "<answer>HUMAN</answer>", r"It is $\boxed{\text{HUMAN}}$",
    "<think>LOCATION or ENTITY? It asks who.</think>\nHUMAN", "<think>maybe ENTITY</think>\n\n**Answer:** HUMAN", "**Answer:**\nHUMAN",
    "It may be an ENTITY. But it asks who invented it. So the answer is HUMAN.", "Sure! Here is the classification:\n\n**HUMAN**",
    "The text has a LOCATION and an ENTITY.\n\nAnswer: HUMAN", "HUMAN\n\nExplanation: it asks who, so it is about no ENTITY at all.",
    "HUMAN - because it asks for a person in a LOCATION", "HUMAN. The question asks about a LOCATION where he lives.",
    "I would classify this as HUMAN, since the entity in question is a person.", "Among ENTITY, HUMAN and LOCATION, I choose HUMAN.",
    "Of the categories (ENTITY, HUMAN, LOCATION), the right one must be named: the answer is HUMAN.", "I am not sure, maybe HUMAN",
    "The question falls under the HUMAN category.", "not LOCATION but HUMAN", "HUMAN rather than ENTITY",
]  # fmt: skip
TWO = [
    "HUMAN, ENTITY",
    "HUMAN/ENTITY",
    "Either HUMAN or ENTITY",
    '["HUMAN", "ENTITY"]',
    "ambiguous: HUMAN or ENTITY",
    "HUMAN & ENTITY",
]
REFUSED = [
    "I don't know", "I'm not sure.", "Unable to determine", "I cannot determine this", "It is impossible to say.", "Unknown", "null", "The answer is", "Answer:", "idk",
    "Not enough information", "Insufficient information to classify.", "None", "NA", "-", "None of the given categories apply.",
    "I'm sorry, but I can't help with that.", "As an AI language model, I cannot classify this.", "Neither HUMAN nor ENTITY",
    "The text does not fit any of the categories.", '{"label": null}', '{"label": "N/A"}', "[no answer]", "Ambiguous",
]  # fmt: skip


@pytest.mark.parametrize("answer", HUMAN)
def test_one_class_is_found_in_what_models_write(answer: str) -> None:
    assert meaning_of(answer, CLASSES) == ["HUMAN"]


@pytest.mark.parametrize("answer", TWO)
def test_two_names_are_a_set(answer: str) -> None:
    assert meaning_of(answer, CLASSES) == ["HUMAN", "ENTITY"]


@pytest.mark.parametrize("answer", REFUSED)
def test_refusals_are_no_vote(answer: str) -> None:
    assert meaning_of(answer, CLASSES) == []


@pytest.mark.parametrize("answer", ["Other", "error", "Homonym"])
def test_what_names_no_class_is_not_guessed(answer: str) -> None:
    assert meaning_of(answer, CLASSES) is None


OTHERS = {
    ("It is not a HUMAN", "ENTITY|HUMAN|LOCATION"): ["ENTITY", "LOCATION"],
    ("Definitely not HUMAN.", "ENTITY|HUMAN|LOCATION"): ["ENTITY", "LOCATION"],
    ("This doesn\u2019t seem to be HUMAN", "ENTITY|HUMAN|LOCATION"): ["ENTITY", "LOCATION"],
    ("The text isn't about HUMAN; it's about ENTITY", "ENTITY|HUMAN|LOCATION"): ["ENTITY"],
    ("It is not only HUMAN", "ENTITY|HUMAN|LOCATION"): ["HUMAN"],
    ("I don't think it is toxic", "toxic|not toxic"): ["not toxic"],
    ("Not really toxic", "toxic|not toxic"): ["not toxic"],
    ("Non toxic", "toxic|not toxic"): ["not toxic"],
    ("nontoxic", "toxic|not toxic"): ["not toxic"],
    ("not happy", "happy|unhappy"): ["unhappy"],
    ("non-negative", "positive|negative|neutral"): ["positive", "neutral"],
    ("far from positive", "positive|negative|neutral"): ["negative", "neutral"],
    ("HUMAN rather than an ENTITY or LOCATION", "ENTITY|HUMAN|LOCATION"): ["HUMAN"],
    ("Anything but HUMAN", "ENTITY|HUMAN|LOCATION"): ["ENTITY", "LOCATION"],
    ("LOCATION? No. ENTITY? No. HUMAN? Yes.", "ENTITY|HUMAN|LOCATION"): ["HUMAN"],
    ("1. ENTITY: no\n2. HUMAN: yes\n3. LOCATION: no", "ENTITY|HUMAN|LOCATION"): ["HUMAN"],
    ('{"ENTITY": false, "HUMAN": false}', "ENTITY|HUMAN|LOCATION"): ["LOCATION"],
}  # fmt: skip


@pytest.mark.parametrize(("answer", "classes"), OTHERS)
def test_an_answer_that_negates_a_class_stands_for_the_others(answer: str, classes: str) -> None:
    assert meaning_of(answer, classes.split("|")) == OTHERS[answer, classes]


SHORT = {
    "B)": ["B"], "B) Paris": ["B"], "B. Paris": ["B"], "The answer is B.": ["B"], "Option B": ["B"], "A or B": ["A", "B"],
    "The correct answer is B because A is a city.": ["B"], "A person did it.": None, "Neither": [], "Not A": None, "B: Paris": ["B"],
}  # fmt: skip


@pytest.mark.parametrize("answer", SHORT)
def test_letters_of_a_multiple_choice_are_found(answer: str) -> None:
    assert meaning_of(answer, ["A", "B", "C"]) == SHORT[answer]


@pytest.mark.parametrize(
    ("answer", "classes", "expected"),
    [
        ("This is not spam.", ["spam", "not spam"], "not spam"),
        ("Very positive", ["very_positive", "positive"], "very_positive"),
        ("Sci-Tech", ["Sci/Tech", "World"], "Sci/Tech"),
        ("neg", ["positive", "negative"], "negative"),
        ('{"label": 1}', ["0", "1", "2"], "1"),
        ("2 - neutral", ["0", "1", "2"], "2"),
        ("No, because it does not apply.", ["yes", "no"], "no"),
        ("Yes, and there is no doubt about it at all.", ["yes", "no"], "yes"),
        ("It is neither positive nor negative, so neutral", ["positive", "negative", "neutral"], "neutral"),
        ("No, it is not", ["yes", "no"], "no"),
        ("3/5", ["1", "2", "3", "4", "5"], "3"),
        ("I rate this 4 out of 5.", ["1", "2", "3", "4", "5"], "4"),
        ("4 stars", ["1", "2", "3", "4", "5"], "4"),
        ("4.0", ["1", "2", "3", "4", "5"], "4"),
        ("SciTech", ["Sci/Tech", "World"], "Sci/Tech"),
        ("hapy", ["happy", "unhappy"], "happy"),
        ("Entities", ["ENTITY", "HUMAN"], "ENTITY"),
        ("contradicts", ["entailment", "contradiction"], "contradiction"),
        ("business and finance", ["Business & Finance", "Sports"], "Business & Finance"),
        ('{"label": "cat", "reason": "It may be a dog, but', ["cat", "dog"], "cat"),
        ("Answer: B because A is wrong", ["A", "B"], "B"),
    ],
)
def test_classes_of_other_kinds_are_found(answer: str, classes: list[str], expected: str) -> None:
    assert meaning_of(answer, classes) == [expected]


def test_classes_are_found_in_a_jury_that_reasons() -> None:
    reasons = ["It asks who did it", "There is a name in it", "That is what is asked for", "One may doubt it"]
    counts = {}
    for name in CLASSES:
        for i in range(20):
            counts[f"{reasons[i % 4]}, number {i}, not {CLASSES[i % 3]}.\n\n**Final answer:** {name.title()}"] = 1
    counts["I cannot tell."] = 5
    assert find_classes(counts) == sorted(name.title() for name in CLASSES)


def test_prefixes_that_all_labels_share_are_parts_of_them() -> None:
    votes = read_votes(jury(["Type: A"] * 20 + ["Type: B"] * 20))
    assert votes.labels == ["Type: A", "Type: B"]


def test_a_vague_word_is_a_class_where_it_is_frequent() -> None:
    counts = {"cat": 40, "**cat**": 3, "dog": 40, "unknown": 3}
    assert find_classes(counts) == ["cat", "dog"]
    assert find_classes({**counts, "unknown": 20}) == ["cat", "dog", "unknown"]


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


def test_an_option_named_by_its_letter_alone_is_the_class_that_others_name_beside_it() -> None:
    answers = [f"{letter}) {name}" for letter, name in zip("abc", CLASSES, strict=True) for _ in range(10)]
    votes = read_votes(jury([*answers, "b", "(b)", "Option c", "d"]), classes=CLASSES)
    assert [said(votes).get((item, "gpt")) for item in range(30, 34)] == [["HUMAN"], ["HUMAN"], ["LOCATION"], None]


@pytest.mark.parametrize("classes", [["toxic", "not toxic"], None])
def test_not_x_is_read_as_the_class_of_that_name(classes: list[str] | None) -> None:
    answers = ["toxic", "**toxic**", "Not toxic.", "not toxic", "The label is NOT TOXIC"] * 10
    votes = read_votes(jury(answers), classes=classes)
    assert [label.casefold() for label in sorted(votes.labels)] == ["not toxic", "toxic"]
    negated = votes.labels.index(next(label for label in votes.labels if " " in label))
    assert (votes.label == negated).tolist() == [False, False, True, True, True] * 10


def test_a_frequent_not_x_is_a_label_beside_others() -> None:
    votes = read_votes(jury(["toxic", "not toxic", "very toxic"] * 10))
    assert votes.labels == ["not toxic", "toxic", "very toxic"]
    assert len(votes.label) == 30


def test_missing_values_of_other_programs_and_rare_refusals_are_no_votes() -> None:
    votes = read_votes(jury([*["cat", "dog"] * 20, "NaN", "nan", "NULL", "<NA>", "N/A", "I cannot tell"]))
    assert votes.labels == ["cat", "dog"]
    assert any("6 answers such as" in remark for remark in votes.remarks)
    frequent = read_votes(jury(["cannot log in", "none", "refund"] * 10))
    assert frequent.labels == ["cannot log in", "none", "refund"]


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
        def search(self, text: str) -> None:
            searched.append(len(text))

    monkeypatch.setattr(free_text, "_NEGATED", Negation())
    assert meaning_of("HUMAN beings " * 1000, CLASSES) == ["HUMAN"]
    assert len(searched) == 1000
    assert max(searched) < 300
