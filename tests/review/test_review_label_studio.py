"""Label Studio's requests, as its connector (label-studio 1.23) makes them: right answers, in time, and annotations that are kept."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from run_folder import write_run
from small_table import ROLES, SMALL, command, frame

from oneof.learners.config import FitConfig
from oneof.review.label_studio import Backend
from oneof.review.session import Review
from oneof.runs.decisions import Log
from oneof.runs.fit_spec import FitSpec
from oneof.runs.fit_table import fit_table
from oneof.runs.folder import Run, fingerprint
from oneof.votes.read import VotesFile

pytestmark = pytest.mark.usefixtures("small_forests")

CONFIG = '<View>\n  <Text name="words" value="$text"/>\n  <Choices name="animal" toName="words" choice="single">\n    <Choice value="cat"/>\n  </Choices>\n</View>'
PROJECT = "3.1731722400"
SETUP = {"project": PROJECT, "schema": CONFIG, "hostname": "http://localhost:8080", "access_token": "0f" * 20, "extra_params": None}  # fmt: skip
PARAMS = {"login": None, "password": None, "context": None}


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[Backend]:
    names = ["cat", "dog", "fox", "cow"]
    made = Backend(Review(write_run(tmp_path / "RUN", n=80, names=names, gold=0, groups=0)), 0)
    threading.Thread(target=made.serve_forever, args=(0.02,), daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def ask(backend: Backend, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    with closing(HTTPConnection("127.0.0.1", backend.server_port, timeout=10)) as line:
        sent = {"User-Agent": "heartex/1.23", "Content-Type": "application/json"} | headers
        line.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body), sent)
        reply = line.getresponse()
        return reply.status, json.loads(reply.read())


def annotation(
    number: int, *labels: str, who: int = 1, at: str = "2026-11-16T03:00:00Z", **more: Any
) -> dict[str, Any]:
    result = {"value": {"choices": list(labels)}, "id": "aB3", "from_name": "animal", "to_name": "words", "type": "choices", "origin": "manual"}  # fmt: skip
    return {"id": number, "completed_by": who, "result": [result], "was_cancelled": False, "ground_truth": False, "updated_at": at, "lead_time": 4.2} | more  # fmt: skip


def task_of(row: int, number: int = 900) -> dict[str, Any]:
    return {"id": number, "data": {"row": row, "text": "a purring thing"}, "annotations": [], "predictions": []}


def test_health_and_setup_answer_within_the_clients_patience(backend: Backend) -> None:
    for path, body, patience in (("/health", None, 1), ("/", None, 1), ("/setup", SETUP, 3)):
        begun = time.perf_counter()
        status, found = ask(backend, path, body)
        assert time.perf_counter() - begun < patience
        assert (status, found) == (
            200,
            {"model_version": backend.version} if body else {"status": "UP", "model_class": "oneof"},
        )
    assert ask(backend, "/versions?project=3") == (200, {"versions": [backend.version]})
    assert ask(backend, "/validate", {"config": CONFIG}) == (200, {})
    assert ask(backend, "/nothing", {})[0] == 404


def test_predictions_have_the_names_of_the_project_and_a_score(backend: Backend) -> None:
    asked = {"tasks": [task_of(row) for row in (0, 5, 7)], "project": PROJECT, "label_config": CONFIG, "params": PARAMS}
    status, found = ask(backend, "/predict", asked)
    assert status == 200
    rows = backend.review.run.purified.to_pylist()
    for row, prediction in zip((0, 5, 7), found["results"], strict=True):
        (result,) = prediction["result"]
        assert (result["from_name"], result["to_name"], result["type"]) == ("animal", "words", "choices")
        assert result["value"] == {"choices": [rows[row]["label"]]}
        assert prediction["score"] == pytest.approx(rows[row]["probability"], abs=1e-5)
        assert prediction["model_version"] == backend.version


def test_an_annotation_is_kept_changed_and_deleted(backend: Backend) -> None:
    row = next(r for r in backend.review.run.purified.to_pylist() if len(r["original"]) > 1)
    first, second = row["original"][:2]
    ask(backend, "/setup", SETUP)
    told = {"project": {"id": 3}, "task": task_of(row["row"])}
    created = {"action": "ANNOTATION_CREATED", "annotation": annotation(11, first)} | told
    assert ask(backend, "/webhook", created) == (200, {"status": "ok"})
    ask(backend, "/webhook", created)  # Label Studio tries again when it heard nothing
    run = Run.open(backend.review.run.folder)
    (kept,) = Log(run.folder).active_decisions
    assert (kept.row, kept.kind, kept.labels, kept.who, kept.seconds) == (row["row"], "label", (first,), "1", 4.2)
    changed = annotation(11, second, at="2026-11-16T03:05:00Z")
    ask(backend, "/webhook", {"action": "ANNOTATION_UPDATED", "annotation": changed} | told)
    assert run.decided["label"][row["row"]].as_py() == second
    prediction = ask(backend, "/predict", {"tasks": [task_of(row["row"])]})[1]["results"][0]
    assert (prediction["score"], prediction["result"][0]["value"]) == (1.0, {"choices": [second]})
    ask(backend, "/webhook", {"action": "ANNOTATIONS_DELETED", "annotations": [{"id": 11}], "project": {"id": 3}})
    assert Log(run.folder).active_decisions == []


def test_what_an_annotation_says_of_the_set(backend: Backend) -> None:
    rows = [r for r in backend.review.run.purified.to_pylist() if 1 < len(r["original"]) < 4]
    missing = next(name for name in ("cat", "dog", "fox", "cow") if name not in rows[1]["original"])
    for number, (row, labels) in enumerate([(rows[0], rows[0]["original"]), (rows[1], [missing]), (rows[2], [])]):
        told = {"task": task_of(row["row"]), "annotation": annotation(number, *labels)}
        ask(backend, "/webhook", {"action": "ANNOTATION_CREATED", **told})
    cancelled = annotation(9, "cat", was_cancelled=True)
    ask(backend, "/webhook", {"action": "ANNOTATION_CREATED", "task": task_of(3), "annotation": cancelled})
    found = [(one.row, one.kind, list(one.labels)) for one in Log(backend.review.run.folder).active_decisions]
    assert found == [(rows[0]["row"], "set", rows[0]["original"]), (rows[1]["row"], "none", [missing])]


def test_what_is_ignored_may_have_choices_that_cannot_be_read(backend: Backend) -> None:
    unread = [{"value": {"choices": None}, "from_name": "animal"}]
    unknown = {"id": 900, "data": {"row": 10**6}}
    for task, cancelled in [(task_of(3), True), (unknown, False)]:
        told = {"task": task, "annotation": annotation(9, result=unread, was_cancelled=cancelled)}
        assert ask(backend, "/webhook", {"action": "ANNOTATION_CREATED", **told}) == (200, {"status": "ok"})
    assert Log(backend.review.run.folder).active_decisions == []


def test_training_goes_to_the_background(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = threading.Event()
    monkeypatch.setattr(backend.review, "_learn", lambda folder: begun.set())
    assert ask(backend, "/webhook", {"action": "START_TRAINING", "project": {"id": 3}}) == (200, {"status": "ok"})
    assert begun.wait(5)
    assert backend.review.state("ann")["learning"]["state"] == "running"


def test_a_page_of_another_site_cannot_annotate(backend: Backend) -> None:
    told = {"action": "ANNOTATION_CREATED", "task": task_of(0), "annotation": annotation(1, "cat")}
    for headers in ({"Origin": "https://elsewhere.example"}, {"Host": "elsewhere.example"}):
        assert ask(backend, "/webhook", told, **headers)[0] == 403
    assert Log(backend.review.run.folder).active_decisions == []


def test_tasks_are_found_by_the_item_of_their_votes(backend: Backend, tmp_path: Path) -> None:
    pd.DataFrame({"item": range(500, 580), "x": range(80)}).to_csv(tmp_path / "t.csv", index=False)
    path = backend.review.run.folder / "run.json"
    facts = json.loads(path.read_text()) | {
        "file": str(tmp_path / "t.csv"),
        "fingerprint": fingerprint(tmp_path / "t.csv"),
    }
    path.write_text(json.dumps(facts | {"asked": {"votes": {"item": "item"}}}))
    other = Backend(Review(backend.review.run.folder), 0)
    other.server_close()
    assert [other.row_of({"id": number, "data": {}}) for number in (500, 579, 580)] == [0, 79, None]


def test_a_new_task_is_predicted_from_its_data(tmp_path: Path) -> None:
    frame().to_csv(tmp_path / "animals.csv", index=False)
    run = fit_table(tmp_path / "animals.csv", tmp_path / "run", FitSpec(ROLES, config=FitConfig(SMALL)))
    backend = Backend(Review(run.folder), 0)
    backend.server_close()
    known = {"x0": 3.0, "x1": 0.0, "x2": 0.1, "hue": "red"}
    found = backend.predict({"tasks": [{"id": 1, "data": known}, {"id": 2, "data": {"text": "nothing"}}]})["results"]
    assert found[0]["result"][0]["value"] == {"choices": ["ant"]}
    assert found[0]["score"] > 0.5
    assert (found[1]["result"], found[1]["score"]) == ([], 0.0)


def test_tasks_go_out_as_they_came_in_and_stars_are_gold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = frame(60)
    sets = given["candidates"].str.split("|")
    tasks = [
        {"id": 700 + i, "data": {"text": f"thing {i}", "own": i}, "annotations": [
            annotation(10 * i + k, label, who=k) | {"ground_truth": i == 4 and k == 0} for k, label in enumerate(names)
        ]} for i, names in enumerate(sets)
    ]  # fmt: skip
    (tmp_path / "export.json").write_text(json.dumps(tasks))
    given.drop(columns=["candidates", "truth", "hue"]).assign(item=range(700, 760)).to_csv(
        tmp_path / "t.csv", index=False
    )
    run = fit_table(
        tmp_path / "t.csv",
        tmp_path / "run",
        FitSpec(votes=VotesFile(str(tmp_path / "export.json")), config=FitConfig(SMALL)),
    )
    assert [(row, label) for row, label in enumerate(run.purified["gold"].to_pylist()) if label] == [(4, sets[4][0])]
    assert run.decided["label"][4].as_py() == sets[4][0]
    for more, wanted in (([], [row["row"] for row in run.decided.to_pylist() if row["ask"]]), (["--all"], range(60))):
        code, _, said = command("clean", run.folder, "--out", tmp_path / "out.json", *more, capsys=capsys)
        assert code == 0, said
        found = sorted(json.loads((tmp_path / "out.json").read_text()), key=lambda task: task["id"])
        assert [(task["id"], task["data"]["own"], task["data"]["row"]) for task in found] == [
            (700 + i, i, i) for i in wanted
        ]
