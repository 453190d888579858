"""The benchmarks: every script is in the index, can be imported, and has the rows and the page that the index names."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"
INDEX = (BENCHMARKS / "README.md").read_text("utf-8")
SCRIPTS = sorted(path for kind in ("accuracy", "robustness", "speed") for path in (BENCHMARKS / kind).glob("*.py"))


@pytest.mark.parametrize("kind", ["accuracy", "robustness", "speed"])
def test_the_index_lists_the_scripts_and_no_others(kind):
    section = INDEX.split(f"## {kind}/")[1].split("\n## ")[0]
    assert sorted(re.findall(r"^\| `(\w+\.py)`", section, re.MULTILINE)) == [
        path.name for path in SCRIPTS if path.parent.name == kind
    ]


def test_questions_lead_to_scripts_that_are_there():
    questions = INDEX.split("## Which script answers your question?")[1].split("\n## ")[0]
    named = set(re.findall(r"`((?:accuracy|robustness|speed)/\w+\.py)`", questions))
    assert len(named) > 20
    assert [name for name in named if not (BENCHMARKS / name).exists()] == []


def test_every_file_of_results_is_named_somewhere():
    texts = [INDEX]
    for folder, pattern in (("docs", "*.md"), ("benchmarks", "*.py"), ("src", "*.py"), ("tests", "*.py")):
        texts += [path.read_text("utf-8") for path in (ROOT / folder).rglob(pattern)]
    everything = "\n".join(texts)
    results = [path for path in (ROOT / "results").rglob("*.json*") if "tiny" not in path.parts]
    assert [path.name for path in results if path.name not in everything] == []


def test_no_file_of_results_is_large():
    """A file of four million bytes or more is split by a rule that its index names, such as one file for each data set."""
    sizes = {path.name: path.stat().st_size for path in (ROOT / "results").rglob("*") if path.is_file()}
    assert {name: size for name, size in sizes.items() if size >= 4_000_000} == {}


def test_rows_and_pages_of_the_index_are_there():
    named = re.findall(r"`((?:results|docs)/[^`]+)`", INDEX)
    assert len(named) > 20
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_page_names_its_script():
    for script, pages in re.findall(r"^\| `(\w+\.py)` .*\| ([^|]*) \|$", INDEX, re.MULTILINE):
        for page in re.findall(r"`(docs/[^`]+)`", pages):
            assert script in (ROOT / page).read_text("utf-8"), f"{page} names no {script}"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_can_be_imported(script):
    spec = importlib.util.spec_from_file_location(f"benchmark_{script.stem}", script)
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    assert f"python {script.relative_to(ROOT)}" in script.read_text("utf-8")  # how it is called


@pytest.mark.slow
@pytest.mark.parametrize("script", [*SCRIPTS, BENCHMARKS / "readme.py"], ids=lambda path: path.stem)
def test_a_script_answers_help(script):
    done = subprocess.run([sys.executable, script, "--help"], capture_output=True, text=True, timeout=120, check=True)
    assert "usage" in done.stdout.lower()
