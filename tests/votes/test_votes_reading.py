"""Votes are read from every form that people have them in."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from oneof.votes import Spelling, Votes, read_label_studio, read_long, read_map, read_votes, read_wide
from oneof.votes.free_text import Meaning
from oneof.votes.label_studio import is_label_studio, read_ground_truth

FIXTURES = Path(__file__).parents[1] / "fixtures" / "votes"
LLM = {"item": "id", "columns": ["gpt", "claude", "gemini"]}


def said(votes: Votes) -> dict[tuple[object, str], list[str]]:
    """(item, annotator) -> labels, in the order of the arrays."""
    answers: dict[tuple[object, str], list[str]] = {}
    for i, a, j in zip(votes.item, votes.annotator, votes.label, strict=True):
        answers.setdefault((votes.items[i].as_py(), votes.annotators[a]), []).append(votes.labels[j])
    return answers


LONG = {
    ("img-0003", "ann"): ["cat"],
    ("img-0003", "bob"): ["cat", "dog"],
    ("img-0003", "eve"): ["fox"],
    ("img-0001", "ann"): ["dog"],
    ("img-0001", "bob"): ["dog"],
    ("img-0007", "ann"): ["cat"],
    ("img-0007", "bob"): ["fox"],
    ("img-0002", "ann"): ["cat", "dog"],
    ("img-0002", "bob"): ["dog", "fox"],
}

# ---------------------------------------------------------------------------------------------------------- long tables


def test_a_long_csv_is_read_with_items_in_order_of_appearance() -> None:
    votes = read_long(FIXTURES / "long.csv", confidence="confidence")
    assert votes.items.to_pylist() == ["img-0003", "img-0001", "img-0007", "img-0002"]
    assert votes.labels == ["cat", "dog", "fox"]
    assert said(votes) == LONG
    assert votes.repeated == 1
    assert votes.confidence is not None
    assert votes.confidence[-1] == 0.7  # of bob's two votes for fox, the surer


def test_parquet_arrow_and_pandas_say_the_same_as_csv(tmp_path: Path) -> None:
    frame = pd.read_csv(FIXTURES / "long.csv", dtype={"label": "category"})
    frame.to_parquet(tmp_path / "long.parquet")
    table = pq.read_table(tmp_path / "long.parquet")
    for source in (tmp_path / "long.parquet", table, frame):
        assert said(read_long(source)) == LONG


def test_a_cell_may_hold_a_list_or_separated_labels() -> None:
    columns = {"item": [1, 1], "annotator": [8, 9]}
    lists = pa.table({**columns, "label": [["cat", "dog"], ["dog"]]})
    text = pa.table({**columns, "label": ["dog|cat|dog", "dog|"]})
    expected = {(1, "8"): ["cat", "dog"], (1, "9"): ["dog"]}
    assert said(read_long(lists)) == expected
    assert said(read_long(text, spelling=Spelling(separator="|"))) == expected


@pytest.mark.parametrize(("ids", "expected"), [("7 12", [7, 12]), ("007 7", ["007", "7"]), ("7 x", ["7", "x"])])
def test_ids_in_text_become_numbers_only_where_nothing_is_lost(
    tmp_path: Path, ids: str, expected: list[object]
) -> None:
    path = tmp_path / "votes.tsv"
    path.write_text("item\tannotator\tlabel\n" + "".join(f"{i}\tann\tNA\n" for i in ids.split()))
    votes = read_long(path)
    assert votes.items.to_pylist() == expected
    assert votes.labels == ["NA"]


def test_a_compressed_csv_is_read(tmp_path: Path) -> None:
    path = tmp_path / "long.csv.gz"
    path.write_bytes(gzip.compress((FIXTURES / "long.csv").read_bytes()))
    assert said(read_long(path)) == LONG


# ---------------------------------------------------------------------------------------- wide tables, synonyms, classes


@pytest.mark.parametrize("map_file", ["llm_map.csv", "llm_map.json"])
def test_answers_of_language_models_are_mapped_separated_and_normalised(map_file: str) -> None:
    spelling = Spelling(separator="|", synonyms=read_map(FIXTURES / map_file), normalise=True)
    votes = read_wide(FIXTURES / "llm.csv", **LLM, spelling=spelling)
    assert said(votes) == {
        (101, "gpt"): ["cat"],
        (101, "claude"): ["cat"],
        (101, "gemini"): ["cat"],
        (102, "gpt"): ["cat", "dog"],
        (102, "gemini"): ["dog"],
        (103, "gpt"): ["fox"],
        (103, "gemini"): ["dog"],
        (105, "gpt"): ["na"],
        (105, "claude"): ["fox"],
        (105, "gemini"): ["cat", "fox"],
    }
    assert votes.unanswered == 1  # item 104: no answer is left


def test_blanks_around_a_separator_are_no_part_of_a_label() -> None:
    table = pa.table({"item": [1, 1], "annotator": ["ann", "bob"], "label": ["cat, kitty ,dog, ,", " dog"]})
    spelling = Spelling(separator=",", synonyms={"kitty ": "cat"}, classes=["cat", "dog"])
    assert said(read_long(table, spelling=spelling)) == {(1, "ann"): ["cat", "dog"], (1, "bob"): ["dog"]}


def test_nothing_is_normalised_unasked() -> None:
    assert {"Cat", "cat", " CAT "} <= set(read_wide(FIXTURES / "llm.csv", **LLM).labels)


def test_classes_set_the_order_and_refuse_other_labels() -> None:
    spelling = Spelling(
        separator="|", synonyms=read_map(FIXTURES / "llm_map.csv"), normalise=True, classes=["Fox", "Dog", "Cat"]
    )
    votes = read_wide(FIXTURES / "llm.csv", **LLM, spelling=spelling)
    assert votes.labels == ["Fox", "Dog", "Cat"]
    assert Meaning("NA", (), 1) in votes.meanings
    with pytest.raises(
        ValueError, match=r"among the classes Hog, Fox, Cat; got 'dog' in .*llm.csv, column 'gpt', row 1\. .*Map it"
    ):
        read_wide(FIXTURES / "llm.csv", **LLM, spelling=replace(spelling, classes=["Hog", "Fox", "Cat"]))
    with pytest.raises(ValueError, match=r"got 'dog' in .*, column 'label', row 2\. Did you mean 'hog'\? Map it"):
        read_long(FIXTURES / "long.csv", spelling=Spelling(classes=["cat", "hog", "fox"]))


@pytest.mark.parametrize(
    ("spelling", "message"),
    [
        (Spelling(separator=""), "separator must not be empty"),
        (Spelling(classes=["cat", "cat"]), "classes must be distinct names; got 'cat' twice"),
        (Spelling(classes=["cat", ""]), "classes must be distinct names; got ''"),
        (Spelling(classes=["US", "us"], normalise=True), "classes must stay distinct when normalised; 'US' and 'us'"),
        (
            Spelling(synonyms={"A": "x", "a": "y"}, normalise=True),
            "synonyms must stay distinct when normalised; 'A' and 'a'",
        ),
    ],
)
def test_a_spelling_that_cannot_be_meant_is_refused(spelling: Spelling, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_long(FIXTURES / "long.csv", spelling=spelling)


def test_a_map_gives_each_text_one_meaning(tmp_path: Path) -> None:
    path = tmp_path / "map.csv"
    path.write_text("from,to\na,x\na,y\n")
    with pytest.raises(ValueError, match=r"one meaning; .*map.csv maps 'a' to 'x' and 'y'"):
        read_map(path)
    path = tmp_path / "map.json"
    path.write_text('{"a": ["x"]}')
    with pytest.raises(ValueError, match=r"must be one object of texts.*map.json is not"):
        read_map(path)


# --------------------------------------------------------------------------------------------------------- Label Studio


def test_label_studio_annotations_and_predictions_vote_and_cancelled_ones_do_not() -> None:
    votes = read_label_studio(FIXTURES / "label_studio.json", confidence="score")
    assert said(votes) == {
        (41, "ann@example.org"): ["Cat"],
        (41, "2"): ["Cat", "Dog"],
        (41, "model:resnet-1"): ["Dog"],
        (42, "ann@example.org"): ["Dog"],
        (42, "2"): ["Fox"],
        (43, "model:resnet-1"): ["Fox"],
    }
    assert votes.unanswered == 1
    assert votes.confidence is not None
    assert sorted(votes.confidence) == [0.4, 0.75, 1, 1, 1, 1, 1]
    assert read_label_studio(FIXTURES / "label_studio.json").confidence is None


def _export(folder: Path, *tasks: object) -> Path:
    path = folder / "export.json"
    path.write_text(json.dumps(tasks))
    return path


def _task(choices: object, name: str = "animal", **more: object) -> dict[str, object]:
    result = [{"from_name": name, "value": {"choices": choices}}]
    return {"id": 1, "annotations": [{"id": 5, "result": result}], **more}


def test_several_controls_need_a_choice(tmp_path: Path) -> None:
    path = _export(tmp_path, _task(["a"]), _task(["b"], name="mood"))
    with pytest.raises(
        ValueError, match=r"one control must give the votes; .* has choices of animal, mood\. .*from_name"
    ):
        read_label_studio(path)
    with pytest.raises(ValueError, match=r"from_name must be a control with choices; got 'x', .* has animal, mood"):
        read_label_studio(path, from_name="x")
    assert read_label_studio(path, from_name="mood").labels == ["b"]


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ([], "at least one row; .*export.json has none"),
        ([1], "must be a list of tasks; .*export.json is not"),
        ([{"id": 1, "choice": "Cat"}], "position 0 has id, choice. Export it as JSON, not JSON-MIN"),
        ([_task(["a"], id=None)], "must have an id; .* position 0 has None"),
        ([_task(["a"]), _task(["a"], id="x")], "ids must be all numbers or all text"),
        ([_task(["a"], id=2**70)], "numbers too large"),
        ([_task([["a", "b"]])], r"choices must be a list of texts; .* position 0 has \[\['a', 'b'\]\]"),
        ([_task([])], "has no choices"),
        (
            [{"id": 1, "annotations": [3]}],
            "annotations of a Label Studio task must be a list of objects; .* position 0",
        ),
        ([{"id": 1, "annotations": [{"result": "x"}]}], "result of a Label Studio task must be a list of objects"),
        ([_task(["a"], predictions=[{"score": 7}])], r"'score' of a prediction must be a number in \[0, 1\]; .* has 7"),
    ],
)
def test_what_is_no_export_is_refused(tmp_path: Path, tasks: list[object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_label_studio(_export(tmp_path, *tasks), confidence="score")


def test_json_min_and_stars_are_read(tmp_path: Path) -> None:
    one = {"id": 7, "text": "purrs", "animal": "Cat", "annotator": 2, "annotation_id": 31, "lead_time": 3.5}
    two = {"id": 7, "text": "purrs", "animal": {"choices": ["Cat", "Dog"]}, "annotator": 3, "annotation_id": 32}
    path = _export(tmp_path, one, two)
    assert is_label_studio(path)
    assert said(read_label_studio(path, from_name="animal")) == {(7, "2"): ["Cat"], (7, "3"): ["Cat", "Dog"]}
    with pytest.raises(ValueError, match=r"one control must give the votes; .* has text, animal, .*from_name"):
        read_label_studio(path)
    starred = [{"id": 5, "ground_truth": True, "result": [{"from_name": "animal", "value": {"choices": ["Fox"]}}]}]
    assert read_ground_truth(_export(tmp_path, _task(["Cat"]), {"id": 2, "annotations": starred})) == {2: "Fox"}


def test_of_several_answers_of_one_annotator_the_most_frequent_label_counts_most() -> None:
    rows = [
        (1, "gpt", "cat"),
        (1, "gpt", "cat"),
        (1, "gpt", "dog"),
        (1, "ann", "dog"),
        (2, "gpt", "dog"),
        (2, "gpt", "dog"),
    ]
    items, annotators, labels = zip(*rows, strict=True)
    votes = read_votes(pa.table({"item": items, "annotator": annotators, "label": labels}))
    shares = {}
    for item, annotator, label, share in zip(votes.item, votes.annotator, votes.label, votes.share, strict=True):
        shares[item, votes.annotators[annotator], votes.labels[label]] = round(float(share), 3)
    assert shares == {
        (0, "gpt", "cat"): 0.667,
        (0, "gpt", "dog"): 0.333,
        (0, "ann", "dog"): 1.0,
        (1, "gpt", "dog"): 1.0,
    }
    assert votes.weight.tolist() == [1, 1, 1, 1]  # as many annotators named it
    assert votes.repeated == 2
    assert any(remark.startswith("In 1 answer one label is named more often") for remark in votes.remarks)
    assert votes.only(votes.item == 0).share.tolist() == votes.share[votes.item == 0].tolist()
