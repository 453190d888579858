"""Columns as numbers: the same in training and long after, through JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from oneof.data.embed import MODELS, Embedder, embed_values, open_embedder
from oneof.data.encode import Embedded, Encoding, learn_encoding
from oneof.data.table import ColumnRoles, Columns

NAN = np.nan


def columns(numbers: list[list[float]], **words: list[str | None]) -> Columns:
    array = np.array(numbers, dtype=np.float32)
    return Columns("t.csv", array, [f"x{j}" for j in range(array.shape[1])], words)


TRAIN = columns([[1, 5], [NAN, 6], [3, 7], [2, 8]], hue=["red", "blue", None, "red"])
ROLES = ColumnRoles(features=("x0", "x1"), categories=("hue",))


def test_an_encoding_survives_json() -> None:
    encoding = learn_encoding(TRAIN, ROLES)
    again = Encoding.from_json(json.loads(json.dumps(encoding.to_json())), {})
    assert again == encoding
    np.testing.assert_array_equal(again.transform(TRAIN), encoding.transform(TRAIN))
    assert encoding.names == ["x0", "x1", "x0 is missing", "hue is missing", "hue=blue", "hue=red"]
    assert encoding.transform(TRAIN).dtype == np.float32


def test_gaps_are_filled_with_the_median_of_training() -> None:
    new = columns([[NAN, NAN], [9, 9]], hue=["red", "blue"])
    x = learn_encoding(TRAIN, ROLES).transform(new)
    assert x[0].tolist() == [2, 6.5, 1, 0, 0, 1]
    assert x[1].tolist() == [9, 9, 0, 0, 1, 0]


def test_an_unknown_category_is_none_and_is_named() -> None:
    encoding = learn_encoding(TRAIN, ROLES)
    new = columns([[1, 1]], hue=["purple"])
    assert encoding.transform(new)[0, 3:].tolist() == [0, 0, 0]
    assert encoding.unseen(new) == ["column 'hue' has categories not seen in training; ignored: 'purple'"]
    assert encoding.unseen(TRAIN) == []


def test_a_column_without_a_value_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a feature must have a value; t\.csv, column 'x0' is missing in every row"):
        learn_encoding(columns([[NAN], [NAN]]), ColumnRoles(features=("x0",)))


def test_a_column_of_names_is_no_category() -> None:
    many = columns([[0.0]] * 1001, id=[str(i) for i in range(1001)])
    with pytest.raises(ValueError, match=r"a category must have at most 1000 values; t\.csv, column 'id' has 1001"):
        learn_encoding(many, ColumnRoles(features=("x0",), categories=("id",)))


class Counting:
    """A stand-in for a pretrained network, which counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, values: Sequence[str]) -> NDArray[np.float32]:
        self.asked += values
        return np.array([[len(value), 1] for value in values], dtype=np.float32)


def opens(monkeypatch: pytest.MonkeyPatch) -> Counting:
    """From here on every embedder is a network that counts."""
    network = Counting()
    monkeypatch.setattr("oneof.data.encode.open_embedder", lambda kind, model: Embedder(kind, model, network))
    return network


def test_texts_are_embedded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = opens(monkeypatch)
    table = columns([[1], [2], [3]], note=["abc", None, "de"])
    roles = ColumnRoles(features=("x0",), text=("note",), text_model=MODELS["text"])
    encoding = learn_encoding(table, roles, cache=tmp_path)
    assert encoding.names == ["x0", "note[0]", "note[1]"]
    assert encoding.derived_features == [f"note[0] to note[1] are made from the text by {MODELS['text']}"]
    x = encoding.transform(table, cache=tmp_path)
    assert x.tolist() == [[1, 3, 1], [2, 0, 0], [3, 2, 1]]
    encoding.transform(columns([[1]], note=["fgh"]), cache=tmp_path)
    assert network.asked == ["abc", "de", "fgh"]
    assert encoding.roles.text == ("note",)


def test_images_are_looked_up_and_known_by_their_content(tmp_path: Path) -> None:
    network = Counting()
    embedder = Embedder("image", "stand-in", network)
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(name.encode())
    embed_values(["a.png", "b.png"], embedder, tmp_path, tmp_path / "cache")
    (tmp_path / "a.png").write_bytes(b"changed")
    embed_values(["a.png", "b.png"], embedder, tmp_path, tmp_path / "cache")
    assert [Path(path).name for path in network.asked] == ["a.png", "b.png", "a.png"]
    with pytest.raises(ValueError, match=r"an image must be a file below .*; there is no 'c\.png'"):
        embed_values(["c.png"], embedder, tmp_path, tmp_path / "cache")


def test_a_column_without_a_text_cannot_be_embedded(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a column to embed must hold at least one text; all 2 are missing"):
        embed_values([None, None], Embedder("text", "stand-in", Counting()), tmp_path, tmp_path)


@pytest.mark.parametrize(
    ("kind", "flag", "package"),
    [("text", "--text-model", "sentence_transformers"), ("image", "--image", "timm")],
)
def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, kind: str, flag: str, package: str) -> None:
    monkeypatch.setitem(__import__("sys").modules, package, None)
    name = package.replace("_", "-")
    with pytest.raises(
        ValueError,
        match=rf"^{flag} needs the package {name}; it is not installed\. Run: pip install 'oneof\[(text|vision)\]'",
    ):
        open_embedder(kind, "any")


def test_an_embedder_that_has_changed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opens(monkeypatch)
    encoding = Encoding((), (), (), {}, (Embedded("note", "text", MODELS["text"], 3),))
    table = Columns("t.csv", np.empty((1, 0), np.float32), [], {"note": ["abc"]})
    with pytest.raises(ValueError, match=r"the embedder .* must be the one of training; it has changed\. Fit again"):
        encoding.transform(table, cache=tmp_path)


def test_an_embedder_that_only_a_stranger_names_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name may be the path of a folder beside the model, from which an older sentence-transformers loads Python."""
    network = opens(monkeypatch)
    strange = Encoding((), (), (), {}, (Embedded("note", "text", str(tmp_path / "evil"), 2),))
    table = Columns("t.csv", np.empty((1, 0), np.float32), [], {"note": ["abc"]})
    with pytest.raises(
        ValueError,
        match=r"an embedder must be one that oneof knows .* the model wants '.*evil' for column 'note'\. "
        "If you trust it, name it: oneof predict --text-model",
    ):
        strange.transform(table, cache=tmp_path)
    assert network.asked == []
    assert strange.transform(table, cache=tmp_path, trusted_models=[str(tmp_path / "evil")]).tolist() == [[3, 1]]


def test_a_folder_does_not_pass_for_a_known_embedder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / MODELS["text"]).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="must be the name of a model; here it is also a folder"):
        open_embedder("text", MODELS["text"])


def test_rows_that_show_nothing_are_found() -> None:
    table = columns([[1.0], [np.nan], [np.nan], [3.0]], colour=["red", None, "blue", None])
    encoding = learn_encoding(table, ColumnRoles(features=("x0",), categories=("colour",)))
    assert encoding.empty_rows(encoding.transform(table)).tolist() == [False, True, False, False]
    complete = columns([[1.0], [1.0], [3.0]], colour=["red", None, "blue"])
    encoding = learn_encoding(complete, ColumnRoles(features=("x0",), categories=("colour",)))
    assert not encoding.empty_rows(encoding.transform(complete)).any()


def test_a_row_of_zeros_is_empty_where_columns_are_counts() -> None:
    rng = np.random.default_rng(0)
    counts = (rng.random((50, 30)) < 0.1).astype(np.float32)
    counts[7] = 0
    numbers = Encoding(tuple(f"x{j}" for j in range(30)), (0.0,) * 30, (), {}, ())
    assert numbers.empty_rows(counts)[7]
    few = Encoding(("x0", "x1"), (0.0, 0.0), (), {}, ())
    assert not few.empty_rows(np.zeros((5, 2), dtype=np.float32)).any()
