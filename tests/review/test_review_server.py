"""The review's server: who may decide, what a tab is shown, and what two people at once leave behind."""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen
from uuid import uuid4

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from run_folder import NASTY, write_run

from oneof.cli.review import review as review_command
from oneof.ensemble.accuracy import sample_order
from oneof.review.audit import accuracy_of_labels, agreement
from oneof.review.guidelines import read_guidelines
from oneof.review.pictures import encode_picture, find_picture
from oneof.review.server import LocalServer, RequestHandler, ReviewServer
from oneof.review.session import REPEAT_EVERY, Review
from oneof.runs import decisions
from oneof.runs.decisions import Decision, Log, resolve_decisions
from oneof.runs.folder import Run, fingerprint

CARD = ["row", "item", "pictures", "candidates", "suggested", "outside", "near", "drawn", "run", "skipped"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ReviewServer]:
    made = ReviewServer(Review(write_run(tmp_path / "RUN", n=300, gold=0, groups=0)), "ann")
    thread = threading.Thread(target=made.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()


class Person:
    """Someone who answers as the page does."""

    def __init__(self, server: ReviewServer, who: str = "ann", **headers: str) -> None:
        self.server, self.who, self.tab = server, who, uuid4().hex
        self.line = HTTPConnection("127.0.0.1", server.server_port, timeout=30)
        self.headers = {"X-Token": server.token} | headers

    def ask(self, path: str, body: Any = None, **query: Any) -> tuple[int, dict]:
        told = {"who": self.who, "tab": self.tab}
        if body is None:
            self.line.request("GET", f"{path}?{urlencode(query | told)}", headers=self.headers)
        else:
            self.line.request("POST", path, json.dumps(body | told).encode(), self.headers)
        return self.answer()

    def answer(self) -> tuple[int, dict]:
        with closing(self.line), self.line.getresponse() as reply:
            return reply.status, json.loads(reply.read())

    def next(self, count: int = 1, random: int = 0) -> list[dict]:
        return self.ask("/api/next", count=count, random=random)[1]["cards"]

    def decide(self, card: dict, kind: str = "label", labels: list[str] | None = None, **other: Any) -> dict:
        labels = [card["suggested"]] if labels is None else labels
        answer = {"id": uuid4().hex, "row": card["row"], "kind": kind, "labels": labels, "seconds": 0.5}
        status, found = self.ask(
            "/api/decide", {"answer": answer | {name: card[name] for name in ("run", "drawn")} | other}
        )
        assert status == 200, found
        return found


def test_a_card_says_everything_and_the_queue_comes_first(server: ReviewServer) -> None:
    first = Person(server).next()[0]
    assert sorted(first) == sorted(CARD)
    rows = [row for row in Run.open(server.review.run.folder).purified.to_pylist() if row["ask"]]
    best = max(rows, key=lambda row: row["gain"])
    assert (first["row"], first["suggested"], first["drawn"]) == (best["row"], best["label"], "queue")
    assert {one["label"] for one in first["candidates"]} == set(best["original"])
    assert first["candidates"][0]["label"] == best["label"]
    removed = {removal["label"] for removal in best["removed"]}
    assert {one["label"] for one in first["candidates"] if one["removal"]} == removed


def test_a_decision_is_in_the_log_when_the_answer_comes(server: ReviewServer) -> None:
    person = Person(server)
    card = person.next()[0]
    state = person.decide(card)["state"]
    (written,) = Log(server.review.run.folder).active_decisions
    assert (written.row, written.labels, written.who, written.kind) == (
        card["row"],
        (card["suggested"],),
        "ann",
        "label",
    )
    assert (written.run, written.suggested, written.drawn) == (server.review.id, card["suggested"], "queue")
    assert set(written.before) == {one["label"] for one in card["candidates"]}
    assert (state["decided"], state["mine"]) == (1, 1)


def test_rows_are_filtered_by_a_candidate(server: ReviewServer) -> None:
    person = Person(server)
    sets = server.review.run.purified["original"].to_pylist()
    wanted = sets[int(server.review.queue[0])][0]
    _, reply = person.ask("/api/next", count=10, label=wanted)
    assert len(reply["cards"]) > 1
    assert all(wanted in sets[card["row"]] and card["drawn"] == "queue" for card in reply["cards"])
    assert person.ask("/api/next", label="no such label")[1]["cards"] == []


def test_undo_shows_the_row_again_and_goes_on_to_the_first(server: ReviewServer) -> None:
    person = Person(server)
    seen = []
    for _ in range(5):
        card = person.next()[0]
        person.decide(card)
        seen.append(card["row"])
    back = [person.ask("/api/undo", {})[1]["card"]["row"] for _ in range(5)]
    assert back == seen[::-1]
    assert person.ask("/api/undo", {})[1]["card"] is None
    assert Log(server.review.run.folder).active_decisions == []


def test_the_last_answers_are_listed_and_any_of_them_is_taken_back(server: ReviewServer) -> None:
    person = Person(server)
    rows = []
    for _ in range(12):
        (card,) = person.next()
        state = person.decide(card)["state"]
        rows.append(card["row"])
    assert [answer["row"] for answer in state["history"]] == rows[:1:-1]
    fourth = state["history"][3]
    reply = person.ask("/api/undo", {"id": fourth["id"]})[1]
    assert reply["card"]["row"] == fourth["row"]
    assert fourth["row"] not in [answer["row"] for answer in reply["state"]["history"]]
    assert Person(server, "bob").ask("/api/undo", {"id": state["history"][0]["id"]})[1]["card"] is None
    assert len(Log(server.review.run.folder).active_decisions) == 11


@pytest.mark.parametrize(
    ("headers", "path", "status"),
    [
        ({"X-Token": "guess"}, "/api/undo", 403),
        ({"Origin": "https://elsewhere.example"}, "/api/undo", 403),
        ({"Origin": "null"}, "/api/learn", 403),
        ({"Host": "elsewhere.example"}, "/api/undo", 403),
        ({}, "/api/none", 404),
    ],
)
def test_a_page_of_another_site_cannot_decide(server: ReviewServer, headers: dict, path: str, status: int) -> None:
    person = Person(server)
    person.decide(person.next()[0])
    assert Person(server, **headers).ask(path, {})[0] == status
    assert len(Log(server.review.run.folder).active_decisions) == 1


def test_the_page_and_the_rows_need_the_token(server: ReviewServer) -> None:
    for path in ("/api/state", "/api/next", "/api/labels", "/picture"):
        status, found = Person(server, **{"X-Token": ""}).ask(path)
        assert (status, found) == (403, {"error": "open the address that oneof review printed last."})
    assert Person(server, **{"X-Token": ""}).ask("/", token="guess")[0] == 403
    with urlopen(server.address) as reply:
        page = reply.read().decode()
    with urlopen(f"http://127.0.0.1:{server.server_port}/") as reloaded:  # the token has left the address bar
        assert reloaded.read().decode() == page
    assert server.token not in page
    assert server.review.run.folder.name not in page
    assert reply.status == 200
    assert "default-src 'none'" in reply.headers["Content-Security-Policy"]
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "label", "labels": ["not in the set"]}, "labels must fit an answer of kind 'label'"),
        ({"kind": "label", "labels": []}, "labels must fit"),
        ({"kind": "set", "labels": []}, "labels must fit"),
        ({"kind": "none", "labels": ["x" * 201]}, "labels must fit"),
        ({"kind": "perhaps"}, "an answer must be one that the page sends; kind must be 'label' or"),
        ({"row": 300}, "row must be one of the run's 300; got 300"),
        ({"row": -1}, "row must be one of"),
        ({"row": "7"}, "row must be a whole number"),
        ({"drawn": "elsewhere"}, "drawn must be"),
        ({"id": "x" * 20_000}, "id and run must have at most"),
        ({"run": "x" * 20_000}, "id and run must have at most"),
    ],
)
def test_a_wrong_answer_is_refused_in_one_line(server: ReviewServer, change: dict, said: str) -> None:
    card = Person(server).next()[0]
    good = {"id": "1", "row": card["row"], "kind": "label", "labels": [card["suggested"]], "run": "", "drawn": "queue"}
    status, found = Person(server).ask("/api/decide", {"answer": good | {"seconds": 1} | change})
    assert status == 400
    assert said in found["error"]
    assert Log(server.review.run.folder).active_decisions == []


def test_a_label_that_is_new_becomes_a_class_only_when_it_is_sent_as_one(server: ReviewServer) -> None:
    person = Person(server)
    (card,) = person.next()
    answer = {"id": "1", "row": card["row"], "kind": "none", "labels": ["sevn"], "seconds": 1}
    answer |= {name: card[name] for name in ("run", "drawn")}
    status, reply = person.ask("/api/decide", {"answer": answer})
    assert status == 400
    assert "'sevn'" in reply["error"]
    assert "sevn" not in person.ask("/api/labels")[1]["labels"]
    assert person.ask("/api/decide", {"answer": answer | {"new": True}})[0] == 200
    assert person.ask("/api/labels")[1]["labels"] == [*NASTY, "sevn"]
    (card,) = person.next()
    person.decide(card, "none", ["sevn"])


@pytest.mark.parametrize("label", ["cat|dog", "two\nlines", "a\x00b", "\x1b[2J"])
def test_a_new_label_that_files_cannot_hold_is_refused(server: ReviewServer, label: str) -> None:
    """It would stop every later `oneof clean` that writes a CSV."""
    person = Person(server)
    (card,) = person.next()
    answer = {"id": "1", "row": card["row"], "kind": "none", "labels": [label], "seconds": 1, "new": True}
    status, reply = person.ask("/api/decide", {"answer": answer | {name: card[name] for name in ("run", "drawn")}})
    assert status == 400
    assert "a new label must be text on one line without '|'" in reply["error"]
    assert label not in server.review.known_labels()


def test_a_request_that_is_too_long_or_no_object_is_refused(server: ReviewServer) -> None:
    person = Person(server)
    person.line.request("POST", "/api/decide", b"x" * 70_000, person.headers)
    assert person.answer()[0] == 400
    other = Person(server)
    other.line.request("POST", "/api/decide", b"[]", other.headers)
    reply = other.line.getresponse()
    assert (reply.status, json.loads(reply.read())["error"]) == (
        400,
        "a request must be a JSON object; it is another value.",
    )


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"[" * 60_000, "nested"),
        (b'{"who": "\\ud800"}', "surrogate"),
        (b'{"answer": {"seconds": NaN}}', "NaN"),
        (b'{"answer": ', "Expecting value"),
        (b"\xff", ""),
    ],
)
def test_a_body_that_no_log_can_hold_is_refused(server: ReviewServer, body: bytes, said: str) -> None:
    person = Person(server)
    person.line.request("POST", "/api/decide", body, person.headers)
    status, reply = person.answer()
    assert status == 400
    assert said in reply["error"]
    assert "\n" not in reply["error"]


@pytest.mark.parametrize(
    ("lines", "body", "status", "said"),
    [
        (["Transfer-Encoding: chunked"], b"2\r\n{}\r\n0\r\n\r\n", 400, "a body in chunks"),
        (["Content-Length: 2", "Transfer-Encoding: chunked"], b"2\r\n{}\r\n0\r\n\r\n", 400, "a body in chunks"),
        (["Content-Length: 2", "Content-Length: 40"], b"{}", 400, "2, 40"),
        (["Content-Length: 40"], b"{}", 400, "2 of 40 bytes came"),
    ],
)
def test_a_body_whose_length_is_not_known_is_refused(
    server: ReviewServer, lines: list[str], body: bytes, status: int, said: str
) -> None:
    head = [f"Host: 127.0.0.1:{server.server_port}", f"X-Token: {server.token}", *lines]
    found, reply = send_raw(server, "POST /api/close HTTP/1.1\r\n" + "\r\n".join(head) + "\r\n\r\n", body)
    assert found == status
    assert said in json.loads(reply)["error"]


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "TRACE", "BREW"])
def test_other_methods_are_refused_in_one_line(server: ReviewServer, method: str) -> None:
    status, reply = send_raw(server, f"{method} / HTTP/1.1\r\nHost: 127.0.0.1:{server.server_port}\r\n\r\n")
    assert status == 501
    assert json.loads(reply)["error"].startswith("Unsupported method")


def test_a_request_that_does_not_arrive_whole_is_told(server: ReviewServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RequestHandler, "timeout", 0.2)
    head = f"Host: 127.0.0.1:{server.server_port}\r\nX-Token: {server.token}\r\nContent-Length: 9\r\n\r\n"
    status, reply = send_raw(server, f"POST /api/close HTTP/1.1\r\n{head}", b"{", ends=False)
    assert status == 408
    assert "must arrive whole" in json.loads(reply)["error"]


def send_raw(server: ReviewServer, head: str, body: bytes = b"", ends: bool = True) -> tuple[int, bytes]:
    """Send bytes, and perhaps the end of the sending; return the status and the body of the reply."""
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=30) as line:
        line.sendall(head.encode() + body)
        if ends:
            line.shutdown(socket.SHUT_WR)
        reply = b""
        while chunk := line.recv(1 << 16):
            reply += chunk
    status = int(reply.split(b" ")[1])
    return status, reply.partition(b"\r\n\r\n")[2]


@pytest.mark.parametrize("seconds", [1e400, -1])
def test_seconds_are_finite_and_not_negative(server: ReviewServer, seconds: float) -> None:
    person = Person(server)
    (card,) = person.next()
    answer = {"id": "1", "row": card["row"], "kind": "skip", "labels": [], "run": card["run"], "drawn": "queue"}
    body = json.dumps({"answer": answer | {"seconds": "SECONDS"}})
    body = body.replace('"SECONDS"', "1e400" if seconds > 0 else str(seconds))
    person.line.request("POST", "/api/decide", body.encode(), person.headers)
    status, reply = person.answer()
    assert status == 400
    assert "finite" in reply["error"]
    assert Log(server.review.run.folder).active_decisions == []


@pytest.mark.parametrize("address", ["http://[::1/", "/api/next?count=x", "/api/next?held=1,x", "/picture?row=1"])
def test_a_malformed_address_is_answered(server: ReviewServer, address: str) -> None:
    headers = f"Host: 127.0.0.1:{server.server_port}\r\nX-Token: {server.token}\r\nConnection: close\r\n"
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=30) as line:
        line.sendall(f"GET {address} HTTP/1.1\r\n{headers}\r\n".encode())
        reply = line.recv(1 << 16)
    assert reply.startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    ("code", "status"), [(errno.ENOSPC, 507), (errno.EDQUOT, 507), (errno.EROFS, 500), (errno.EACCES, 500)]
)
def test_an_answer_that_cannot_be_written_is_told_and_may_be_sent_again(
    server: ReviewServer, monkeypatch: pytest.MonkeyPatch, code: int, status: int
) -> None:
    def fail(path: Path, rows: Any) -> None:
        raise OSError(code, os.strerror(code), str(path))

    person = Person(server)
    (card,) = person.next()
    answer = {
        "id": "1",
        "row": card["row"],
        "kind": "skip",
        "labels": [],
        "run": card["run"],
        "drawn": "queue",
        "seconds": 1,
    }
    with monkeypatch.context() as patched:
        patched.setattr(decisions, "append", fail)
        found, reply = person.ask("/api/decide", {"answer": answer})
    assert found == status
    assert os.strerror(code) in reply["error"]
    assert "decisions.jsonl" in reply["error"]
    assert person.ask("/api/decide", {"answer": answer})[0] == 200
    assert len(Log(server.review.run.folder).active_decisions) == 1


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), ValueError("it is damaged")])
def test_learning_that_cannot_go_on_is_told_on_the_page(
    server: ReviewServer, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fit went well, but its folder cannot be opened or written; before, the page waited for ever."""

    def fail(*_: object) -> None:
        raise error

    done = SimpleNamespace(returncode=0, stdout="", stderr="")
    monkeypatch.setattr("oneof.review.session.subprocess.run", lambda command, **_: done)
    monkeypatch.setattr("oneof.review.session.Log", fail)
    server.review.learning = {"state": "running", "text": ""}
    server.review._learn(server.review.run.folder)
    assert server.review.learning["state"] == "failed"
    assert server.review.learning["text"] in ("no space left on device", "it is damaged")


def test_a_run_that_was_renamed_while_it_is_reviewed_gets_no_ghost(server: ReviewServer) -> None:
    person = Person(server)
    (card,) = person.next()
    folder = server.review.run.folder
    folder.rename(folder.with_name("renamed"))
    answer = {
        "id": "1",
        "row": card["row"],
        "kind": "skip",
        "labels": [],
        "run": card["run"],
        "drawn": "queue",
        "seconds": 1,
    }
    status, reply = person.ask("/api/decide", {"answer": answer})
    assert status == 500
    assert "moved" in reply["error"]
    status, reply = person.ask("/api/state")  # without the log it would say that nothing is decided
    assert (status, "moved" in reply["error"]) == (500, True)
    assert not folder.exists()


def test_a_log_that_was_edited_is_read_anew(server: ReviewServer) -> None:
    person = Person(server)
    for card in person.next(3):
        person.decide(card)
    log = server.review.run.folder / "decisions.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    log.write_text(lines[0])
    assert person.ask("/api/state")[1]["state"]["decided"] == 1


def test_two_hundred_requests_at_once_are_all_answered(server: ReviewServer) -> None:
    together = threading.Barrier(200)

    def ask(number: int) -> int:
        person = Person(server, f"person {number}")
        together.wait(60)
        return person.ask("/api/state")[0]

    with ThreadPoolExecutor(200) as pool:
        statuses = list(pool.map(ask, range(200)))
    assert statuses == [200] * 200


def test_two_people_at_once_never_meet_the_same_row(server: ReviewServer) -> None:
    def work(who: str) -> None:
        person, ahead = Person(server, who), []
        for _ in range(60):
            ahead += person.next(3 - len(ahead))
            person.decide(ahead.pop(0))

    threads = [threading.Thread(target=work, args=(who,)) for who in ("ann", "bob")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = Log(server.review.run.folder).active_decisions
    assert len(found) == 120
    once = [one.row for one in found if one.drawn != "repeat"]
    assert len(once) == len(set(once))
    assert {one.drawn for one in found} == {"queue", "random", "repeat"}


def test_a_stale_tab_is_told_and_its_answer_is_a_second_vote(server: ReviewServer) -> None:
    ann, bob = Person(server), Person(server, "bob")
    card = ann.next()[0]
    labels = [one["label"] for one in card["candidates"]]
    ann.decide(card, labels=labels[:1])
    said = bob.decide(card, labels=labels[1:2])
    assert said["note"] == f"ann answered row {card['row']} before you: yours is kept as a second vote."
    assert resolve_decisions(Log(server.review.run.folder).active_decisions)[card["row"]] == (
        labels[0],
        (labels[0],),
        (),
        ("ann",),
        True,
    )
    assert "learned again since" in ann.decide(ann.next()[0], run="an older one")["note"]


def test_blind_repeats_come_once_and_are_counted(server: ReviewServer) -> None:
    person = Person(server)
    kinds = []
    for _ in range(3 * REPEAT_EVERY):
        card = person.next()[0]
        kinds.append(card["drawn"])
        person.decide(card)
    assert [kinds.count(drawn) for drawn in ("queue", "random", "repeat")] == [48, 9, 3]
    repeated = [one.row for one in Log(server.review.run.folder).active_decisions if one.drawn == "repeat"]
    assert len(set(repeated)) == 3
    assert person.ask("/api/state")[1]["state"]["agreement"] == [3, 3]


def test_skipped_rows_come_back_once_after_the_doubtful_ones_and_then_on_request(server: ReviewServer) -> None:
    person = Person(server)
    doubtful = set(np.flatnonzero(server.review.run.purified["ask"].to_numpy()).tolist())
    shown: list[tuple[int, bool]] = []
    while cards := person.ask("/api/next", pool="doubtful")[1]["cards"]:
        shown.append((cards[0]["row"], cards[0]["skipped"]))
        person.decide(cards[0], "skip", [])
    first = [row for row, skipped in shown if not skipped]
    again = [row for row, skipped in shown if skipped]
    assert len(first) == len(set(first))
    assert doubtful <= set(first)
    assert sorted(again) == sorted(first)
    state = person.ask("/api/state")[1]["state"]
    assert (state["skipped"], state["to_ask"], state["elsewhere"]) == (len(first), len(doubtful), 0)
    (card,) = person.ask("/api/next", pool="skipped")[1]["cards"]
    state = person.decide(card)["state"]
    assert state["skipped"] == len(first) - 1


def test_a_row_that_one_person_skipped_is_shown_to_another(server: ReviewServer) -> None:
    ann = Person(server)
    bob = Person(server, "bob")
    (card,) = ann.next()
    ann.decide(card, "skip", [])
    (other,) = bob.next()
    assert (other["row"], other["skipped"]) == (card["row"], False)


def test_rows_of_a_closed_tab_are_offered_to_others_at_once(server: ReviewServer) -> None:
    ann = Person(server)
    bob = Person(server, "bob")
    held = [card["row"] for card in ann.next(3)]
    assert bob.next()[0]["row"] not in held
    assert ann.ask("/api/close", {})[0] == 200
    assert ann.next() == []  # a request that was on its way
    assert [card["row"] for card in bob.next(3)] == held


def test_rows_that_a_tab_does_not_hold_any_more_are_given_back(server: ReviewServer) -> None:
    person = Person(server)
    rows = [card["row"] for card in person.next(3)]
    cards = person.ask("/api/next", count=2, held=rows[1])[1]["cards"]
    assert [card["row"] for card in cards] == [rows[0], rows[2]]


def test_doubtful_rows_end_and_the_state_names_the_next_command(server: ReviewServer) -> None:
    person = Person(server)
    while cards := person.ask("/api/next", pool="doubtful")[1]["cards"]:
        state = person.decide(cards[0])["state"]
    assert state["to_ask"] == 0
    assert state["left"] > 0
    assert state["next_command"] == f"oneof clean {server.review.run.folder} --out labels.csv"
    assert person.ask("/api/next", pool="all")[1]["cards"]
    assert person.ask("/api/next", pool="none")[0] == 400


def test_random_rows_give_an_exact_interval(server: ReviewServer) -> None:
    from scipy.stats import binomtest

    person = Person(server)
    wrong = 0
    for k in range(50):
        card = person.next(random=1)[0]
        assert card["drawn"] == "random"
        other = next((one["label"] for one in card["candidates"] if one["label"] != card["suggested"]), None)
        wrong += (miss := k % 5 == 0 and other is not None)
        state = person.decide(card, labels=[other] if miss else None)["state"]
    exact = binomtest(50 - wrong, 50).proportion_ci(0.95, "exact")
    wanted = {"rows": 50, "right": 50 - wrong, "unsure": 0, "low": exact.low, "high": exact.high}
    assert state["accuracy"] == pytest.approx(wanted)
    assert wrong > 3
    assert len(state["curve"]) > 10


def test_the_interval_holds_the_truth_whatever_the_queue_decided() -> None:
    rng = np.random.default_rng(0)
    truth = [str(k) for k in rng.integers(4, size=1000)]
    labels = [y if rng.random() < 0.8 else str((int(y) + 1) % 4) for y in truth]
    right = np.mean([a == b for a, b in zip(labels, truth, strict=True)])
    hard = [row for row in range(1000) if labels[row] != truth[row]][:100]  # the queue finds errors only
    held, widths = 0, []
    for draw in range(200):
        order = np.random.default_rng(draw).permutation(1000)
        queued = [Decision(row, "label", (truth[row],), "ann") for row in hard]
        asked = [int(row) for row in order[:50] if row not in hard]
        decided = [*queued, *(Decision(row, "label", (truth[row],), "ann", drawn="random") for row in asked)]
        found = accuracy_of_labels(order, labels, decided)
        assert found is not None
        held += found.low <= right <= found.high
        widths.append(found.high - found.low)
    assert held >= 0.93 * 200
    assert np.mean(widths) < 0.26  # an exact interval of 40 of 50 is 0.25 wide


def test_random_rows_of_an_earlier_run_are_no_sample_of_this_one() -> None:
    order = sample_order(100)
    old = [Decision(int(row), "label", ("a",), "ann", "old", drawn="random") for row in order[60:90]]
    new = [Decision(int(row), "label", ("b",), "ann", "new", drawn="random") for row in order[:10]]
    assert accuracy_of_labels(order, ["a"] * 100, old, "new") is None
    found = accuracy_of_labels(order, ["a"] * 100, old + new, "new")
    assert found is not None
    assert (found.rows, found.right) == (10, 0)


def test_unsure_answers_widen_the_interval_to_both_sides() -> None:
    order = sample_order(100)
    decided = [Decision(int(row), "label", ("a",), "ann", drawn="random") for row in order[:20]]
    unsure = [Decision(int(row), "set", ("a", "b"), "ann", drawn="random") for row in order[20:25]]
    sure = accuracy_of_labels(order, ["a"] * 100, decided)
    both = accuracy_of_labels(order, ["a"] * 100, decided + unsure)
    assert sure is not None
    assert both is not None
    assert (both.rows, both.right, both.unsure, both.high) == (25, 20, 5, 1.0)
    assert both.low < sure.low


def test_agreement_counts_second_people_and_repeats() -> None:
    said = [("ann", "a", "queue"), ("bob", "b", "queue"), ("ann", "a", "repeat"), ("ann", "b", "queue")]
    assert agreement(Decision(1, "label", (label,), who, drawn=drawn) for who, label, drawn in said) == (1, 2)


def test_pictures_come_from_beside_the_table_and_from_nowhere_else(tmp_path: Path) -> None:
    run = write_run(tmp_path / "RUN", n=4, gold=0, groups=0)
    table = tmp_path / "data" / "t.csv"
    table.parent.mkdir()
    (table.parent / "a.png").write_bytes(b"picture")
    (tmp_path / "secret.png").write_bytes(b"secret")
    (table.parent / "notes.txt").write_text("secret")
    names = ["a.png", "../secret.png", str(tmp_path / "secret.png"), "notes.txt"]
    pd.DataFrame({"img": names, "id": NASTY[:4]}).to_csv(table, index=False)
    facts = json.loads((run / "run.json").read_text())
    facts |= {"file": str(table), "fingerprint": fingerprint(table), "asked": {"roles": {"image": ["img"]}}}
    (run / "run.json").write_text(json.dumps(facts))
    items = Review(run).items
    assert [items.picture(row, "img") is not None for row in range(4)] == [True, False, False, False]
    assert items.picture(0, "id") is None
    assert items.show(0) == [("id", NASTY[0])]
    with pytest.raises(ValueError, match="column 'nmae' must be in"):
        Review(run, ["nmae"])
    table.write_text("changed")
    with pytest.raises(ValueError, match="--column requires the training file"):
        Review(run, ["id"])


def test_pictures_that_browsers_do_not_show_are_encoded_again(tmp_path: Path) -> None:
    levels = np.arange(48, dtype=np.uint16).reshape(6, 8)
    rows = {
        "grey.bmp": Image.fromarray(levels.astype(np.uint8)),
        "deep.tif": Image.fromarray(1000 * levels),
        "plain.png": Image.new("RGB", (8, 6), "red"),
    }
    for name, image in rows.items():
        image.save(tmp_path / name)
    (tmp_path / "no.bmp").write_text("secret")
    for name in rows:
        content, content_type = encode_picture(find_picture(name, tmp_path))
        with Image.open(BytesIO(content)) as shown:
            assert (shown.size, shown.format, content_type) == ((8, 6), "PNG", "image/png")
            if name == "deep.tif":
                assert np.asarray(shown).max() == 255
    content, _ = encode_picture(find_picture((tmp_path / "grey.bmp").read_bytes(), tmp_path))
    assert content.startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="cannot be shown"):
        encode_picture(find_picture("no.bmp", tmp_path))
    assert find_picture("../grey.bmp", tmp_path / "other") is None


def test_guidelines_are_a_text_of_reasonable_length(tmp_path: Path) -> None:
    path = tmp_path / "guide.md"
    path.write_text("Cats purr.\n")
    assert read_guidelines(path) == "Cats purr."
    for content, problem in ((b"\xff\xfe", "UTF-8"), (b"x" * (1 << 21), "longer")):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=f"--guidelines .*{re.escape(path.name)}.*") as refused:
            read_guidelines(path)
        assert problem in str(refused.value)


def test_a_port_that_is_taken_is_told(server: ReviewServer) -> None:
    taken = server.server_port
    with pytest.raises(ValueError, match=f"--port must be free on this machine; {taken} is not .* Give another one."):
        review_command(server.review.run.folder, taken, None, None)


def test_a_hundred_thousand_rows_feel_like_ten(tmp_path: Path) -> None:
    import time

    review = Review(write_run(tmp_path / "RUN", n=100_000, gold=0, groups=0))
    begun = time.process_time()  # of this process alone: the time by the clock depends on what else runs
    for _ in range(20):
        (card,) = review.next("tab", "ann", 1)
        answer = {"id": uuid4().hex, "row": card["row"], "kind": "label", "labels": [card["suggested"]]}
        review.decide(answer | {"run": card["run"], "drawn": card["drawn"], "seconds": 0}, "ann")
        review.state("ann")
    assert (time.process_time() - begun) / 20 < 0.1


def test_a_page_that_was_closed_meanwhile_is_no_news():
    class Closed:
        def write(self, content: bytes) -> None:
            raise BrokenPipeError

    handler = object.__new__(RequestHandler)
    handler.wfile, handler.close_connection, handler.server, handler.command = Closed(), True, LocalServer, "GET"
    handler.send_response = handler.send_header = handler.end_headers = lambda *said: None
    handler.send(b"a card", "text/plain")


def test_a_connection_that_the_browser_breaks_off_leaves_the_terminal_alone(
    server: ReviewServer, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        raise ConnectionResetError
    except ConnectionResetError:
        server.handle_error(None, ("127.0.0.1", 1))
    assert capsys.readouterr().err == ""
    try:
        raise ZeroDivisionError
    except ZeroDivisionError:
        server.handle_error(None, ("127.0.0.1", 1))
    assert "ZeroDivisionError" in capsys.readouterr().err
