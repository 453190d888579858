"""Files that appear whole, under names that nobody can plant; and locks that say who holds them."""

from __future__ import annotations

import multiprocessing
import os
import secrets
from pathlib import Path

import pytest

from oneof.storage.files import atomic_folder, atomic_write
from oneof.storage.locks import exclusive_lock


def test_a_link_that_was_put_there_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (tmp_path / ".note.part").symlink_to(precious)
    with atomic_write(tmp_path / "note") as file:
        file.write(b"new")
    assert (precious.read_text(), (tmp_path / "note").read_text()) == ("mine", "new")
    monkeypatch.setattr(secrets, "token_hex", lambda _: "known")
    (tmp_path / ".known.part").symlink_to(precious)
    with pytest.raises(FileExistsError), atomic_write(tmp_path / "note"):
        pass
    assert precious.read_text() == "mine"


def test_two_writers_do_not_share_a_name(tmp_path: Path) -> None:
    with atomic_write(tmp_path / "note") as one, atomic_write(tmp_path / "note") as other:
        one.write(b"one")
        other.write(b"other")
    assert (tmp_path / "note").read_bytes() == b"one"
    assert [path.name for path in tmp_path.iterdir()] == ["note"]


def test_a_folder_beside_leaves_others_alone(tmp_path: Path) -> None:
    (tmp_path / ".run.part").mkdir()
    (tmp_path / ".run.part" / "mine").touch()
    with atomic_folder(tmp_path / "run") as beside:
        (beside / "file").touch()
    assert (tmp_path / "run" / "file").exists()
    assert (tmp_path / ".run.part" / "mine").exists()


def hold(path: Path, held: object, done: object) -> None:
    with exclusive_lock(path, "RUN"):
        held.set()  # type: ignore[attr-defined]
        done.wait(30)  # type: ignore[attr-defined]


def test_who_is_at_work_is_told_at_once(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    held, done = spawn.Event(), spawn.Event()
    other = spawn.Process(target=hold, args=(tmp_path / "lock", held, done))
    other.start()
    assert held.wait(30)
    with (
        pytest.raises(ValueError, match=rf"RUN must not be in use; process {other.pid} on .* since .*Wait for it"),
        exclusive_lock(tmp_path / "lock", "RUN"),
    ):
        pass
    done.set()
    other.join()
    with exclusive_lock(tmp_path / "lock", "RUN"):
        assert f"process {os.getpid()}" in (tmp_path / "lock").read_text()
