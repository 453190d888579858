"""Tables of text, learned from as they are: from a file and a frame to predictions, a page and an exported model."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from commands import call

from oneof import PartialLabelClassifier
from oneof.data.table import read_columns
from oneof.runs.folder import Run
from oneof.runs.stored_model import checksum

pytestmark = pytest.mark.usefixtures("small_forests")
LABELS = np.array(["ant", "bee", "cow"])
DATA = os.environ.get("ONEOF_DATA")


def texts(n: int = 240, seed: int = 0) -> tuple[pd.DataFrame, list[list[str]], np.ndarray]:
    """Return a table without a number, its candidate sets and its true labels; `site` has rare values, `code` names the rows."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(3, size=n)
    guess = np.where(rng.random(n) < 0.8, truth, rng.integers(3, size=n))
    hue = np.array(["red", "blue", "grey"], dtype=object)[guess]
    hue[rng.random(n) < 0.1] = None
    frame = pd.DataFrame(
        {
            "hue": hue,
            "legs": np.array(["six", "six or so", "four"])[np.where(rng.random(n) < 0.8, truth, 1)],
            "site": [f"site {number}" for number in rng.geometric(0.03, size=n)],
            "code": [f"{number:x}" for number in rng.integers(2**60, size=n)],
        }
    )
    sets = (rng.random((n, 3)) < 0.3) | (np.arange(3) == truth[:, None])
    return frame, [LABELS[row].tolist() for row in sets], LABELS[truth]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("texts")
    frame, sets, _ = texts()
    frame.assign(candidates=["|".join(row) for row in sets]).to_csv(folder / "table.csv", index=False)
    done = call("fit", str(folder / "table.csv"), "--quick", "--out", str(folder / "run"))
    assert done.returncode == 0, done.stderr
    (folder / "fit.txt").write_text(done.stdout)
    return Run.open(folder / "run")


def test_a_table_of_text_is_learned_from_as_it_is(run: Run) -> None:
    frame, _, truth = texts(seed=1)
    x = run.model.encoding.transform(read_columns(frame, run.model.encoding.roles))
    predicted = LABELS[run.model.probabilities(x).argmax(1)]
    assert (predicted == truth).mean() > 0.8
    assert "hue is missing" in run.metadata["features"]
    assert "site is rare" in run.metadata["features"]


def test_the_run_the_terminal_and_the_report_say_what_each_column_became(run: Run) -> None:
    columns = run.metadata["columns"]
    uses = {name: column["use"] for name, column in columns.items()}
    assert uses == {
        "hue": "category",
        "legs": "category",
        "site": "category",
        "code": "left out",
        "candidates": "candidates",
    }
    assert "3 values" in columns["hue"]["reason"]
    assert "identifier" in columns["code"]["reason"]
    printed = " ".join((run.folder.parent / "fit.txt").read_text().replace("│", " ").split())
    assert "3 categories: hue, legs, site" in printed
    assert columns["code"]["reason"] in printed
    page = run.folder.parent / "page.html"
    assert call("report", str(run.folder), "--out", str(page)).returncode == 0
    html = page.read_text()
    assert all(column["reason"] in html for column in columns.values())


def test_inspect_says_the_same_of_the_columns(run: Run) -> None:
    found = json.loads(call("inspect", run.metadata["file"], "--json").stdout)
    assert found["columns"] == run.metadata["columns"]
    assert "3 categories: hue, legs, site" in call("inspect", run.metadata["file"]).stdout


def test_predict_takes_text_and_ignores_categories_that_are_new(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    frame, _, _ = texts(30, seed=2)
    frame.loc[0, "hue"] = "purple"
    frame.drop(columns="code").to_csv(tmp_path / "new.csv", index=False)
    done = call("predict", str(run.folder), str(tmp_path / "new.csv"), "--out", str(tmp_path / "labels.csv"))
    assert done.returncode == 0, done.stderr
    assert "'purple'" in done.stderr
    from_python = PartialLabelClassifier.from_run(run.folder)
    labels = pd.read_csv(tmp_path / "labels.csv")["label"].tolist()
    assert labels == from_python.predict(frame.drop(columns="code")).tolist()
    assert "'purple'" in caplog.text


@pytest.mark.parametrize("rare", [{"other": ["x"]}, {"hue": ["red"]}, {"hue": []}, {"hue": [1]}, ["hue"]])
def test_a_model_whose_rare_values_cannot_be_is_refused(run: Run, tmp_path: Path, rare: object) -> None:
    shutil.copytree(run.folder, tmp_path / "run")
    facts = json.loads((run.folder / "model.json").read_text())
    facts["encoding"]["rare"] = rare
    (tmp_path / "run" / "model.json").write_text(json.dumps(facts | {"checksum": checksum(facts)}))
    with pytest.raises(ValueError, match=r"model\.json must .*encoding\.rare"):
        _ = Run.open(tmp_path / "run").model


def test_an_exported_model_takes_the_text(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    path = tmp_path / "model.onnx"
    assert call("export", str(run.folder), "--onnx", str(path)).returncode == 0
    frame, _, _ = texts(50, seed=3)  # with sites that training had, rare or not, and others
    encoding = run.model.encoding
    words = frame[list(encoding.categories)].fillna("").to_numpy(dtype=object)
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    found, _ = session.run(None, {"categories": words})
    expected = run.model.probabilities(encoding.transform(read_columns(frame, encoding.roles)))
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_a_frame_is_fitted_saved_and_opened_with_its_columns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    frame, sets, _ = texts()
    fitted = PartialLabelClassifier(quick=True, random_state=0).fit(frame, sets)
    assert fitted.columns_["site"]["use"] == "category"
    assert fitted.columns_["code"]["use"] == "left out"
    assert "code" in caplog.text
    fitted.save(tmp_path / "run")
    opened = PartialLabelClassifier.from_run(tmp_path / "run")
    assert opened.columns_ == fitted.columns_
    np.testing.assert_allclose(opened.predict_proba(frame), fitted.predict_proba(frame), atol=1e-6)
    assert PartialLabelClassifier(quick=True).fit(np.eye(3)[[0, 1, 2] * 10], [0, 1, 2] * 10).columns_ == {}


def test_polars_frames_are_fitted_and_predicted(caplog: pytest.LogCaptureFixture) -> None:
    polars = pytest.importorskip("polars")
    frame, sets, _ = texts()
    expected = PartialLabelClassifier(quick=True, random_state=0).fit(frame, sets)
    same = polars.from_pandas(frame)
    fitted = PartialLabelClassifier(quick=True, random_state=0).fit(same, sets)
    assert fitted.columns_ == expected.columns_
    assert fitted.predict(same).tolist() == expected.predict(frame).tolist()


@pytest.mark.data
@pytest.mark.skipif(not DATA or not Path(DATA, "tables").is_dir(), reason="needs real tables: set ONEOF_DATA")
@pytest.mark.parametrize("name", ["anneal", "eucalyptus", "nursery", "primary.tumor", "soybean", "vowel"])
def test_real_tables_are_learned_from_as_they_are(name: str, caplog: pytest.LogCaptureFixture) -> None:
    frame = pd.read_csv(Path(str(DATA), "tables", f"{name}.csv"))
    frame = frame.sample(min(len(frame), 600), random_state=0)
    truth = frame.pop("target").to_numpy()
    classes, labels = np.unique(truth, return_inverse=True)
    rng = np.random.default_rng(0)
    sets = (rng.random((len(frame), len(classes))) < 0.1) | (np.arange(len(classes)) == labels[:, None])
    model = PartialLabelClassifier(quick=True, classes=classes, random_state=0).fit(frame[:-100], sets[:-100])
    commonest = np.bincount(labels[:-100]).argmax()
    assert (model.predict(frame[-100:]) == truth[-100:]).mean() > (labels[-100:] == commonest).mean() + 0.1
    assert all(use["use"] != "left out" or frame[column].isna().all() for column, use in model.columns_.items())
