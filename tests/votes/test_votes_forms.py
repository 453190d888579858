"""Every form of votes is read by one function, and by both commands with the same options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_votes_command import invoke
from test_votes_reading import said

from oneof.votes import read_votes

PLAIN = {(7, "gpt"): ["cat"], (7, "claude"): ["dog"], (8, "gpt"): ["dog"], (8, "claude"): ["dog"], (9, "gpt"): ["cat"]}
LONG = [{"item": item, "annotator": who, "label": labels[0]} for (item, who), labels in PLAIN.items()]
WIDE = [
    {"item": 7, "gpt": "cat", "claude": "dog"},
    {"item": 8, "gpt": "dog", "claude": "dog"},
    {"item": 9, "gpt": "cat"},
]
NULL = {"id": 9, "model": "claude", "answer": None}

FORMS: dict[str, list[dict[str, Any]]] = {
    "long": LONG,
    "other names": [{"id": r["item"], "model": r["annotator"], "answer": r["label"]} for r in LONG],
    "null is no vote": [*({"id": r["item"], "model": r["annotator"], "answer": r["label"]} for r in LONG), NULL],
    "wide": WIDE,
    "nested": [{"item": r["item"], "votes": {k: v for k, v in r.items() if k != "item"}} for r in WIDE],
    "list of votes": [
        {"item": r["item"], "votes": [{"annotator": k, "label": v} for k, v in r.items() if k != "item"]} for r in WIDE
    ],
    "list of answers": [
        {"id": r["item"], "answers": [{"model": k, "answer": v} for k, v in r.items() if k != "item"]} for r in WIDE
    ],
}


def write_lines(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_plain_votes_are_read_alike(tmp_path: Path, form: str) -> None:
    path = write_lines(tmp_path / "v.jsonl", FORMS[form])
    assert said(read_votes(path)) == PLAIN
    assert json.loads(invoke(path, "--json"))["answers"] == 5
    (tmp_path / "v.json").write_text(json.dumps(FORMS[form]))
    assert said(read_votes(tmp_path / "v.json")) == PLAIN


@pytest.mark.parametrize("form", FORMS)
def test_tables_and_frames_are_read_as_objects_are(tmp_path: Path, form: str) -> None:
    frame = pd.DataFrame(FORMS[form])
    table = pa.Table.from_pylist(FORMS[form])
    pq.write_table(table, tmp_path / "v.parquet")
    for source in (tmp_path / "v.parquet", table, frame):
        assert said(read_votes(source)) == PLAIN


def weights(path: Path, **settings: Any) -> dict[tuple[object, str, str], float]:
    """(item, annotator, label) -> weight."""
    votes = read_votes(path, **settings)
    keys = zip(votes.item, votes.annotator, votes.label, strict=True)
    return {
        (votes.items[i].as_py(), votes.annotators[a], votes.labels[j]): round(float(weight), 3)
        for (i, a, j), weight in zip(keys, votes.weight, strict=True)
    }


def test_probabilities_and_log_probabilities_weigh_labels(tmp_path: Path) -> None:
    long = [
        {"item": 1, "annotator": "gpt", "label": {"cat": 0.6, "dog": 0.3, "fox": 0.001}},
        {"item": 1, "annotator": "llama", "label": {"cat": -0.1, "dog": -0.7931, "fox": -9.0}},
        {"item": 2, "annotator": "gpt", "label": None},
    ]
    expected = {(1, "gpt", "cat"): 1.0, (1, "gpt", "dog"): 0.5, (1, "llama", "cat"): 1.0, (1, "llama", "dog"): 0.5}
    path = write_lines(tmp_path / "v.jsonl", long)
    assert weights(path) == expected
    votes = read_votes(path)
    assert votes.share.round(3).tolist() == [0.667, 0.333, 0.667, 0.333]  # an answer counts as one vote
    assert votes.unanswered == 1
    wide = [{"item": item, "gpt": long[0]["label"], "llama": long[1]["label"]} for item in range(1, 9)]
    assert weights(write_lines(tmp_path / "w.jsonl", wide)).items() >= expected.items()
    tokens = [{"label": "cat", "logprob": -0.1}, {"label": "dog", "logprob": -0.7931}]
    nested = [{"item": 1, "votes": {"gpt": {"cat": 0.6, "dog": 0.3}, "llama": tokens}}]
    assert weights(write_lines(tmp_path / "n.jsonl", nested)) == expected


def test_a_list_is_a_set_or_a_ranking(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "v.jsonl", [{"item": 1, "annotator": "gpt", "label": ["dog", "cat", "fox"]}])
    assert set(weights(path).values()) == {1.0}
    ranked = {(1, "gpt", "dog"): 1.0, (1, "gpt", "cat"): 0.5, (1, "gpt", "fox"): 0.333}
    assert weights(path, ranked=True) == ranked


def test_bad_distributions_name_their_line(tmp_path: Path) -> None:
    for wrong in ({"cat": 0.5, "dog": -0.5}, {"cat": "much"}, [["cat"]]):
        path = write_lines(tmp_path / "v.jsonl", [LONG[0], {"item": 1, "annotator": "a", "label": wrong}])
        with pytest.raises(ValueError, match=r"'label' must hold .*v\.jsonl, line 2 has "):
            read_votes(path)


def test_confidence_is_read_from_nested_votes(tmp_path: Path) -> None:
    record = {
        "item": 1,
        "votes": [{"annotator": "a", "label": "x", "sure": 0.5}, {"annotator": "b", "label": "y", "sure": 1}],
    }
    path = write_lines(tmp_path / "v.jsonl", [record])
    assert weights(path, confidence="sure") == {(1, "a", "x"): 0.5, (1, "b", "y"): 1.0}
    with pytest.raises(ValueError, match=r"'level' must hold a number in \[0, 1\]; .*line 1, item 1"):
        read_votes(path, confidence="level")


ARGILLA = {
    "stored": {
        "id": "r1", "fields": {"text": "..."}, "metadata": {}, "status": "completed",
        "responses": {"topic": [{"value": "cat", "user_id": "u1"}, {"value": "dog", "user_id": "u2", "status": "discarded"}]},
        "suggestions": {"topic": {"value": "dog", "score": 0.8, "agent": "gpt"}},
    },
    "stored before version 2": {
        "id": "r1", "fields": {"text": "..."},
        "responses": [{"user_id": "u1", "values": {"topic": {"value": "cat"}}, "status": "submitted"}],
        "suggestions": [{"question_name": "topic", "value": "dog", "agent": "gpt"}],
    },
    "flat": {
        "id": "r1", "text": "...", "topic.responses": ["cat"], "topic.responses.users": ["u1"],
        "topic.responses.status": ["submitted"], "topic.suggestion": "dog", "topic.suggestion.agent": "gpt",
    },
}  # fmt: skip


@pytest.mark.parametrize("form", ARGILLA)
def test_argilla(tmp_path: Path, form: str) -> None:
    votes = read_votes(write_lines(tmp_path / "v.jsonl", [ARGILLA[form]]))
    assert said(votes) == {("r1", "u1"): ["cat"], ("r1", "model:gpt"): ["dog"]}
    assert any("Argilla" in remark and "'topic'" in remark for remark in votes.remarks)


def test_argilla_with_two_questions_needs_the_name_of_one(tmp_path: Path) -> None:
    record = {"id": "r1", "topic.responses": ["cat"], "tone.responses": ["kind"]}
    path = write_lines(tmp_path / "v.jsonl", [record])
    with pytest.raises(ValueError, match=r"v\.jsonl has answers to tone, topic\. Name it with --label"):
        read_votes(path)
    assert said(read_votes(path, label="tone")) == {("r1", "annotator"): ["kind"]}


def test_prodigy(tmp_path: Path) -> None:
    task = {"text": "...", "_input_hash": 5, "_task_hash": 6, "options": [{"id": "cat"}, {"id": "dog"}]}
    choices = [
        {**task, "accept": ["cat"], "answer": "accept", "_annotator_id": "ann"},
        {**task, "accept": ["cat", "dog"], "answer": "accept", "_annotator_id": "bob"},
        {**task, "accept": [], "answer": "ignore", "_annotator_id": "eve"},
    ]
    votes = read_votes(write_lines(tmp_path / "v.jsonl", choices))
    assert said(votes) == {(5, "ann"): ["cat"], (5, "bob"): ["cat", "dog"]}
    assert any(remark.startswith("1 tasks that were ignored") for remark in votes.remarks)
    single = [
        {"text": "...", "_input_hash": 5, "label": "cat", "answer": "accept", "_session_id": "s-ann"},
        {"text": "...", "_input_hash": 5, "label": "dog", "answer": "accept", "_session_id": "s-bob"},
        {"text": "...", "_input_hash": 6, "label": "dog", "answer": "reject", "_session_id": "s-ann"},
    ]
    votes = read_votes(write_lines(tmp_path / "w.jsonl", single))
    assert said(votes) == {(5, "s-ann"): ["cat"], (5, "s-bob"): ["dog"], (6, "s-ann"): ["cat"]}


def test_distilabel(tmp_path: Path) -> None:
    rows = [
        {"text": "a", "labels": "cat", "model_name": "gpt", "distilabel_metadata": {"raw_output": "..."}},
        {"text": "a", "labels": ["cat", "dog"], "model_name": "llama", "distilabel_metadata": {}},
    ]
    expected = {("a", "gpt"): ["cat"], ("a", "llama"): ["cat", "dog"]}
    assert said(read_votes(write_lines(tmp_path / "v.jsonl", rows))) == expected
    names = ["gpt", "llama"]
    grouped = [{"text": "a", "generation": ["cat", ["cat", "dog"]], "model_name": names, "distilabel_metadata": {}}]
    assert said(read_votes(write_lines(tmp_path / "w.jsonl", grouped))) == expected


def test_prodigy_accepted_labels_count_beside_rejected_ones(tmp_path: Path) -> None:
    decisions = [("ann", "cat", "reject"), ("ann", "dog", "accept"), ("bob", "cat", "reject"), ("bob", "fox", "reject")]
    tasks = []
    for annotator, label, answer in decisions:
        tasks.append({"text": "a", "_input_hash": 5, "label": label, "answer": answer, "_annotator_id": annotator})
    votes = read_votes(write_lines(tmp_path / "v.jsonl", tasks))
    assert said(votes) == {(5, "ann"): ["dog"], (5, "bob"): ["dog"]}
    assert any(remark.startswith("1 answers that only reject labels") for remark in votes.remarks)
    flag = {"text": "a", "_task_hash": 6, "label": "spam", "answer": "reject", "_annotator_id": "ann"}
    assert said(read_votes(write_lines(tmp_path / "w.jsonl", [flag]))) == {("a", "ann"): ["not spam"]}


def test_prodigy_options_with_numbers_are_named_by_their_texts(tmp_path: Path) -> None:
    options = [{"id": 1, "text": "good"}, {"id": -1, "text": "bad"}]
    task = {"text": "a", "_input_hash": 5, "options": options, "answer": "accept", "accept": [-1]}
    assert said(read_votes(write_lines(tmp_path / "v.jsonl", [task]))) == {(5, "annotator"): ["bad"]}


def test_argilla_records_without_an_id_have_that_of_the_server(tmp_path: Path) -> None:
    record = {"id": None, "_server_id": "s7", "fields": {}, "responses": {"topic": [{"value": "cat", "user_id": "u1"}]}}
    assert said(read_votes(write_lines(tmp_path / "v.jsonl", [record]))) == {("s7", "u1"): ["cat"]}
    with pytest.raises(ValueError, match=r"must have an id; .*v\.jsonl, line 1 has none\. Name its key with --item"):
        read_votes(write_lines(tmp_path / "v.jsonl", [{**record, "_server_id": None}]))


def test_argilla_data_sets_are_read_from_parquet_and_frames(tmp_path: Path) -> None:
    flat = ARGILLA["flat"]
    empty = {"id": "r2", "text": "...", "topic.responses": None, "topic.suggestion": None}
    frame = pd.DataFrame([flat, empty])
    frame.to_parquet(tmp_path / "v.parquet")
    expected = {("r1", "u1"): ["cat"], ("r1", "model:gpt"): ["dog"]}
    assert said(read_votes(tmp_path / "v.parquet")) == expected
    assert said(read_votes(frame)) == expected


@pytest.mark.parametrize("prefix", ["grouped_", "merged_"])
def test_grouped_columns_of_distilabel(tmp_path: Path, prefix: str) -> None:
    record = {
        "text": "a",
        f"{prefix}labels": ["cat", "Unclassified", None],
        f"{prefix}model_name": ["gpt", "llama", "qwen"],
        "distilabel_metadata": {},
    }
    votes = read_votes(write_lines(tmp_path / "v.jsonl", [record]))
    assert said(votes) == {("a", "gpt"): ["cat"]}
    assert any(remark.startswith("1 answers 'Unclassified'") for remark in votes.remarks)


def test_label_studio_reads_taxonomies_and_says_what_it_leaves_out(tmp_path: Path) -> None:
    results = [
        {"from_name": "kind", "type": "taxonomy", "value": {"taxonomy": [["animal", "cat"]]}},
        {"from_name": "stars", "type": "rating", "value": {"rating": 4}},
    ]
    task = {
        "id": 1,
        "data": {"text": "a"},
        "annotations": [
            {"id": 1, "completed_by": 7, "result": results},
            {"id": 2, "completed_by": 8, "was_cancelled": True, "result": results},
        ],
    }
    (tmp_path / "v.json").write_text(json.dumps([task]))
    votes = read_votes(tmp_path / "v.json")
    assert said(votes) == {(1, "7"): ["cat"]}
    remarks = " ".join(votes.remarks)
    assert "1 cancelled annotations" in remarks
    assert "stars (rating)" in remarks


def test_columns_that_are_not_used_are_listed(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "v.jsonl", [{**record, "usage": {"tokens": 3}, "seconds": 0.2} for record in LONG])
    assert "Not used: usage, seconds." in read_votes(path).remarks
    assert "Not used: usage, seconds." in " ".join(json.loads(invoke(path, "--json"))["remarks"])


def test_patterns_of_columns_are_those_of_fit(tmp_path: Path) -> None:
    wide = [{"item": r["item"], "llm_gpt": r["gpt"], "llm_claude": r.get("claude"), "text": "words"} for r in WIDE]
    pd.DataFrame(wide).to_csv(tmp_path / "v.csv", index=False)
    summary = json.loads(invoke(tmp_path / "v.csv", "--columns", "llm_*", "--json"))
    assert summary["annotators"] == 2
    assert summary["answers"] == 5
