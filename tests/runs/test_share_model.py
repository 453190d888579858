"""A run that is shared: the folder with a model card, the model of MLflow, and datasets of Hugging Face in and out."""

from __future__ import annotations

import builtins
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from small_table import LABELS, ROLES, SMALL, command, frame

from oneof import PartialLabelClassifier, Predictor
from oneof.data.files.hugging_face import dataset_table
from oneof.ensemble.accuracy import AccuracyEstimate
from oneof.learners.config import FitConfig
from oneof.runs.decisions import Decision, Log
from oneof.runs.fit_spec import FitSpec
from oneof.runs.fit_table import fit_table
from oneof.runs.folder import METADATA, Run
from oneof.runs.hugging_face import labels_dataset, write_dataset
from oneof.runs.model_card import model_card

SECRETIVE = "a secret folder"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("shared") / SECRETIVE
    folder.mkdir()
    frame().to_csv(folder / "animals.csv", index=False)
    return fit_table(folder / "animals.csv", folder / "run", FitSpec(ROLES, config=FitConfig(SMALL)))


@pytest.fixture(scope="module")
def new_rows() -> pd.DataFrame:
    return frame(20, seed=1).drop(columns=["candidates", "truth"])


# ----------------------------------------------------------------------------------------------------------- a folder to share


def test_a_shared_folder_predicts_and_holds_no_rows_or_paths(
    run: Run, new_rows: pd.DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, printed, errors = command("export", run.folder, "--hugging-face", tmp_path / "shared", capsys=capsys)
    assert code == 0, errors
    assert "README.md" in printed
    names = {path.name for path in (tmp_path / "shared").iterdir()}
    assert names == {"README.md", "model.json", "model.safetensors", "run.json"}
    for name in ("README.md", "run.json", "model.json"):
        assert SECRETIVE not in (tmp_path / "shared" / name).read_text()
    pd.testing.assert_frame_equal(Predictor(tmp_path / "shared")(new_rows), Predictor(run.folder)(new_rows))


def test_a_folder_that_exists_is_left_alone(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    for option in ("--hugging-face", "--mlflow"):
        code, _, errors = command("export", run.folder, option, tmp_path, capsys=capsys)
        assert code == 2
        assert str(tmp_path) in errors
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_the_card_says_classes_data_accuracy_and_limits(run: Run) -> None:
    card = model_card(run)
    header, _, text = card.removeprefix("---\n").partition("---\n")
    assert "library_name: oneof" in header
    assert "pipeline_tag: tabular-classification" in header
    titles = [line for line in text.splitlines() if line.startswith("## ")]
    assert titles == ["## Use", "## Classes", "## Training data", "## Accuracy", "## Limits"]
    counts = pd.Series(run.decided["label"].to_pylist()).value_counts()
    for label in LABELS:
        assert f"| {label} | {counts[label]} |" in text
    assert "150 rows" in text
    estimate = AccuracyEstimate(**run.metadata["estimate"]).in_words
    assert estimate.replace("(", r"\(").replace(")", r"\)") in text
    for warning in run.metadata["warnings"]:
        assert warning.split("'")[0] in text


def test_labels_are_no_mark_up_in_the_card(run: Run) -> None:
    hostile = "[x](javascript:1) | <script>"
    metadata = {**run.metadata, "classes": [hostile, *run.metadata["classes"][1:]], "warnings": ["*bold* `code`"]}
    other = Run(run.folder, metadata)
    other.__dict__["purified"] = run.purified  # whose labels are checked against the classes when it is read
    card = model_card(other)
    assert "<script>" not in card
    assert "[x](javascript" not in card
    assert "*bold*" not in card.replace(r"\*", "")


# ---------------------------------------------------------------------------------------------------------------------- MLflow


@pytest.mark.parametrize(("option", "package", "extra"), [("--mlflow", "mlflow", "oneof[mlflow]")])
def test_a_missing_package_is_one_line_that_names_the_extra(
    run: Run,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    option: str,
    package: str,
    extra: str,
) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # not to be imported
    _hide(package, monkeypatch)
    code, _, errors = command("export", run.folder, option, tmp_path / "out", capsys=capsys)
    assert code == 2
    assert extra in errors
    assert not (tmp_path / "out").exists()


def _hide(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let imports of a package fail as they do where it is not installed."""
    original = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.split(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)
        return original(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)


@pytest.fixture
def mlflow(tmp_path: Path) -> Any:
    package = pytest.importorskip("mlflow", reason="mlflow is not installed (extra mlflow)")
    package.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    return package


@pytest.mark.filterwarnings("ignore")  # of MLflow and what it imports
def test_a_run_is_logged_loaded_and_predicts_in_mlflow(
    run: Run, new_rows: pd.DataFrame, mlflow: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from oneof.runs.mlflow import log_model

    expected = Predictor(run.folder, distribution=True)(new_rows)
    code, _, errors = command("export", run.folder, "--mlflow", tmp_path / "model", capsys=capsys)
    assert code == 0, errors
    uris = [str(tmp_path / "model")]
    if _has_tracking():
        mlflow.create_experiment("animals", artifact_location=str(tmp_path / "artifacts"))
        mlflow.set_experiment("animals")
        with mlflow.start_run():
            uris.append(log_model(run.folder).model_uri)
    for uri in uris:
        model = mlflow.pyfunc.load_model(uri)
        pd.testing.assert_frame_equal(model.predict(new_rows), expected[["label", "probability"]])
        pd.testing.assert_frame_equal(model.predict(new_rows, params={"distribution": True}), expected)
        signature = model.metadata.signature
        assert set(signature.inputs.input_names()) == {"x0", "x1", "x2", "hue"}
        assert signature.outputs.input_names() == ["label", "probability"]
        gaps = new_rows.assign(x0=1, x1=np.nan)
        assert len(model.predict(gaps)) == len(gaps)
    stored = [path.name for path in (tmp_path / "model").rglob("*") if path.is_file()]
    assert METADATA in stored
    assert not {name for name in stored if name.endswith((".pkl", ".parquet", ".jsonl"))}


def _has_tracking() -> bool:
    """Return whether MLflow can store runs; mlflow-skinny has no data base."""
    try:
        import sqlalchemy
    except ImportError:
        return False
    return bool(sqlalchemy)


# -------------------------------------------------------------------------------------------------------- datasets of Hugging Face


class FakeClassLabel:
    names = ("ant", "bee")


class FakeList:
    feature = FakeClassLabel()


class FakeDataset:
    """What is used of a dataset, where the package is missing."""

    column_names = ("candidates", "kind", "x")

    def __init__(self) -> None:
        self.features = {"candidates": FakeList(), "kind": FakeClassLabel(), "x": object()}

    def with_format(self, name: str) -> pa.Table:
        assert name == "arrow"
        return pa.table({"candidates": [[0], [0, 1], None], "kind": [1, -1, 0], "x": [0.5, 1.0, 2.0]})


def test_numbers_of_classes_become_names() -> None:
    table = dataset_table(FakeDataset())
    assert table["candidates"].to_pylist() == [["ant"], ["ant", "bee"], None]
    assert table["kind"].to_pylist() == ["bee", None, "ant"]
    assert table["x"].to_pylist() == [0.5, 1.0, 2.0]


@pytest.fixture
def datasets() -> Any:
    return pytest.importorskip("datasets", reason="datasets is not installed (extra huggingface)")


def as_dataset(datasets: Any, n: int = 150, seed: int = 0) -> Any:
    """Return the animals as a dataset whose candidates are numbers of classes."""
    table = frame(n, seed)
    classes = datasets.ClassLabel(names=LABELS.tolist())
    numbers = [[classes.str2int(label) for label in cell.split("|")] for cell in table["candidates"]]
    dataset = datasets.Dataset.from_pandas(table.assign(candidates=numbers), preserve_index=False)
    return dataset.cast_column("candidates", datasets.Sequence(classes))


@pytest.mark.filterwarnings("ignore")  # of what datasets imports
def test_a_dataset_is_fitted_on_and_labels_come_back_as_one(datasets: Any, run: Run, tmp_path: Path) -> None:
    dataset = as_dataset(datasets)
    write_dataset(dataset, tmp_path / "animals.parquet")
    from_dataset = fit_table(tmp_path / "animals.parquet", tmp_path / "run", FitSpec(ROLES, config=FitConfig(SMALL)))
    assert from_dataset.purified["label"].to_pylist() == run.purified["label"].to_pylist()
    assert from_dataset.metadata["classes"] == LABELS.tolist()
    Log(from_dataset.folder).write(_decision(from_dataset, "wasp"))
    labels = labels_dataset(from_dataset.folder, columns=["hue"])
    assert labels.features["label"].names == [*LABELS.tolist(), "wasp"]
    assert labels.features["label"].int2str(labels["label"][0]) == "wasp"
    assert list(labels["hue"]) == list(dataset["hue"])
    assert labels.num_rows == 150


def _decision(run: Run, label: str) -> Decision:
    candidates = tuple(run.purified["original"][0].as_py())
    return Decision(
        row=0,
        kind="none",
        labels=(label,),
        who="ann",
        run="run",
        before=candidates,
        suggested="ant",
        drawn="queue",
        seconds=1.0,
        id="1",
    )


@pytest.mark.filterwarnings("ignore")
def test_the_estimator_and_the_predictor_take_datasets(datasets: Any, run: Run) -> None:
    dataset = as_dataset(datasets)
    features = dataset.remove_columns(["candidates", "truth"])
    as_frame = features.to_pandas()
    settings = {"quick": True, "random_state": 0}
    by_dataset = PartialLabelClassifier(**settings).fit(features, dataset["candidates"])
    sets = [set(cell.split("|")) for cell in frame()["candidates"]]
    by_frame = PartialLabelClassifier(**settings).fit(as_frame, sets)
    np.testing.assert_array_equal(by_dataset.transduction_, by_frame.transduction_)
    np.testing.assert_array_equal(by_dataset.predict(features), by_frame.predict(as_frame))
    predicted = Predictor(run.folder)(features)
    assert isinstance(predicted, datasets.Dataset)
    assert list(predicted["label"]) == Predictor(run.folder)(as_frame)["label"].tolist()
