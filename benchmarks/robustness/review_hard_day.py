"""A scripted person has a hard day with `oneof review`, in a real browser, on a run of BMP pictures with sixty classes.

    python benchmarks/robustness/review_hard_day.py --screenshots DIR --axe node_modules/axe-core/axe.min.js

Five keys are pressed faster than rows arrive, three answers are given offline, the server is killed and started on another port, a
label is misspelt, a tab is closed, rows are confirmed in the grid, and everything else is skipped twice and answered at last. The log
must have every answer and nothing else. Every state is photographed in light, dark, on a phone and as printed, and checked by axe-core
where its script is given (npm install axe-core), and the report's text and plots for contrast. Printed: what was checked. Needs
Chromium and playwright (extra dev).
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image
from review_browser import Server, browser, loaded, settled, shown_row, wait
from sklearn.datasets import load_digits

from oneof.data.roles import ColumnRoles
from oneof.learners.config import EnsembleConfig, FitConfig
from oneof.report.page import render_page
from oneof.review.cards import shown_table
from oneof.runs.decisions import Decision, Log
from oneof.runs.fit_spec import FitSpec
from oneof.runs.fit_table import fit_table
from oneof.runs.folder import Run

CHEAP = FitConfig(EnsembleConfig(learners=("kernel",)))
ROWS = 150
WRITERS = 6
KEYS = 9  # candidates that have a key
LOOKS = (("light", 1280), ("dark", 1280), ("phone", 390), ("print", 1280))
# Text in plots whose colour has less than WCAG's 4.5 to 1 against the page. Text on a filled square of a heat map is checked by the
# tests of the report, which know the square's opacity.
PLOT_CONTRAST = """() => {
  const canvas = document.createElement('canvas');
  const context = canvas.getContext('2d', { willReadFrequently: true });
  const channels = (colour) => {
    context.clearRect(0, 0, 1, 1);
    context.fillStyle = colour;
    context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const luminance = (colour) => {
    const [r, g, b] = channels(colour).map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = luminance(getComputedStyle(document.body).backgroundColor);
  const low = [];
  let checked = 0;
  for (const text of document.querySelectorAll('figure svg text')) {
    if (/^\\d+$/.test(text.textContent.trim()) && text.closest('figure').querySelectorAll('path[style*="opacity"]').length > 20) continue;
    const ink = luminance(getComputedStyle(text).fill);
    const ratio = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    checked += 1;
    if (ratio < 4.5) low.push([text.textContent, ratio]);
  }
  return [checked, low];
}"""


def make_run(folder: Path) -> list[str]:
    """Fit digits as BMP files, with classes that name digit and writer, and a dozen candidates a row; return the truth."""
    digits = load_digits()
    rng = np.random.default_rng(0)
    names = np.array([f"digit {digit}, writer {writer}" for digit in range(10) for writer in range(WRITERS)])
    target = WRITERS * digits.target[:ROWS] + np.arange(ROWS) % WRITERS
    sets = (rng.random((ROWS, len(names))) < 0.2) | (np.arange(len(names)) == target[:, None])
    table = pd.DataFrame(digits.data[:ROWS]).add_prefix("x")
    table.insert(0, "note", [f"scan {row}" for row in range(ROWS)])
    table.insert(0, "picture", [f"{row}.bmp" for row in range(ROWS)])
    for row in range(ROWS):
        levels = 255 - 15 * digits.images[row]
        Image.fromarray(levels.astype(np.uint8)).save(folder / f"{row}.bmp")
    table["candidates"] = ["|".join(names[row]) for row in sets]
    table.to_csv(folder / "digits.csv", index=False)
    roles = ColumnRoles(ignore=("note", "picture"))
    fit_table(folder / "digits.csv", folder / "RUN", FitSpec(roles, config=CHEAP))
    return [str(name) for name in names[target]]


class Day:
    """What the person does, and how every state looks."""

    def __init__(self, opened: Any, run: Path, truth: list[str], pictures: Path | None, axe: str | None) -> None:
        self.opened = opened
        self.run = run
        self.truth = truth
        self.pictures = pictures
        self.axe = axe
        self.states: list[str] = []
        self.problems: list[str] = []
        self.server = Server(run)
        self.context = opened.new_context(viewport={"width": 390, "height": 844}, bypass_csp=axe is not None)
        self.context.set_default_timeout(120_000)  # a busy machine is no fault of the page
        self.page = self.context.new_page()
        self.page.goto(self.server.address)
        loaded(self.page)

    def log(self) -> list[Decision]:
        return Log(self.run).active_decisions

    def look(self, state: str) -> None:
        """Photograph the page as it is, in every scheme, and check it."""
        self.states.append(state)
        for name, width in LOOKS:
            self.page.set_viewport_size({"width": width, "height": 900})
            media = "print" if name == "print" else "screen"
            self.page.emulate_media(color_scheme="dark" if name == "dark" else "light", media=media)
            wait(lambda: self.page.evaluate("() => [...document.images].every((image) => image.complete)"))
            if self.page.evaluate("() => document.documentElement.scrollWidth") > width:
                self.problems.append(f"{state}, {name}: wider than the screen")
            if self.pictures is not None:
                self.page.screenshot(path=self.pictures / f"{state}-{name}.png", full_page=True)
            if self.axe is not None:
                self.problems.extend(f"{state}, {name}: {found}" for found in check_by_axe(self.page, self.axe))
        self.page.emulate_media(color_scheme="light", media="screen")
        self.page.set_viewport_size({"width": 390, "height": 844})

    def choose(self) -> tuple[int, str]:
        """Choose the true label of the row that is shown, by its key, or by its name where it has none."""
        row = shown_row(self.page)
        place = self.page.locator("#candidates .name").all_text_contents().index(self.truth[row])
        if place < KEYS:
            self.page.keyboard.press(str(place + 1))
        else:
            self.page.keyboard.press("/")
            self.page.keyboard.type(self.truth[row])
            self.page.keyboard.press("Enter")
        wait(lambda: self.page.locator("#card").is_hidden() or shown_row(self.page) != row)
        return row, self.truth[row]

    def fast_keys(self) -> None:
        """Press five keys at once: no row may be decided that was not shown."""
        for _ in range(5):
            self.page.keyboard.press("1")
        settled(self.page)
        loaded(self.page)
        decided = self.log()
        assert 1 <= len({decision.row for decision in decided}) == len(decided) <= 5
        for _ in decided:
            before = len(self.log())
            self.page.keyboard.press("z")
            wait(lambda before=before: len(self.log()) == before - 1)
        print(f"five fast keys: {len(decided)} rows decided, each once, and undone.")

    def offline(self) -> None:
        """Answer all rows that are loaded, three or more, without a network."""
        before = len(self.log())
        self.context.set_offline(True)
        given = []
        while self.page.locator("#card").is_visible():
            given.append(self.choose())
        self.page.wait_for_selector("#offline:not([hidden])")
        self.look("offline")
        assert len(given) >= 3
        assert len(self.log()) == before
        self.context.set_offline(False)
        wait(lambda: len(self.log()) == before + len(given))
        loaded(self.page)
        self.check(given)
        print(f"offline for {len(given)} answers: all were sent afterwards.")

    def another_port(self) -> None:
        """Kill the server, answer what is loaded, and go on with a server on another port."""
        before = len(self.log())
        self.server.kill()
        given = []
        while self.page.locator("#card").is_visible():
            given.append(self.choose())
        self.page.wait_for_selector("#move:not([hidden])")
        self.look("killed")
        self.server = Server(self.run, port=self.server.port + 1)
        self.page.locator("#address").fill(self.server.address)
        self.page.keyboard.press("Enter")
        wait(lambda: len(self.log()) == before + len(given))
        loaded(self.page)
        self.check(given)
        print(f"killed, and started on another port: {len(given)} answers went along.")

    def check(self, given: list[tuple[int, str]]) -> None:
        found = {decision.row: decision.labels for decision in self.log()}
        for row, label in given:
            assert found[row] == (label,), (row, label, found.get(row))

    def typo(self) -> None:
        """Misspell a label: the page asks, and the class that was meant is one key away."""
        while self.page.locator("#blind").is_visible():
            self.choose()
        row = shown_row(self.page)
        meant = self.truth[row]
        self.page.keyboard.press("x")
        self.page.keyboard.type(meant.replace("writer", "writr"))
        self.page.keyboard.press("Enter")
        self.page.wait_for_selector("#confirm:not([hidden])")
        self.look("typo")
        assert len(self.page.locator("#confirm button").all()) > 2
        similar = self.page.locator("#confirm button").all_inner_texts()
        place = next(k for k, text in enumerate(similar) if text.startswith(meant))
        self.page.keyboard.press(str(place + 1))
        wait(lambda: any(decision.row == row for decision in self.log()))
        known = set(Run.open(self.run).metadata["classes"])
        assert all(set(decision.labels) <= known for decision in self.log())
        print("a misspelt label: asked about, and no new class.")

    def closed_tab(self) -> None:
        """Close a second tab: its rows are given to the next one."""
        rows = []
        for _ in range(2):
            other = self.context.new_page()
            other.goto(self.server.address)
            loaded(other)
            rows.append(shown_row(other))
            other.close()
            wait(lambda: len(self.context.pages) == 1)
        assert rows[0] == rows[1], rows
        print("a closed tab: its row is given back at once.")

    def large_picture(self) -> None:
        self.page.keyboard.press("v")
        wait(lambda: "%" in self.page.locator("#zoom-level").inner_text())
        self.look("picture")
        self.page.keyboard.press("Escape")
        wait(lambda: not self.page.locator("#zoom").is_visible())
        width = self.page.locator("#item img").evaluate("image => image.naturalWidth")
        assert width == 8, width  # a BMP, which browsers are given as PNG
        print("BMP pictures are shown, and enlarged.")

    def grid(self) -> None:
        """Confirm the rows of one label that have it, and leave the others."""
        loaded(self.page)
        self.page.keyboard.press("g")
        self.page.wait_for_selector("#grid:not([hidden])")
        self.look("grid")
        before = len(self.log())
        texts = self.page.locator("#grid-rows label > span:not(.text)").all_inner_texts()
        label = self.page.locator("#grid-label").input_value()
        rows = [int(text.split()[1].rstrip(",")) for text in texts]
        for k, row in enumerate(rows):
            if self.truth[row] != label:
                self.page.locator("#grid-rows input").nth(k).uncheck()
        right = [(row, label) for row in rows if self.truth[row] == label]
        if right:
            self.page.locator("#grid-confirm").click()
            wait(lambda: len(self.log()) == before + len(rows))
        self.check(right)
        self.page.keyboard.press("Escape")
        loaded(self.page)
        print(f"grid: {len(right)} of {len(rows)} rows confirmed at once.")

    def skip_all(self) -> None:
        """Skip until nothing is left, and answer what was skipped."""
        n_skipped = 0
        while self.page.locator("#card").is_visible():
            row = shown_row(self.page)
            self.page.keyboard.press("s")
            n_skipped += 1
            self._next_card(row)
        self.page.wait_for_selector("#empty:not([hidden])")
        self.look("skipped")
        self.page.locator("#again").click()
        loaded(self.page)
        n_answered = 0
        while self.page.locator("#card").is_visible():
            self.choose()
            n_answered += 1
            loaded(self.page)
        while self.page.locator("#rest").is_visible() or self.page.locator("#card").is_visible():
            if self.page.locator("#rest").is_visible():
                self.page.locator("#rest").click()
                loaded(self.page)
            if self.page.locator("#card").is_visible():
                self.choose()
                n_answered += 1
                loaded(self.page)
        settled(self.page)
        self.look("all-done")
        assert "oneof clean" in self.page.locator("#next-command").inner_text()
        print(f"skip all: {n_skipped} times; then {n_answered} rows answered, until all is done.")

    def _next_card(self, row: int) -> None:
        wait(
            lambda: (
                self.page.locator("#empty").is_visible()
                or (self.page.locator("#card").is_visible() and shown_row(self.page) != row)
            )
        )

    def end(self) -> None:
        """Check that the log has one true label for every row that was answered last."""
        settled(self.page)
        last = {}
        for decision in self.log():
            if decision.kind != "skip":
                last[decision.row] = decision.labels
        wrong = [row for row, labels in last.items() if labels != (self.truth[row],)]
        assert wrong == [], wrong
        print(f"the log has {len(last)} rows with the label that the person gave, and no other.")
        self.server.kill()


def check_by_axe(page: Any, script: str) -> list[str]:
    """Return the violations that axe-core finds."""
    run = "axe.run(document, { resultTypes: ['violations'] })"
    found = page.evaluate(
        f"{script}; {run}.then((r) => r.violations.map((v) => [v.id, v.nodes.map((n) => n.target.join(' '))]))"
    )
    return [f"{name} at {', '.join(places)}" for name, places in found]


def look_at_report(
    opened: Any, run: Path, folder: Path, pictures: Path | None, axe: str | None
) -> tuple[list[str], int]:
    """Write the report, look at it in every scheme, and check the contrast of its plots."""
    opened_run = Run.open(run)
    page_text = render_page(
        opened_run.metadata, shown_table(opened_run), opened_run.training, opened_run.rows, folder=str(run)
    )
    path = folder / "report.html"
    path.write_text(page_text, "utf-8")
    problems = []
    n_texts = 0
    page = opened.new_context(bypass_csp=True).new_page()
    page.goto(path.as_uri())
    for name, width in LOOKS:
        page.set_viewport_size({"width": width, "height": 900})
        media = "print" if name == "print" else "screen"
        page.emulate_media(color_scheme="dark" if name == "dark" else "light", media=media)
        if pictures is not None:
            page.screenshot(path=pictures / f"report-{name}.png", full_page=True)
        checked, low = page.evaluate(PLOT_CONTRAST)
        n_texts += checked
        problems.extend(f"report, {name}: contrast {ratio:.1f} of {text!r}" for text, ratio in low)
        if page.evaluate("() => document.documentElement.scrollWidth") > width:
            problems.append(f"report, {name}: wider than the screen")
        if axe is not None:
            problems.extend(f"report, {name}: {found}" for found in check_by_axe(page, axe))
    return problems, n_texts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--screenshots", type=Path, help="a folder that exists")
    parser.add_argument("--axe", type=Path, help="axe.min.js of axe-core")
    options = parser.parse_args()
    axe = options.axe.read_text() if options.axe else None
    with tempfile.TemporaryDirectory() as name, browser() as opened:
        folder = Path(name)
        os.environ["XDG_STATE_HOME"] = str(folder / "state")  # where the port of the run is remembered
        truth = make_run(folder)
        day = Day(opened, folder / "RUN", truth, options.screenshots, axe)
        day.look("row")
        parts: list[Callable[[], None]] = [day.fast_keys, day.offline, day.another_port, day.typo, day.large_picture]
        parts += [day.closed_tab, day.grid, day.skip_all, day.end]
        for part in parts:
            part()
        problems, n_texts = look_at_report(opened, folder / "RUN", folder, options.screenshots, axe)
        problems += day.problems
        states = [*day.states, "report"]
        print(
            f"{len(states)} states in {len(LOOKS)} looks ({', '.join(states)}); {n_texts} texts of plots checked for contrast."
        )
        if axe is None:
            print("axe-core was not given: no check of accessibility.")
        print("\n".join(problems) or "no problem found.")
        assert not problems


if __name__ == "__main__":
    main()
