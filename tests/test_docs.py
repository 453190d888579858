"""The docs: every snippet runs and prints what the page says, every page is in the menu, and the site builds without a warning."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from snippets import FENCE, run, same, steps

from oneof.storage.rows import read

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in [*DOCS.glob("*.md"), *DOCS.glob("guide/*.md")])
RUN = [
    pytest.param(name, marks=pytest.mark.slow) if name in ("tutorial.md", "images.md") else name  # they fit models
    for name in PAGES
    if steps((DOCS / name).read_text("utf-8"))
]


@pytest.mark.parametrize("name", RUN)
def test_every_snippet_prints_what_the_page_says(name, tmp_path):
    page = (DOCS / name).read_text("utf-8")
    for step, real in zip(steps(page), run(page, tmp_path), strict=True):
        assert same(step.output, real), f"{name} shows for\n{step.code}\n{step.output}\nbut it prints\n{real}"


@pytest.mark.parametrize("name", PAGES)
def test_every_block_of_code_is_one_that_is_run(name):
    page = (DOCS / name).read_text("utf-8")
    fences = [line for line in page.splitlines() if line.startswith("```") and line != "```"]
    assert len(fences) == len(FENCE.findall(page))


@pytest.mark.parametrize("name", ["methods.md", "results.md"])
def test_the_digits_table_is_that_of_the_rows(name):
    import digits

    rows = [row for row in read(ROOT / "results/digits.jsonl") if 100 <= row["seed"] < 110]
    assert len(rows) == 120
    assert digits.table(rows) in (DOCS / name).read_text("utf-8")


def test_the_table_of_orders_is_that_of_the_rows():
    import review_order

    rows = [row for row in read(ROOT / "results/review_order.jsonl") if row["seed"] in range(150, 160)]
    assert len(rows) == 120
    assert review_order.table(rows, range(150, 160)) in (DOCS / "review.md").read_text("utf-8")


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "docs/decisions/0012-rooms.md"])
def test_files_that_are_named_are_there(name):
    page = (ROOT / name).read_text("utf-8")
    named = re.findall(r"`((?:src|tests|benchmarks|docs)/[\w/.]+)`(?!, \*new\*)", page)
    named += [f"src/oneof/{path}" for path in re.findall(r"^\| \d+ \|[^|`]*\| `(\w[\w/]*\.py)`", page, re.MULTILINE)]
    assert len(named) >= 10
    assert [path for path in named if not (ROOT / path).exists()] == []
    new = re.findall(r"`(src/[\w/.]+)`, \*new\*", page)
    assert [path for path in new if (ROOT / path).exists()] == []  # it has been built: say so


@pytest.mark.parametrize("figure", ["91.78", "90.69", "89.08", "95.50", "95.00", "5.4", "9.0"])
def test_the_figures_that_the_page_on_pop_quotes_are_in_the_table(figure):
    table = (DOCS / "methods.md").read_text("utf-8")
    quoted = (DOCS / "guide/pop.md").read_text("utf-8")
    assert f" {figure} " in table
    assert figure in quoted


def test_every_page_is_in_the_menu():
    menu = (ROOT / "mkdocs.yml").read_text("utf-8")
    assert [page for page in PAGES if page not in menu] == []  # docs/assets/menu.py adds the decisions


def test_the_site_builds_without_a_warning(tmp_path):
    if find_spec("mkdocs") is None or find_spec("mkdocstrings") is None:
        pytest.skip("mkdocs is not installed (extra docs)")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert "PartialLabelClassifier" in (tmp_path / "site/api/index.html").read_text("utf-8")
    assert "Dawid-Skene" in (tmp_path / "site/index.html").read_text("utf-8")
    outside = [page.name for page in (tmp_path / "site").rglob("*.html") if 'src="https:' in page.read_text("utf-8")]
    assert outside == []


def test_every_promise_on_security_names_a_test_that_is_there():
    page = (ROOT / "SECURITY.md").read_text("utf-8")
    promises = re.findall(r"^\| (.+) \| (.+) \|$", page, re.MULTILINE)
    promises = [(promise, tests) for promise, tests in promises if promise != "promise"]
    assert len(promises) > 15
    sources = "".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    for promise, tests in promises:
        names = re.findall(r"`(test_\w+)`", tests)
        assert names, promise
        for name in names:
            assert f"def {name}(" in sources, name
