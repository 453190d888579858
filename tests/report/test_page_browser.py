"""The page in a real browser: no error, nothing asked of the network, search and sort, the keyboard, both schemes, a phone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from chromium import browser
from run_folder import NASTY, write_run

from oneof.report.page import render_page
from oneof.runs.folder import Run

__all__ = ["browser"]
pytestmark = pytest.mark.browser
REACHABLE = "a[href], button:not(:disabled), input, select, summary, [tabindex='0']"


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = write_run(tmp_path_factory.mktemp("browser") / "RUN", n=130)
    path = folder / "report.html"
    run = Run.open(folder)
    path.write_text(render_page(run.metadata, run.purified, run.training, run.rows), "utf-8")
    return path


@pytest.fixture
def page(browser, report) -> Iterator[Any]:
    """The page, opened; afterwards nothing may have gone wrong and nothing may have been asked for."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    opened = context.new_page()
    faults: list[str] = []
    asked: list[str] = []
    opened.on("console", lambda message: faults.append(f"{message.type}: {message.text}"))
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.on("dialog", lambda dialog: (faults.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    opened.on("request", lambda request: asked.append(request.url))
    opened.goto(report.as_uri())
    yield opened
    context.close()
    assert faults == []
    assert [url for url in asked if not url.startswith("data:")] == [report.as_uri()]


def column(page, head: str) -> list[str]:
    """The cells under a head, as shown."""
    place = page.locator("#table thead button").all_inner_texts().index(head)
    return page.locator(f"#body tr > :nth-child({place + 1})").all_inner_texts()


def test_the_first_fifty_rows_are_there_and_the_rest_a_button_away(page):
    assert column(page, "row") == [str(k) for k in range(50)]
    assert page.locator("#back").is_disabled()
    page.locator("#forth").click()
    page.locator("#forth").click()
    assert column(page, "row") == [str(k) for k in range(100, 130)]
    assert page.locator("#forth").is_disabled()
    assert page.locator("#back").evaluate("button => button === document.activeElement")
    assert page.locator("#count").inner_text() == "Rows 101 to 130 of 130."


def test_search_finds_a_label_whatever_it_is_called(page, report):
    rows = Run.open(report.parent).purified.to_pylist()
    for name in NASTY:
        said = [row for row in rows if name in [*row["original"], row["outside"], row["gold"]]]
        page.get_by_label("Search labels and row numbers").fill(name)
        assert said
        assert column(page, "row") == [str(row["row"]) for row in said][:50]


def test_search_finds_a_row_number_and_says_when_there_is_none(page):
    search = page.get_by_label("Search labels and row numbers")
    search.fill("#117")
    assert column(page, "row") == ["117"]
    search.fill("no such label")
    assert column(page, "row") == []
    assert page.get_by_role("status").inner_text() == "None of the 130 rows matches."


def test_heads_sort_both_ways_and_say_so(page):
    head = page.get_by_role("button", name="probability")
    cell = page.locator("th:has(button[data-by=probability])")
    for state, reverse in (("ascending", False), ("descending", True)):
        head.click()
        assert cell.get_attribute("aria-sort") == state
        found = [float(text.split()[0]) for text in column(page, "probability")]
        assert found == sorted(found, reverse=reverse)
        assert len(set(found)) > 5
    assert page.locator("[aria-sort]").count() == 1


def test_the_queue_opens_in_the_table(page, report):
    rows = Run.open(report.parent).purified.to_pylist()
    page.get_by_role("button", name="Show all of them in the table").click()
    asked = sorted((row for row in rows if row["ask"]), key=lambda row: -row["gain"])
    assert column(page, "row") == [str(row["row"]) for row in asked]
    page.get_by_label("Show", exact=True).select_option("wrong")
    assert set(column(page, "row")) == {
        str(row["row"]) for row in rows if row["gold"] is not None and row["gold"] != row["label"]
    }


def test_a_row_says_why_its_candidates_were_removed(page, report):
    rows = [row for row in Run.open(report.parent).purified.to_pylist()[:50] if row["removed"]]
    first = [min(row["removed"], key=lambda fall: fall["round"])["round"] for row in rows]
    for row, round in [(rows[first.index(0)], 0), next(pair for pair in zip(rows, first, strict=True) if pair[1] > 0)]:
        line = page.locator(f"#body tr:nth-child({row['row'] + 1})")
        line.locator("summary").press("Enter")
        when = "before training" if round == 0 else f"in round {round}"
        assert f" was removed {when}" in line.locator("li").first.inner_text()
        assert {fall["label"] for fall in row["removed"]} == set(line.locator("del .label").all_inner_texts())


def test_the_keyboard_reaches_everything_and_shows_where_it_is(page):
    wanted = page.evaluate(f"""[...document.querySelectorAll({json.dumps(REACHABLE)})]
        .filter((each) => each.checkVisibility()).map((each, k) => (each.dataset.k = k))""")
    reached = []
    for _ in range(len(wanted) + 5):
        page.keyboard.press("Tab")
        found, outline = page.evaluate(
            """[document.activeElement.dataset.k, getComputedStyle(document.activeElement).outlineStyle]"""
        )
        if found is None:
            break
        assert outline != "none", f"{found} has no visible focus"
        reached.append(int(found))
    assert reached == wanted


def test_a_head_sorts_by_the_keyboard_alone(page):
    page.locator("button[data-by=margin]").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Space")
    found = [float(text) for text in column(page, "margin")]
    assert found == sorted(found, reverse=True)
    assert page.locator("button[data-by=margin]").evaluate("button => button === document.activeElement")


def test_labels_are_shown_and_not_run(page):
    assert page.evaluate("document.images.length") == 0
    assert page.evaluate("document.scripts.length") == 2
    shown = page.locator("#out .label").all_inner_texts()
    assert set(NASTY) <= set(shown)


def test_it_follows_the_scheme_of_the_reader(page):
    colours = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        colours.append(
            page.evaluate(
                """[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.querySelector("figure svg text")).fill]"""
            )
        )
    (light, text), (dark, pale) = colours
    assert light != dark
    assert text != pale


def test_nothing_is_wider_than_the_screen(page):
    for width in (320, 390, 768, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
