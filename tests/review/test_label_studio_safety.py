"""Label Studio's backend: who may send requests, and requests that are hostile or malformed."""

from __future__ import annotations

import base64
import json
import re
import stat
import threading
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from run_folder import write_run
from small_table import ROLES, SMALL, frame
from test_review_label_studio import annotation, ask, task_of

from oneof.cli.label_studio import label_studio as label_studio_command
from oneof.learners.config import FitConfig
from oneof.review.label_studio import Backend
from oneof.review.session import Review
from oneof.review.tokens import remember_token, remembered_token
from oneof.runs.decisions import Log
from oneof.runs.fit_spec import FitSpec
from oneof.runs.fit_table import fit_table

pytestmark = pytest.mark.usefixtures("small_forests")

TOKEN = "of-the-test-and-of-nothing-else"
CREATED = {"action": "ANNOTATION_CREATED", "task": task_of(0), "annotation": annotation(1, "cat")}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "RUN", n=40, names=["cat", "dog", "fox", "cow"], gold=0, groups=0)


@pytest.fixture
def backend(run: Path) -> Iterator[Backend]:
    made = Backend(Review(run), 0, TOKEN)
    threading.Thread(target=made.serve_forever, args=(0.02,), daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fitted")
    frame().to_csv(folder / "animals.csv", index=False)
    return fit_table(folder / "animals.csv", folder / "run", FitSpec(ROLES, config=FitConfig(SMALL))).folder


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def authorized(backend: Backend, path: str, body: Any) -> tuple[int, Any]:
    return ask(backend, path, body, Authorization=basic("oneof", TOKEN))


# ------------------------------------------------------------------------------------------------------------ who may ask


@pytest.mark.parametrize(
    "header", ["", "Basic", "Basic =", "Basic \xe9", basic("oneof", ""), basic("ann", TOKEN), "Token guess", "Digest x"]
)
def test_a_stranger_may_neither_read_nor_write_nor_train(
    backend: Backend, header: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend.review, "learn", lambda: pytest.fail("a stranger started a training"))
    start = {"action": "START_TRAINING"}
    requests = [
        ("/predict", {"tasks": [task_of(0)]}), ("/setup", {}), ("/webhook", CREATED), ("/webhook", start), ("/train", {}),
    ]  # fmt: skip
    for path, body in requests:
        status, reply = ask(backend, path, body, Authorization=header)
        assert status == 401
        assert "password" in reply["error"]
    assert Log(backend.review.run.folder).active_decisions == []


@pytest.mark.parametrize("header", [basic("oneof", TOKEN), f"Token {TOKEN}", f"Bearer {TOKEN}"])
def test_label_studio_and_its_webhooks_send_the_token(backend: Backend, header: str) -> None:
    assert ask(backend, "/webhook", CREATED, Authorization=header)[0] == 200
    assert len(Log(backend.review.run.folder).active_decisions) == 1


def test_a_refusal_names_the_scheme(backend: Backend) -> None:
    with closing(HTTPConnection("127.0.0.1", backend.server_port, timeout=10)) as line:
        line.request("POST", "/predict", b"{}")
        assert line.getresponse().getheader("WWW-Authenticate") == 'Basic realm="oneof"'


def test_the_state_of_health_needs_no_token(backend: Backend) -> None:
    assert ask(backend, "/health") == (200, {"status": "UP", "model_class": "oneof"})
    assert ask(backend, "/versions")[0] == 401


def test_the_token_does_not_let_a_page_of_another_site_in(backend: Backend) -> None:
    header = basic("oneof", TOKEN)
    status, _ = ask(backend, "/webhook", CREATED, Authorization=header, Origin="https://elsewhere.example")
    assert status == 403


# ---------------------------------------------------------------------------------------------------------- the command


@pytest.fixture
def printed(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run `oneof label-studio` until it serves, and return its server and what it printed."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    servers: list[Backend] = []

    def stop_at_once(server: Backend) -> None:
        servers.append(server)
        raise KeyboardInterrupt

    def start(**options: bool) -> tuple[Backend, str]:
        label_studio_command(run, 0, **options)
        return servers[-1], capsys.readouterr().out

    monkeypatch.setattr(Backend, "serve_forever", stop_at_once)
    return start


def test_the_command_draws_a_password_and_keeps_it(printed: Any, run: Path, tmp_path: Path) -> None:
    server, text = printed()
    assert server.token is not None
    assert len(server.token) >= 20
    assert f"user oneof, password {server.token}" in text
    assert f"Authorization: Token {server.token}" in text
    assert printed()[0].token == server.token
    assert printed(new_password=True)[0].token != server.token
    (record,) = (tmp_path / "state").rglob("*.json")
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    assert server.token not in "".join(path.read_text(errors="replace") for path in run.iterdir())


def test_without_authentication_nothing_is_printed_about_it(printed: Any) -> None:
    server, text = printed(auth=False)
    assert server.token is None
    assert "password" not in text


def test_a_run_that_was_learned_meanwhile_has_the_same_password(printed: Any, tmp_path: Path) -> None:
    server, _ = printed()
    server.review.on_new_run(tmp_path / "RUN-2")
    assert remembered_token(tmp_path / "RUN-2") == server.token


@pytest.mark.parametrize(
    "content", ["", "[" * 100_000, "null", '{"folder": "elsewhere", "token": "x"}', '{"token": 3}']
)
def test_a_damaged_record_is_no_token(run: Path, tmp_path: Path, content: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    remember_token(run, TOKEN)
    (record,) = (tmp_path / "state").rglob("*.json")
    record.write_text(content)
    assert remembered_token(run) is None


# ------------------------------------------------------------------------------------------------------ hostile requests


@pytest.mark.parametrize(
    "schema", ["<Choices" * 60_000, "<Choices name" + " " * 200_000, "<Choices " + "name=" * 100_000, [1], 3]
)
def test_a_configuration_is_read_in_one_pass(backend: Backend, schema: Any) -> None:
    """A quadratic pattern takes minutes here."""
    assert authorized(backend, "/setup", {"schema": schema})[0] == 200
    assert backend.control_names == ("label", "text")


def test_a_request_that_is_too_large_is_answered_though_it_was_not_read(backend: Backend) -> None:
    status, reply = authorized(backend, "/predict", {"tasks": "x" * (1 << 24)})
    assert status == 400
    assert "at most 16777216 bytes" in reply["error"]


@pytest.mark.parametrize(
    ("tasks", "named"),
    [(3, "tasks"), ("x", "tasks"), ({"a": 1}, "tasks"), ([None], r"tasks\[0\]"), ([{}, 7], r"tasks\[1\]")],
)
def test_tasks_that_are_malformed_are_named_in_one_line(backend: Backend, tasks: Any, named: str) -> None:
    status, reply = authorized(backend, "/predict", {"tasks": tasks})
    assert status == 400
    assert re.search(rf"Label Studio sends; {named} must be", reply["error"])
    assert "\n" not in reply["error"]


@pytest.mark.parametrize("data", [None, "x", [], {"row": 10**30}, {"row": -1}, {"x0": 10**400}, {"x0": [1], "hue": {}}])
def test_tasks_without_usable_data_get_no_prediction(fitted: Path, data: Any) -> None:
    backend = Backend(Review(fitted), 0)
    backend.server_close()
    (result,) = backend.predict({"tasks": [{"id": [1], "data": data}]})["results"]
    assert (result["result"], result["score"]) == ([], 0.0)


@pytest.mark.parametrize(
    "change",
    [
        {"lead_time": "x"}, {"lead_time": -1}, {"lead_time": [1]}, {"id": []}, {"id": "x" * 1000}, {"updated_at": "x" * 1000},
        {"updated_at": 3}, {"completed_by": [1]}, {"result": "x"}, {"result": [None]},
        {"result": [{"value": {"choices": ["x" * 1000]}}]}, {"result": [{"value": {"choices": ["no|where"]}}]},
    ],
)  # fmt: skip
def test_annotations_that_no_log_should_hold_are_refused(backend: Backend, change: dict[str, Any]) -> None:
    status, reply = authorized(backend, "/webhook", {**CREATED, "annotation": {**CREATED["annotation"], **change}})
    assert status == 400
    assert "\n" not in reply["error"]
    assert Log(backend.review.run.folder).active_decisions == []


@pytest.mark.parametrize("annotations", ["x", [None], {"id": 1}])
def test_deletions_that_are_malformed_are_refused(backend: Backend, annotations: Any) -> None:
    request = {"action": "ANNOTATIONS_DELETED", "annotations": annotations}
    assert authorized(backend, "/webhook", request)[0] == 400


def test_a_run_that_was_renamed_gets_no_ghost(backend: Backend) -> None:
    folder = backend.review.run.folder
    folder.rename(folder.with_name("renamed"))
    status, reply = authorized(backend, "/webhook", CREATED)
    assert status == 500
    assert "moved" in reply["error"]
    assert not folder.exists()


def test_a_connection_is_closed_where_the_client_says_so(backend: Backend) -> None:
    body = json.dumps({"tasks": []}).encode()
    with closing(HTTPConnection("127.0.0.1", backend.server_port, timeout=10)) as line:
        line.request("POST", "/predict", body, {"Authorization": f"Token {TOKEN}", "Connection": "close"})
        reply = line.getresponse()
        assert reply.status == 200
        assert reply.getheader("Connection") == "close"
