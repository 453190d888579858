"""The docs: every snippet of the guide runs and prints what the page says, every page is in the menu, and the site builds without a warning."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from snippets import FENCE, NOT_RUN, Pages, same, steps

from oneof.storage.rows import read

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
GUIDE = ["index.md", *sorted(path.relative_to(DOCS).as_posix() for path in DOCS.glob("guide/*.md"))]
RUN = [name for name in (*GUIDE, "research/selection.md") if steps((DOCS / name).read_text("utf-8"))]


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The pages of the guide, each run once: several begin in the folder that another leaves."""
    return Pages(DOCS, tmp_path_factory.mktemp("pages"))


@pytest.mark.parametrize("name", RUN)
def test_every_snippet_prints_what_the_page_says(name, pages, caplog):
    page = (DOCS / name).read_text("utf-8")
    for step, real in zip(steps(page), pages.run(name), strict=True):
        assert same(step.output, real), f"{name} shows for\n{step.code}\n{step.output}\nbut it prints\n{real}"


def test_rewriting_a_page_renews_its_numbers_and_keeps_what_it_leaves_out(tmp_path):
    (tmp_path / "printed.txt").write_text("begin\nleft out\nrows 6\n│ seconds │ 5.0 │\n")
    shown = "begin\n...\nrows 5\n│ seconds │ ... │\n"
    command = f"$ cat {(tmp_path / 'printed.txt').as_posix()}\n"
    page = tmp_path / "page.md"
    page.write_text(f"```console\n{command}{shown}```\n", "utf-8")
    Pages(tmp_path, tmp_path / "pages").rewrite("page.md")
    assert page.read_text("utf-8") == f"```console\n{command}{shown.replace('rows 5', 'rows 6')}```\n"


@pytest.mark.parametrize("name", GUIDE)
def test_every_block_of_code_is_run_or_says_why_not(name):
    page = (DOCS / name).read_text("utf-8")
    fences = re.findall(r"^ *```\w+$", page, re.MULTILINE)
    assert len(fences) == len(FENCE.findall(page)) + len(NOT_RUN.findall(page))


def test_every_column_of_labels_csv_is_explained(pages, caplog):
    pages.run("guide/start.md")
    with (pages.folder("guide/start.md") / "oneof-demo/labels.csv").open(encoding="utf-8") as file:
        columns = next(csv.reader(file))
    section = (DOCS / "reference/files.md").read_text("utf-8").split("## labels.csv")[1].split("\n## ")[0]
    explained = re.findall(r"`(\w+)`", "\n".join(re.findall(r"^\| ([^|]+) \|", section, re.MULTILINE)))
    assert [column for column in columns if column not in explained] == []


DIARY = {
    "a commit": r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,40}\b",
    "a seed": r"\bseeds? \d",
    "a date": r"\b20\d\d-\d\d-\d\d\b|\b(?:January|February|March|April|June|July|August|September|October|November|December) (?:\d|20)",
    "an earlier state": r"\btoday's\b|\bformerly\b|\bused to be\b|\bdefaults? before\b|\bbefore the default\b|\bno longer the default\b",
    "an issue": r"\bissues? #?\d|(?<![\w&/])#\d+\b",
}


@pytest.mark.parametrize("kind", DIARY)
def test_the_guide_is_no_diary(kind):
    pages = {name: (DOCS / name).read_text("utf-8") for name in GUIDE}
    pages["README.md"] = (ROOT / "README.md").read_text("utf-8")
    for name, page in pages.items():
        prose = re.sub(r"^ *```.*?^ *```$", "", page, flags=re.MULTILINE | re.DOTALL)
        assert re.findall(DIARY[kind], prose) == [], name


def test_the_search_for_a_diary_finds_one():
    diary = "These rows are of commit c9a2fd0, seeds 100-109, 2026-11-18, with today's default; see issue 38."
    for kind, pattern in DIARY.items():
        assert re.search(pattern, diary), kind


@pytest.mark.parametrize("name", ["research/methods.md", "research/results.md"])
def test_the_digits_table_is_that_of_the_rows(name):
    import digits

    rows = [row for row in read(ROOT / "results/digits.jsonl") if 100 <= row["seed"] < 110]
    assert len(rows) == 120
    assert digits.table(rows) in (DOCS / name).read_text("utf-8")


def test_the_table_of_orders_is_that_of_the_rows():
    import review_order

    rows = [row for row in read(ROOT / "results/review_order.jsonl") if row["seed"] in range(150, 160)]
    assert len(rows) == 120
    assert review_order.table(rows, range(150, 160)) in (DOCS / "research/review.md").read_text("utf-8")


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "docs/decisions/0012-packages.md"])
def test_files_that_are_named_are_there(name):
    page = (ROOT / name).read_text("utf-8")
    named = re.findall(r"`((?:src|tests|benchmarks|docs)/[\w/.]+)`(?!, \*new\*)", page)
    named += [f"src/oneof/{path}" for path in re.findall(r"^\| \d+ \|[^|`]*\| `(\w[\w/]*\.py)`", page, re.MULTILINE)]
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []
    new = re.findall(r"`(src/[\w/.]+)`, \*new\*", page)
    assert [path for path in new if (ROOT / path).exists()] == []  # it has been built: say so


@pytest.mark.parametrize(
    "page",
    ["votes.md", "embeddings.md", "pop.md", "accuracy.md", "serving.md"],
    ids=["annotators disagree", "I have embeddings", "only POP", "is this number believable", "production"],
)
def test_a_newcomer_finds_the_page_on_the_first(page):
    assert f"(guide/{page})" in (DOCS / "index.md").read_text("utf-8")


def test_every_page_is_in_the_menu():
    menu = (ROOT / "mkdocs.yml").read_text("utf-8")
    stored = [path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")]
    decisions = [name for name in stored if name.startswith("decisions/0")]  # docs/assets/pages.py adds them
    assert [name for name in stored if name not in menu and name not in decisions] == []


def test_the_site_builds_without_a_warning(tmp_path):
    if find_spec("material") is None or find_spec("mkdocstrings") is None:
        pytest.skip("mkdocs-material is not installed (extra docs)")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    paths = os.pathsep.join(path for path in sys.path if path)
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": paths}
    done = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    site = tmp_path / "site"
    assert "PartialLabelClassifier" in (site / "reference/estimator/index.html").read_text("utf-8")
    assert "--time-limit" in (site / "reference/cli/index.html").read_text("utf-8")
    loaded = re.compile(r'<(?:script|link|img)[^>]+(?:src|href)="?https?://(?!squidfunk)')
    outside = [page.name for page in site.rglob("*.html") if loaded.search(page.read_text("utf-8"))]
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
