"""Downloads from a local server that cuts connections, ignores ranges, stumbles or serves wrong bytes."""

from __future__ import annotations

import gzip
import hashlib
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from oneof_paper.cli.data import data
from oneof_paper.data import fetch as fetching
from oneof_paper.data.catalogue import NAMED, Named
from oneof_paper.data.fetch import download

CONTENT = bytes(range(256)) * 2000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Server:
    """Serves `content`; `behave(handler, start)` may answer in another way and then returns True."""

    def __init__(self) -> None:
        self.content = CONTENT
        self.requests: list[str | None] = []
        self.behave: Callable[[BaseHTTPRequestHandler, int], bool] = lambda handler, start: False
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked = self.headers.get("Range")
                server.requests.append(asked)
                start = int(asked.split("=")[1].rstrip("-")) if asked else 0
                if not server.behave(self, start):
                    server.answer(self, start, len(server.content))

            def log_message(self, *arguments: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.http.server_port}/"

    def answer(self, handler: BaseHTTPRequestHandler, start: int, stop: int) -> None:
        """Headers for everything from `start`, bytes only up to `stop`."""
        whole = len(self.content)
        if start >= whole:
            handler.send_response(416)
            handler.send_header("Content-Range", f"bytes */{whole}")
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
        handler.send_response(206 if start else 200)
        if start:
            handler.send_header("Content-Range", f"bytes {start}-{whole - 1}/{whole}")
        handler.send_header("Content-Length", str(whole - start))
        handler.end_headers()
        handler.wfile.write(self.content[start:stop])
        handler.close_connection = True


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    thread = threading.Thread(target=made.http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.http.shutdown()
    made.http.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    for name, value in {"ATTEMPTS": 3, "WAIT": 0.01, "SILENCE": 5.0, "TOTAL": 20.0}.items():
        monkeypatch.setattr(fetching, name, value)


def fetch(server: Server, target, sha256: str | None = SHA256) -> list[tuple[int, int | None]]:
    seen: list[tuple[int, int | None]] = []
    download(server.address + "a.bin", target, sha256, lambda done, whole: seen.append((done, whole)))
    return seen


def test_a_whole_file_comes_and_nothing_else_stays(tmp_path, server):
    seen = fetch(server, tmp_path / "deep/a.bin")
    assert (tmp_path / "deep/a.bin").read_bytes() == CONTENT
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["a.bin"]
    assert seen[-1] == (len(CONTENT), len(CONTENT))


def test_cut_connections_are_resumed(tmp_path, server):
    step = len(CONTENT) // 5

    def cut(handler: BaseHTTPRequestHandler, start: int) -> bool:
        server.answer(handler, start, start + step)
        return True

    server.behave = cut
    fetch(server, tmp_path / "a.bin")
    assert (tmp_path / "a.bin").read_bytes() == CONTENT
    assert server.requests == [None, *(f"bytes={step * i}-" for i in range(1, 5))]


def test_a_part_of_an_earlier_run_is_gone_on_with(tmp_path, server):
    (tmp_path / "a.bin.part").write_bytes(CONTENT[:1000])
    fetch(server, tmp_path / "a.bin")
    assert server.requests == ["bytes=1000-"]
    assert (tmp_path / "a.bin").read_bytes() == CONTENT


def test_a_part_that_is_already_whole_or_too_long(tmp_path, server):
    (tmp_path / "a.bin.part").write_bytes(CONTENT)
    fetch(server, tmp_path / "a.bin")
    (tmp_path / "b.bin.part").write_bytes(CONTENT + b"more")
    fetch(server, tmp_path / "b.bin")
    assert (tmp_path / "a.bin").read_bytes() == (tmp_path / "b.bin").read_bytes() == CONTENT
    assert server.requests == [f"bytes={len(CONTENT)}-", f"bytes={len(CONTENT) + 4}-", None]


def test_a_server_that_ignores_ranges_sends_everything_anew(tmp_path, server):
    def ignore(handler: BaseHTTPRequestHandler, start: int) -> bool:
        server.answer(handler, 0, len(CONTENT))
        return True

    server.behave = ignore
    (tmp_path / "a.bin.part").write_bytes(b"x" * 1000)
    fetch(server, tmp_path / "a.bin")
    assert (tmp_path / "a.bin").read_bytes() == CONTENT


def test_another_range_than_asked_starts_again(tmp_path, server):
    def shift(handler: BaseHTTPRequestHandler, start: int) -> bool:
        if start:
            server.answer(handler, start + 1, len(CONTENT))
        return bool(start)

    server.behave = shift
    (tmp_path / "a.bin.part").write_bytes(CONTENT[:1000])
    fetch(server, tmp_path / "a.bin")
    assert (tmp_path / "a.bin").read_bytes() == CONTENT
    assert server.requests == ["bytes=1000-", None]


def test_a_stumbling_server_is_asked_again(tmp_path, server):
    def stumble(handler: BaseHTTPRequestHandler, start: int) -> bool:
        if len(server.requests) > 2:
            return False
        handler.send_error(503)
        return True

    server.behave = stumble
    fetch(server, tmp_path / "a.bin")
    assert len(server.requests) == 3


def test_patience_ends_and_keeps_the_part(tmp_path, server):
    def stuck(handler: BaseHTTPRequestHandler, start: int) -> bool:
        server.answer(handler, start, 1000)
        return True

    server.behave = stuck
    with pytest.raises(
        ValueError, match=r"must come whole; 3 attempts in a row brought nothing .*go on from 1000 bytes"
    ):
        fetch(server, tmp_path / "a.bin")
    assert len(server.requests) == 4
    assert [path.name for path in tmp_path.iterdir()] == ["a.bin.part"]


def test_time_is_bounded(tmp_path, server, monkeypatch):
    monkeypatch.setattr(fetching, "ATTEMPTS", 100)
    monkeypatch.setattr(fetching, "TOTAL", -1.0)
    with pytest.raises(ValueError, match=r"must come whole; .*out of time"):
        fetch(server, tmp_path / "a.bin")


def test_a_missing_file_is_not_asked_for_again(tmp_path, server):
    def absent(handler: BaseHTTPRequestHandler, start: int) -> bool:
        handler.send_error(404)
        return True

    server.behave = absent
    with pytest.raises(ValueError, match=r"a\.bin must be there; the server answers 404 Not Found"):
        fetch(server, tmp_path / "a.bin")
    assert len(server.requests) == 1


def test_wrong_bytes_are_an_error_and_leave_nothing(tmp_path, server):
    server.content = CONTENT[::-1]
    with pytest.raises(ValueError, match=r"must serve the published file; its SHA-256 is .*Nothing was kept"):
        fetch(server, tmp_path / "a.bin")
    for content in (gzip.compress(b"other"), b"no gzip at all", gzip.compress(CONTENT)[:-20]):
        server.content = content
        with pytest.raises(ValueError, match="must serve the published file"):
            fetch(server, tmp_path / "a.gz")
    assert list(tmp_path.iterdir()) == []


def test_the_checksum_of_a_gz_is_of_its_content(tmp_path, server):
    server.content = gzip.compress(CONTENT, 1)
    fetch(server, tmp_path / "a.gz")
    assert gzip.decompress((tmp_path / "a.gz").read_bytes()) == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == ["a.gz"]


def test_the_command_gets_what_is_missing(tmp_path, server, monkeypatch, capsys):
    old = NAMED["mnist"]
    sums = dict.fromkeys(old.files, SHA256)
    server.content = gzip.compress(CONTENT)
    named = Named(old.title, old.address, old.licence, old.form, old.files, server.address, sums)
    monkeypatch.setitem(NAMED, "mnist", named)
    (tmp_path / "mnist").mkdir()
    (tmp_path / old.files[0]).write_bytes(b"here already")
    data(get="mnist", data_dir=tmp_path)
    captured = capsys.readouterr()
    assert captured.out == f"mnist is in {tmp_path}; 3 files came.\n"
    assert captured.err == ""  # no bar where no one watches
    assert all((tmp_path / file).is_file() for file in old.files)
    assert len(server.requests) == 3


def test_a_part_that_is_a_link_is_refused(tmp_path):
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "a.bin.part").symlink_to(tmp_path / "precious")
    with pytest.raises(ValueError, match="must be a part of a download; it is a link"):
        download("http://127.0.0.1:9/a.bin", tmp_path / "a.bin", None, lambda *_: None)
    assert (tmp_path / "precious").read_text() == "mine"
