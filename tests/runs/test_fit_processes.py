"""`oneof fit --n-jobs 2`: the same run as with one, from the command line; what is said when it cannot be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from distributed_cases import assert_same_run, write_table

from oneof.cli import main
from oneof.runs.folder import Run

COMMAND = [sys.executable, "-m", "oneof", "fit"]
TORCHRUN = [
    sys.executable,
    "-m",
    "torch.distributed.run",
    "--standalone",
    "--nproc-per-node",
    "2",
    "-m",
    "oneof",
    "fit",
]
SHORT = ["--networks", "3", "--epochs", "30"]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "table.csv"
    write_table(path)
    return path


def run(*words, check=True):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 or not check, done.stderr[-3000:]
    return done


@pytest.mark.slow
@pytest.mark.parametrize("start", [[*COMMAND, "--n-jobs", "2"], TORCHRUN], ids=["started here", "torchrun"])
def test_the_command_gives_what_one_process_gives(table, tmp_path, start):
    run(*COMMAND, table, "--out", tmp_path / "one", *SHORT)
    done = run(*start, table, "--out", tmp_path / "two", *SHORT)
    assert done.stdout.count("labels per set") == 1
    assert "GLOBAL_RANK" not in done.stderr
    assert_same_run(Run.open(tmp_path / "two"), Run.open(tmp_path / "one"), 1e-5)
    assert not (tmp_path / "two" / "checkpoint").exists()


@pytest.mark.slow
def test_under_torchrun_a_mistake_is_told_once(table, tmp_path):
    done = run(*TORCHRUN, table, "--out", tmp_path / "x", "--features", "y", check=False)
    assert done.returncode != 0
    assert done.stderr.count("oneof: ") == 1
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
def test_deterministic_runs_of_two_processes_are_equal_to_the_bit(table, tmp_path):
    for name in "ab":
        run(*COMMAND, table, "--out", tmp_path / name, *SHORT, "--n-jobs", "2", "--deterministic")
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in "ab"]
    assert weights[0] == weights[1]


@pytest.mark.slow
def test_a_killed_process_ends_the_command_with_a_message_and_one_process_goes_on(table, tmp_path):
    double = tmp_path / "double.py"  # in float32 so many epochs would make a rounding visible; in float64, some 1,500
    double.write_text(
        "import torch\nfrom oneof.cli import main\n\nif __name__ == '__main__':\n"
        "    torch.set_default_dtype(torch.float64)\n    main()\n"
    )
    command, long = [sys.executable, double, "fit"], ["--networks", "4", "--epochs", "600"]
    words = [*command, table, "--out", tmp_path / "run", *long, "--n-jobs", "2"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as started:
        note = tmp_path / "run" / "checkpoint" / "search" / "stack-0-of-2" / "ensemble-0" / "stacks.json"
        while not note.exists():
            assert started.poll() is None
            time.sleep(0.2)
        os.kill(workers(started.pid)[-1], signal.SIGKILL)
        lines = started.stderr.read().strip().splitlines()
    assert started.returncode == 2
    assert lines[0].startswith("oneof: a worker process has died, so the run cannot go on;")
    assert not [line for line in lines if "Traceback" in line]
    run(*command, table, "--out", tmp_path / "run", *long)
    run(*command, table, "--out", tmp_path / "undisturbed", *long)
    assert_same_run(Run.open(tmp_path / "run"), Run.open(tmp_path / "undisturbed"), 1e-3)


def workers(parent):
    """The processes that a command started to train, by their numbers: its children, less loky's tracker of resources."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            stat, line = (entry / "stat").read_text(), (entry / "cmdline").read_bytes()
        except OSError:
            continue  # it ended meanwhile
        if int(stat.rpartition(")")[2].split()[1]) == parent and b"popen_loky" in line:
            found.append(int(entry.name))
    return sorted(found)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--n-jobs", "0"], "n_jobs must be at least 1, or -1 for all processors; got 0."),
        (["--n-jobs", "-2"], "n_jobs must be at least 1, or -1 for all processors; got -2."),
    ],
)
def test_bad_values(table, tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.setattr(sys, "argv", ["oneof", "fit", str(table), "--out", str(tmp_path / "x"), *words])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "x").exists()
