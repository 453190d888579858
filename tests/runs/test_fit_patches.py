"""Pictures on a CPU: features of their patches, from files to labels, new pictures, a page and an exported model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
import torch
from PIL import Image
from safetensors.torch import load, save
from sklearn.datasets import load_digits

from oneof import PartialLabelImageClassifier
from oneof.data import patches
from oneof.data.roles import PATCHES, ColumnRoles
from oneof.learners.config import EnsembleConfig, FitConfig
from oneof.report.page import render_page
from oneof.review.cards import shown_table
from oneof.review.label_studio import Backend
from oneof.review.session import Review
from oneof.runs.export import export_model
from oneof.runs.fit_spec import FitSpec
from oneof.runs.fit_table import RunOptions, fit_table
from oneof.runs.folder import Run
from oneof.runs.predictor import Predictor
from oneof.runs.stored_model import checksum, load_model

N, BROKEN = 150, 7
IMAGES, LABELS = load_digits(n_class=3, return_X_y=True)
LEVELS = (15 * IMAGES[: N + 20]).astype(np.uint8)
QUICK = FitConfig(EnsembleConfig().without_networks())
SPEC = FitSpec(ColumnRoles(image=("file",)), config=QUICK)


@pytest.fixture(scope="module", autouse=True)
def few_filters() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(patches, "N_FILTERS", 64)
        patch.setattr(patches, "N_PATCHES", 2000)
        yield


def sets() -> list[str]:
    """The true label, and in half of the rows a wrong one."""
    rng = np.random.default_rng(0)
    return ["|".join(sorted({str(y), str(rng.integers(3))})) for y in LABELS[:N]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Digits as PNG files, of which one is broken, and their table; new ones too."""
    made = tmp_path_factory.mktemp("pictures")
    for row, levels in enumerate(LEVELS):
        Image.fromarray(levels.reshape(8, 8)).save(made / f"{row}.png")
    (made / f"{BROKEN}.png").write_text("no picture")
    names = [f"{row}.png" for row in range(N)]
    size = np.random.default_rng(1).normal(size=N)
    pa.csv.write_csv(pa.table({"file": names, "size": size, "candidates": sets()}), made / "table.csv")
    new = {"file": ["150.png", "7.png", "151.png"], "size": [0.1, 0.2, 0.3]}
    pa.csv.write_csv(pa.table(new), made / "new.csv")
    return made


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    torch.set_num_threads(1)
    return fit_table(folder / "table.csv", folder / "run", SPEC)


def test_on_a_cpu_pictures_and_other_columns_are_learned_from_together(run: Run) -> None:
    if torch.cuda.is_available():
        pytest.skip("a GPU trains networks on pixels")
    assert run.metadata["asked"]["roles"]["image_model"] == PATCHES
    (learned,) = run.model.encoding.patches
    assert learned.pixels.shape == (1, 8, 8)
    assert not learned.mirrored
    assert run.metadata["d"] == 1 + learned.width
    readable = np.arange(N) != BROKEN
    label = np.array(run.purified["label"].to_pylist())
    assert (label == LABELS[:N].astype(str))[readable].mean() > 0.95


def test_a_broken_picture_is_named_and_nothing_is_said_of_it_but_its_set(run: Run) -> None:
    assert any(f"row {BROKEN}, '{BROKEN}.png'" in line for line in run.metadata["warnings"])
    row = run.purified.slice(BROKEN, 1).to_pylist()[0]
    assert row["distribution"] == pytest.approx([1 / len(row["original"])] * len(row["original"]))


def test_new_pictures_get_labels_and_a_broken_one_none(
    run: Run, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    predicted = Predictor(run.folder, folder=folder)(pa.csv.read_csv(folder / "new.csv"))
    assert "1 of 3 pictures cannot be read" in caplog.text
    assert predicted["label"].to_pylist() == [str(LABELS[150]), None, str(LABELS[151])]


def test_the_exported_graph_takes_pixels(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    assert export_model(run.model, tmp_path / "model.onnx") < 1e-4
    session = runtime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    assert [given.name for given in session.get_inputs()] == ["numbers", "pictures"]
    inputs = {"numbers": np.full((2, 1), 0.1, np.float32), "pictures": LEVELS[150:152].astype(np.float32)}
    labels = session.run(["label"], inputs)[0]
    assert labels.tolist() == LABELS[150:152].astype(str).tolist()
    assert export_model(run.model, tmp_path / "model.pt2") < 1e-4


def test_the_page_shows_pictures_and_label_studio_opens_no_file(run: Run) -> None:
    table = shown_table(run, [])
    page = render_page(run.metadata, table, run.training, run.rows)
    assert page.count("data:image/jpeg;base64,") >= N - 1
    backend = Backend(Review(run.folder), port=0)
    try:
        found = backend.predict({"tasks": [{"id": 1, "data": {"file": "/etc/hostname", "size": 1.0}}]})
    finally:
        backend.server_close()
    assert found["results"][0]["result"] == []


def test_a_side_that_is_named_is_read(folder: Path, tmp_path: Path) -> None:
    roles = replace(SPEC.roles, image_side=16)
    made = fit_table(folder / "table.csv", tmp_path / "run", replace(SPEC, roles=roles))
    assert made.model.encoding.patches[0].pixels.shape == (1, 16, 16)
    with pytest.raises(ValueError, match="side must be 8 to 512 pixels; got 4"):
        ColumnRoles(image_side=4)


def change_filters(metadata: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    tensors["patches.0.filters"] = tensors["patches.0.filters"][:, :, :2]


def change_offset(metadata: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    tensors["patches.0.offset"] = tensors["patches.0.offset"][0]


def change_side(metadata: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    metadata["encoding"]["patches"][0]["side"] = 10**6


def remove_axes(metadata: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    del tensors["patches.0.axes"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (change_filters, "the patches there are others"),
        (change_offset, "the patches there are others"),
        (change_side, "8 to 512 pixels a side"),
        (remove_axes, "the patches there are others"),
    ],
)
def test_a_changed_run_is_refused(
    run: Run, tmp_path: Path, change: Callable[[dict[str, Any], dict[str, torch.Tensor]], None], why: str
) -> None:
    tensors = load((run.folder / "model.safetensors").read_bytes())
    metadata = json.loads((run.folder / "model.json").read_text())
    change(metadata, tensors)
    content = save({name: tensor.contiguous() for name, tensor in tensors.items()})
    metadata["sha256"] = sha256(content).hexdigest()
    metadata["checksum"] = checksum(metadata)
    (tmp_path / "model.safetensors").write_bytes(content)
    (tmp_path / "model.json").write_text(json.dumps(metadata))
    with pytest.raises(ValueError, match=why):
        load_model(tmp_path)


def test_a_time_limit_is_for_pictures_too(folder: Path, tmp_path: Path) -> None:
    spec = FitSpec(
        SPEC.roles, config=FitConfig(EnsembleConfig(epochs=2, n_networks=2, learners=("networks", "kernel")))
    )
    made = fit_table(folder / "table.csv", tmp_path / "run", spec, RunOptions(time_limit=600))
    assert "networks" in {row["learner"] for row in made.rows if row.get("stage") == "learners"}


def test_the_estimator_learns_patches_on_a_cpu_and_is_stored(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = [str(folder / f"{row}.png") for row in range(N)]
    cells = [cell.split("|") for cell in sets()]
    classifier = PartialLabelImageClassifier(architecture="patches", epochs=2, n_estimators=2, random_state=0)
    classifier.fit(files, cells)
    assert "1 of 150 pictures cannot be read" in caplog.text
    assert classifier.model_.encoding.patches
    readable = np.arange(N) != BROKEN
    assert (classifier.transduction_ == LABELS[:N].astype(str))[readable].mean() > 0.95
    classifier.save(tmp_path / "run")
    again = PartialLabelImageClassifier.from_run(tmp_path / "run")
    new = [str(folder / f"{row}.png") for row in range(150, 170)]
    np.testing.assert_allclose(again.predict_proba(new), classifier.predict_proba(new), atol=1e-6)
    assert (again.predict(new) == LABELS[150:170].astype(str)).mean() > 0.8


def test_votes_are_learned_with_patches() -> None:
    rows = [row for row in range(N) if row != BROKEN]
    rng = np.random.default_rng(0)
    items = []
    labels = []
    for row in rows:
        for _ in range(3):
            items.append(row)
            labels.append(str(LABELS[row] if rng.random() < 0.7 else rng.integers(3)))
    votes = pa.table({"item": items, "annotator": ["a", "b", "c"] * len(rows), "label": labels})
    levels = LEVELS[rows].reshape(-1, 8, 8)
    classifier = PartialLabelImageClassifier(architecture="patches", epochs=2, n_estimators=2, random_state=0)
    classifier.fit(levels, votes=votes, items=rows)
    assert (classifier.transduction_ == LABELS[rows].astype(str)).mean() > 0.95
    assert len(classifier.annotators_) == 3
