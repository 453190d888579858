"""Texts without a pretrained network: learned, stored without pickle, and the same long after."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file, save
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from typer.testing import CliRunner

from oneof.cli import app
from oneof.data.encode import learn_encoding, learn_texts
from oneof.data.table import ColumnRoles, Columns, read_columns
from oneof.estimator.classifier import PartialLabelClassifier
from oneof.runs.export import export_model
from oneof.runs.folder import Run
from oneof.runs.stored_model import checksum, load_model

pytestmark = pytest.mark.usefixtures("small_forests")
WORDS = {
    "bill": ["invoice", "payment", "refund", "charged", "card", "money", "price"],
    "ship": ["parcel", "delivery", "courier", "late", "tracking", "box", "arrived"],
    "login": ["password", "account", "email", "locked", "reset", "screen", "user"],
}
FILLER = [
    "the",
    "a",
    "please",
    "hello",
    "today",
    "my",
    "still",
    "about",
    "with",
    "and",
    "for",
    "was",
    "it",
    "this",
    "again",
    "help",
]


def letters(n: int = 150, seed: int = 0) -> pd.DataFrame:
    """Letters whose topic shows in two of their words; sets hold the topic and, often, another."""
    rng = np.random.default_rng(seed)
    truth = rng.choice(list(WORDS), n)
    texts = [" ".join(rng.permutation([*rng.choice(WORDS[topic], 2), *rng.choice(FILLER, 6)])) for topic in truth]
    sets = ["|".join(sorted({topic, *rng.choice(list(WORDS), 1)})) for topic in truth]
    return pd.DataFrame({"note": texts, "candidates": sets, "truth": truth})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("texts")
    letters().to_csv(folder / "t.csv", index=False)
    words = ["--text", "note", "--ignore", "truth", "--networks", "3", "--epochs", "20", "--out", str(folder / "run")]
    done = CliRunner().invoke(app, ["fit", str(folder / "t.csv"), *words])
    assert done.exit_code == 0, (done.output, done.exception)
    return Run.open(folder / "run")


def test_numbers_are_those_of_scikit_learn() -> None:
    texts = letters()["note"].tolist()
    ours = learn_texts("note", texts, "t.csv")
    words = TfidfVectorizer(ngram_range=(1, 2), min_df=2)
    pieces = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), min_df=2)
    both = [vectorizer.fit(texts) for vectorizer in (words, pieces)]
    assert set(ours.terms) == {*words.vocabulary_, *(f"#{piece}" for piece in pieces.vocabulary_)}
    names = [*words.get_feature_names_out(), *(f"#{piece}" for piece in pieces.get_feature_names_out())]
    order = [names.index(term) for term in ours.terms]
    np.testing.assert_allclose(ours.idf, np.concatenate([one.idf_ for one in both])[order], rtol=1e-6)
    counts = np.hstack(
        [one.set_params(use_idf=False, norm=None, sublinear_tf=True).fit_transform(texts).toarray() for one in both]
    )
    counts = counts[:, order] * ours.idf
    counts /= np.linalg.norm(counts, axis=1, keepdims=True)
    np.testing.assert_allclose(ours.transform(texts), counts @ ours.axes, atol=1e-4)
    exact = TruncatedSVD(5, algorithm="arpack", random_state=0).fit(counts)
    np.testing.assert_allclose(np.linalg.norm(ours.transform(texts)[:, :5], axis=0), exact.singular_values_, rtol=1e-2)


def test_learning_twice_gives_the_same() -> None:
    texts = letters()["note"].tolist()
    one, two = (learn_texts("note", texts, "t.csv") for _ in range(2))
    assert one.terms == two.terms
    np.testing.assert_array_equal(one.axes, two.axes)


def test_a_column_without_shared_words_is_refused() -> None:
    for values in ([None, None], ["aaa", "bbb", "ccc"], []):
        with pytest.raises(
            ValueError,
            match=r"a column of text must have words that two rows share; t\.csv, column 'note' has none in \d",
        ):
            learn_texts("note", values, "t.csv")


def test_texts_stand_beside_numbers_and_a_gap_is_zeros() -> None:
    columns = Columns("t.csv", np.ones((4, 1), np.float32), ["x"], {"note": ["red fox", None, "red fox", "blue fox"]})
    encoding = learn_encoding(columns, ColumnRoles(features=("x",), text=("note",)))
    assert encoding.names == ["x", "note[0]"]
    assert encoding.derived_features == ["note[0] to note[0] are made from the text by TF-IDF"]
    assert encoding.roles.text == ("note",)
    x = encoding.transform(columns)
    assert x[1].tolist() == [1, 0]
    assert x[0].tolist() == x[2].tolist()


def test_the_words_of_a_table_are_learned_offline(run: Run) -> None:
    assert (np.array(run.purified["label"].to_pylist()) == letters()["truth"]).mean() > 0.9
    new = letters(200, seed=1)
    x = run.model.encoding.transform(read_columns(new, run.model.encoding.roles))
    found = np.array(run.model.classes)[run.model.probabilities(x).argmax(1)]
    assert (found == new["truth"]).mean() > 0.9


def test_a_stored_run_gives_the_numbers_of_training(run: Run, tmp_path: Path) -> None:
    columns = read_columns(letters(), ColumnRoles(features=(), text=("note",)))
    learned = learn_encoding(columns, ColumnRoles(features=(), text=("note",)))
    np.testing.assert_array_equal(run.model.encoding.transform(columns), learned.transform(columns))
    letters(40, seed=1).to_csv(tmp_path / "new.csv", index=False)
    done = CliRunner().invoke(
        app, ["predict", str(run.folder), str(tmp_path / "new.csv"), "--out", str(tmp_path / "p.csv"), "--distribution"]
    )
    assert done.exit_code == 0, done.output
    of_estimator = PartialLabelClassifier.from_run(run.folder).predict_proba(letters(40, seed=1))
    predicted = pd.read_csv(tmp_path / "p.csv")[[f"p({name})" for name in run.model.classes]]
    np.testing.assert_allclose(predicted, of_estimator, atol=1e-6)


def test_nothing_of_a_run_is_a_pickle(run: Run) -> None:
    (part,) = json.loads((run.folder / "model.json").read_text())["encoding"]["texts"]
    assert part["column"] == "note"
    assert "password" in part["terms"]
    tensors = load_file(run.folder / "model.safetensors")
    assert tensors["texts.0.idf"].shape == (len(part["terms"]),)


def test_export_says_that_texts_enter_as_numbers(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oneof.runs.export.export_model", lambda model, path: 1e-7)
    done = CliRunner().invoke(app, ["export", str(run.folder), "--onnx", str(tmp_path / "m.onnx")])
    assert done.output.splitlines()[-1].startswith("note[0] to note[49] are made from the text by TF-IDF: compute them")


def test_the_exported_file_says_it_too(run: Run, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="the extra 'export' is not installed")
    pytest.importorskip("onnxruntime", reason="the extra 'export' is not installed")
    export_model(run.model, tmp_path / "m.onnx")
    told = {entry.key: entry.value for entry in onnx.load(tmp_path / "m.onnx").metadata_props}
    assert told["made"] == "note[0] to note[49] are made from the text by TF-IDF"


def terms(facts: dict[str, Any]) -> list[str]:
    return facts["encoding"]["texts"][0]["terms"]  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda facts, tensors: terms(facts).append("more"), "the texts there are others"),
        (lambda facts, tensors: terms(facts).append(terms(facts)[0]), "encoding.texts must have terms, each once"),
        (lambda facts, tensors: terms(facts).clear(), "encoding.texts must have terms, each once"),
        (lambda facts, tensors: terms(facts).append({}), r"encoding.texts\[0\].terms\[\d+\] must be text, not {}"),
        (lambda facts, tensors: facts["encoding"]["texts"].clear(), "the networks there are others"),
        (lambda facts, tensors: tensors.pop("texts.0.idf"), "the texts there are others"),
        (lambda facts, tensors: tensors["texts.0.axes"].fill(np.nan), "finite numbers"),
        (lambda facts, tensors: tensors.update({"texts.0.axes": tensors["texts.0.axes"][:, 0]}), "the texts there are others"),
        (lambda facts, tensors: tensors.update({"texts.0.axes": tensors["texts.0.axes"][:, 1:]}), "the networks there are others"),
        (lambda facts, tensors: tensors.update({"texts.0.idf": tensors["texts.0.idf"].astype(int)}), "the texts there are others"),
        (lambda facts, tensors: tensors.update({"texts.1.idf": tensors["texts.0.idf"]}), "the networks there are others"),
    ],
)  # fmt: skip
def test_a_stranger_s_texts_are_checked(
    run: Run, tmp_path: Path, change: Callable[[dict[str, Any], dict[str, Any]], object], words: str
) -> None:
    facts, tensors = json.loads((run.folder / "model.json").read_text()), load_file(run.folder / "model.safetensors")
    change(facts, tensors)
    write(tmp_path, facts, {name: np.ascontiguousarray(array) for name, array in tensors.items()})
    with pytest.raises(ValueError, match=words) as raised:
        load_model(tmp_path)
    assert "\n" not in str(raised.value)


def test_tensors_that_are_none_are_refused(run: Run, tmp_path: Path) -> None:
    facts = json.loads((run.folder / "model.json").read_text()) | {"sha256": hashlib.sha256(b"none").hexdigest()}
    (tmp_path / "model.json").write_text(json.dumps(facts | {"checksum": checksum(facts)}))
    (tmp_path / "model.safetensors").write_bytes(b"none")
    with pytest.raises(
        ValueError, match=r"must hold a whole model; model\.json or model\.safetensors is missing or damaged"
    ):
        load_model(tmp_path)


def write(folder: Path, facts: dict[str, Any], tensors: dict[str, Any]) -> None:
    """A model whose checksum is right, whatever it holds."""
    content = save(tensors)
    (folder / "model.safetensors").write_bytes(content)
    facts = facts | {"sha256": hashlib.sha256(content).hexdigest()}
    (folder / "model.json").write_text(json.dumps(facts | {"checksum": checksum(facts)}))
