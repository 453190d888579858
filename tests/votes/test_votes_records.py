"""Votes in JSON Lines and in JSON lists of flat objects say the same as in tables."""

from __future__ import annotations

import gzip
import json
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_votes_command import invoke
from test_votes_reading import said

from oneof.votes import is_label_studio, read_long, read_wide
from oneof.votes.read import VotesFile, read_votes

FIXTURES = Path(__file__).parents[1] / "fixtures" / "votes"
JURY = [
    {"item": 1, "model": "gpt", "answer": "cat", "usage": {"tokens": 7}},
    {"item": 1, "model": "claude", "answer": ["cat", "dog"]},
    {"item": 2, "model": "gpt", "answer": "line\u2028break"},
]
SAID = {(1, "gpt"): ["cat"], (1, "claude"): ["cat", "dog"], (2, "gpt"): ["line\u2028break"]}


def written(path: Path, records: list[object]) -> Path:
    lines = [json.dumps(record, ensure_ascii=False) for record in records]
    whole = f"[{','.join(lines)}]" if ".json" in path.suffixes else "\n\n".join(lines) + "\r\n"
    content = whole.encode("utf-8")
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.mark.parametrize("name", ["v.jsonl", "v.ndjson", "v.json", "v.jsonl.gz", "v.json.gz", "V.JSONL"])
def test_records_of_a_jury_are_read(tmp_path: Path, name: str) -> None:
    path = written(tmp_path / name, JURY)
    assert said(read_long(path, annotator="model", label="answer")) == SAID
    out = tmp_path / "sets.parquet"
    invoke(path, "--annotator", "model", "--label", "answer", "--out", out)
    assert pq.read_table(out)["candidates"].to_pylist() == [["cat", "dog"], ["line\u2028break"]]


@pytest.mark.parametrize("name", ["v.jsonl", "v.json"])
def test_wide_records_may_lack_keys(tmp_path: Path, name: str) -> None:
    records = [{"item": "x", "gpt": "cat"}, {"item": "y", "claude": ["cat", "dog"], "gpt": None}, {"item": "z"}]
    path = written(tmp_path / name, records)
    votes = read_wide(path, columns=["gpt", "claude"])
    assert said(votes) == {("x", "gpt"): ["cat"], ("y", "claude"): ["cat", "dog"]}
    assert votes.unanswered == 1
    assert json.loads(invoke(path, "--columns", "gpt", "--columns", "claude", "--json"))["items"] == 2


def test_values_of_several_kinds_become_text(tmp_path: Path) -> None:
    kinds = [{"item": 1, "label": 3}, {"item": "b", "label": True}, {"item": 2**70, "label": ["x", 2.5]}]
    votes = read_long(written(tmp_path / "v.jsonl", [{**record, "annotator": 5} for record in kinds]))
    assert said(votes) == {("1", "5"): ["3"], ("b", "5"): ["true"], (str(2**70), "5"): ["2.5", "x"]}


def test_confidence_and_a_mark_of_byte_order_are_read(tmp_path: Path) -> None:
    path = tmp_path / "v.jsonl"
    path.write_text('{"item": 1, "annotator": "a", "label": "x", "sure": 0.5}\n', encoding="utf-8-sig")
    votes = read_long(path, confidence="sure")
    assert votes.confidence is not None
    assert votes.confidence.tolist() == [0.5]


GOOD = '{"item": 1, "annotator": "a", "label": "x"}\n'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "at least one row; .*votes.jsonl has none"),
        ("\n \n", "at least one row; .*votes.jsonl has none"),
        (
            GOOD + '\n{"item": 1, "annot',
            r"an object in every line, as .*; .*votes.jsonl, line 3 cannot be read \(Unterminated .* at character 12\)\. .*drop it",
        ),
        ('"' + "5" * 99 + '"', r"votes.jsonl, line 1 is \"5+\.\.\.\. Drop it"),
        (GOOD + "5\n", r"must be objects, as .*; .*votes.jsonl, line 2 is 5\. Drop it"),
        (
            "[" + GOOD.strip() + "]",
            r"must be objects, as .*votes.jsonl, line 1 is \[.*\]\. .*JSON list.* \.json",
        ),
        ("[\n" + GOOD + "]", r"line 1 cannot be read .*each object on one line, .*\.json"),
        (
            GOOD + '\n{"item": 1, "annotator": "b", "label": {"name": "x"}}\n',
            r"'label' must hold text, numbers or a list of them; .*, line 3 has \{\"name\": \"x\"\}\. Flatten it",
        ),
        (GOOD.replace('"x"', '[["x"]]'), r"'label' must hold text, .*, line 1 has \[\[\"x\"\]\]"),
        (GOOD.replace("1", "[1]"), "'item' must hold text or numbers; .* has list"),
        (GOOD.replace('"a"', '["a"]'), "'annotator' must hold text or numbers; .* has list"),
        (
            GOOD + '\n{"item": 1, "annotator": "b"}\n',
            r"'label' must hold a value in every row; .*votes.jsonl has none in row 1 \(line 3\) \(1 such",
        ),
        (GOOD.replace("label", "labels"), "column 'label' must be in .*; it has item, annotator, labels. Did you mean"),
        (GOOD.replace('"x"', '"\\ud83d"'), r"texts must hold whole characters; .*, line 1 has half of .*ud83d"),
        (GOOD + GOOD.replace("x", "caf\xe9"), r"votes.jsonl must be UTF-8; it has other bytes, line 2\. Save it as"),
        ("[" * 100_000, r"votes.jsonl, line 1 cannot be read \(.*recursion"),
    ],
)
def test_bad_json_lines_are_refused_with_their_line(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "votes.jsonl"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        read_long(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r"votes\.json cannot be read: it is empty"),
        ("[]", "at least one row; .*votes.json has none"),
        ("{}", r"must be a list of objects, as \[.*; .*votes\.json is \{\}"),
        (f"[{GOOD}, 3]", r"must be objects, as .*votes\.json, row 1 is 3\. Drop it"),
        (
            GOOD + GOOD,
            r"votes\.json cannot be read: it is not JSON \(Extra data.*one object per line.* \.jsonl",
        ),
        ('["caf\xe9"]', r"votes\.json must be UTF-8; it has other bytes\. Save it as UTF-8"),
        ('[{"item": 1, "annotator": 2, "label": {}}]', r"'label' must hold text, .*votes\.json, row 0 has \{\}"),
    ],
)
def test_bad_json_is_refused_by_the_command(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "votes.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(ValueError, match=message):
        invoke(path)


def test_nested_votes_may_be_one_label_or_several(tmp_path: Path) -> None:
    path = written(
        tmp_path / "v.jsonl", [{"item": 1, "votes": {"a": "x", "b": ["y", "x"]}}, {"item": 2, "votes": {"a": ""}}]
    )
    assert said(read_votes(VotesFile(str(path)))) == {(1, "a"): ["x"], (1, "b"): ["x", "y"]}
    with pytest.raises(ValueError, match="votes must have at least one row"):
        read_votes(VotesFile(str(written(path, [{"item": 2, "votes": {"a": ""}}]))))


def test_lists_of_nested_votes_hold_texts_numbers_and_gaps(tmp_path: Path) -> None:
    path = written(tmp_path / "v.jsonl", [{"item": 1, "votes": {"a": ["cat", None], "b": [1.0, 2.0], "c": 2.0}}])
    assert said(read_votes(VotesFile(str(path)))) == {(1, "a"): ["cat"], (1, "b"): ["1", "2"], (1, "c"): ["2"]}
    for wrong, shown in [(["cat", float("nan")], "NaN"), ([["x"]], "x"), ([{"x": 1}], "x")]:
        with pytest.raises(
            ValueError, match=rf"text, numbers or a list of them.*v\.jsonl, line 1, item 7, 'a' has .*{shown}"
        ):
            read_votes(VotesFile(str(written(path, [{"item": 7, "votes": {"a": wrong}}]))))


def test_a_label_studio_export_is_told_from_a_list_of_objects(tmp_path: Path) -> None:
    assert is_label_studio(FIXTURES / "label_studio.json")
    for records in (JURY, [{"item": 1, "predictions": ["cat", "dog"]}], [{"item": 1, "annotations": "cat"}], [1], {}):
        path = tmp_path / "v.json"
        path.write_text(json.dumps(records))
        assert not is_label_studio(path)
    with pytest.raises(ValueError, match="Export it as JSON, not JSON-MIN"):
        invoke(written(tmp_path / "v.json", JURY), "--kind", "label-studio")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text("a\ud800\u2028\n ", max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.just("k"), inner),
    max_leaves=4,
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    records=st.lists(
        st.dictionaries(st.sampled_from(["item", "annotator", "label"]), VALUES, min_size=2), min_size=1, max_size=4
    )
)
def test_no_records_give_anything_but_votes_or_a_message_that_names_the_file(
    tmp_path: Path, records: list[object]
) -> None:
    path = tmp_path / "votes.jsonl"
    path.write_text("\n".join(map(json.dumps, records)))
    try:
        assert len(read_long(path).item) > 0
    except (ValueError, TypeError) as error:
        assert "votes.jsonl" in str(error)  # noqa: PT017
    with suppress(ValueError, TypeError):
        read_wide(path, columns=["annotator", "label"])
