"""Files that are no votes are refused in one clear line that names file and row; no file gives a traceback."""

from __future__ import annotations

import gzip
import json
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oneof.votes import Spelling, read_label_studio, read_long, read_votes, read_wide

FIXTURES = Path(__file__).parents[1] / "fixtures" / "votes"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "votes.csv must have at least one row; it is empty"),
        ("item,annotator,label\n", "at least one row; .*votes.csv has none"),
        (
            "item,annotator,labels\n1,a,x\n",
            "column 'label' must be in .*votes.csv; it has item, annotator, labels. Did you mean 'labels'",
        ),
        ("foo\n1\n", "column 'item' must be in .*votes.csv; it has foo."),
        ("item,annotator,label,label\n1,a,x,y\n", "columns must have distinct names; .*votes.csv has 'label' twice"),
        (
            "item,annotator,label\n1,a,x\n2,a,\n",
            r"'label' must hold a value in every row; .*votes.csv has none in row 1 \(1 such",
        ),
        (
            "item,annotator,label\n1,a,x\n2,a\n",
            r"rows must have the header's 3 cells; .*votes.csv, row 1 \(line 3\) has 2: '2,a'",
        ),
        (
            "item,annotator,label\n1,a,caf\xe9\n",
            "votes.csv must be UTF-8; it has other bytes, line 2. Save it as UTF-8",
        ),
        (
            "item,annotator,\xe9tiquette\n1,a,x\n",
            "votes.csv must be UTF-8; the names of its columns have other bytes. Save it as UTF-8",
        ),
    ],
)
def test_a_bad_csv_is_refused_with_its_row(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "votes.csv"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(ValueError, match=message) as caught:
        read_long(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("0,ann,cat\n0,bob,dog\n", r"it has 0, ann, cat\. The first row must hold the names of the columns"),
        ("key,who,what\n0,ann,cat\n", "it has key, who, what. Name the columns with --item, --annotator and --label"),
        ("item,ann\n0,cat\n", "it has item, ann. Name the columns .* --columns if each annotator has one"),
    ],
)
def test_missing_columns_are_named_with_their_options(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "votes.csv").write_text(content)
    with pytest.raises(ValueError, match=message):
        read_votes(tmp_path / "votes.csv")


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (
            {"label": {"cat": 0.9, "dog": -0.6}},
            r"log-probabilities of 0 or less; .*votes\.jsonl, line 2 has both: .*-0\.6",
        ),
        ({"label": {"cat": 0.2, "dog": "high"}}, r"line 2 has .*high"),
        ({"votes": "cat"}, r"'votes' must hold the votes of every record as an object or a list; .*line 2 has \"cat\""),
    ],
)
def test_records_that_differ_from_the_others_are_named(tmp_path: Path, record: dict[str, object], message: str) -> None:
    first: dict[str, object] = {"votes": {"a": "cat", "b": "dog"}}
    if "label" in record:
        first = {"annotator": "a", "label": {"cat": "0.9", "dog": "0.1"}}
    lines = [{"item": 1, **first}, {"item": 2, "annotator": "a", **record}]
    (tmp_path / "votes.jsonl").write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(ValueError, match=message):
        read_votes(tmp_path / "votes.jsonl")
    (tmp_path / "votes.jsonl").write_text(json.dumps(lines[0]))
    assert read_votes(tmp_path / "votes.jsonl").labels == ["cat", "dog"]


SPLIT = {"columns": ["item", "annotator", "label"], "data": [[1, "ann", "cat"], [1, "bob", "dog"]]}
ARGILLA = {"id": 1, "fields": {"text": "x"}, "responses": {"label": [{"value": "cat", "user_id": "u"}]}}
ARGILLA_BY_PERSON = {**ARGILLA, "responses": [{"user_id": "u", "values": {"label": {"value": "cat"}}}]}
ARGILLA_FLAT = {"id": 1, "label.responses": ["cat", "dog"], "label.responses.users": ["u", "v"]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({**SPLIT, "columns": None}, r"\"columns\" .* list of distinct names; .*votes\.json has null\. Name a column"),
        ({**SPLIT, "columns": ["item", None]}, r"distinct names; .*votes\.json has \[\"item\", null\]"),
        ({**SPLIT, "columns": ["item", "label", "label"]}, r"distinct names; .*votes\.json has \[\"item\", \"label\""),
        ({**SPLIT, "data": [[1, "a", "x"], 5]}, r"a list of 3 cells .*votes\.json, row 1 is 5\. Correct or drop it"),
        ({**SPLIT, "data": [[1, "a", "x", "y"]]}, r"a list of 3 cells .*votes\.json, row 0 is \[1, "),
        (
            [ARGILLA, {**ARGILLA, "responses": {"label": 0.5}}],
            r"'responses' .*list of objects; .*, row 1 has 0\.5\. Correct",
        ),
        ([{**ARGILLA, "responses": {"label": ["cat"]}}], r"'responses' .*objects; .*, row 0 has \"cat\""),
        (
            [{**ARGILLA_BY_PERSON, "responses": [{"values": ["cat"]}]}],
            r"'responses' .*by question; .*, row 0 has \[\"cat",
        ),
        ([{**ARGILLA_BY_PERSON, "responses": [{"values": {"label": "cat"}}]}], r"'responses' .*, row 0 has \"cat\""),
        ([{**ARGILLA, "suggestions": {"label": "cat"}}], r"'suggestions' .*object for each question; .* has \"cat\""),
        ([{**ARGILLA, "suggestions": ["cat"]}], r"'suggestions' .*objects; .*, row 0 has \"cat\""),
        ([{**ARGILLA_FLAT, "label.responses": "cat"}], r"'label\.responses' .*a list; .*, row 0 has \"cat\""),
        (
            [{**ARGILLA_FLAT, "label.responses.users": ["u"]}],
            r"users' .* 2 elements, one for each response; .*, row 0 has",
        ),
        ([{"item": 1, "annotator": "a", "label": "x\0"}], r"character NUL; .*votes\.json has 'x.x00'\. Remove it"),
        ([{"item": 1, "votes": {"a\ud800": "x"}}], r"whole characters; .*votes\.json has half of .*ud800.*\. Correct"),
    ],
)
def test_bad_json_is_refused_with_its_row(tmp_path: Path, content: object, message: str) -> None:
    path = tmp_path / "votes.json"
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=message) as caught:
        read_votes(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [SPLIT, [ARGILLA], [ARGILLA_BY_PERSON], [ARGILLA_FLAT]])
def test_the_same_json_without_a_fault_is_read(tmp_path: Path, content: object) -> None:
    (tmp_path / "votes.json").write_text(json.dumps(content))
    assert "cat" in read_votes(tmp_path / "votes.json").labels


def test_half_of_a_character_in_a_cell_is_text(tmp_path: Path) -> None:
    (tmp_path / "votes.csv").write_text('item,annotator,label\n1,a,"[""\\ud800""]"\n1,b,x\n')
    assert read_votes(tmp_path / "votes.csv").labels == ['["\\ud800"]', "x"]


def test_odd_fields_beside_the_votes_are_no_error(tmp_path: Path) -> None:
    task = {"_input_hash": 1, "_task_hash": 1, "answer": "accept", "accept": ["cat"], "meta": ["no", "object"]}
    (tmp_path / "prodigy.jsonl").write_text(json.dumps(task))
    assert read_votes(tmp_path / "prodigy.jsonl").labels == ["cat"]
    suggestion = {**ARGILLA, "suggestions": {"label": None}}
    (tmp_path / "argilla.json").write_text(json.dumps([suggestion]))
    assert read_votes(tmp_path / "argilla.json").labels == ["cat"]


def test_a_list_for_an_id_of_label_studio_is_refused(tmp_path: Path) -> None:
    tasks = []
    for number in range(6):
        tasks.append(
            {"id": number // 2, "annotation_id": number, "annotator": number % 2, "mood": ["up", "down"][number % 2]}
        )
    tasks[3]["id"] = [1]
    (tmp_path / "votes.json").write_text(json.dumps(tasks))
    with pytest.raises(ValueError, match=r"must have an id; .*, task at position 3 has \[1\]"):
        read_votes(tmp_path / "votes.json")


def test_nested_parquet_with_a_column_twice_is_refused(tmp_path: Path) -> None:
    ids = pa.array([1, 1])
    labels = pa.array([{"cat": 0.9}, {"dog": 0.8}])
    pq.write_table(pa.table([ids, labels, ids], ["item", "label", "item"]), tmp_path / "votes.parquet")
    with pytest.raises(ValueError, match=r"distinct names; .*votes\.parquet has 'item' twice\. Rename one"):
        read_votes(tmp_path / "votes.parquet")


@pytest.mark.parametrize("name", ["votes.csv", "votes.jsonl"])
def test_blanks_are_no_id_and_no_part_of_an_annotator(tmp_path: Path, name: str) -> None:
    rows = [("1", "ann", "x"), ("2", " ann ", "y"), ("2", "bob", "x")]
    write_rows(tmp_path / name, rows)
    assert read_votes(tmp_path / name).annotators == ["ann", "bob"]
    write_rows(tmp_path / name, [*rows, ("  ", "ann", "x")])
    with pytest.raises(ValueError, match=r"(row 3|line 4).*'item'|'item'.*row 3"):
        read_votes(tmp_path / name)


def write_rows(path: Path, rows: list[tuple[str, str, str]]) -> None:
    """Write votes as CSV or as nested JSON Lines."""
    if path.suffix == ".csv":
        path.write_text("\n".join(",".join(row) for row in [("item", "annotator", "label"), *rows]))
    else:
        lines = [{"item": item, "votes": [{"annotator": who, "label": label}]} for item, who, label in rows]
        path.write_text("\n".join(map(json.dumps, lines)))


@pytest.mark.parametrize("name", ["votes.csv", "votes.jsonl"])
def test_a_compressed_file_of_another_name_is_told(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(gzip.compress((FIXTURES / "long.csv").read_bytes()))
    with pytest.raises(ValueError, match=rf"it is compressed by gzip\. Name it {name}\.gz\."):
        read_votes(tmp_path / name)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([], "at least one row; the list has none"),
        ([{"item": 1, "annotator": "a", "label": "x"}, 5], r"must be objects, as \{.*; element 1 is 5\."),
        ({"item": 1}, r"a list for each column; 'item' holds 1\."),
        ({"item": [1, 2], "annotator": ["a"]}, "one length; there are 2 in 'item', 1 in 'annotator'"),
        ({"item": [1, "b"], "annotator": ["a", "b"]}, r"values of one type; .*'b'.*Convert them"),
        ([{"item": 1}, {"item": "b"}], r"values of one type in all objects; .*'b'.*Convert them"),
    ],
)
def test_bad_lists_and_objects_are_refused(source: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_votes(source)


def test_the_columns_of_an_array_are_annotators_whatever_they_named() -> None:
    votes = read_votes(np.array([["x", "y"], ["x", "y"]]))  # two columns without a label in common
    assert votes.annotators == ["annotator 1", "annotator 2"]
    assert votes.label.tolist() == [0, 1, 0, 1]


def test_a_setting_that_is_none_is_refused_with_the_nearest() -> None:
    with pytest.raises(TypeError, match=r"got 'lable'\. Did you mean 'label'\?"):
        read_votes(FIXTURES / "long.csv", lable="answer")


@pytest.mark.parametrize("name", ["votes.csv", "votes.jsonl"])
def test_utf_16_is_refused_with_what_to_do(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text((FIXTURES / "long.csv").read_text(), encoding="utf-16")
    with pytest.raises(ValueError, match=rf"{name} must be UTF-8; it is UTF-16\. Save it as UTF-8\."):
        read_long(path)


@pytest.mark.parametrize(
    "name", ["votes.parquet", "votes.csv.gz", "votes.json", "votes.xlsx", "votes.jsonl", "votes.jsonl.gz"]
)
def test_a_broken_file_is_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"\x1f\x8b\x08 not what it says")
    with pytest.raises((ValueError, OSError), match=name):
        (read_label_studio if name == "votes.json" else read_long)(path)
    with pytest.raises(OSError, match="missing"):
        read_long(tmp_path / "missing.csv")
    with pytest.raises(ValueError, match=r"must end in one of \.csv, .*\.jsonl, .*or in such an ending and \.gz; got"):
        read_long(tmp_path / "votes.xlsx")


def test_a_truncated_gz_is_named(tmp_path: Path) -> None:
    path = tmp_path / "long.csv.gz"
    path.write_bytes(gzip.compress((FIXTURES / "long.csv").read_bytes())[:-40])
    with pytest.raises((ValueError, OSError), match=r"long\.csv\.gz"):
        read_long(path)


def test_values_of_the_wrong_kind_are_refused() -> None:
    good = {"item": [1, 2], "annotator": ["a", "b"], "label": ["x", "y"], "sure": [0.5, 1.5]}
    with pytest.raises(ValueError, match=r"'sure' must lie in \[0, 1\]; the table has 1.5 in row 1"):
        read_long(pa.table(good), confidence="sure")
    with pytest.raises(ValueError, match="'label' must hold numbers; the table has x in row 0"):
        read_long(pa.table(good), confidence="label")
    with pytest.raises(TypeError, match="'item' must hold text or numbers; the table has list"):
        read_long(pa.table({**good, "item": [[1], [2]]}))
    with pytest.raises(TypeError, match="'label' must hold text or numbers; the table has struct"):
        read_long(pa.table({**good, "label": [{"a": 1}, {"a": 2}]}))
    with pytest.raises(ValueError, match="'label' must hold a value in every row; the frame has none in row 0"):
        read_long(pd.DataFrame({**good, "label": [np.nan, 1.0]}))
    with pytest.raises(ValueError, match="at least one label; the table has none"):
        read_long(pa.table(good), spelling=Spelling(synonyms={"x": "", "y": ""}))
    with pytest.raises(TypeError, match="must be a path, an Arrow table or a data frame; got int"):
        read_long(3)


def test_a_wide_table_holds_each_item_once_and_needs_columns() -> None:
    table = pa.table({"item": ["u", "v", "v"], "ann": ["x", "y", "x"]})
    with pytest.raises(ValueError, match="must hold each item once; the table has v in row 1 and row 2"):
        read_wide(table, columns=["ann"])
    with pytest.raises(ValueError, match="columns must name at least one annotator"):
        read_wide(table, columns=[])


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
def test_a_long_file_that_is_said_to_be_wide_is_refused(ending: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({"item": [1, 1, 2, 2], "annotator": ["a", "b"] * 2, "label": ["x", "y", "y", "y"]})
    path = tmp_path / f"votes.{ending}"
    if ending == "csv":
        frame.to_csv(path, index=False)
    elif ending == "parquet":
        frame.to_parquet(path)
    else:
        frame.to_json(path, orient="records", lines=True)
    with pytest.raises(ValueError, match="columns must name at least one annotator's column of a wide table; got none"):
        read_votes(path, form="wide")


# ------------------------------------------------------------------------------------------------------------- any file

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.sampled_from(["a", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["id", "annotations", "predictions", "result", "value", "choices", "from_name", "completed_by"]
            ),
            inner,
        )
    ),
    max_leaves=12,
)
FUZZ = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@FUZZ
@given(
    content=st.binary(max_size=60) | st.text('item,annotator,label\n"1x', max_size=60).map(str.encode),
    header=st.booleans(),
)
@pytest.mark.parametrize("name", ["votes.csv", "votes.parquet", "votes.json", "votes.jsonl"])
def test_no_bytes_give_anything_but_votes_or_a_message(tmp_path: Path, name: str, content: bytes, header: bool) -> None:
    path = tmp_path / name
    path.write_bytes(b"item,annotator,label\n" * header + content)
    with suppress(ValueError, TypeError, OSError):
        assert len((read_label_studio if name == "votes.json" else read_long)(path).item) > 0


@FUZZ
@given(
    task=st.lists(ANY_JSON, max_size=2)
    | st.dictionaries(st.sampled_from(["id", "annotations", "predictions"]), ANY_JSON).map(lambda t: [t])
)
def test_no_json_gives_anything_but_votes_or_a_message(tmp_path: Path, task: object) -> None:
    path = tmp_path / "export.json"
    path.write_text(json.dumps(task))
    with suppress(ValueError, TypeError):
        assert len(read_label_studio(path).item) > 0


def test_deep_json_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "export.json"
    path.write_text("[" * 100_000)
    with pytest.raises(ValueError, match=r"export\.json cannot be read: it is nested too deeply"):
        read_label_studio(path)


def test_answers_that_name_no_class_are_counted_in_the_message(tmp_path: Path) -> None:
    labels = ["cat", "Other", "dog", "Other", "bird"]
    rows = [(str(item), "ann", label) for item, label in enumerate(labels)]
    write_rows(tmp_path / "votes.csv", rows)
    message = r"got 'Other' in .*row 1; 3 answers name none of them, most often 'Other' \(2\), 'bird' \(1\)\. Map them with --map"
    with pytest.raises(ValueError, match=message):
        read_votes(tmp_path / "votes.csv", classes=["cat", "dog"])
