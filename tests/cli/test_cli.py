"""The command line: help is quick, bad input is one line and exit code 2."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
import typer
from commands import call, call_alone
from PIL import Image

import oneof
from oneof.candidates.read import read
from oneof.cli import app
from oneof.cli import demo as cli_demo
from oneof.runs.demo import ACCURACIES, N_NEW, NAMES, simulate_votes

HEAVY = ("torch", "sklearn", "pyarrow", "matplotlib", "numpy")


def test_version():
    assert call_alone("--version").stdout == f"oneof {oneof.__version__}\n"


@pytest.mark.parametrize("arguments", [["--help"], [], ["demo", "--help"]])
def test_help(arguments):
    done = call(*arguments)
    assert done.returncode == 0
    assert "Usage" in done.stdout


COMMANDS = typer.main.get_command(app).commands


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)], ids=lambda command: "".join(command))
def test_help_shows_flags_without_a_type(command):
    shown = call(*command, "--help").stdout
    assert "--help" in shown
    assert "<bool>" not in shown


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_explained(command):
    assert all(option.help for option in COMMANDS[command].params)


@pytest.mark.parametrize("width", [80, 120])
def test_the_help_of_fit_has_the_options_that_matter_first(width, monkeypatch):
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", width)
    shown = call("fit", "--help").stdout
    assert max(map(len, shown.splitlines())) <= width
    panels = re.findall(r"^╭─ (\w+)", shown, re.MULTILINE)
    assert panels == ["Arguments", "Options", "Input", "Votes", "Pictures", "Learning", "Output"]
    main_panel = shown.split("─ Options ")[1].split("─ Input ")[0]
    options = re.findall(r"^│ [* ]  (--[a-z-]+)", main_panel, re.MULTILINE)
    assert {"--out", "--candidates", "--votes", "--image", "--quick", "--time-limit"} <= set(options)
    assert len(options) <= 11  # ten, and --help


def test_completion_is_offered_and_changes_nothing_by_itself(tmp_path):
    shown = call("--help").stdout
    assert "--install-completion" in shown
    typed = {"_ONEOF_COMPLETE": "complete_bash", "COMP_WORDS": "oneof fit --time", "COMP_CWORD": "2"}
    home = {"HOME": str(tmp_path)}
    code = "import sys; sys.argv = ['oneof']; from oneof.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | typed | home,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.split() == ["--time-limit"]
    assert list(tmp_path.iterdir()) == []


def test_help_imports_nothing_heavy():
    code = f"import sys, oneof.cli; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["demo", "--epochs", "-1"], "--epochs"),
        (["demo", "--epochs", "many"], "--epochs"),
        (["demo", "--epochs", "0"], "--epochs"),
        (["demo", "--colour"], "--colour"),
        (["demo", "--out", "/proc/none/x"], "/proc/none"),
        (["inspect", "nowhere/table.csv"], "nowhere/table.csv"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments, words):
    done = call(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("oneof: ")
    assert done.stderr.count("\n") == 1
    assert words in done.stderr
    assert "Errno" not in done.stderr


def test_the_demo_goes_from_votes_to_labels_a_page_and_a_model(tmp_path):
    done = call("demo", "--epochs", "5", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    typed = re.findall(r"^\$ oneof (\w+)", done.stdout, re.MULTILINE)
    assert typed == ["fit", "clean", "predict", "report"]
    out = tmp_path / "oneof-demo"
    assert "<html" in (out / "report.html").read_text()
    check_labels(out, done.stdout)
    with Image.open(out / pacsv.read_csv(out / "features.csv")["picture"][0].as_py()) as picture:
        assert picture.format == "PNG"
    assert "oneof review oneof-demo/run" in done.stdout
    check_purified(out / "run/purified.parquet")


class Screen(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("typed", "reviewed"), [("\n", True), ("n\n", False)])
def test_the_demo_offers_the_review_in_a_terminal_and_only_there(typed, reviewed, tmp_path, monkeypatch, capsys):
    started = []
    monkeypatch.setattr(cli_demo, "_run", lambda command, *files: started.append((command.__name__, *files)))
    cli_demo._offer_review(tmp_path / "run")
    assert started == []
    assert f"oneof review {tmp_path / 'run'}" in capsys.readouterr().out
    screen = Screen()
    monkeypatch.setattr("sys.stdin", Screen(typed))
    monkeypatch.setattr("sys.stdout", screen)
    cli_demo._offer_review(tmp_path / "run")
    assert started == ([("review", tmp_path / "run")] if reviewed else [])


def check_labels(out: Path, shown: str) -> None:
    """The shares that are printed are those of the files."""
    truth = simulate_votes().labels
    for name, expected in (("labels.csv", truth[:-N_NEW]), ("predictions.csv", truth[-N_NEW:])):
        right = np.mean(np.array(pacsv.read_csv(out / name)["label"].to_pylist()) == expected)
        assert f"{100 * right:.1f} %" in next(line for line in shown.splitlines() if line.startswith("│ oneof "))
        assert right > 0.96
    votes = pacsv.read_csv(out / "votes.csv")
    for who, accuracy in ACCURACIES.items():
        said = np.array(votes.filter(pc.equal(votes["annotator"], who))["label"].to_pylist())
        assert np.mean(said == truth[:-N_NEW]) == pytest.approx(accuracy, abs=0.04)


def check_purified(path: Path) -> None:
    table = pq.read_table(path)
    original, kept = (read(table[name], classes=NAMES).mask for name in ("original", "kept"))
    assert (kept & ~original).sum() == 0
    assert original.sum() == kept.sum() > 0  # what votes leave open is weighed, not cut
    for row in table.to_pylist():
        assert set(row["original"]) - set(row["kept"]) <= {fall["label"] for fall in row["removed"]}
        assert row["label"] in row["original"]
        assert 0 < row["probability"] <= 1.0001


# -------------------------------------------------------------------------------------------------------------- threads

IMPORTED = """
import os, sys
from importlib.abc import MetaPathFinder

class Look(MetaPathFinder):
    seen = set()

    def find_spec(self, name, path=None, target=None):
        if name in ("torch", "numpy", "sklearn"):
            settings = [os.environ.get(variable) for variable in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")]
            print(name, *settings, flush=True)
            self.seen.add(name)
        if self.seen >= {"torch", "numpy"}:
            os._exit(0)  # what is imported after them takes seconds

sys.meta_path.insert(0, Look())
sys.argv = ["oneof", "fit", "nowhere.csv", "--out", "run"]
from oneof.cli import main
main()
"""


@pytest.mark.parametrize(
    ("said", "waiting"),
    [({}, "PASSIVE 0 0"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE None None"), ({"KMP_BLOCKTIME": "9"}, "None None 9")],
)
def test_threads_are_told_how_to_wait_before_anything_that_has_some_is_imported(said, waiting, tmp_path):
    names = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
    environment = {name: value for name, value in os.environ.items() if name not in names} | said
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    seen = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert seen["torch"] == seen["numpy"] == waiting


# -------------------------------------------------------------------------------------------------------------- stopped


def stop(file: str = "") -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("command", "words"),
    [("fit", "oneof: stopped. Run the same command again to continue.\n"), ("demo", "oneof: stopped.\n")],
)
def test_what_is_stopped_says_so(command, words, monkeypatch):
    (stopped,) = (one for one in app.registered_commands if one.callback.__name__ == command)
    monkeypatch.setattr(stopped, "name", command)
    monkeypatch.setattr(stopped, "callback", stop)
    done = call(command)
    assert done.returncode == 130
    assert done.stderr == words
    assert done.stdout == ""
