"""Files of strangers: links are not written through, and what is no regular file is refused before it is opened."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from oneof.storage.locks import exclusive_lock
from oneof.storage.regular import check_plain_tree, check_regular
from oneof.storage.rows import append, read

MINE = "export PATH=/usr/bin\n"


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    path = tmp_path / "precious.sh"
    path.write_text(MINE)
    return path


def lock(path: Path) -> None:
    with exclusive_lock(path, "RUN"):
        pass


@pytest.mark.parametrize("write", [lock, lambda path: append(path, [{"label": "a"}])], ids=["lock", "rows"])
def test_nothing_is_written_through_a_link(write: Callable[[Path], None], tmp_path: Path, precious: Path) -> None:
    planted = tmp_path / "planted"
    planted.symlink_to(precious)
    with pytest.raises(ValueError, match=r"planted must be a regular file; it is a link.*delete it"):
        write(planted)
    assert precious.read_text() == MINE


def test_a_damaged_line_is_not_moved_through_a_link(tmp_path: Path, precious: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"a": 1}\n{"a": ')
    (tmp_path / "rows.jsonl.damaged").symlink_to(precious)
    with pytest.raises(ValueError, match=r"rows\.jsonl\.damaged must be a regular file; it is a link"):
        append(rows, [{"a": 2}])
    assert precious.read_text() == MINE
    assert rows.read_text() == '{"a": 1}\n{"a": '


def test_a_link_that_is_put_there_meanwhile_is_not_followed_either(
    tmp_path: Path, precious: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "planted").symlink_to(precious)
    monkeypatch.setattr("oneof.storage.regular.check_regular", lambda path, links: None)
    with pytest.raises(OSError, match="planted"):
        append(tmp_path / "planted", [{"a": 1}])
    assert precious.read_text() == MINE


@pytest.mark.parametrize("use", [lock, lambda path: append(path, [{"a": 1}]), read], ids=["lock", "append", "read"])
@pytest.mark.parametrize("kind", ["a named pipe", "a socket", "a device", "a folder"])
def test_only_regular_files_are_opened(use: Callable[[Path], None], kind: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    if kind == "a named pipe":
        os.mkfifo(path)
    elif kind == "a socket":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
    elif kind == "a device":
        path = Path("/dev/zero")
    else:
        path.mkdir()
    with pytest.raises(ValueError, match=f"{path} must be a regular file; it is {kind}"):
        use(path)


def test_files_are_read_through_links_unless_that_is_refused(tmp_path: Path, precious: Path) -> None:
    (tmp_path / "link").symlink_to(precious)
    check_regular(tmp_path / "link")
    check_regular(tmp_path / "nothing")
    with pytest.raises(ValueError, match="it is a link"):
        check_regular(tmp_path / "link", links=False)


def test_a_tree_holds_files_and_folders_alone(tmp_path: Path, precious: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "a" / "b").mkdir(parents=True)
    (tree / "a" / "file").touch()
    check_plain_tree(tree)
    check_plain_tree(tmp_path / "nowhere")
    (tree / "a" / "b" / "link").symlink_to(tmp_path)
    with pytest.raises(ValueError, match=r"a/b/link must be a regular file; it is a link"):
        check_plain_tree(tree)
    (tmp_path / "linked").symlink_to(tree / "a")
    with pytest.raises(ValueError, match="linked must be a regular file; it is a link"):
        check_plain_tree(tmp_path / "linked")
