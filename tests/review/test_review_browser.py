"""The review in a real browser: every key, nothing run that is shown, both schemes, a phone, the keyboard alone."""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chromium import browser
from PIL import Image
from run_folder import write_run

from oneof.review.server import ReviewServer
from oneof.review.session import Review
from oneof.runs import decisions
from oneof.runs.decisions import Decision, Log
from oneof.runs.folder import fingerprint

__all__ = ["browser"]
pytestmark = pytest.mark.browser


class Served(ReviewServer):
    """A server in a thread, which ends as a killed process does: with all its connections."""

    def __init__(self, folder: Path, port: int = 0) -> None:
        self.connections: list[socket.socket] = []
        super().__init__(Review(folder), "ann", port)
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        self.connections.append(connection)
        return connection, address

    def kill(self) -> None:
        self.shutdown()
        self.server_close()
        for connection in self.connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ReviewServer]:
    made = Served(write_run(tmp_path / "RUN", n=200, gold=0, groups=0))
    yield made
    made.kill()


@pytest.fixture
def page(browser: Any, server: ReviewServer) -> Iterator[Any]:
    """The page, opened; afterwards nothing may have gone wrong, and only the server may have been asked."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    opened, faults, asked = context.new_page(), [], []
    opened.on("console", lambda message: faults.append(f"{message.type}: {message.text}"))
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.on("dialog", lambda dialog: (faults.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    opened.on("request", lambda request: asked.append(request.url))
    opened.goto(server.address)
    opened.wait_for_selector("#card:not([hidden])")
    yield opened
    context.close()
    assert faults == []
    assert [url for url in asked if not url.startswith((f"http://127.0.0.1:{server.server_port}/", "data:"))] == []


def until(reached: Callable[[], bool]) -> None:
    limit = time.monotonic() + 20
    while not reached():
        assert time.monotonic() < limit, "the page did not come so far"
        time.sleep(0.02)


def shown(page: Any) -> int:
    return int(page.locator("#title").inner_text().removeprefix("Row "))


def labels(page: Any) -> list[str]:
    return page.locator("#candidates .name").all_text_contents()


def press(page: Any, server: ReviewServer, *keys: str) -> Decision:
    """Press keys that decide the row, and give what is in the log then."""
    row = shown(page)
    earlier = {decision.id for decision in Log(server.review.run.folder).active_decisions}

    def is_decided() -> bool:
        """An answer given by a click just before may reach the log in the meantime."""
        decisions = Log(server.review.run.folder).active_decisions
        return any(decision.row == row and decision.id not in earlier for decision in decisions)

    for key in keys:
        page.keyboard.press(key)
    until(is_decided)
    last = Log(server.review.run.folder).active_decisions[-1]
    assert last.row == row
    until(lambda: shown(page) != row)
    return last


def test_every_key_does_what_the_help_says(page: Any, server: ReviewServer) -> None:
    first = labels(page)
    said = press(page, server, "2")
    assert (said.kind, said.labels) == ("label", (first[1],))
    first = labels(page)
    assert press(page, server, "Enter").labels == (first[0],)
    first = labels(page)
    said = press(page, server, "u", "1", "Enter")
    assert (said.kind, set(said.labels)) == ("set", set(first[1:]))
    assert press(page, server, "s").kind == "skip"
    page.keyboard.press("x")
    page.keyboard.type("a <b>new</b> one")
    assert press(page, server, "Enter", "n").labels == ("a <b>new</b> one",)
    page.keyboard.press("z")
    until(lambda: len(Log(server.review.run.folder).active_decisions) == 4)
    page.keyboard.press("x")
    page.keyboard.press("Escape")
    assert page.locator("#typed").is_hidden()
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    page.keyboard.press("Enter")  # closes the help, and decides nothing
    until(lambda: not page.locator("#help").is_visible())
    assert len(Log(server.review.run.folder).active_decisions) == 4


def test_labels_are_shown_and_not_run(page: Any, server: ReviewServer) -> None:
    row = server.review.run.purified.to_pylist()[shown(page)]
    assert set(labels(page)) == set(row["original"])
    for _ in range(6):
        page.keyboard.press("s")
    assert page.evaluate("() => document.images.length") == 0


def test_answers_wait_for_a_server_that_is_away(browser: Any, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "RUN", n=200, gold=0, groups=0)
    first = Served(folder)
    page = browser.new_context().new_page()
    page.goto(first.address)
    page.wait_for_selector("#card:not([hidden])")
    first.kill()
    for _ in range(2):
        page.keyboard.press("Enter")
    until(lambda: "does not answer" in page.locator("#error").inner_text())
    assert Log(folder).active_decisions == []
    second = Served(folder, first.server_port)
    page.goto(second.address)
    until(lambda: len(Log(folder).active_decisions) == 2)
    page.context.close()
    second.kill()


class Command:
    """`oneof review` in a process of its own, to be killed."""

    def __init__(self, run: Path, *options: str) -> None:
        command = [sys.executable, "-m", "oneof", "review", str(run), "--who", "ann", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        found = re.search(r"open (http://\S+)", self.process.stdout.readline())
        assert found
        self.address = found[1]

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def test_answers_survive_a_killed_server_and_its_restart(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = write_run(tmp_path / "RUN", n=200, gold=0, groups=0)
    first = Command(folder)
    page = browser.new_context().new_page()
    page.goto(first.address)
    page.wait_for_selector("#card:not([hidden])")
    first.kill()
    rows = []
    for _ in range(3):
        rows.append(shown(page))
        page.keyboard.press("1")
    page.close()  # the answers are in no page's memory any more
    second = Command(folder)
    assert Log(folder).active_decisions == []
    context = browser.contexts[-1]
    page = context.new_page()
    page.goto(second.address)
    until(lambda: len(Log(folder).active_decisions) == 3)
    assert [decision.row for decision in Log(folder).active_decisions] == rows
    context.close()
    second.kill()


def test_answers_about_another_run_on_the_same_port_wait_for_it(browser: Any, tmp_path: Path) -> None:
    context = browser.new_context()
    folders = [write_run(tmp_path / f"RUN{seed}", n=50 + seed, gold=0, groups=0, seed=seed) for seed in range(2)]

    def open_page(server: Served) -> Any:
        page = context.new_page()
        page.goto(server.address)
        page.wait_for_selector("#card:not([hidden]), #empty:not([hidden])")
        return page

    server = Served(folders[0])
    port = server.server_port
    page = open_page(server)
    server.kill()
    page.keyboard.press("1")
    page.close()
    server = Served(folders[1], port)
    page = open_page(server)
    page.keyboard.press("1")
    until(lambda: len(Log(folders[1]).active_decisions) == 1)
    page.close()
    server.kill()
    server = Served(folders[0], port)
    open_page(server)
    until(lambda: len(Log(folders[0]).active_decisions) == 1)
    context.close()
    server.kill()


def test_five_fast_keys_decide_only_rows_that_are_shown(page: Any, server: ReviewServer) -> None:
    released = threading.Event()
    next_cards = server.routes["GET /api/next"]

    def next_cards_late(query: dict[str, Any]) -> Any:
        released.wait(20)
        return next_cards(query)

    server.routes["GET /api/next"] = next_cards_late
    decided = []
    for _ in range(5):
        if page.locator("#card").is_visible():
            decided.append((shown(page), labels(page)[0]))
        page.keyboard.press("1")
    assert len(decided) == 3
    assert page.locator("#loading").is_visible()
    assert page.locator("#empty").is_hidden()
    released.set()
    page.wait_for_selector("#card:not([hidden])")
    until(lambda: len(Log(server.review.run.folder).active_decisions) == 3)
    standing = Log(server.review.run.folder).active_decisions
    assert [(decision.row, decision.labels[0]) for decision in standing] == decided
    assert shown(page) not in [row for row, _ in decided]
    press(page, server, "1")


def test_a_key_that_was_pressed_before_the_card_appeared_does_nothing(page: Any, server: ReviewServer) -> None:
    row = shown(page)
    page.evaluate(
        """() => {
            const early = new KeyboardEvent("keydown", { key: "1", bubbles: true });
            Object.defineProperty(early, "timeStamp", { value: 1 });
            document.body.dispatchEvent(early);
        }"""
    )
    assert shown(page) == row
    assert Log(server.review.run.folder).active_decisions == []


def test_a_double_click_decides_one_row(page: Any, server: ReviewServer) -> None:
    row = shown(page)
    page.locator("#skip").dblclick()
    until(lambda: len(Log(server.review.run.folder).active_decisions) == 1 and shown(page) != row)
    press(page, server, "1")
    assert len(Log(server.review.run.folder).active_decisions) == 2


@pytest.mark.parametrize("button", ["#skip", "#candidates li:nth-child(2) button", "#help-button", "#undo", "#learn"])
def test_enter_never_repeats_the_last_click(page: Any, server: ReviewServer, button: str) -> None:
    server.routes["POST /api/learn"] = lambda query: {"note": ""}  # a click on that button learns nothing here
    press(page, server, "1")
    row = shown(page)
    page.locator(button).click()
    if button == "#help-button":
        page.keyboard.press("Escape")
        until(lambda: not page.locator("#help").is_visible())
    elif button != "#learn":
        until(lambda: shown(page) != row)
    decision = press(page, server, "Enter")
    assert (decision.kind, decision.labels) == ("label", (decision.suggested,))


def test_the_help_gives_the_focus_to_the_card_at_once(page: Any) -> None:
    page.locator("#help-button").click()
    focused = page.evaluate("() => { document.getElementById('help').close(); return document.activeElement.id; }")
    assert focused == "title"


def test_a_click_on_unsure_and_then_enter_sends_what_is_left(page: Any, server: ReviewServer) -> None:
    page.locator("#unsure").click()
    candidates = labels(page)
    page.locator("#candidates li:nth-child(1) button").click()
    decision = press(page, server, "Enter")
    assert (decision.kind, set(decision.labels)) == ("set", set(candidates[1:]))


def test_a_button_that_was_reached_by_keys_decides_one_row(page: Any, server: ReviewServer) -> None:
    page.locator("#skip").focus()
    assert press(page, server, "Enter").kind == "skip"
    assert press(page, server, "Enter").kind == "label"


DIGITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


@pytest.fixture
def digits(browser: Any, tmp_path: Path) -> Iterator[tuple[Any, Served]]:
    server = Served(write_run(tmp_path / "RUN", n=200, names=DIGITS, gold=0, groups=0))
    page = browser.new_context().new_page()
    page.goto(server.address)
    page.wait_for_selector("#card:not([hidden])")
    yield page, server
    page.context.close()
    server.kill()


def test_a_label_that_is_new_asks_before_it_becomes_a_class(digits: tuple[Any, Served]) -> None:
    page, server = digits
    row = shown(page)
    page.keyboard.press("x")
    page.keyboard.type("sevn")
    page.keyboard.press("Enter")
    question = page.locator("#confirm")
    assert "sevn" in question.inner_text()
    assert "seven" in question.inner_text()
    page.keyboard.press("Enter")  # chooses nothing
    assert (shown(page), Log(server.review.run.folder).active_decisions) == (row, [])
    assert question.is_visible()
    known = [text.split()[0] for text in question.locator("button").all_inner_texts()].index("seven") + 1
    decision = press(page, server, str(known))
    assert decision.labels == ("seven",)
    assert decision.kind in ("label", "none")
    page.keyboard.press("x")
    page.keyboard.type("eleven")
    assert press(page, server, "Enter", "n").labels == ("eleven",)
    page.keyboard.press("x")  # by now it is a class
    page.keyboard.type("eleven")
    assert press(page, server, "Enter").labels == ("eleven",)


def test_a_label_that_was_added_stays_known_when_an_older_list_arrives_late(digits: tuple[Any, Served]) -> None:
    """The list of labels that X requests may arrive after a label was added, and be without it."""
    page, server = digits
    list_labels = server.routes["GET /api/labels"]

    def list_labels_late(query: dict[str, Any]) -> Any:
        reply = list_labels(query)
        time.sleep(0.5)
        return reply

    server.routes["GET /api/labels"] = list_labels_late
    for keys in (("Enter", "n"), ("Enter",)):
        page.keyboard.press("x")
        page.keyboard.type("eleven")
        assert press(page, server, *keys).labels == ("eleven",)


def test_a_label_whose_answer_was_undone_is_new_again(digits: tuple[Any, Served]) -> None:
    page, server = digits
    row = shown(page)
    page.keyboard.press("x")
    page.keyboard.type("eleven")
    press(page, server, "Enter", "n")
    page.keyboard.press("z")
    until(lambda: shown(page) == row)
    page.keyboard.press("x")
    page.keyboard.type("eleven")
    page.keyboard.press("Enter")
    until(lambda: page.locator("#confirm").is_visible())


def test_a_typed_label_is_completed(digits: tuple[Any, Served]) -> None:
    page, server = digits
    absent = next(label for label in DIGITS if label not in labels(page))
    page.keyboard.press("x")
    page.keyboard.type(absent[:-1].upper())
    assert absent in page.locator("#label-options li").all_inner_texts()
    page.keyboard.press("Tab")
    assert page.locator("#label").input_value() == absent
    decision = press(page, server, "Enter")
    assert (decision.kind, decision.labels) == ("none", (absent,))
    absent = next(label for label in DIGITS if label not in labels(page))
    page.keyboard.press("x")
    page.keyboard.type(absent[:-1])
    assert press(page, server, "ArrowDown", "Enter").labels == (absent,)


def test_rows_are_filtered_by_label(digits: tuple[Any, Served]) -> None:
    page, server = digits
    until(lambda: page.locator("#filter option").count() == 1 + len(DIGITS))
    sets = server.review.run.purified["original"].to_pylist()
    expected = [row for row in server.review.doubtful if "seven" in sets[row]]
    page.locator("#filter").select_option("seven")
    decided = []
    for _ in expected:
        until(lambda: page.locator("#card").is_visible() and "seven" in labels(page))
        decided.append(shown(page))
        page.keyboard.press("1")
        until(lambda: len(Log(server.review.run.folder).active_decisions) == len(decided))
        until(lambda: page.locator("#empty").is_visible() or shown(page) != decided[-1])
    assert sorted(decided) == sorted(expected)
    assert "seven" in page.locator("#end-title").inner_text()
    page.locator("#any-label").click()
    until(lambda: page.locator("#card").is_visible())


def test_guidelines_are_shown_as_text(browser: Any, tmp_path: Path) -> None:
    server = Served(write_run(tmp_path / "RUN", n=40, gold=0, groups=0))
    server.guidelines = "Cats have <b>whiskers</b>.\nDogs bark."
    page = browser.new_context().new_page()
    page.goto(server.address)
    until(lambda: page.locator("#guidelines").is_visible())
    assert page.locator("#guidelines div").inner_text() == server.guidelines
    page.context.close()
    server.kill()


def test_a_random_row_hides_the_suggestion_until_it_is_answered(digits: tuple[Any, Served]) -> None:
    page, server = digits
    page.locator("#random").click()
    until(lambda: page.locator("#blind").is_visible())
    row = shown(page)
    suggested = server.review.labels[row]
    assert labels(page) == sorted(labels(page))
    assert page.locator("meter").count() == 0
    assert "%" not in page.locator("#card").inner_text()
    assert "Suggested" not in page.locator("#status").inner_text()
    assert page.locator("#accept").is_hidden()
    assert page.locator("#revealed").inner_text() == ""
    page.keyboard.press("Enter")  # there is no suggestion to take
    assert (shown(page), Log(server.review.run.folder).active_decisions) == (row, [])
    decision = press(page, server, "1")
    assert decision.drawn == "random"
    revealed = page.locator("#revealed").inner_text()
    assert f"Row {row}" in revealed
    assert (suggested in revealed) or decision.labels == (suggested,)


@pytest.fixture
def many(browser: Any, tmp_path: Path) -> Iterator[tuple[Any, Served]]:
    """A page of a run with sixty classes, at a row with more candidates than there are keys."""
    names = [f"class {k:02d}" for k in range(60)]
    server = Served(write_run(tmp_path / "RUN", n=200, names=names, gold=0, groups=0))
    page = browser.new_context(viewport={"width": 390, "height": 800}).new_page()
    page.goto(server.address)
    page.wait_for_selector("#card:not([hidden])")
    while page.locator("#find-row").is_hidden():
        press(page, server, "s")
    yield page, server
    page.context.close()
    server.kill()


def test_a_candidate_without_a_key_is_found_by_its_name(many: tuple[Any, Served]) -> None:
    page, server = many
    assert page.locator("#candidates li:visible").count() == 9
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
    last = labels(page)[-1]
    page.keyboard.press("/")
    page.keyboard.type(last.removeprefix("class "))
    assert page.locator("#find-options li").all_inner_texts() == [last]
    decision = press(page, server, "Enter")
    assert (decision.kind, decision.labels) == ("label", (last,))
    assert page.evaluate("() => document.activeElement.tagName") != "INPUT"


def test_candidates_that_are_found_by_name_are_struck_out_when_unsure(many: tuple[Any, Served]) -> None:
    page, server = many
    candidates = labels(page)
    page.keyboard.press("u")
    page.keyboard.press("/")
    page.keyboard.type(candidates[-1])
    page.keyboard.press("Enter")
    page.keyboard.type("no such candidate")
    page.keyboard.press("Enter")
    assert "No candidate" in page.locator("#status").inner_text()
    page.keyboard.press("Escape")
    page.locator("#more").click()
    assert page.locator("#candidates li:visible").count() == len(candidates)
    decision = press(page, server, "1", "Enter")
    assert (decision.kind, set(decision.labels)) == ("set", set(candidates[1:-1]))


def test_a_row_is_given_back_when_its_tab_closes(browser: Any, server: ReviewServer) -> None:
    context = browser.new_context()
    first = context.new_page()
    first.goto(server.address)
    first.wait_for_selector("#card:not([hidden])")
    row = shown(first)
    other = context.new_page()
    other.goto(f"{server.address}&who=bob")
    other.wait_for_selector("#card:not([hidden])")
    assert shown(other) != row
    other.close(run_before_unload=True)
    first.reload()
    until(lambda: row not in server.review.leases or first.locator("#card").is_visible())
    first.wait_for_selector("#card:not([hidden])")
    assert shown(first) == row
    first.close(run_before_unload=True)
    until(lambda: not server.review.leases)
    context.close()


def test_a_bar_shows_how_many_doubtful_rows_are_answered(page: Any, server: ReviewServer) -> None:
    doubtful = len(server.review.doubtful)
    bar = page.locator("#bar")
    assert f"0 of {doubtful} doubtful rows" in page.locator("header").inner_text()
    press(page, server, "1")
    until(lambda: bar.evaluate("(bar) => bar.value") == 1)
    assert bar.evaluate("(bar) => bar.max") == doubtful


def test_the_token_leaves_the_address_bar_and_a_reload_works(page: Any, server: ReviewServer) -> None:
    assert page.url == f"http://127.0.0.1:{server.server_port}/"
    page.reload()
    page.wait_for_selector("#card:not([hidden])")
    press(page, server, "1")


def test_a_full_disk_is_told_and_the_answer_is_sent_when_there_is_room(
    browser: Any, server: ReviewServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path, rows: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    page = browser.new_context().new_page()
    page.goto(server.address)
    page.wait_for_selector("#card:not([hidden])")
    with monkeypatch.context() as patched:
        patched.setattr(decisions, "append", fail)
        page.keyboard.press("1")
        until(lambda: os.strerror(errno.ENOSPC) in page.locator("#error").inner_text())
    until(lambda: len(Log(server.review.run.folder).active_decisions) == 1)
    until(lambda: page.locator("#error").is_hidden())
    page.context.close()


def test_an_earlier_answer_is_asked_again_from_the_history(page: Any, server: ReviewServer) -> None:
    first = press(page, server, "1")
    press(page, server, "1")
    page.locator("#history summary").click()
    page.get_by_role("button", name=f"Ask again about row {first.row}").click()
    until(lambda: shown(page) == first.row)
    assert press(page, server, "2").row == first.row


def test_a_server_that_is_away_is_not_the_end_and_the_page_goes_on_by_itself(
    browser: Any, server: ReviewServer
) -> None:
    page = browser.new_context().new_page()
    page.goto(server.address)
    page.wait_for_selector("#card:not([hidden])")
    page.route("**/api/*", lambda route: route.abort())
    rows = []
    for _ in range(3):
        rows.append(shown(page))
        page.keyboard.press("1")
    page.wait_for_selector("#offline:not([hidden])")
    assert "3 answers" in page.locator("#offline").inner_text()
    assert page.locator("#empty").is_hidden()
    page.keyboard.press("1")
    page.keyboard.press("x")
    page.unroute("**/api/*")
    page.wait_for_selector("#card:not([hidden])")
    assert [decision.row for decision in Log(server.review.run.folder).active_decisions] == rows
    assert page.locator("#error").is_hidden()
    assert page.locator("#typed").is_hidden()
    page.context.close()


def test_a_page_of_a_server_that_has_ended_says_which_address_to_open(browser: Any, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "RUN", n=200, gold=0, groups=0)
    first = Served(folder)
    page = browser.new_context().new_page()
    page.goto(first.address)
    page.wait_for_selector("#card:not([hidden])")
    first.kill()
    second = Served(folder, first.server_port)
    page.keyboard.press("1")
    until(lambda: "Open the address" in page.locator("#error").inner_text())
    page.goto(second.address)
    until(lambda: len(Log(folder).active_decisions) == 1)
    page.context.close()
    second.kill()


@pytest.fixture
def small(browser: Any, tmp_path: Path) -> Iterator[tuple[Any, Served]]:
    """A page about few rows, of which some are doubtful, and its server."""
    server = Served(write_run(tmp_path / "RUN", n=24, gold=0, groups=0, seed=5))
    page = browser.new_context().new_page()
    page.goto(server.address)
    page.wait_for_selector("#card:not([hidden])")
    yield page, server
    page.context.close()
    server.kill()


def press_until_the_end(page: Any, key: str) -> int:
    """Press a key for every row that comes, and return for how many."""
    pressed = 0
    while True:
        page.wait_for_selector("#card:not([hidden]), #empty:not([hidden])")
        if page.locator("#empty").is_visible():
            return pressed
        page.keyboard.press(key)
        pressed += 1


def test_all_done_is_a_state_with_the_next_command(small: tuple[Any, Served]) -> None:
    page, server = small
    answered = press_until_the_end(page, "1")
    assert "All done" in page.locator("#empty").inner_text()
    assert page.locator("#loading").is_hidden()
    assert page.locator("#next-command").inner_text().startswith(f"oneof clean {server.review.run.folder}")
    until(lambda: len(Log(server.review.run.folder).active_decisions) == answered)
    page.keyboard.press("1")
    page.keyboard.press("z")
    page.wait_for_selector("#card:not([hidden])")
    assert len(Log(server.review.run.folder).active_decisions) == answered - 1
    page.keyboard.press("1")
    page.wait_for_selector("#empty:not([hidden])")
    page.locator("#rest").click()
    page.wait_for_selector("#card:not([hidden])")
    press_until_the_end(page, "1")
    assert "Every row is answered." in page.locator("#empty").inner_text()
    assert page.locator("#rest").is_hidden()


def test_skipping_everything_shows_every_row_twice_and_then_what_is_left(small: tuple[Any, Served]) -> None:
    page, server = small
    skipped = press_until_the_end(page, "s")
    rows = [decision.row for decision in Log(server.review.run.folder).active_decisions]
    assert skipped == 2 * len(set(rows))
    assert "Only skipped rows are left" in page.locator("#empty").inner_text()
    page.locator("#again").click()
    page.wait_for_selector("#card:not([hidden])")
    assert "You skipped this row before." in page.locator("#card").inner_text()
    assert press_until_the_end(page, "1") == len(set(rows))
    assert "All done" in page.locator("#empty").inner_text()


def test_it_fits_a_phone_and_follows_the_scheme(page: Any) -> None:
    colours = set()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        colours.add(page.evaluate("() => getComputedStyle(document.body).backgroundColor"))
    assert len(colours) == 2
    for width in (320, 390, 768, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("() => document.documentElement.scrollWidth") <= width


def test_a_screen_reader_hears_the_row_and_every_control_has_a_name(page: Any) -> None:
    assert page.get_by_role("status").first.inner_text().startswith(f"Row {shown(page)}. Suggested: ")
    unnamed = page.evaluate(
        "() => [...document.querySelectorAll('button, input')].filter((e) => !(e.textContent || e.labels?.length)).length"
    )
    assert unnamed == 0


# ---------------------------------------------------------------------------------------------- many rows, and pictures


def test_many_rows_are_confirmed_at_once_and_the_others_asked_later(digits: tuple[Any, Served]) -> None:
    page, server = digits
    folder = server.review.run.folder
    held = shown(page)
    page.keyboard.press("g")
    page.wait_for_selector("#grid:not([hidden])")
    rows = [
        int(text.split()[1].rstrip(","))
        for text in page.locator("#grid-rows label > span:not(.text)").all_inner_texts()
    ]
    label = page.locator("#grid-label").input_value()
    assert held not in rows
    assert {server.review.labels[row] for row in rows} == {label}
    page.keyboard.press("Enter")  # the focus is on the heading: nothing is confirmed
    assert Log(folder).active_decisions == []
    page.locator("#grid-rows input").first.uncheck()
    page.locator("#grid-confirm").click()
    until(lambda: len(Log(folder).active_decisions) == len(rows))
    decided = {decision.row: decision for decision in Log(folder).active_decisions}
    assert decided.pop(rows[0]).kind == "skip"
    assert {row: decision.labels for row, decision in decided.items()} == dict.fromkeys(rows[1:], (label,))
    page.keyboard.press("Escape")  # perhaps while the next rows are on their way
    until(lambda: page.locator("#card").is_visible())
    assert shown(page) == held
    press(page, server, "1")
    assert page.locator("#grid").is_hidden()


def test_answers_go_along_to_a_server_on_another_port(browser: Any, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "RUN", n=200, gold=0, groups=0)
    first = Served(folder)
    page = browser.new_context().new_page()
    page.goto(first.address)
    page.wait_for_selector("#card:not([hidden])")
    first.kill()
    rows = []
    for _ in range(3):
        rows.append(shown(page))
        page.keyboard.press("1")
    page.wait_for_selector("#offline:not([hidden])")
    second = Served(folder)
    assert second.server_port != first.server_port
    page.locator("#address").fill("not an address")
    page.keyboard.press("Enter")
    until(lambda: "not an address" in page.locator("#status").inner_text())
    page.locator("#address").fill(second.address)
    page.keyboard.press("Enter")
    until(lambda: len(Log(folder).active_decisions) == 3)
    assert [decision.row for decision in Log(folder).active_decisions] == rows
    page.wait_for_selector("#card:not([hidden])")
    assert "unsent" not in page.url
    page.context.close()
    second.kill()


def test_answers_in_an_address_without_the_token_are_never_sent(browser: Any, server: ReviewServer) -> None:
    answer = {
        "id": "evil",
        "row": 0,
        "kind": "skip",
        "labels": [],
        "run": server.review.id,
        "drawn": "queue",
        "seconds": 1,
    }
    unsent = quote(json.dumps([{"who": "eve", "answer": answer}]))
    context = browser.new_context()
    page = context.new_page()
    for token in ("", "?token=guess"):
        page.goto(f"http://127.0.0.1:{server.server_port}/{token}#unsent={unsent}")
    page.goto(server.address)
    page.wait_for_selector("#card:not([hidden])")
    assert page.evaluate("() => localStorage.getItem('oneof-unsent')") in (None, "[]")
    assert Log(server.review.run.folder).active_decisions == []
    context.close()


@pytest.fixture
def pictures(browser: Any, tmp_path: Path) -> Iterator[tuple[Any, Served]]:
    """A run on a table that names picture files, in formats that browsers show and do not show."""
    folder = write_run(tmp_path / "RUN", n=60, names=DIGITS, gold=0, groups=0)
    rng = np.random.default_rng(0)
    lines = ["file,note,size"]
    for row in range(60):
        suffix = ("png", "bmp", "tif")[row % 3]
        Image.fromarray(rng.integers(0, 255, (40, 30, 3), dtype=np.uint8)).save(tmp_path / f"{row}.{suffix}")
        lines.append(f"{row}.{suffix},note {row},{row}.5")
    (tmp_path / "table.csv").write_text("\n".join(lines) + "\n")
    table = pq.read_table(folder / "purified.parquet")
    neighbours = pa.array([[(row + 1) % 60, (row + 2) % 60] for row in range(60)], pa.list_(pa.int64()))
    place = table.column_names.index("neighbours")
    pq.write_table(table.set_column(place, "neighbours", neighbours), folder / "purified.parquet")
    metadata = json.loads((folder / "run.json").read_text())
    metadata |= {"file": str(tmp_path / "table.csv"), "fingerprint": fingerprint(tmp_path / "table.csv")}
    (folder / "run.json").write_text(json.dumps(metadata))
    server = Served(folder)
    page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    page.goto(server.address)
    page.wait_for_selector("#card:not([hidden])")
    yield page, server
    page.context.close()
    server.kill()


def widths(page: Any, selector: str) -> list[int]:
    return page.locator(selector).evaluate_all("images => images.map(image => image.naturalWidth)")


def skip_row(page: Any) -> None:
    """Skip the row that is shown, and wait for the next one."""
    row = shown(page)
    page.keyboard.press("s")
    until(lambda: page.locator("#card").is_visible() and shown(page) != row)


def test_pictures_are_shown_large_and_neighbours_as_thumbnails(pictures: tuple[Any, Served]) -> None:
    page, _ = pictures
    for _ in range(3):  # one row of each format
        until(lambda: widths(page, "#item img") == [30])
        until(lambda: widths(page, "#near img") == [30, 30])
        assert page.locator("#item img").bounding_box()["width"] > 200
        assert page.locator("#item dt").all_inner_texts() == ["note"]
        skip_row(page)
    until(lambda: widths(page, "#item img") == [30])
    page.keyboard.press("v")
    until(lambda: "%" in page.locator("#zoom-level").inner_text())
    narrow = page.locator("#zoom-frame img").bounding_box()["width"]
    row = shown(page)
    page.keyboard.press("+")
    until(lambda: page.locator("#zoom-frame img").bounding_box()["width"] > 1.4 * narrow)
    page.keyboard.press("1")  # decides nothing while the picture is open
    page.keyboard.press("Escape")
    until(lambda: not page.locator("#zoom").is_visible())
    assert shown(page) == row
    page.keyboard.press("g")
    page.wait_for_selector("#grid:not([hidden])")
    until(lambda: set(widths(page, "#grid img")) == {30})
