"""Folders from strangers: no command writes outside of them, runs code from them, or waits for ever."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Timer
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from commands import call
from PIL import Image
from run_folder import write_run

import oneof.cli
from oneof import PartialLabelClassifier
from oneof.review.session import Review, _next_folder
from oneof.runs.decisions import Decision, Log
from oneof_paper.results import _commit

MINE = "export PATH=/usr/bin\n"


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    path = tmp_path / "precious.sh"
    path.write_text(MINE)
    return path


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tables") / "table.csv"
    rng = np.random.default_rng(0)
    lines = [f"{x:.3f},{'a|b' if x > 0 else 'b|c'}" for x in rng.normal(size=60)]
    path.write_text("\n".join(["x,candidates", *lines]))
    return path


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of small pictures and their table."""
    folder = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    for number in range(12):
        Image.fromarray(rng.integers(0, 255, (8, 8), dtype=np.uint8)).save(folder / f"{number}.png")
    names = [f"{number}.png" for number in range(12)]
    sets = ["a|b" if number % 2 else "b|c" for number in range(12)]
    pa.csv.write_csv(pa.table({"file": names, "candidates": sets}), folder / "table.csv")
    return folder


# ------------------------------------------------------------------------------------------------------------------ links


def test_a_review_does_not_write_through_a_linked_log(tmp_path: Path, precious: Path) -> None:
    run = write_run(tmp_path / "run", n=20)
    (run / "decisions.jsonl").symlink_to(precious)
    with pytest.raises(ValueError, match=r"decisions\.jsonl must be a regular file; it is a link"):
        Review(run)
    (run / "decisions.jsonl").unlink()
    log = Log(run)
    (run / "decisions.jsonl").symlink_to(precious)
    with pytest.raises(ValueError, match=r"decisions\.jsonl must be a regular file; it is a link"):
        log.write(Decision(0, "label", ("plain",), "ann"))
    assert precious.read_text() == MINE


@pytest.mark.parametrize("name", ["checkpoint/lock", "checkpoint/pixels.part", "checkpoint/search", "checkpoint"])
def test_a_fit_does_not_write_through_links_of_its_folder(
    name: str, table: Path, tmp_path: Path, precious: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    planted = tmp_path / "run" / name
    planted.parent.mkdir(parents=True)
    planted.symlink_to(precious if "." in name or name.endswith("lock") else elsewhere)
    done = call("fit", str(table), "--out", str(tmp_path / "run"), "--quick")
    assert done.returncode == 2
    assert f"{planted} must be a regular file; it is a link" in done.stderr
    assert precious.read_text() == MINE
    assert list(elsewhere.iterdir()) == []


def test_a_copy_of_a_run_follows_no_links(table: Path, tmp_path: Path) -> None:
    """The copy of a device would never end, and that of a link would hold a file from elsewhere."""
    run = tmp_path / "run"
    assert call("fit", str(table), "--out", str(run), "--quick").returncode == 0
    classifier = PartialLabelClassifier.from_run(run)
    for target in ("/dev/zero", "/etc/passwd", str(tmp_path)):
        (run / "notes").symlink_to(target)
        with pytest.raises(ValueError, match="notes must be a regular file; it is a link"):
            classifier.save(tmp_path / "copy")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]
        (run / "notes").unlink()
    classifier.save(tmp_path / "copy")


def test_learning_again_leaves_links_beside_the_run_alone(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run-2").symlink_to(tmp_path / "nowhere")
    assert _next_folder(tmp_path / "run") == tmp_path / "run-3"
    assert _next_folder(tmp_path / "run-²") == tmp_path / "run-²-2"


def test_the_map_of_answers_replaces_a_link(tmp_path: Path, precious: Path) -> None:
    votes = tmp_path / "votes.csv"
    votes.write_text("item,annotator,label\n" + "".join(f"{i},ann,**Cat**\n{i},bob,cat\n" for i in range(9)))
    (tmp_path / "map.csv").symlink_to(precious)
    done = call("votes", str(votes), "--classes", "cat,dog", "--map-out", str(tmp_path / "map.csv"))
    assert done.returncode == 0, done.stderr
    assert precious.read_text() == MINE
    assert (tmp_path / "map.csv").read_text().startswith("answer,label,count")


def test_pixels_are_kept_in_a_new_file(pictures: Path, tmp_path: Path, precious: Path) -> None:
    """Also where a link was put there after the folder was looked at."""
    from oneof.data.images import ImageSpec, read_pictures

    kept = tmp_path / "pixels.part"
    kept.symlink_to(precious)
    read_pictures(["0.png", "1.png"], ImageSpec("file", 1, 8), pictures, kept)
    assert precious.read_text() == MINE
    assert np.load(kept).shape == (2, 1, 8, 8)


# ------------------------------------------------------------------------------------------------------------ code of others


def plant(folder: Path, name: str) -> Path:
    """Put a module into a folder that leaves a mark if it is imported."""
    folder.mkdir(exist_ok=True)
    mark = folder / "imported"
    (folder / f"{name}.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    return mark


def test_learning_again_imports_nothing_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = plant(tmp_path / "here", "oneof")
    review = Review(write_run(tmp_path / "run", n=20))
    commands: list[list[str]] = []

    def note(command: list[str], **_: object) -> SimpleNamespace:
        commands.append(command)
        return SimpleNamespace(returncode=2, stderr="stopped", stdout="")

    monkeypatch.setattr("oneof.review.session.subprocess.run", note)
    review._learn(review.run.folder)
    monkeypatch.undo()
    (command,) = commands
    python = command[: command.index("oneof") + 1]
    subprocess.run([*python, "--version"], cwd=tmp_path / "here", check=False, capture_output=True)
    assert not mark.exists()


def test_processes_that_a_command_starts_import_nothing_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = plant(tmp_path / "here", "socket")

    def start() -> None:
        subprocess.run([sys.executable, "-c", "from multiprocessing import spawn"], check=True)

    (command,) = (one for one in oneof.cli.app.registered_commands if one.callback.__name__ == "report")
    monkeypatch.setattr(command, "name", "report")
    monkeypatch.setattr(command, "callback", start)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    assert call("report", cwd=tmp_path / "here").returncode == 0
    assert not mark.exists()
    assert "PYTHONSAFEPATH" not in os.environ


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
def test_git_is_not_asked_about_a_repository_around_the_package(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    inside = tmp_path / "env" / "lib"
    inside.mkdir(parents=True)
    assert _commit(inside) is None


# ----------------------------------------------------------------------------------------------------- pipes and devices

READ_BY = {
    "run.json": "report", "purified.parquet": "report", "training.json": "report", "rows.jsonl": "report",
    "decisions.jsonl": "clean", "model.json": "clean", "model.safetensors": "predict",
}  # fmt: skip
OUT = {"report": "page.html", "clean": "labels.csv", "predict": "predictions.csv"}
CALLS = """
import json, sys
sys.path.insert(0, sys.argv[1])
from commands import call
for line in sys.stdin:
    done = call(*json.loads(line))
    print(json.dumps([done.returncode, done.stderr]), flush=True)
"""


class OtherProcess:
    """Runs commands in a process that is started once, since it takes seconds to import torch, and killed if one waits for ever."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", CALLS, str(Path(__file__).parents[1])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *commands: list[str]) -> list[tuple[int, str]]:
        """Run commands one after the other; return their exit codes and what they print on standard error."""
        patience = Timer(100, self.process.kill)
        patience.start()
        results = []
        for words in commands:
            self.process.stdin.write(json.dumps(words) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
            assert line, f"{words} waits for ever"
            results.append(tuple(json.loads(line)))
        patience.cancel()
        return results

    def close(self) -> None:
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(100)


@pytest.fixture(scope="module")
def call_all() -> Iterator[OtherProcess]:
    process = OtherProcess()
    yield process
    process.close()


@pytest.fixture(scope="module")
def run(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    assert call("fit", str(table), "--out", str(out), "--quick").returncode == 0
    return out


def test_a_pipe_in_the_place_of_a_file_of_a_run_is_one_line(
    run: Path, table: Path, tmp_path: Path, call_all: OtherProcess
) -> None:
    commands = []
    for name, command in READ_BY.items():
        copy = tmp_path / name.replace(".", "-")
        shutil.copytree(run, copy)
        (copy / name).unlink(missing_ok=True)
        os.mkfifo(copy / name)
        files = [str(table)] if command == "predict" else []
        commands.append([command, str(copy), *files, "--out", str(tmp_path / OUT[command])])
    results = call_all(*commands)
    assert [code for code, _ in results] == [2] * len(READ_BY)
    for name, (_, error) in zip(READ_BY, results, strict=True):
        assert error.count("\n") == 1
        assert f"{name} must be a regular file; it is a named pipe" in error


def test_pipes_and_devices_among_pictures_are_told_and_left_out(
    pictures: Path, tmp_path: Path, call_all: OtherProcess
) -> None:
    folder = tmp_path / "in"
    for number in range(12):
        part = folder / ("a,b" if number % 2 else "b,c").replace(",", "|")
        part.mkdir(parents=True, exist_ok=True)
        shutil.copy(pictures / f"{number}.png", part)
    os.mkfifo(folder / "a|b" / "pipe.png")
    (folder / "b|c" / "zero.png").symlink_to("/dev/zero")
    words = ["fit", str(folder), "--out", str(tmp_path / "run"), "--epochs", "1", "--networks", "1", "--threads", "1"]
    ((code, error),) = call_all(words)
    assert code == 0, error
    warnings = json.loads((tmp_path / "run" / "run.json").read_text())["warnings"]
    (warning,) = (line for line in warnings if "cannot be read" in line)
    assert "pipe.png': it is a named pipe" in warning
    assert "zero.png': it is a device" in warning


def test_votes_settings_and_a_checkpoint_that_are_pipes_are_one_line(
    table: Path, tmp_path: Path, call_all: OtherProcess
) -> None:
    for name in ("votes.csv", "votes.json", "tree.csv", "settings.json"):
        os.mkfifo(tmp_path / name)
    (tmp_path / "some.csv").write_text("item,annotator,label\n1,ann,a\n")
    (tmp_path / "run" / "checkpoint").mkdir(parents=True)
    os.mkfifo(tmp_path / "run" / "checkpoint" / "asked.json")
    results = call_all(
        ["votes", str(tmp_path / "votes.csv"), "--out", str(tmp_path / "sets.csv")],
        ["votes", str(tmp_path / "votes.json"), "--out", str(tmp_path / "sets.csv")],
        [
            "votes",
            str(tmp_path / "some.csv"),
            "--taxonomy",
            str(tmp_path / "tree.csv"),
            "--out",
            str(tmp_path / "o.csv"),
        ],
        ["fit", str(table), "--settings", str(tmp_path / "settings.json"), "--out", str(tmp_path / "new")],
        ["fit", str(table), "--out", str(tmp_path / "run")],
    )
    assert [code for code, _ in results] == [2] * 5
    names = ("votes.csv", "votes.json", "tree.csv", "settings.json", "asked.json")
    for name, (_, error) in zip(names, results, strict=True):
        assert f"{name} must be a regular file; it is a named pipe" in error
