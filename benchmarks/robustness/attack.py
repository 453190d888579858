"""Attack a fit and its folder: fuzzed files, kills, a full disk, two writers, hostile folders. Prints a table: tried, faults.

    python benchmarks/robustness/attack.py

A fault is a traceback, an exit code other than 0, 2 or a kill's, more than one line of error, a file that is half there, or another result
after a kill. `faults.py` kills far more often, and compares checkpoints to the bit.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
from safetensors.numpy import load, save

from oneof.cli import main as main_of_oneof

SMALL = ("--networks", "2", "--epochs", "2", "--seed", "0")
KILLED = -signal.SIGKILL


def oneof(*arguments: object, **how: object) -> subprocess.CompletedProcess[str]:
    """Run a command as a person does."""
    words = [sys.executable, "-m", "oneof", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, timeout=180, check=False, **how)  # type: ignore[call-overload]


def here(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The same in this process, which has imported everything already."""
    out, err, before, code = io.StringIO(), io.StringIO(), sys.argv, 0
    sys.argv = ["oneof", *map(str, arguments)]
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main_of_oneof()
        except SystemExit as end:
            code = int(end.code or 0)
        except Exception:  # whatever it is, it is a fault
            code = 1
            traceback.print_exc()
    sys.argv = before
    return subprocess.CompletedProcess(list(arguments), code, out.getvalue(), err.getvalue())


def fault(done: subprocess.CompletedProcess[str]) -> bool:
    """Did the command end in another way than well, or in one line?"""
    lines = [line for line in done.stderr.splitlines() if line.startswith("oneof: ")]
    return "Traceback" in done.stderr or done.returncode not in (0, 2) or (done.returncode == 2 and len(lines) != 1)


def table(path: Path, n: int = 80) -> Path:
    rng = np.random.default_rng(0)
    rows = [
        f"{a:.3f},{b:.3f},{'cat|dog' if i % 2 else 'cat' if a > 0 else 'dog'}"
        for i, (a, b) in enumerate(rng.normal(size=(n, 2)))
    ]
    path.write_text("\n".join(["x,y,candidates", *rows]) + "\n")
    return path


def fuzzed(folder: Path, count: int) -> Iterator[bool]:
    """Files with bytes changed, cut out, put in or doubled, through `inspect`."""
    whole, draw = table(folder / "table.csv").read_bytes(), random.Random(0)
    for i in range(count):
        content = bytearray(whole)
        for _ in range(draw.randint(1, 8)):
            at = draw.randrange(len(content))
            content[at : at + draw.choice((0, 1, 40))] = draw.choice(
                (b"", b"\x00", b"\xff", b'"', b",", b"\n", b"=1", bytes(content[at : at + 200]))
            )
        file = folder / f"fuzzed{i}.csv"
        file.write_bytes(bytes(content))
        yield fault(here("inspect", file))


def killed(folder: Path, count: int) -> Iterator[bool]:
    """A fit killed at a random moment and repeated ends like one that was not."""
    file, draw = table(folder / "table.csv", 400), random.Random(0)
    oneof("fit", file, "--out", folder / "whole", *SMALL)
    for i in range(count):
        out = folder / f"killed{i}"
        words = [sys.executable, "-m", "oneof", "fit", str(file), "--out", str(out), *SMALL]
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            time.sleep(draw.uniform(1, 8))
            process.kill()
        again = oneof("fit", file, "--out", out, *SMALL)
        same = (out / "model.safetensors").exists() and (out / "model.safetensors").read_bytes() == (
            folder / "whole" / "model.safetensors"
        ).read_bytes()
        yield fault(again) or not same


def full_disk(folder: Path, count: int) -> Iterator[bool]:
    """Files may grow to a few kilobytes only: what cannot be written whole is not there."""
    file = table(folder / "table.csv")
    for i in range(count):
        most = 2000 * (i + 1)
        done = oneof("fit", file, "--out", folder / f"full{i}", *SMALL, preexec_fn=lambda most=most: _limit(most))
        yield fault(done) or any((folder / f"full{i}").rglob("*.part"))


def _limit(most: int) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


def two_writers(folder: Path, count: int) -> Iterator[bool]:
    """Two fits in one folder: one ends well, the other says who is at work or that all is done."""
    file = table(folder / "table.csv", 400)
    for i in range(count):
        words = [sys.executable, "-m", "oneof", "fit", str(file), "--out", str(folder / f"both{i}"), *SMALL]
        both = [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
        ends = [(process.communicate(), process.returncode) for process in both]
        codes = sorted(code for _, code in ends)
        yield codes not in ([0, 0], [0, 2]) or any("Traceback" in said[1] for said, _ in ends)


def hostile(folder: Path, _: int) -> Iterator[bool]:
    """A run folder from a stranger, through every command that takes one."""
    file = table(folder / "table.csv")
    oneof("fit", file, "--out", folder / "run", *SMALL)

    def json_with(name: str, **parts: object) -> Callable[[Path], None]:
        return lambda run: (run / name).write_text(json.dumps(json.loads((run / name).read_text()) | parts)) and None

    def other_tensors(run: Path) -> None:
        tensors = {name: array[..., :1] for name, array in load((run / "model.safetensors").read_bytes()).items()}
        (run / "model.safetensors").write_bytes(
            save({name: np.ascontiguousarray(array) for name, array in tensors.items()})
        )

    def linked(run: Path) -> None:
        (run / "purified.parquet").unlink()
        (run / "purified.parquet").symlink_to("/etc/passwd")

    harms: list[Callable[[Path], None]] = [
        json_with("run.json", n=10**12),
        json_with("run.json", file="/etc/shadow", classes=["\x1b[2J", "b"]),
        json_with("model.json", classes=["dog", "cat"]),
        json_with("model.json", members=[{"networks": 10**12, "inputs": 10**12, "hidden": [10**12]}]),
        json_with("training.json", epochs=10**12),
        other_tensors,
        linked,
        lambda run: (run / "rows.jsonl").write_bytes(b"\xff" * 1000) and None,
    ]
    for i, harm in enumerate(harms):
        run = folder / f"hostile{i}"
        shutil.copytree(folder / "run", run)
        harm(run)
        for command in (
            ["report", run, "--out", folder / "page.html"],
            ["clean", run, "--out", folder / "labels.csv"],
            ["predict", run, file, "--out", folder / "new.csv"],
            ["fit", file, "--out", run, *SMALL],
        ):
            yield fault(here(*command))


ATTACKS = {
    "fuzzed tables": (fuzzed, 300),
    "kills": (killed, 5),
    "full disk": (full_disk, 4),
    "two writers": (two_writers, 3),
    "hostile folders": (hostile, 1),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=[*ATTACKS], help="one of the attacks")
    asked = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    print("| attack | tried | faults | seconds |\n|---|---|---|---|")
    for name, (attack, count) in ATTACKS.items():
        if asked.only in (None, name):
            begun = time.monotonic()
            with tempfile.TemporaryDirectory() as folder:
                found = list(attack(Path(folder), count))
            print(f"| {name} | {len(found)} | {sum(found)} | {time.monotonic() - begun:.0f} |", flush=True)


if __name__ == "__main__":
    main()
