"""What others meet in the repository: workflows, templates, the wheel, the recipe, and one version everywhere."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

import oneof

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
ACTIONLINT = shutil.which("actionlint")


def read_yaml(path: Path) -> Any:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed (extra docs)")
    return yaml.safe_load(path.read_text("utf-8"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_has_the_shape_of_one(path: Path) -> None:
    workflow = read_yaml(path)
    assert workflow["permissions"] == {"contents": "read"}
    assert True in workflow  # `on`, which YAML reads as a truth value
    jobs = workflow["jobs"]
    for name, job in jobs.items():
        assert "timeout-minutes" in job, name
        needed = job.get("needs", [])
        assert {needed} if isinstance(needed, str) else set(needed) <= set(jobs)
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step), step
            if "uses" in step:
                assert re.fullmatch(r"[\w.-]+/[\w./-]+@[\w./-]+", step["uses"])
            for named in re.findall(r"(?<![\w/])((?:\.ci|tests|benchmarks|src)/[\w./-]+)", step.get("run", "")):
                assert (ROOT / named).exists(), named


@pytest.mark.skipif(ACTIONLINT is None, reason="actionlint is not on the PATH: https://github.com/rhysd/actionlint")
def test_actionlint_finds_nothing() -> None:
    done = subprocess.run(
        [str(ACTIONLINT), *map(str, WORKFLOWS)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout


def test_tests_run_on_three_systems_and_every_python_that_is_promised() -> None:
    matrix = read_yaml(ROOT / ".github/workflows/ci.yml")["jobs"]["tests"]["strategy"]["matrix"]
    assert {name.split("-")[0] for name in matrix["os"]} == {"ubuntu", "macos", "windows"}
    prefix = "Programming Language :: Python :: 3."
    promised = [line.rpartition(" ")[2] for line in PYPROJECT["project"]["classifiers"] if line.startswith(prefix)]
    assert matrix["python"] == promised
    assert PYPROJECT["project"]["requires-python"] == f">={promised[0]}"


@pytest.mark.parametrize("name", ["bug.yml", "idea.yml"])
def test_a_template_of_an_issue_has_fields(name: str) -> None:
    form = read_yaml(ROOT / ".github/ISSUE_TEMPLATE" / name)
    assert form["name"]
    assert form["description"]
    assert all(field["type"] == "textarea" for field in form["body"])
    assert any(field.get("validations", {}).get("required") for field in form["body"])


def test_hooks_and_updates_are_valid_yaml() -> None:
    for repo in read_yaml(ROOT / ".pre-commit-config.yaml")["repos"]:
        assert repo["repo"] == "local" or repo["rev"]
        assert all(hook["id"] for hook in repo["hooks"])
    updates = read_yaml(ROOT / ".github/dependabot.yml")
    assert [update["package-ecosystem"] for update in updates["updates"]] == ["github-actions", "pip"]


def test_hooks_use_the_version_of_ruff_that_ci_uses() -> None:
    pinned = re.search(r"^ruff==(\S+)$", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE)
    assert pinned is not None
    assert f"rev: v{pinned[1]}" in (ROOT / ".pre-commit-config.yaml").read_text("utf-8")


def test_the_recipe_has_the_version_and_the_dependencies_of_the_package() -> None:
    recipe = (ROOT / "recipe/meta.yaml").read_text("utf-8")
    assert f'{{% set version = "{oneof.__version__}" %}}' in recipe
    on_conda = {"torch": "pytorch", "matplotlib": "matplotlib-base", "lightning-fabric": "lightning"}
    for requirement in PYPROJECT["project"]["dependencies"]:
        name, bound = re.fullmatch(r"([\w-]+)(.*)", requirement).groups()
        assert f"- {on_conda.get(name, name)} {bound}\n" in recipe, requirement


def test_the_changelog_has_a_section_for_the_version() -> None:
    assert f"## [{oneof.__version__}]" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_faults_of_a_wheel_are_found(tmp_path: Path) -> None:
    check = runpy.run_path(str(ROOT / ".ci/check_wheel.py"))
    expected = check["expected_files"]()
    metadata = f"Metadata-Version: 2.4\nName: oneof\nVersion: {oneof.__version__}\n"

    def fault_of(names: set[str], text: str = metadata) -> str | None:
        path = tmp_path / "oneof.whl"
        with zipfile.ZipFile(path, "w") as archive:
            for name in names:
                archive.writestr(name, "")
            archive.writestr("oneof.dist-info/METADATA", text)
        return check["contents_fault"](path)

    assert fault_of(expected) is None
    assert "oneof/review/page.js" in str(fault_of(expected - {"oneof/review/page.js"}))
    assert "tests/test_x.py" in str(fault_of({*expected, "tests/test_x.py"}))
    assert oneof.__version__ in str(fault_of(expected, metadata.replace(oneof.__version__, "9.9")))


@pytest.mark.slow
def test_the_wheel_holds_the_packages(tmp_path: Path) -> None:
    pytest.importorskip("build", reason="build is not installed (extra dev)")
    script = ROOT / ".ci/check_wheel.py"
    done = subprocess.run(
        [sys.executable, script, "--out", tmp_path], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
