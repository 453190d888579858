"""A scripted person reviews a run of digits in a real browser, by keys; the server is killed twice, five answers are undone.

Answers are given while the server is dead, too: they are sent when it is started again, on the port of the run.

    python benchmarks/robustness/review_browser.py --answers 100 --screenshots DIR

Then two people in two browsers answer 200 rows each at once, and the model learns again from the page's button. Printed: what was
checked. Needs Chromium and playwright (extra dev). Everything that the person answered must be in the log, and nothing else.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits

from oneof.data.roles import ColumnRoles
from oneof.learners.config import EnsembleConfig, FitConfig
from oneof.runs.decisions import Log
from oneof.runs.fit_spec import FitSpec
from oneof.runs.fit_table import fit_table

QUICK = FitConfig(EnsembleConfig(scalings=("feature",), lr=0.1, weight_decay=1e-3, epochs=20))
ROW = re.compile(r"Row (\d+)")


def make_run(folder: Path) -> list[str]:
    """A run on digits with three labels in most sets; the truth is the person's."""
    digits, rng = load_digits(), np.random.default_rng(0)
    names = np.array(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])
    sets = (rng.random((len(digits.data), 10)) < 0.25) | (np.arange(10) == digits.target[:, None])
    table = pd.DataFrame(digits.data).add_prefix("x")
    table.insert(0, "note", [f"scan {row}, eight by eight" for row in range(len(table))])
    table["candidates"] = ["|".join(names[row]) for row in sets]
    table.to_csv(folder / "digits.csv", index=False)
    fit_table(folder / "digits.csv", folder / "RUN", FitSpec(ColumnRoles(ignore=("note",)), config=QUICK))
    return [str(name) for name in names[digits.target]]


class Server:
    """`oneof review` in a process of its own, to be killed."""

    def __init__(self, run: Path, port: int = 0) -> None:
        command = [sys.executable, "-m", "oneof", "review", str(run), "--who", "ann", "--port", str(port)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        found = re.search(r"open (http://127\.0\.0\.1:(\d+)/\S+)", said)
        assert found, said
        self.address, self.port = found[1], int(found[2])

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextmanager
def browser() -> Any:
    from playwright.sync_api import sync_playwright

    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as started:
        launched = started.chromium.launch(executable_path=chromium, args=options)
        yield launched
        launched.close()


def loaded(page: Any) -> None:
    """Wait until the page shows a row, or that no doubtful row is left."""
    page.wait_for_selector("#card:not([hidden]), #empty:not([hidden])")


def go_on(page: Any) -> None:
    """Wait for a row; where no doubtful one is left, go on with the rest."""
    loaded(page)
    if page.locator("#empty").is_visible():
        page.locator("#rest").click()
        page.wait_for_selector("#card:not([hidden])")


def shown_row(page: Any) -> int:
    found = ROW.fullmatch(page.locator("#title").inner_text())
    assert found
    return int(found[1])


def answer(page: Any, truth: list[str]) -> tuple[int, str]:
    """Decide the row that is shown, by keys."""
    go_on(page)
    row = shown_row(page)
    labels = page.locator("#candidates .name").all_text_contents()
    place = labels.index(truth[row])
    suggested_first = page.locator("#blind").is_hidden()
    if place == 0 and suggested_first:
        page.keyboard.press("Enter")
    elif place < 9:
        page.keyboard.press(str(place + 1))
    else:
        page.keyboard.press("/")
        page.keyboard.type(truth[row])
        page.keyboard.press("Enter")
    wait(lambda: page.locator("#card").is_hidden() or page.locator("#title").inner_text() != f"Row {row}")
    return row, truth[row]


def settled(page: Any) -> None:
    """Wait until the page has sent everything."""
    wait(lambda: page.evaluate("() => (JSON.parse(localStorage.getItem('oneof-unsent')) || []).length") == 0)


def wait(reached: Callable[[], bool], seconds: float = 60.0) -> None:
    """The page's policy lets nobody evaluate text in it, so waiting is done here."""
    limit = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < limit, "the page did not come so far"
        time.sleep(0.02)


def alone(run: Path, truth: list[str], count: int, pictures: Path | None) -> None:
    server = Server(run)
    with browser() as opened:
        page = opened.new_context(viewport={"width": 1280, "height": 900}).new_page()
        page.goto(server.address)
        loaded(page)
        answers: list[tuple[int, str]] = []
        undone = 0
        while len(answers) < count:
            answers.append(answer(page, truth))
            if len(answers) in (count // 3, 2 * count // 3):
                server.kill()  # with the last answer perhaps still on its way
                port = server.port
                while page.locator("#card").is_visible():
                    answers.append(answer(page, truth))
                page.wait_for_selector("#offline:not([hidden])")
                server = Server(run)
                assert server.port == port
                page.goto(server.address)
                loaded(page)
            if len(answers) % (count // 5) == count // 10 and undone < 5:
                page.keyboard.press("z")
                last, _ = answers.pop()
                wait(lambda last=last: page.locator("#title").inner_text() == f"Row {last}")
                undone += 1
        settled(page)
        found = [(one.row, one.labels[0]) for one in Log(run).active_decisions]
        assert sorted(found) == sorted(answers), set(found) ^ set(answers)
        print(
            f"{len(answers)} rows answered by keys, 2 kills, {undone} undone: the log has all {len(found)}, nothing else."
        )
        print(page.locator("#accuracy").inner_text(), page.locator("#agreement").inner_text())
        if pictures is not None:
            photograph(opened, server.address, pictures)
    server.kill()


def photograph(opened: Any, address: str, folder: Path) -> None:
    for name, scheme, width in (("light", "light", 1280), ("dark", "dark", 1280), ("phone", "light", 390)):
        page = opened.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme).new_page()
        page.goto(address)
        go_on(page)
        assert page.evaluate("() => document.documentElement.scrollWidth") <= width
        page.screenshot(path=folder / f"review-{name}.png", full_page=True)


def two_at_once(run: Path, truth: list[str], count: int) -> None:
    before = len(Log(run).active_decisions)
    server = Server(run)
    answers: dict[str, list[tuple[int, str]]] = {"bob": [], "eve": []}

    def work(who: str) -> None:
        with browser() as opened:
            page = opened.new_context().new_page()
            page.goto(f"{server.address}&who={who}")
            loaded(page)
            answers[who] += [answer(page, truth) for _ in range(count)]
            settled(page)

    people = [threading.Thread(target=work, args=(who,)) for who in answers]
    for person in people:
        person.start()
    for person in people:
        person.join()
    written = Log(run).active_decisions[before:]
    for who, own in answers.items():
        assert sorted((one.row, one.labels[0]) for one in written if one.who == who) == sorted(own)
    once = [one.row for one in Log(run).active_decisions if one.drawn != "repeat"]
    assert len(once) == len(set(once))
    print(
        f"two people at once: {len(written)} answers, none lost, no row decided twice but {len(written) + before - len(once)} blind repeats."
    )
    learn_again(server)
    server.kill()


def learn_again(server: Server) -> None:
    with browser() as opened:
        page = opened.new_context().new_page()
        page.goto(server.address)
        loaded(page)
        begun = time.monotonic()
        page.locator("#learn").click()
        wait(lambda: page.locator("#folder").inner_text() == "RUN-2", 300)
        loaded(page)
        print(f"learned again in {time.monotonic() - begun:.0f} s; the page goes on with RUN-2.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", type=int, default=100)
    parser.add_argument("--each", type=int, default=200, help="answers of each of two people at once")
    parser.add_argument("--screenshots", type=Path, help="a folder that exists")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = str(Path(folder) / "state")  # where the port of the run is remembered
        truth = make_run(Path(folder))
        alone(Path(folder) / "RUN", truth, asked.answers, asked.screenshots)
        two_at_once(Path(folder) / "RUN", truth, asked.each)


if __name__ == "__main__":
    main()
