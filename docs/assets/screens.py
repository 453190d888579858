"""Take the screenshots of the guide from a run of `oneof demo`, in light and in dark.

    oneof demo --out DEMO
    python docs/assets/screens.py DEMO

It needs Chromium, and overwrites docs/figures/screen-*.png.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

FIGURES = Path(__file__).parents[1] / "figures"
CHROMIUM = "/usr/bin/chromium"
WIDTH = 1100


def main(demo: Path) -> None:
    """Open the report and the review page of a demo, and save what they show."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            show_report(browser, demo, scheme)
            show_review(browser, demo, scheme)


def show_report(browser: Browser, demo: Path, scheme: str) -> None:
    """Save the top of the report, and its rows to review."""
    page = browser.new_page(viewport={"width": WIDTH, "height": 620}, color_scheme=scheme)
    page.goto((demo / "report.html").resolve().as_uri())
    page.screenshot(path=FIGURES / f"screen-report-{scheme}.png")
    page.get_by_role("heading", name="Rows to review").first.scroll_into_view_if_needed()
    page.evaluate("window.scrollBy(0, 560)")
    page.screenshot(path=FIGURES / f"screen-rows-{scheme}.png")
    page.close()


def show_review(browser: Browser, demo: Path, scheme: str) -> None:
    """Save the first row that `oneof review` shows."""
    command = [sys.executable, "-u", "-m", "oneof", "review", str(demo / "run"), "--who", "ann"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        address = None
        for line in server.stdout:
            address = re.search(r"http://\S+", line)
            if address:
                break
        page = browser.new_page(viewport={"width": 1280, "height": 800}, color_scheme=scheme)
        page.goto(address[0])
        page.wait_for_timeout(2000)
        page.screenshot(path=FIGURES / f"screen-review-{scheme}.png")
        page.close()
        server.terminate()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
