"""Attack by requests to the servers of a review and of Label Studio's backend: every one is answered, in one line, by a right status."""

from __future__ import annotations

import base64
import json
import os
import re
import socket
import stat
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attacks.calls import Attempt
from attacks.folders import fit_small_run

from oneof.review.label_studio import Backend
from oneof.review.presence import Presence
from oneof.review.server import LocalServer, ReviewServer
from oneof.review.session import Review

_PATIENCE = 60  # seconds
_STATUS = re.compile(rb"HTTP/1\.1 (\d+) ")
_OLD_HTTP = 9  # a reply without a status, as HTTP/0.9 has it
_TOLD = (_OLD_HTTP, 200, 400, 401, 403, 404, 405, 411, 413, 414, 431, 500, 501, 505, 507)


@contextmanager
def served(server: LocalServer) -> Iterator[LocalServer]:
    """Let a server answer in a thread."""
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def send(server: LocalServer, content: bytes) -> tuple[int, bytes]:
    """Send bytes as they are; return the status, 0 if there was none, and the body."""
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=_PATIENCE) as line:
        line.sendall(content)
        line.shutdown(socket.SHUT_WR)
        reply = b""
        while chunk := line.recv(1 << 16):
            reply += chunk
    match = _STATUS.match(reply)
    if match is None:
        return (_OLD_HTTP if reply else 0), reply
    body = reply.partition(b"\r\n\r\n")[2]
    return int(match[1]), body


def request(server: LocalServer, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
    """Send a request with the headers of a page that may decide."""
    fields = {"Host": f"127.0.0.1:{server.server_port}", "Connection": "close", "Content-Length": str(len(body))}
    fields.update(_credentials(server))
    fields.update({name.replace("_", "-"): value for name, value in headers.items()})
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items() if value is not None)
    return send(server, f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1", "replace") + body)


def _credentials(server: LocalServer) -> dict[str, str]:
    if isinstance(server, ReviewServer):
        return {"X-Token": server.token}
    pair = f"oneof:{server.token}".encode()  # type: ignore[attr-defined]
    return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}


def problem_of_reply(reply: tuple[int, bytes], statuses: tuple[int, ...] = _TOLD) -> str | None:
    """Return what is wrong with a reply, or None: it must have one of the statuses, and errors are one line of JSON."""
    status, body = reply
    if status not in statuses:
        return f"status {status}: {body[:200]!r}"
    if status == 200 or not body.startswith(b"{"):
        return None
    if "\n" in json.loads(body).get("error", ""):
        return "an error of several lines"
    return None


def review_requests(folder: Path, _: int) -> Iterator[Attempt]:
    """Send malformed, hostile and many requests to a review's server."""
    run = fit_small_run(folder)
    with served(ReviewServer(Review(run), "ann")) as server:
        yield from _malformed(server, "/api/decide")
        yield from _without_leave(server, "/api/decide", b"{}")
        for name, answer in _answers(server).items():
            body = json.dumps({"answer": answer, "who": "ann"}).encode()
            yield Attempt(f"answer {name}", problem_of_reply(request(server, "POST", "/api/decide", body), (400,)))
        for path in ("/api/next?count=x", "/api/next?held=1,x", "/picture?row=x&column=y", "/picture?row=0&column=../x",
                     "/api/next?count=" + "9" * 5000, "/api/next?pool=no", "/picture?row=99999999999&column=x"):  # fmt: skip
            yield Attempt(f"GET {path[:30]}", problem_of_reply(request(server, "GET", path), (400, 404)))
        yield from _crowd(server, "GET", "/api/state", 200)
        yield from _full_and_read_only(server, run)
        yield from _edited_meanwhile(server, run)
        yield from _idle_connections(server)
        yield from _second_server(run)
        yield Attempt("alive after all", problem_of_reply(request(server, "GET", "/api/state"), (200,)))


def _answers(server: LocalServer) -> dict[str, Any]:
    """Return answers that must be refused, each wrong in one place."""
    review = server.review
    good = {
        "id": "1",
        "row": 0,
        "kind": "label",
        "labels": [review.labels[0]],
        "run": review.id,
        "drawn": "queue",
        "seconds": 1,
    }
    answers: dict[str, Any] = {}
    for field in good:
        for value in (None, {}, [None], -(10**30), "\ud800"):
            answers[f"{field} = {value!r}"] = {**good, field: value}
    for name in ("id", "run"):  # texts of any length would be written to the log
        answers[f"{name} of 20,000 characters"] = {**good, name: "x" * 20_000}
    answers["seconds NaN"] = {**good, "seconds": float("nan")}
    answers["seconds infinite"] = {**good, "seconds": float("inf")}
    for label in ("cat|dog", "two\nlines", "\x00", "\x1b[2J", "", "x" * 5000):
        answers[f"a new label {label!r:.20}"] = {**good, "kind": "none", "labels": [label], "new": True}
    answers["nothing"] = None
    answers["row -1"] = {**good, "row": -1}
    return answers


def _malformed(server: LocalServer, path: str) -> Iterator[Attempt]:
    """Send requests that are no HTTP, no JSON, or too large."""
    bodies = {
        "deep list": b"[" * 60_000,
        "deep object": b'{"a":' * 10_000,
        "surrogate": b'{"who": "\\ud800"}',
        "NaN": b'{"answer": NaN}',
        "not UTF-8": b"\xff\xfe",
        "list": b"[]",
        "cut": b'{"answer": ',
        "number of 5,000 digits": b'{"answer": ' + b"9" * 5000 + b"}",
    }
    for name, body in bodies.items():
        yield Attempt(f"body {name}", problem_of_reply(request(server, "POST", path, body), (400,)))
    lengths = {"negative": "-5", "text": "x", "huge": "9" * 30, "none": "", "Arabic digits": "٣", "long": str(10**12)}
    for name, length in lengths.items():
        reply = request(server, "POST", path, b"{}", Content_Length=length)
        yield Attempt(f"length {name}", problem_of_reply(reply, (400, 411, 413)))
    host = f"Host: 127.0.0.1:{server.server_port}\r\n".encode()
    raw = {
        "nothing": b"",
        "line ends": b"\r\n\r\n",
        "no version": b"GET /\r\n\r\n",
        "HTTP/9.9": b"GET / HTTP/9.9\r\n" + host + b"\r\n",
        "malformed address": b"GET http://[::1/ HTTP/1.1\r\n" + host + b"\r\n",
        "long address": b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n" + host + b"\r\n",
        "1,000 headers": b"GET / HTTP/1.1\r\n" + host + b"".join(b"X-%d: 1\r\n" % i for i in range(1000)) + b"\r\n",
        "binary": bytes(range(256)) * 4,
        "other method": b"BREW / HTTP/1.1\r\n" + host + b"\r\n",
        "PUT": b"PUT / HTTP/1.1\r\n" + host + b"\r\n",
    }
    for name, content in raw.items():
        statuses = (*_TOLD, 0) if name in ("nothing", "line ends") else _TOLD
        yield Attempt(f"raw {name}", problem_of_reply(send(server, content), statuses))


def _without_leave(server: LocalServer, path: str, body: bytes) -> Iterator[Attempt]:
    """Send requests of other sites, of other hosts, and without the token."""
    wrong: dict[str, dict[str, Any]] = {
        "another site": {"Origin": "https://elsewhere.example"},
        "a null origin": {"Origin": "null"},
        "another host": {"Host": "elsewhere.example"},
        "no host": {"Host": None},
        "no token": {"X_Token": "", "Authorization": ""},
        "a guessed token": {"X_Token": "guess", "Authorization": "Token guess"},
        "a token beyond ASCII": {"X_Token": "ž", "Authorization": "Basic ž"},
        "basic auth that is no base64": {"X_Token": "", "Authorization": "Basic ="},
    }
    for name, headers in wrong.items():
        before = len(server.review.log.active_decisions)
        reply = request(server, "POST", path, body, **headers)
        problem = problem_of_reply(reply, (400, 401, 403))
        server.review.log.refresh()
        if len(server.review.log.active_decisions) != before:
            problem = "the request changed the log"
        yield Attempt(f"request of {name}", problem)


def _crowd(server: LocalServer, method: str, path: str, count: int, body: bytes = b"") -> Iterator[Attempt]:
    """Send many requests at once; all are answered."""
    together = threading.Barrier(count)

    def ask(number: int) -> tuple[int, bytes]:
        together.wait(60)
        return request(server, method, path, body)

    with ThreadPoolExecutor(count) as pool:
        for number, reply in enumerate(pool.map(ask, range(count))):
            yield Attempt(f"request {number} of {count} at once", problem_of_reply(reply, (200,)))


def _full_and_read_only(server: LocalServer, run: Path) -> Iterator[Attempt]:
    """Decide while the log cannot be written: it is a device that is full, a link, a folder; the run is renamed."""
    review = server.review
    answer = {"id": "x", "row": 0, "kind": "skip", "labels": [], "run": review.id, "drawn": "queue", "seconds": 1}
    body = json.dumps({"answer": answer}).encode()
    log = run / "decisions.jsonl"
    for name, plant in (
        ("a link", lambda: log.symlink_to(run / "elsewhere")),
        ("a full device", lambda: log.symlink_to("/dev/full")),
        ("a folder", lambda: log.mkdir()),
        ("a pipe", lambda: os.mkfifo(log)),
    ):
        log.unlink(missing_ok=True)
        plant()
        yield Attempt(
            f"the log is {name}", problem_of_reply(request(server, "POST", "/api/decide", body), (400, 500, 507))
        )
        if stat.S_ISDIR(log.lstat().st_mode):
            log.rmdir()
        else:
            log.unlink()
    run.rename(run.with_name("renamed"))
    yield Attempt("the run was renamed", problem_of_reply(request(server, "POST", "/api/decide", body), (500,)))
    if run.exists():
        yield Attempt("the run was renamed", "a ghost folder took the answer")
    run.with_name("renamed").rename(run)


def _edited_meanwhile(server: LocalServer, run: Path) -> Iterator[Attempt]:
    """Edit, cut and delete the log of a review while it is served: the page and every next answer go on."""
    review = server.review
    log = run / "decisions.jsonl"
    edits: dict[str, bytes | None] = {
        "deep and torn": b"[" * 100_000,
        "a line of another run": b'{"id": "9", "who": "x", "when": "x", "row": 7777}\n',
        "not UTF-8": b"\xff" * 100,
        "empty": b"",
        "gone": None,
    }
    for number, (name, content) in enumerate(edits.items()):
        if content is None:
            log.unlink(missing_ok=True)
        else:
            log.write_bytes(content)
        answer = {
            "id": f"edited {number}", "row": number, "kind": "skip", "labels": [], "run": review.id, "drawn": "queue", "seconds": 1,
        }  # fmt: skip
        reply = request(server, "POST", "/api/decide", json.dumps({"answer": answer}).encode())
        problem = problem_of_reply(reply, (200,))
        if problem is None and f"edited {number}" not in log.read_text(errors="replace"):
            problem = "an answer that was acknowledged is not in the log"
        yield Attempt(f"the log is {name} while it is served", problem)
        yield Attempt(f"state after {name}", problem_of_reply(request(server, "GET", "/api/state"), (200,)))
    content = (run / "run.json").read_bytes()
    (run / "run.json").write_bytes(content + b" ")
    body = json.dumps({"answer": {**answer, "id": "other run"}}).encode()
    reply = request(server, "POST", "/api/decide", body)
    yield Attempt("another run takes the folder", problem_of_reply(reply, (500,)))
    (run / "run.json").write_bytes(content)


def _idle_connections(server: LocalServer) -> Iterator[Attempt]:
    """Open connections that say nothing, or half a request, or two at once; others are answered meanwhile."""
    address = ("127.0.0.1", server.server_port)
    idle = [socket.create_connection(address, timeout=_PATIENCE) for _ in range(300)]
    for line in idle[::2]:
        line.sendall(b"POST /api/decide HTTP/1.1\r\nContent-Le")
    for number in range(5):
        reply = request(server, "GET", "/api/state")
        yield Attempt(f"request {number} beside 300 idle connections", problem_of_reply(reply, (200,)))
    for line in idle:
        line.close()
    host = f"Host: 127.0.0.1:{server.server_port}\r\nX-Token: {server.token}\r\n".encode()  # type: ignore[attr-defined]
    twice = b"GET /api/state HTTP/1.1\r\n" + host + b"\r\n"
    _, body = send(server, twice + twice.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    n_answers = body.count(b"HTTP/1.1 200") + 1
    yield Attempt("two requests in one packet", None if n_answers == 2 else f"{n_answers} of 2 were answered")


def _second_server(run: Path) -> Iterator[Attempt]:
    """Announce two servers of one run: the second is told who is there."""
    first = Presence("http://127.0.0.1:1/")
    second = Presence("http://127.0.0.1:2/")
    try:
        alone = first.announce(run)
        told = second.announce(run)
    finally:
        second.close()
        first.close()
    problem = None
    if alone is not None or told is None or f"process {os.getpid()}" not in told or "http://127.0.0.1:1/" not in told:
        problem = f"the first was told {alone!r}, the second {told!r}"
    yield Attempt("a second server", problem)


def label_studio_requests(folder: Path, _: int) -> Iterator[Attempt]:
    """Send malformed, hostile and many requests to the backend of Label Studio."""
    run = fit_small_run(folder)
    with served(Backend(Review(run), 0, "a token of the attack")) as server:
        yield from _malformed(server, "/predict")
        for path in ("/predict", "/webhook", "/setup", "/train"):
            yield from _without_leave(server, path, b'{"action": "START_TRAINING"}')
        if server.review.learning["state"] != "idle":
            yield Attempt("a stranger's request", "it started a training")
        for name, schema in _schemas().items():
            begun = time.monotonic()
            body = json.dumps({"schema": schema}).encode()
            problem = problem_of_reply(request(server, "POST", "/setup", body), (200, 400))
            if problem is None and time.monotonic() - begun > 2:
                problem = f"it took {time.monotonic() - begun:.0f} s"
            yield Attempt(f"configuration of {name}", problem)
        for name, tasks in _tasks().items():
            body = json.dumps({"tasks": tasks}).encode()
            yield Attempt(f"tasks {name}", problem_of_reply(request(server, "POST", "/predict", body), (200, 400)))
        for name, event in _events().items():
            body = json.dumps(event).encode()
            yield Attempt(f"event {name}", problem_of_reply(request(server, "POST", "/webhook", body), (200, 400)))
        yield Attempt("too large", problem_of_reply(request(server, "POST", "/predict", b" " * (1 << 25)), (400, 413)))
        yield from _crowd(
            server, "POST", "/predict", 200, json.dumps({"tasks": [{"id": 1, "data": {"row": 0}}]}).encode()
        )
        yield Attempt("alive after all", problem_of_reply(request(server, "GET", "/health"), (200,)))


def _schemas() -> dict[str, Any]:
    return {
        "60,000 open tags": "<Choices" * 60_000,
        "60,000 open tags and spaces": "<Choices " * 60_000,
        "names without end": "<Choices " + "name=" * 100_000,
        "spaces": "<Choices name" + " " * 200_000 + ">",
        "quotes": "<Choices name='" + '"' * 200_000,
        "entities": '<!DOCTYPE x [<!ENTITY a "' + "a" * 1000 + '">]><Choices name="&a;" toName="text"/>',
        "a list": [1, 2],
        "a number": 3,
        "long names": f'<Choices name="{"n" * 50_000}" toName="t">',
    }


def _tasks() -> dict[str, Any]:
    return {
        "null": None, "a number": 3, "a text": "x", "an object": {"a": 1}, "of null": [None], "of numbers": [1, 2],
        "of lists": [[[]]], "without data": [{}], "with data of text": [{"id": 1, "data": "x"}],
        "with data of lists": [{"id": 1, "data": {"x": [1], "y": {}, "hue": [], "note": 1}}],
        "with an id of lists": [{"id": [1], "data": {}}], "with a row of 10^30": [{"id": 1, "data": {"row": 10**30}}],
        "with a row of -1": [{"id": 1, "data": {"row": -1}}],
        "with numbers of 10^400": [{"id": 1, "data": {"x": 10**400, "y": 1, "hue": "red", "note": "a"}}],
        "with 3e38": [{"id": 1, "data": {"x": 3e38, "y": -3e38, "hue": "red", "note": "a"}}],
        "with mixed rows": [{"id": 1, "data": {"row": 0}}, 7, {"id": 2, "data": {"row": 1}}],
    }  # fmt: skip


def _events() -> dict[str, Any]:
    task = {"id": 1, "data": {"row": 0}}
    choice = [{"from_name": "label", "type": "choices", "value": {"choices": ["cat"]}}]
    good = {"id": 5, "result": choice, "completed_by": 1, "lead_time": 1.0, "updated_at": "2026"}
    events: dict[str, Any] = {
        "of no kind": {}, "of a list": {"action": []}, "without task": {"action": "ANNOTATION_CREATED"},
        "deleted of null": {"action": "ANNOTATIONS_DELETED", "annotations": [None]},
        "deleted of text": {"action": "ANNOTATIONS_DELETED", "annotations": "x"},
    }  # fmt: skip
    for field in good:
        for value in (None, [], {}, 10**30, "x", "x" * 20_000, [None], True, -1):
            events[f"with {field} = {value!r:.20}"] = {
                "action": "ANNOTATION_CREATED", "task": task, "annotation": {**good, field: value},
            }  # fmt: skip
    return events
