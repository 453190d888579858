"""Columns of text: what their values make of them, in every form of table, and how they become numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

from oneof.data.embed import MODELS, Embedder
from oneof.data.encode import Encoding, learn_encoding
from oneof.data.roles import ColumnRoles
from oneof.data.scaling import RawAndRankScaling
from oneof.data.table import Columns, read_columns, read_features, read_table
from oneof.data.with_ranks import fit_quantiles

RNG = np.random.default_rng(0)
WORDS = ["red", "old", "small", "quick", "bright", "cold", "round", "heavy", "wet", "loud"]


def drawn(values: int, rows: int, form: str = "v{}") -> list[str]:
    """Return cells that hold each of so many values, in random order."""
    numbers = np.concatenate([np.arange(values), RNG.integers(values, size=rows - values)])
    return [form.format(number) for number in RNG.permutation(numbers)]


def sentences(rows: int) -> list[str]:
    return [" ".join(RNG.choice(WORDS, 6)) + f" {i}" for i in range(rows)]


CASES = {
    "three values": (drawn(3, 311), "category"),
    "a postcode": (drawn(500, 2000, "AB{} 1C"), "category"),
    "sixty values in 200 rows": (drawn(60, 200), "category"),
    "numbers and a word": (["1", "2", "3", "more"] * 30, "category"),
    "codes with leading zeros": ([f"{i % 30:05}" for i in range(200)], "category"),
    "codes and a word": ([*(f"{i % 30:05}" for i in range(199)), "none"], "category"),
    "stray words among numbers": ([*map(str, range(600)), *(f"much{i}" for i in range(25))], "left out"),
    "numbers as text with gaps": ([*(f"{i}.5" for i in range(198)), "NA", None], "number"),
    "free text": (sentences(200), "left out"),
    "an identifier": ([f"item-{i}" for i in range(200)], "left out"),
    "names of people": ([f"Ann{i} Smith{i}" for i in range(200)], "left out"),
    "nearly all different": (drawn(150, 200), "left out"),
    "over a thousand values": (drawn(1500, 6000), "left out"),
    "numbers as text": ([f"{i % 50}.5" for i in range(200)], "number"),
    "a whole number": (list(np.arange(200) % 7), "number"),
    "true and false": ([True, False] * 100, "number"),
    "an empty column": ([None] * 200, "left out"),
    "lists": ([["a"], ["b", "c"]] * 100, "left out"),
}


@pytest.mark.parametrize(("cells", "use"), CASES.values(), ids=CASES)
def test_the_values_decide_what_a_column_is(cells: list[Any], use: str, caplog: pytest.LogCaptureFixture) -> None:
    frame = pd.DataFrame({"column": cells, "size": RNG.normal(size=len(cells))})
    features = read_features(frame)
    assert features.uses["column"].use == use
    assert features.uses["column"].reason
    assert ("column" in {*features.roles.features, *features.roles.categories}) == (use != "left out")
    assert ("column" in caplog.text) == (use == "left out")


FORMS = ["csv", "parquet", "arrow", "object", "string", "categorical", "polars"]


def in_form(table: pa.Table, form: str, folder: Path) -> Any:
    frame = table.to_pandas()
    texts = [field.name for field in table.schema if pa.types.is_string(field.type)]
    if form == "csv":
        frame.to_csv(folder / "t.csv", index=False)
        return folder / "t.csv"
    if form == "parquet":
        frame.to_parquet(folder / "t.parquet")
        return folder / "t.parquet"
    if form == "polars":
        return pytest.importorskip("polars").from_arrow(table)
    if form == "arrow":
        return table
    return frame.astype(dict.fromkeys(texts, {"object": object, "categorical": "category"}.get(form, form)))


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_table_gives_the_same_columns(form: str, tmp_path: Path) -> None:
    table = pa.table(
        {
            "size": [1.5, None, 3.0, 4.0] * 6,
            "count": [1, 2, 3, 4] * 6,
            "old": [True, False, False, True] * 6,
            "hue": ["red", None, "blue", "red"] * 6,
            "candidates": ["cat|dog", "cat", "dog", "fox|cat"] * 6,
        }
    )
    read = read_table(in_form(table, form, tmp_path))
    assert read.columns.names == ["size", "count", "old"]
    assert read.columns.numbers[:2, 1:].tolist() == [[1, 1], [2, 0]]
    assert read.columns.non_numeric == {"hue": ["red", None, "blue", "red"] * 6}
    assert read.uses["hue"].use == "category"
    assert read.uses["candidates"].use == "candidates"
    again = read_columns(in_form(table.drop_columns("candidates"), form, tmp_path), read.roles)
    assert again.non_numeric == read.columns.non_numeric


def test_a_frame_of_any_library_is_read_by_the_arrow_protocol() -> None:
    class Frame:
        """A frame of a library that oneof does not know; its texts are views, as those of polars are."""

        columns = ("hue", "size")

        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            texts = pa.array(["red", "blue"] * 15, pa.string_view())
            return pa.table({"hue": texts, "size": RNG.normal(size=30)}).__arrow_c_stream__(requested_schema)

    features = read_features(Frame())
    assert features.columns.non_numeric == {"hue": ["red", "blue"] * 15}
    assert features.columns.names == ["size"]


def test_a_categorical_type_overrules_many_values_but_not_a_name_for_every_row(
    caplog: pytest.LogCaptureFixture,
) -> None:
    most = ["x", "x", *(f"v{i}" for i in range(58))]
    frame = pd.DataFrame({"most": most, "all": [f"v{i}" for i in range(60)], "size": RNG.normal(size=60)})
    assert read_features(frame).roles.categories == ()
    assert read_features(frame.astype({"most": "category", "all": "category"})).roles.categories == ("most",)
    assert "all" in caplog.text


def test_objects_of_several_kinds_are_what_they_would_be_in_a_file() -> None:
    frame = pd.DataFrame({"grade": ["low", 2, None, 3.0] * 10, "size": RNG.normal(size=40)})
    assert read_features(frame).columns.non_numeric == {"grade": ["low", "2", None, "3"] * 10}


def notes(**more: Any) -> pd.DataFrame:
    """Return 40 rows with free text and an identifier."""
    columns = {"size": RNG.normal(size=40), "note": sentences(40), "name": [f"n{i}" for i in range(40)]}
    return pd.DataFrame({**columns, "candidates": ["cat|dog", "cat"] * 20, **more})


def test_free_text_and_identifiers_are_left_out_with_what_to_do() -> None:
    table = read_table(notes())
    text, identifier = table.remarks()
    assert "note" in text
    assert "--text" in text
    assert "name" in identifier
    assert "--category" in identifier
    assert {name: use.use for name, use in table.uses.items()} == {
        "size": "number", "note": "left out", "name": "left out", "candidates": "candidates",
    }  # fmt: skip


def test_what_a_person_says_overrules_the_values() -> None:
    frame = notes(hue=["red", "blue"] * 20, zone=[1, 2, 3, 4] * 10)
    roles = ColumnRoles(text=("note",), categories=("name", "zone"), ignore=("hue",))
    table = read_table(frame, roles)
    assert table.roles.categories == ("name", "zone")
    assert {name: use.use for name, use in table.uses.items()} == {
        "size": "number", "note": "text", "name": "category", "hue": "left out", "zone": "category",
        "candidates": "candidates",
    }  # fmt: skip
    assert table.remarks() == []


def test_free_text_is_embedded_where_an_embedder_is_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("oneof.data.table.text_embedder_here", lambda: True)
    monkeypatch.setattr(
        "oneof.data.encode.open_embedder",
        lambda kind, model: Embedder(kind, model, lambda texts: np.array([[len(text), 1.0] for text in texts])),
    )
    table = read_table(notes())
    assert (table.roles.text, table.roles.text_model) == (("note",), MODELS["text"])
    assert table.uses["note"].use == "text"
    assert MODELS["text"] in table.uses["note"].reason
    encoding = learn_encoding(table.columns, table.roles, cache=tmp_path)
    assert encoding.names == ["size", "note[0]", "note[1]"]
    chosen = read_table(notes(remark=sentences(40)), ColumnRoles(text=("note",)))  # who names one has chosen
    assert (chosen.roles.text, chosen.roles.text_model) == (("note",), None)
    assert chosen.uses["remark"].use == "left out"


def test_labels_of_the_row_s_own_set_are_no_feature_however_they_are_written() -> None:
    rng = np.random.default_rng(1)
    truth = rng.integers(4, size=80)
    labels = np.array(["ant", "bee", "cow", "dog"])
    sets = [[labels[a], labels[b]] for a, b in zip(truth, (truth + rng.integers(1, 4, size=80)) % 4, strict=True)]
    frame = pd.DataFrame({"size": rng.normal(size=80), "expert": labels[truth], "candidates": map("|".join, sets)})
    frame["votes"] = ["|".join(reversed(row)) for row in sets]
    table = read_table(frame)
    assert table.left_out == {"expert": "truth", "votes": "truth"}


# --------------------------------------------------------------------------------------------------- categories as numbers


def columns_of(words: list[str | None]) -> Columns:
    return Columns("t.csv", np.zeros((len(words), 0), np.float32), [], {"zip": words})


POSTCODES: list[str | None] = [f"common{i % 50}" for i in range(1000)]
POSTCODES += [f"rare{i}" for i in range(300)]
POSTCODES += [None] * 10
ZIP = ColumnRoles(features=(), categories=("zip",))


def test_rare_values_share_a_feature_and_the_width_is_bounded() -> None:
    encoding = learn_encoding(columns_of(POSTCODES), ZIP)
    x = encoding.transform(columns_of(POSTCODES))
    assert x.shape == (1310, 52)
    assert (x.sum(1) == 1).all()
    rare = encoding.names.index("zip is rare")
    missing = encoding.names.index("zip is missing")
    assert x[:, rare].sum() == 300
    assert x[:, missing].sum() == 10
    many = learn_encoding(columns_of([f"v{i % 700}" for i in range(7000)]), ZIP)
    assert len(many.names) <= 101


def test_a_category_of_few_values_keeps_them_all() -> None:
    encoding = learn_encoding(columns_of([f"v{i}" for i in range(40)]), ZIP)
    assert len(encoding.names) == 40


def test_categories_not_seen_in_training_are_ignored_and_rare_ones_are_not() -> None:
    encoding = learn_encoding(columns_of(POSTCODES), ZIP)
    new = columns_of(["rare7", "elsewhere", "common3", None])
    x = encoding.transform(new)
    assert x.sum(1).tolist() == [1, 0, 1, 1]
    (line,) = encoding.unseen(new)
    assert "'elsewhere'" in line
    assert "rare7" not in line


def test_rare_values_survive_json_and_runs_without_them_are_read() -> None:
    encoding = learn_encoding(columns_of(POSTCODES), ZIP)
    plain = json.loads(json.dumps(encoding.to_json()))
    assert Encoding.from_json(plain, {}) == encoding
    del plain["rare"]
    assert Encoding.from_json(plain, {}).categories == encoding.categories


@pytest.mark.parametrize(
    "scaling", [RawAndRankScaling("feature", ranks=False), RawAndRankScaling(None), RawAndRankScaling("feature")]
)
@pytest.mark.parametrize("values", [2, 5, 30])
def test_a_category_weighs_as_much_as_a_number_however_many_values_it_has(
    scaling: RawAndRankScaling, values: int
) -> None:
    rng = np.random.default_rng(0)
    words: list[str | None] = [f"v{number}" for number in rng.integers(values, size=600)]
    columns = Columns("t.csv", rng.normal(size=(600, 1)).astype(np.float32), ["size"], {"zip": words})
    encoding = learn_encoding(columns, ColumnRoles(features=("size",), categories=("zip",)))
    x = encoding.transform(columns)
    wide = torch.from_numpy(fit_quantiles(x)(x))
    shift, scale = scaling(wide)
    variance = ((wide - shift) * scale).var(0).numpy()
    of_number = np.tile([name == "size" for name in encoding.names], 2)
    assert variance[of_number].sum() == pytest.approx(1, abs=0.01)
    assert 0.4 <= variance[~of_number].sum() <= 1
