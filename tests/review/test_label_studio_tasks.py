"""Tasks for Label Studio: what they show, in which order, and the labelling configuration that fits them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pandas as pd
import pytest
from PIL import Image
from run_folder import write_run
from small_table import command

from oneof.review.label_studio_tasks import TaskContent, labelling_config
from oneof.runs.folder import Run, fingerprint

N = 400
NAMES = ["cat", "dog", "<b>fox</b>", "cow"]
Made = Callable[..., Run]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    """Return a function that makes a run of this table."""
    monkeypatch.setattr(Run, "n_models", 5)  # the run has no model

    def make(table: pd.DataFrame, names: list[str] = NAMES, **roles: Any) -> Run:
        folder = tmp_path / "the table"
        folder.mkdir(exist_ok=True)
        file = folder / "animals.parquet"
        table.to_parquet(file)
        run = write_run(tmp_path / "RUN", n=N, names=names, gold=0, groups=0)
        path = run / "run.json"
        all_roles = {
            "image": [],
            "text": [],
            "ignore": [],
            "categories": [],
            "candidates": None,
            "exclude": None,
            "gold": None,
        }
        columns = {name: {"use": "text", "reason": "as requested"} for name in roles.get("text", [])}
        changed = {"file": str(file), "fingerprint": fingerprint(file), "asked": {"roles": {**all_roles, **roles}}}
        path.write_text(json.dumps({**json.loads(path.read_text()), **changed, "columns": columns}))
        return Run.open(run)

    return make


def written(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[list[Any], str]:
    """Return the tasks that `oneof clean` writes, and what it prints."""
    code, printed, errors = command("clean", run.folder, "--out", tmp_path / "tasks.json", *options, capsys=capsys)
    assert code == 0, errors
    return json.loads((tmp_path / "tasks.json").read_text()), printed


def objects(config: str) -> dict[str, str]:
    """Return the tags of a configuration by name; the choices must label one of them."""
    tags = {element.get("name", ""): element for element in ElementTree.fromstring(config).iter()}
    assert tags["label"].get("toName") in tags
    return {name: element.tag for name, element in tags.items()}


def check_import(task: dict[str, Any]) -> None:
    """What Label Studio's documentation asks of a task with pre-annotations of the type choices."""
    assert set(task) == {"data", "predictions"}
    assert isinstance(task["data"], dict)
    for prediction in task["predictions"]:
        assert set(prediction) == {"model_version", "score", "result"}
        assert isinstance(prediction["model_version"], str)
        assert 0 <= prediction["score"] <= 1
        for region in prediction["result"]:
            assert set(region) == {"id", "from_name", "to_name", "type", "value"}
            assert region["type"] == "choices"
            assert all(isinstance(choice, str) for choice in region["value"]["choices"])


def test_label_studio_gets_tasks_that_it_can_import(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = made(pd.DataFrame({"x": range(N)}))
    tasks, _ = written(run, tmp_path, capsys, "--all", "--from-name", "animal")
    assert len(tasks) == N
    labels = run.purified["label"].to_pylist()
    for task in tasks:
        check_import(task)
        (region,) = task["predictions"][0]["result"]
        assert region["from_name"] == "animal"
        assert region["value"]["choices"] == [labels[task["data"]["row"]]]


def test_a_table_of_numbers_is_shown_as_cells(made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = made(pd.DataFrame({"weight": [1.5] * N, "hue": ["red"] * N}))
    tasks, printed = written(run, tmp_path, capsys, "--all")
    assert tasks[0]["data"]["cells"] == {"weight": "1.5", "hue": "red"}
    assert tasks[0]["predictions"][0]["result"][0]["to_name"] == "cells"
    assert objects(labelling_config(TaskContent.of(run), NAMES))["cells"] == "Table"
    assert "--config" in printed


def test_texts_are_shown_as_text_wherever_their_column_stands(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wide = pd.DataFrame({f"x{j}": [float(j)] * N for j in range(9)})
    run = made(
        wide.assign(note=[f"it barks at {row} people" for row in range(N)], mood=["a quiet day in May"] * N),
        text=["note"],
    )
    tasks, _ = written(run, tmp_path, capsys, "--all")
    by_row = {task["data"]["row"]: task["data"] for task in tasks}
    assert "it barks at 7 people" in by_row[7]["text"]
    assert "note" not in by_row[7]["cells"]
    config = labelling_config(TaskContent.of(run), NAMES)
    assert objects(config)["text"] == "Text"
    assert 'toName="text"' in config


def test_pictures_are_served_from_the_disk_or_embedded(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "the table" / "scans"
    folder.mkdir(parents=True)
    names = [f"scans/a {row}.{'bmp' if row == 1 else 'png'}" for row in range(N)]
    names[2] = "../outside.png"
    names[3] = "scans/missing.png"
    Image.new("RGB", (2, 2)).save(tmp_path / "outside.png")
    for row in {*range(N)} - {2, 3}:
        Image.new("RGB", (2, 2)).save(tmp_path / "the table" / names[row])
    run = made(pd.DataFrame({"scan": names}), image=["scan"])
    tasks, printed = written(run, tmp_path, capsys, "--all")
    by_row = {task["data"]["row"]: task["data"]["image"] for task in tasks}
    assert by_row[0] == "/data/local-files/?d=the%20table/scans/a%200.png"
    assert by_row[1].startswith("data:image/png;base64,")
    assert (by_row[2], by_row[3]) == ("", "")
    assert f"DOCUMENT_ROOT={tmp_path}" in printed
    assert tasks[0]["predictions"][0]["result"][0]["to_name"] == "image"
    assert objects(labelling_config(TaskContent.of(run), NAMES))["image"] == "Image"
    tasks, printed = written(run, tmp_path, capsys, "--all", "--picture-url", "https://example.org/p/")
    by_row = {task["data"]["row"]: task["data"]["image"] for task in tasks}
    assert by_row[0] == "https://example.org/p/scans/a%200.png"
    assert "DOCUMENT_ROOT" not in printed


def test_tasks_stand_in_the_order_of_the_queue(made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = made(pd.DataFrame({"x": range(N)}))
    tasks, _ = written(run, tmp_path, capsys)
    places = [task["data"]["oneof_queue"] for task in tasks]
    assert places == list(range(1, len(tasks) + 1))
    assert len(tasks) > 1
    assert len(tasks) == sum(run.purified["ask"].to_pylist())
    everything, _ = written(run, tmp_path, capsys, "--all")
    assert everything[: len(tasks)] == tasks
    assert sorted(task["data"]["row"] for task in everything) == list(range(N))


def test_choices_are_the_label_then_the_candidates_by_probability_then_all_others(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = made(pd.DataFrame({"x": range(N)}))
    tasks, _ = written(run, tmp_path, capsys, "--all")
    for task in tasks:
        row = run.purified.slice(task["data"]["row"], 1).to_pylist()[0]
        offered = task["data"]["candidates"]
        n = len(row["original"])
        assert {choice["value"] for choice in offered[:n]} == set(row["original"])
        assert offered[0]["value"] == row["label"]
        shares = [choice["probability"] for choice in offered[:n]]
        assert shares[1:] == sorted(shares[1:], reverse=True)
        assert sorted(shares) == pytest.approx(sorted(row["distribution"]), abs=1e-4)
        assert [choice["value"] for choice in offered[n:]] == [name for name in NAMES if name not in row["original"]]
        assert not any("<b>" in choice.get("html", "") for choice in offered)  # a label is no mark-up


def test_the_command_prints_the_configuration(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"kind {k}" for k in range(12)]
    run = made(pd.DataFrame({"x": range(N)}), names=names)
    code, printed, _ = command("label-studio", run.folder, "--config", capsys=capsys)
    assert code == 0
    tags = objects(printed)
    assert tags["label"] == "Choices"
    assert tags["filter"] == "Filter"  # there are many labels


def test_without_the_training_file_tasks_show_row_numbers(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = made(pd.DataFrame({"x": range(N)}))
    Path(run.metadata["file"]).unlink()
    tasks, printed = written(run, tmp_path, capsys)
    assert tasks[0]["data"]["text"] == f"row {tasks[0]['data']['row']}"
    assert "missing" in printed
    assert objects(labelling_config(TaskContent.of(run), NAMES))["text"] == "Text"
