"""The review in a real browser: every key, nothing run that is shown, both schemes, a phone, the keyboard alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from run_folder import write_run
from test_page_browser import browser

from oneof.runs.review.decisions import Decision, Log
from oneof.runs.review.server import ReviewServer
from oneof.runs.review.session import Review

__all__ = ["browser"]
pytestmark = pytest.mark.browser


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ReviewServer]:
    made = ReviewServer(Review(write_run(tmp_path / "RUN", n=200, gold=0, groups=0)), "ann")
    threading.Thread(target=made.serve_forever, args=(0.02,), daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


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
    row, before = shown(page), len(Log(server.review.run.folder).standing)
    for key in keys:
        page.keyboard.press(key)
    until(lambda: len(Log(server.review.run.folder).standing) > before)
    last = Log(server.review.run.folder).standing[-1]
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
    assert press(page, server, "Enter").labels == ("a <b>new</b> one",)
    page.keyboard.press("z")
    until(lambda: len(Log(server.review.run.folder).standing) == 4)
    page.keyboard.press("x")
    page.keyboard.press("Escape")
    assert page.locator("#typed").is_hidden()
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    page.keyboard.press("Enter")  # closes the help, and decides nothing
    until(lambda: not page.locator("#help").is_visible())
    assert len(Log(server.review.run.folder).standing) == 4


def test_labels_are_shown_and_not_run(page: Any, server: ReviewServer) -> None:
    row = server.review.run.purified.to_pylist()[shown(page)]
    assert set(labels(page)) == set(row["original"])
    for _ in range(6):
        page.keyboard.press("s")
    assert page.evaluate("() => document.images.length") == 0


def test_answers_wait_for_a_server_that_is_away(browser: Any, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "RUN", n=200, gold=0, groups=0)
    first = ReviewServer(Review(folder), "ann")
    threading.Thread(target=first.serve_forever, args=(0.02,), daemon=True).start()
    page = browser.new_context().new_page()
    page.goto(first.address)
    page.wait_for_selector("#card:not([hidden])")
    first.shutdown()
    first.server_close()
    page.route("**/*", lambda route: route.abort())  # connections that are kept open would still be answered
    for _ in range(2):
        page.keyboard.press("Enter")
    until(lambda: "does not answer" in page.locator("#error").inner_text())
    assert Log(folder).standing == []
    page.unroute("**/*")
    second = ReviewServer(Review(folder), "ann", first.server_port)
    first.token = second.token  # a connection that was kept open is still answered by the first, which was not killed
    threading.Thread(target=second.serve_forever, args=(0.02,), daemon=True).start()
    page.goto(second.address)
    until(lambda: len(Log(folder).standing) == 2)
    page.context.close()
    second.shutdown()
    second.server_close()


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
