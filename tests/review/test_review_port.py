"""The review's port: it stays with the run, in the user's state folder, so that a browser can send what it kept."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from run_folder import write_run

from oneof.cli.review import review as review_command
from oneof.review.ports import remember_port, remembered_port
from oneof.review.presence import Presence
from oneof.review.server import ReviewServer
from oneof.storage.user_state import user_state_folder


class Started(NamedTuple):
    """What the command printed."""

    port: int
    token: str
    warning: str


@pytest.fixture(autouse=True)
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "RUN", n=30, gold=0, groups=0)


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Started]:
    """Run `oneof review` as a command that is stopped as soon as it serves."""

    def stop_at_once(server: ReviewServer) -> None:
        raise KeyboardInterrupt

    def start(run: Path, port: int = 0) -> Started:
        capsys.readouterr()
        review_command(run, port, "ann", None)
        said = capsys.readouterr()
        found = re.search(r"open http://127\.0\.0\.1:(\d+)/\?token=(\S+)", said.out)
        assert found, said
        return Started(int(found[1]), found[2], said.err)

    monkeypatch.setattr(ReviewServer, "serve_forever", stop_at_once)
    return start


def test_a_restarted_server_has_the_same_port_and_another_token(
    run: Path, state_home: Path, start: Callable[..., Started]
) -> None:
    before = sorted(path.name for path in run.iterdir())
    first = start(run)
    second = start(run)
    assert second.port == first.port
    assert second.token != first.token
    assert sorted(path.name for path in run.iterdir()) == before
    (record,) = state_home.rglob("*.json")
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    assert stat.S_IMODE(record.parent.stat().st_mode) == 0o700
    assert first.token not in record.read_text()


def test_a_port_that_was_given_is_the_port_of_the_next_start(run: Path, start: Callable[..., Started]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        free = other.getsockname()[1]
    assert start(run, free).port == free
    assert start(run).port == free


def test_a_port_that_is_taken_is_named_and_stays_remembered(run: Path, start: Callable[..., Started]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        remember_port(run, taken)
        started = start(run)
    assert started.port != taken
    assert f"port {taken}" in started.warning
    assert str(started.port) in started.warning
    assert start(run).port == taken


def test_a_renamed_run_keeps_its_port_and_a_copy_has_none(run: Path) -> None:
    remember_port(run, 23_456)
    copy = run.with_name("copy")
    shutil.copytree(run, copy)
    assert remembered_port(copy) is None
    renamed = run.rename(run.with_name("renamed"))
    assert remembered_port(renamed) == 23_456


def test_another_run_in_the_same_folder_keeps_the_port(run: Path) -> None:
    remember_port(run, 23_456)
    facts = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(facts | {"seed": 7}))
    assert remembered_port(run) == 23_456


@pytest.mark.parametrize("content", ["", "[]", '{"folder": "RUN", "run": "", "port": 0}', '{"port": "x"}'])
def test_a_damaged_record_is_as_good_as_none(run: Path, state_home: Path, content: str) -> None:
    remember_port(run, 23_456)
    (record,) = state_home.rglob("*.json")
    record.write_text(content)
    assert remembered_port(run) is None


def test_without_a_state_folder_the_review_starts_and_says_so(
    run: Path, state_home: Path, start: Callable[..., Started]
) -> None:
    state_home.write_text("a file where a folder should be")
    started = start(run)
    assert f"--port {started.port}" in started.warning
    assert remembered_port(run) is None


def test_the_state_folder_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert user_state_folder() == tmp_path / "state" / "oneof"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    if sys.platform == "linux":
        assert user_state_folder() == tmp_path / ".local" / "state" / "oneof"
    assert user_state_folder().is_absolute()


def test_a_second_server_says_who_is_there(run: Path, start: Callable[..., Started]) -> None:
    first = Presence("http://127.0.0.1:20123/")
    assert first.announce(run) is None
    warning = start(run).warning
    for words in (f"process {os.getpid()}", "http://127.0.0.1:20123/", str(run)):
        assert words in warning
    assert "token" not in (run / "review.lock").read_text()
    first.close()
    assert start(run).warning == ""
    assert not (run / "review.lock").exists()


def test_a_review_goes_on_where_no_lock_can_be_written(tmp_path: Path) -> None:
    assert Presence("http://127.0.0.1:20123/").announce(tmp_path / "missing") is None
