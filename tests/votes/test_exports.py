"""Exports that Argilla, Label Studio and distilabel wrote themselves are read without options, or with the name of one question."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from test_votes_command import invoke
from test_votes_reading import said

from oneof.votes import read_votes

FIXTURES = Path(__file__).parents[1] / "fixtures" / "votes"
SENTIMENT = {
    0: ["positive", "positive", "negative"],
    1: ["negative"] * 3,
    2: ["neutral", "positive"],
    3: ["positive"] * 2,
}


def labels_by_item(path: Path, **settings: str) -> dict[int, list[str]]:
    """Return the labels that people or models gave each text, without suggestions; the texts are numbered in their ids."""
    labels: dict[int, list[str]] = {}
    for (item, annotator), answer in said(read_votes(path, **settings)).items():
        if not annotator.startswith("model:"):
            number = int(re.sub(r"\D", "", str(item)))
            labels.setdefault(number, []).extend(answer)
    return {number: sorted(answers) for number, answers in labels.items()}


def expected(start: int = 0) -> dict[int, list[str]]:
    return {number + start: sorted(answers) for number, answers in SENTIMENT.items()}


@pytest.mark.parametrize("name", ["argilla_flat.jsonl", "argilla_flat.parquet"])
def test_flat_records_of_argilla_count_what_was_submitted(name: str) -> None:
    assert labels_by_item(FIXTURES / name, label="sentiment") == expected()


def test_records_of_argilla_do_not_say_what_was_submitted() -> None:
    votes = read_votes(FIXTURES / "argilla_records.json", label="sentiment")
    assert len(said(votes)) == 16  # twelve responses, with a draft and a discarded one, and four suggestions
    assert any("drafts and discarded responses" in remark for remark in votes.remarks)
    flat = read_votes(FIXTURES / "argilla_flat.jsonl", label="sentiment")
    assert not any("drafts" in remark for remark in flat.remarks)


def test_argilla_asks_for_the_question() -> None:
    with pytest.raises(ValueError, match=r"answers to comment, sentiment\. Name it with --label"):
        invoke(FIXTURES / "argilla_records.json")
    assert json.loads(invoke(FIXTURES / "argilla_flat.jsonl", "--label", "sentiment", "--json"))["annotators"] == 4


def test_the_control_of_label_studio_is_found_where_there_is_one() -> None:
    path = FIXTURES / "label_studio_min_one_control.json"
    assert labels_by_item(path) == expected(start=1)


def test_label_studio_names_its_controls_where_there_are_two() -> None:
    for name, option in (("label_studio_min.json", "from_name"), ("label_studio.csv", "label")):
        with pytest.raises(ValueError, match=r"sentiment, tone\. .*--"):
            read_votes(FIXTURES / name)
        votes = read_votes(FIXTURES / name, **{option: "tone"})
        assert votes.labels == ["kind", "rude"]
        assert max(votes.answer_size) == 2  # a cell of the CSV is {"choices": ["kind", "rude"]}


@pytest.mark.parametrize("name", ["distilabel_rows.jsonl", "distilabel_grouped.parquet"])
def test_distilabel(name: str) -> None:
    votes = read_votes(FIXTURES / name)
    assert votes.annotators == ["org/gpt-7b", "org/llama-7b", "org/qwen-7b"]
    assert labels_by_item(FIXTURES / name) == {**expected(), 2: ["neutral", "neutral"]}
    assert any(remark.startswith("1 answers 'Unclassified'") for remark in votes.remarks)


def column_lists(records: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Return records as Argilla's `to_dict` does: a list per key."""
    return {name: [record.get(name) for record in records] for name in records[0]}


@pytest.mark.parametrize("name", ["argilla_flat.jsonl", "argilla_records.json"])
@pytest.mark.parametrize("form", ["names", "index", "csv"])
def test_argilla_is_read_from_a_dict_and_from_a_csv_of_pandas(tmp_path: Path, name: str, form: str) -> None:
    text = (FIXTURES / name).read_text()
    if name.endswith(".jsonl"):
        records = [json.loads(line) for line in text.splitlines()]
    else:
        records = json.loads(text)
    path = tmp_path / "export.json"
    if form == "names":
        path.write_text(json.dumps(column_lists(records)))
    elif form == "index":
        path.write_text(json.dumps({record["id"]: record for record in records}))
    else:
        path = tmp_path / "export.csv"
        pd.DataFrame(records).to_csv(path, index=False)
    assert said(read_votes(path, label="sentiment")) == said(read_votes(FIXTURES / name, label="sentiment"))


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_distilabel_without_its_metadata(tmp_path: Path, form: str) -> None:
    rows = {
        "instruction": ["t0", "t1"],
        "generations": [["cat", "dog"], ["dog", "dog"]],
        "model_names": [["a", "b"]] * 2,
    }
    frame = pd.DataFrame(rows)
    path = tmp_path / f"rows.{form}"
    if form == "jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_parquet(path)
    votes = read_votes(path)
    assert said(votes) == {("t0", "a"): ["cat"], ("t0", "b"): ["dog"], ("t1", "a"): ["dog"], ("t1", "b"): ["dog"]}


def test_several_generations_of_one_model_are_counted(tmp_path: Path) -> None:
    row = {
        "instruction": "t0",
        "generation": ["cat", "cat", "dog"],
        "model_name": "gpt",
        "distilabel_metadata": [{}, {}, {}],
    }
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row))
    votes = read_votes(path)
    assert dict(zip(votes.labels, votes.share.round(2).tolist(), strict=True)) == {"cat": 0.67, "dog": 0.33}
