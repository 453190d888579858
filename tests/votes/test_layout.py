"""Items, annotators and labels are found in tables that do not name them as we do, and what was guessed is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from test_votes_reading import said

from oneof.votes import Votes, read_votes
from oneof.votes.guess import are_counts
from oneof.votes.read import VotesFile, table_layout

ANSWERS = {
    "gpt": ["HUMAN", "LOCATION", "ENTITY"],
    "claude": ["HUMAN", "LOCATION", "HUMAN"],
    "llama": ["ENTITY", "LOCATION", ""],
}
ITEMS = ["q1", "q2", "q3"]
TEXTS = ["who?", "where?", "what?"]
PLAIN = {
    (item, model): [labels[i]] for i, item in enumerate(ITEMS) for model, labels in ANSWERS.items() if labels[i]
}  # fmt: skip
LONG = pd.DataFrame([{"item": item, "annotator": model, "label": labels[0]} for (item, model), labels in PLAIN.items()])
WIDE = pd.DataFrame({"item": ITEMS, "text": TEXTS, **ANSWERS}).replace("", None)


def remarks_of(votes: Votes) -> str:
    return " ".join(votes.remarks)


def test_no_annotator_of_a_small_wide_file_is_dropped(tmp_path: Path) -> None:
    """Each has more distinct labels than half of the rows."""
    frame = pd.DataFrame(
        {
            "item": range(1, 7),
            "gpt": ["HUMAN", "ENTITY", "HUMAN", "NUMERIC", "LOCATION", "HUMAN"],
            "claude": ["HUMAN", "ENTITY", "LOCATION", "NUMERIC", "LOCATION", "HUMAN"],
            "llama": ["HUMAN", "HUMAN", "HUMAN", "ENTITY", "LOCATION", "OTHER"],
        }
    )
    frame.to_csv(tmp_path / "v.csv", index=False)
    votes = read_votes(tmp_path / "v.csv")
    assert votes.annotators == ["gpt", "claude", "llama"]
    assert len(votes.item) == 18
    assert "Each of these columns is an annotator: gpt, claude, llama." in remarks_of(votes)


SHAPES: dict[str, Any] = {
    "by item": {item: {model: labels[i] or None for model, labels in ANSWERS.items()} for i, item in enumerate(ITEMS)},
    "columns": LONG.to_dict("list"),
    "pandas": json.loads(LONG.to_json()),
    "pandas, split": json.loads(LONG.to_json(orient="split")),
    "pandas, wide": json.loads(WIDE.to_json()),
    "under a key": {"version": 1, "data": LONG.to_dict("records")},
    "NaN": [*LONG.to_dict("records"), {"item": "q3", "annotator": "llama", "label": float("nan")}],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_json_of_every_shape_is_read(tmp_path: Path, shape: str) -> None:
    path = tmp_path / "v.json"
    path.write_text(json.dumps(SHAPES[shape]))
    assert said(read_votes(path)) == PLAIN


def test_votes_by_item_without_names(tmp_path: Path) -> None:
    (tmp_path / "v.json").write_text(json.dumps({"q1": ["cat", "dog"], "q2": ["cat", "cat"]}))
    votes = read_votes(tmp_path / "v.json")
    assert said(votes)["q1", "annotator 2"] == ["dog"]
    assert "labels without names" in remarks_of(votes)


@pytest.mark.parametrize("separator", [";", "\t"])
def test_a_csv_may_be_separated_by_semicolons_or_tabs(tmp_path: Path, separator: str) -> None:
    LONG.to_csv(tmp_path / "v.csv", index=False, sep=separator)
    assert said(read_votes(tmp_path / "v.csv")) == PLAIN


def test_names_in_other_case_are_known() -> None:
    frame = LONG.rename(columns={"item": "Question ID", "annotator": "Worker", "label": "Answer"})
    votes = read_votes(frame)
    assert said(votes) == PLAIN
    assert "item 'Question ID', annotator 'Worker', label 'Answer'" in remarks_of(votes)


def test_items_without_ids_are_texts_or_rows() -> None:
    by_text = read_votes(WIDE.drop(columns="item"))
    assert by_text.items.to_pylist() == TEXTS
    by_row = read_votes(WIDE.drop(columns=["item", "text"]))
    assert by_row.items.to_pylist() == [0, 1, 2]
    assert "numbers of the rows" in remarks_of(by_row)


def test_the_truth_beside_annotators_is_no_annotator(tmp_path: Path) -> None:
    for name in ("truth", "Gold", "label"):
        frame = WIDE.assign(**{name: ["HUMAN", "LOCATION", "ENTITY"]})
        votes = read_votes(frame)
        assert votes.annotators == ["gpt", "claude", "llama"]
        assert f"by its name: {name!r}" in remarks_of(votes)
    frame.to_csv(tmp_path / "v.csv", index=False)
    layout = table_layout(VotesFile(str(tmp_path / "v.csv")))
    assert layout is not None
    assert layout.truth == ("label",)  # neither a vote nor a feature


def test_votes_without_annotators_are_numbered() -> None:
    votes = read_votes(LONG.drop(columns="annotator"))
    assert votes.annotators == ["annotator 1", "annotator 2", "annotator 3"]
    assert "No column names the annotators" in remarks_of(votes)


def test_the_label_is_found_by_its_values_or_asked_for() -> None:
    frame = LONG.rename(columns={"label": "topic"}).assign(created_at=range(len(LONG)))
    assert said(read_votes(frame)) == PLAIN
    two = frame.assign(tone=["kind", "rude"] * 4)
    with pytest.raises(ValueError, match=r"the table has topic, tone\. Name it with --label"):
        read_votes(two)
    assert read_votes(two, label="tone").labels == ["kind", "rude"]


def test_other_columns_of_a_long_table_are_no_annotators() -> None:
    frame = LONG.rename(columns={"annotator": "model", "label": "answer"}).assign(
        temperature=[0, 1] * 4, seed=[1, 0] * 4
    )
    votes = read_votes(frame)
    assert said(votes) == PLAIN
    assert "Not used: temperature, seed." in votes.remarks


def probabilities(label: str) -> dict[str, float]:
    return {"ENTITY": 0.1, "HUMAN": 0.1, "LOCATION": 0.1, label: 0.8}


def test_a_column_of_probabilities_per_label() -> None:
    frame = pd.DataFrame([{"item": i, "model": m, **probabilities(labels[0])} for (i, m), labels in PLAIN.items()])
    votes = read_votes(frame)
    assert votes.labels == ["ENTITY", "HUMAN", "LOCATION"]
    best = votes.weight == 1
    assert {(votes.items[i].as_py(), votes.annotators[a]): [votes.labels[j]]
            for i, a, j in zip(votes.item[best], votes.annotator[best], votes.label[best], strict=True)} == PLAIN  # fmt: skip
    assert "the probability of each label: ENTITY, HUMAN, LOCATION" in remarks_of(votes)


def test_counts_of_labels_are_not_taken_for_annotators() -> None:
    with pytest.raises(ValueError, match=r"same sum, like counts or probabilities of labels\. .*pass them as y"):
        read_votes(pd.DataFrame({"item": range(4), "cat": [3, 2, 0, 1], "dog": [1, 2, 4, 3], "fox": [1, 1, 1, 1]}))
    ratings = [[5, 4, 5], [1, 2, 1], [3, 3, 4], [2, 2, 5]]
    assert not are_counts(ratings)
    assert are_counts([[3, 1, 1], [2, 2, 1], [0, 4, 1]])


@pytest.mark.parametrize("is_wide", [False, True])
def test_cells_of_a_csv_may_be_json(tmp_path: Path, is_wide: bool) -> None:
    cell = {
        "HUMAN": json.dumps({"label": "HUMAN", "confidence": 0.7}),
        "LOCATION": "```json\n" + json.dumps({"LOCATION": 0.9, "ENTITY": 0.01}) + "\n```",
        "ENTITY": json.dumps(["ENTITY"]),
    }
    frame = WIDE.drop(columns="text").replace(cell) if is_wide else LONG.replace({"label": cell})
    frame.to_csv(tmp_path / "v.csv", index=False)
    assert said(read_votes(tmp_path / "v.csv")) == PLAIN


def test_confidence_stands_beside_cells_in_json(tmp_path: Path) -> None:
    frame = LONG.assign(label=[json.dumps([label]) for label in LONG["label"]], sure=0.5)
    frame.to_csv(tmp_path / "v.csv", index=False)
    votes = read_votes(tmp_path / "v.csv", confidence="sure")
    assert set(votes.weight) == {0.5}


def test_log_probabilities_as_openai_returns_them(tmp_path: Path) -> None:
    top = [{"token": "cat", "logprob": -0.1}, {"token": "dog", "logprob": -0.7931}]
    one = {"id": 1, "model": "gpt", "logprobs": {"content": [{"token": "cat", "logprob": -0.1, "top_logprobs": top}]}}
    tokens = [{"token": "CA", "logprob": -0.1, "top_logprobs": top}, {"token": "LF", "logprob": 0, "top_logprobs": []}]
    two = {"id": 2, "model": "gpt", "logprobs": {"content": tokens}}
    path = tmp_path / "v.jsonl"
    path.write_text(json.dumps(one) + "\n" + json.dumps(two) + "\n")
    votes = read_votes(path)
    assert said(votes) == {(1, "gpt"): ["cat", "dog"], (2, "gpt"): ["CALF"]}
    assert votes.weight.round(2).tolist() == [1.0, 0.5, 1.0]


def test_rankings_are_known_by_their_name_or_by_an_option(tmp_path: Path) -> None:
    path = tmp_path / "v.jsonl"
    path.write_text(json.dumps({"id": 1, "model": "gpt", "ranking": ["cat", "dog"]}))
    assert read_votes(path).weight.tolist() == [1.0, 0.5]
    pd.DataFrame({"item": [1], "annotator": ["gpt"], "label": ["cat > dog"]}).to_csv(tmp_path / "v.csv", index=False)
    assert read_votes(tmp_path / "v.csv", ranked=True, separator=">").weight.tolist() == [1.0, 0.5]


@pytest.mark.parametrize("classes", [["HUMAN", "ENTITY", "LOCATION"], None])
def test_columns_of_reasoning_are_annotators(classes: list[str] | None) -> None:
    frame = pd.concat([WIDE.assign(item=[f"{item}-{k}" for item in ITEMS], text=f"text {k}") for k in range(12)])
    for model in ANSWERS:
        answers = []
        for k, label in enumerate(frame[model]):
            answers.append(
                f"Thought number {k} of {model} about it.\n\nAnswer: {label}" if isinstance(label, str) else None
            )
        frame[model] = answers
    frame["text"] = [f"{text} {k}" for k, text in enumerate(frame["text"])]
    votes = read_votes(frame, classes=classes)
    assert votes.annotators == list(ANSWERS)
    assert votes.labels == (classes or sorted({"HUMAN", "ENTITY", "LOCATION"}))


@pytest.mark.parametrize("form", ["csv", "parquet", "json", "frame", "long.csv"])
def test_numbers_beside_empty_cells_are_the_same_labels(tmp_path: Path, form: str) -> None:
    """pandas writes 1.0 for 1 in a column with an empty cell."""
    wide = pd.DataFrame({"item": range(30), "ann": [1, 2, 3] * 10, "bob": [1.0, 3.0, 2.0] * 10, "cy": [2, 2, 3] * 10})
    wide.loc[3, "bob"] = None
    path = tmp_path / f"votes.{form}"
    if form == "long.csv":
        wide.melt("item", var_name="annotator", value_name="label").to_csv(path, index=False)
    elif form == "json":
        wide.to_json(path, orient="records")
    elif form == "frame":
        pass
    else:
        getattr(wide, f"to_{form}")(path, index=False)
    votes = read_votes(wide if form == "frame" else path)
    assert votes.annotators == ["ann", "bob", "cy"]
    assert votes.labels == ["1", "2", "3"]
    assert len(votes.label) == 89
    assert votes.meanings == ()


def test_ids_of_mixed_types_are_compared_as_text(tmp_path: Path) -> None:
    path = tmp_path / "votes.jsonl"
    lines = ['{"item": 1, "annotator": "a", "label": "x"}', '{"item": "1", "annotator": "b", "label": "x"}']
    lines.append('{"item": 1.0, "annotator": "c", "label": "y"}')
    path.write_text("\n".join(lines))
    assert read_votes(path).items.to_pylist() == ["1"]


def test_a_file_of_another_kind_is_refused_by_its_ending(tmp_path: Path) -> None:
    (tmp_path / "votes.xlsx").write_bytes(b"PK\x03\x04")
    with pytest.raises(ValueError, match=r"a file of votes must end in one of \.csv, .*votes\.xlsx"):
        read_votes(tmp_path / "votes.xlsx")
