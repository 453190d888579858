"""Attack by what happens around a process: kills, full disks, odd environments, other processes, clocks."""

from __future__ import annotations

import builtins
import errno
import io
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attacks.calls import QUICK, SMALL, Attempt, call, call_alone, problem_of, start_alone, wait_for, write_table

_NO_KILL = 10**9


def kills(folder: Path, count: int) -> Iterator[Attempt]:
    """Kill a fit at a random moment and repeat it: it ends like one that was never killed."""
    table = write_table(folder / "table.csv", 400)
    call_alone("fit", table, "--out", folder / "whole", *SMALL)
    expected = _model_bytes(folder / "whole")
    draw = random.Random(0)
    for i in range(count):
        out = folder / f"killed{i}"
        seconds = draw.uniform(1, 8)
        process = start_alone("fit", table, "--out", out, *SMALL)
        time.sleep(seconds)
        process.kill()
        process.communicate()
        problem = problem_of(call_alone("fit", table, "--out", out, *SMALL), codes=(0,))
        if problem is None and _model_bytes(out) != expected:
            problem = "another result than without the kill"
        yield Attempt(f"killed after {seconds:.1f} s", problem)


def kills_in_writes(folder: Path, count: int) -> Iterator[Attempt]:
    """Kill a fit inside each of its writes and renames in turn, and repeat it: it ends like one that was never killed."""
    table = write_table(folder / "table.csv")
    call("fit", table, "--out", folder / "whole", *SMALL)
    expected = _model_bytes(folder / "whole")
    n_moments = _count_moments(folder, table)
    step = max(1, n_moments // count)
    for moment in range(1, n_moments + 1, step):
        out = folder / f"killed{moment}"
        status = _fit_and_die(table, out, moment)
        if not os.WIFSIGNALED(status):
            yield Attempt(f"moment {moment}", "it was not killed")
            continue
        problem = problem_of(call("fit", table, "--out", out, *SMALL), codes=(0,))
        if problem is None and _model_bytes(out) != expected:
            problem = "another result than without the kill"
        yield Attempt(f"moment {moment} of {n_moments}", problem)
        shutil.rmtree(out)


def _count_moments(folder: Path, table: Path) -> int:
    """Return how many writes and renames a fit makes."""
    counter = folder / "moments"
    _fit_and_die(table, folder / "counted", _NO_KILL, counter)
    return int(counter.read_text())


def _fit_and_die(table: Path, out: Path, moment: int, counter: Path | None = None) -> int:
    """Fit in a copy of this process that is killed at a write or rename, half-way through it; return the copy's status."""
    child = os.fork()
    if child == 0:
        shim = WritesShim(moment)
        shim.install()
        call("fit", table, "--out", out, *SMALL)
        shim.moment = _NO_KILL
        if counter is not None:
            counter.write_text(str(shim.count))
        os._exit(0)
    return os.waitpid(child, 0)[1]


class WritesShim:
    """Count the writes to files and the renames of this process, and kill it in the middle of one of them."""

    def __init__(self, moment: int) -> None:
        self.moment = moment
        self.count = 0
        self.open_as_usual = builtins.open

    def install(self) -> None:
        """Put the shim between Python and the system."""
        builtins.open = io.open = self.open  # type: ignore[assignment]
        sys.addaudithook(self.audit)

    def audit(self, event: str, args: tuple[Any, ...]) -> None:
        """Count a rename, and perhaps die before it."""
        if event == "os.rename":
            self.step()

    def step(self) -> bool:
        """Count a moment; return whether it is the last one."""
        self.count += 1
        if self.count == self.moment:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.count == self.moment - 1

    def before_open(self) -> None:
        """Let files be opened."""

    def after_half(self) -> None:
        """Die after half of a write."""
        self.step()

    def open(self, file: Any, mode: str = "r", buffering: int = -1, *args: Any, **options: Any) -> Any:
        """Open a file; files that are written to are watched."""
        writes = not mode.startswith("r") and "b" in mode and isinstance(file, (str, os.PathLike))
        if not writes:
            return self.open_as_usual(file, mode, buffering, *args, **options)
        self.before_open()
        raw = _WatchedFile(file, mode.replace("b", ""), opener=options.get("opener"))
        raw.shim = self
        if buffering == 0:
            return raw
        return io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)


class _WatchedFile(io.FileIO):
    shim: WritesShim

    def write(self, content: Any) -> int:
        """Write, or only half of it where the shim says so."""
        if not self.shim.step():
            return super().write(content)
        n_written = super().write(memoryview(content)[: max(1, len(content) // 2)])
        self.shim.after_half()
        return n_written


def full_disk(folder: Path, count: int) -> Iterator[Attempt]:
    """Let files grow to a few kilobytes only: what cannot be written whole is not there."""
    table = write_table(folder / "table.csv")
    for i in range(count):
        largest = 2000 * (i + 1)
        out = folder / f"full{i}"
        done = call_alone("fit", table, "--out", out, *QUICK, preexec_fn=lambda largest=largest: _limit_files(largest))
        problem = problem_of(done)
        if problem is None and any(out.rglob("*.part")):
            problem = "a file is half there"
        yield Attempt(f"files of {largest} bytes", problem)


def failing_writes(folder: Path, count: int) -> Iterator[Attempt]:
    """Let each write of a command in turn find a full disk, or the opening of a file a read-only folder; then repeat it.

    Every command ends in one line, leaves no file half there, and ends well when there is room again.
    """
    table = write_table(folder / "table.csv")
    run = folder / "run"
    call("fit", table, "--out", run, *SMALL)
    commands: dict[str, list[Any]] = {
        "fit": ["fit", table, "--out", folder / "again", *SMALL],
        "clean": ["clean", run, "--out", folder / "labels.csv"],
        "clean --all": ["clean", run, "--out", folder / "tasks.json", "--all"],
        "report": ["report", run, "--out", folder / "page.html"],
        "predict": ["predict", run, table, "--out", folder / "new.parquet"],
    }
    for name, words in commands.items():
        target = Path(words[words.index("--out") + 1])
        counting = FailingShim(_NO_KILL, errno.ENOSPC)
        with counting.installed():
            call(*words)
        step = max(1, counting.count // count)
        for code in (errno.ENOSPC, errno.EROFS):
            for moment in range(1, counting.count + 1, step if code == errno.ENOSPC else max(step, 5)):
                shutil.rmtree(target, ignore_errors=True)
                target.unlink(missing_ok=True)
                with FailingShim(moment, code).installed():
                    problem = problem_of(call(*words), codes=(0, 2))
                if problem is None and any(folder.glob("*.part")):
                    problem = "a file is half there"
                problem = problem or problem_of(call(*words), codes=(0,))
                yield Attempt(f"{name}, {os.strerror(code)} at moment {moment} of {counting.count}", problem)


class FailingShim(WritesShim):
    """Count the writes to files of this process, and let all from one of them on fail; on a full disk the first is half done."""

    def __init__(self, moment: int, code: int) -> None:
        super().__init__(moment)
        self.code = code

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Put the shim between Python and the system."""
        builtins.open = io.open = self.open  # type: ignore[assignment]
        try:
            yield
        finally:
            builtins.open = io.open = self.open_as_usual

    def before_open(self) -> None:
        """Raise the error of a read-only folder, if its moment has come."""
        if self.code == errno.EROFS:
            self.step()

    def step(self) -> bool:
        """Count a moment; raise the error if it has come. Return whether the disk is full half-way through this one."""
        self.count += 1
        if self.count < self.moment:
            return False
        if self.code == errno.ENOSPC and self.count == self.moment:
            return True
        raise OSError(self.code, os.strerror(self.code))

    def after_half(self) -> None:
        """Let the process go on: its next write fails."""


def planted_modules(folder: Path, _: int) -> Iterator[Attempt]:
    """Run commands, and learn again, in a folder with modules of common names; none of them is imported."""
    table = write_table(folder / "table.csv")
    here = folder / "here"
    here.mkdir()
    mark = folder / "imported"
    for name in ("numpy", "torch", "oneof", "socket", "pickle", "sitecustomize", "usercustomize", "joblib"):
        (here / f"{name}.py").write_text(f"open({str(mark)!r}, 'a').close()\n")
    commands = {
        "fit in worker processes": ["fit", table, "--out", folder / "run", *QUICK, "--n-jobs", "2"],
        "clean": ["clean", folder / "run", "--out", folder / "labels.csv"],
    }
    for name, words in commands.items():
        done = subprocess.run(
            [sys.executable, "-P", "-m", "oneof", *map(str, words)],
            cwd=here,
            capture_output=True,
            text=True,
            check=False,
        )
        problem = problem_of(done, codes=(0,))
        yield Attempt(name, "a module of the folder was imported" if mark.exists() else problem)
    learning = "from pathlib import Path; from oneof.review.session import Review; r = Review(Path(__import__('sys').argv[1]));"
    learning += "r._learn(r.run.folder); print(r.learning['state'])"
    done = subprocess.run(
        [sys.executable, "-P", "-c", learning, str(folder / "run")],
        cwd=here,
        capture_output=True,
        text=True,
        check=False,
    )
    problem = None if "done" in done.stdout else f"it did not learn: {done.stdout}{done.stderr}"
    yield Attempt("learning again", "a module of the folder was imported" if mark.exists() else problem)


def _limit_files(largest: int) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))


def environments(folder: Path, _: int) -> Iterator[Attempt]:
    """Run commands on terminals that know ASCII alone, without a language, a home, an output or a current folder."""
    table = write_table(folder / "table.csv")
    strange = folder / "strange.csv"
    strange.write_text(table.read_text().replace("cat", "žluťoučký").replace("dog", "🦊"), encoding="utf-8")
    ours = ("LC_", "LANG", "PYTHONIO", "PYTHONUTF8")
    plain = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    variants: dict[str, dict[str, str]] = {
        "ascii terminal": {"PYTHONIOENCODING": "ascii"},
        "no language": {},
        "POSIX, latin-1": {
            "LC_ALL": "POSIX",
            "PYTHONUTF8": "0",
            "PYTHONCOERCECLOCALE": "0",
            "PYTHONIOENCODING": "latin-1",
        },
        "C without UTF-8": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        "no home": {"HOME": "/nonexistent", "XDG_STATE_HOME": "/nonexistent", "XDG_CACHE_HOME": "/nonexistent"},
        "dumb terminal of one column": {"TERM": "dumb", "COLUMNS": "1"},
    }
    for i, (name, variables) in enumerate(variants.items()):
        out = folder / f"out{i}"
        out.mkdir()
        words = [sys.executable, "-c", _ALL_COMMANDS, str(strange), str(out)]
        done = subprocess.run(
            words, env={**plain, **variables}, capture_output=True, encoding="utf-8", errors="replace", check=False
        )
        codes = done.stderr.rpartition("codes: ")[2].split()
        for command, code in zip(("inspect", "fit", "clean", "predict", "report", "a refusal"), codes, strict=False):
            expected = "2" if command == "a refusal" else "0"
            yield Attempt(f"{name}: {command}", None if code == expected else f"exit code {code}: {done.stderr}")
        if len(codes) != 6 or "Traceback" in done.stderr:
            yield Attempt(name, f"it did not end well: {done.stderr[-300:]}")
    yield from _odd_outputs(folder, table)


_ALL_COMMANDS = """
import sys
from oneof.cli import main

table, out = sys.argv[1:]
run = f"{out}/run"
codes = []
for words in (
    ["inspect", table],
    ["fit", table, "--out", run, "--quick"],
    ["clean", run, "--out", f"{out}/labels.csv"],
    ["predict", run, table, "--out", f"{out}/new.csv"],
    ["report", run, "--out", f"{out}/page.html"],
    ["inspect", f"{out}/\\u017e\\u00e1dn\\u00fd.csv"],
):
    sys.argv = ["oneof", *words]
    try:
        main()
    except SystemExit as end:
        codes.append(end.code or 0)
print("codes:", *codes, file=sys.stderr)
"""


def _odd_outputs(folder: Path, table: Path) -> Iterator[Attempt]:
    """Read files with odd names; write into folders that cannot be written, a full device, and a pipe that nobody reads."""
    for name in ("žluťoučký-日本.csv", "new\nline.csv", os.fsdecode(b"not-\xff-UTF-8.csv")):
        shutil.copy(table, folder / name)
        yield Attempt(f"inspect {name!r}", problem_of(call("inspect", folder / name)))
        yield Attempt(f"fit {name!r}", problem_of(call("fit", folder / name, "--out", folder / "odd", *QUICK)))
        shutil.rmtree(folder / "odd", ignore_errors=True)
    with open("/dev/full", "w") as full:
        done = call_alone("inspect", table, stdout=full, stderr=-1, capture_output=False)
        yield Attempt("standard output is full", problem_of(done))
    reader, writer = os.pipe()
    os.close(reader)
    done = call_alone("inspect", table, stdout=writer, stderr=-1, capture_output=False)
    os.close(writer)
    yield Attempt("nobody reads standard output", problem_of(done, codes=(0, 1, 2, 141)))
    gone = folder / "gone"
    gone.mkdir()
    done = call_alone("inspect", table, preexec_fn=lambda: (os.chdir(gone), gone.rmdir()))
    yield Attempt("the current folder is gone", problem_of(done))
    for out in ("/proc/run", "/dev/null", "/dev/null/run", folder / ("x" * 300), "\x00bad"):
        if "\x00" in str(out):
            done = call("fit", table, "--out", out, *QUICK)
        else:
            done = call_alone("fit", table, "--out", out, *QUICK)
        yield Attempt(f"fit --out {str(out)[:20]!r}", problem_of(done, codes=(2,)))


def two_writers(folder: Path, count: int) -> Iterator[Attempt]:
    """Fit twice into one folder at once: one ends well, the other says who is at work or that all is done."""
    table = write_table(folder / "table.csv", 400)
    for i in range(count):
        both = [start_alone("fit", table, "--out", folder / f"both{i}", *SMALL) for _ in range(2)]
        errors = [process.communicate()[1] for process in both]
        codes = sorted(process.returncode for process in both)
        problem = None
        if codes not in ([0, 0], [0, 2]) or any("Traceback" in error for error in errors):
            problem = f"exit codes {codes}: {errors}"
        yield Attempt(f"pair {i}", problem)


def at_once(folder: Path, count: int) -> Iterator[Attempt]:
    """Predict, clean and report while a fit writes the folder; clean while a review writes its log."""
    table = write_table(folder / "table.csv", 400)
    out = folder / "run"
    fitting = start_alone("fit", table, "--out", out, *SMALL)
    while fitting.poll() is None:
        for words in (
            ["predict", out, table, "--out", folder / "new.csv"],
            ["clean", out, "--out", folder / "labels.csv"],
        ):
            yield Attempt(f"{words[0]} during fit", problem_of(call(*words)))
    fitting.communicate()
    yield from _clean_while_a_review_writes(folder, out, count)


def _clean_while_a_review_writes(folder: Path, run: Path, count: int) -> Iterator[Attempt]:
    child = os.fork()
    if child == 0:
        from oneof.review.session import Review

        review = Review(run)
        for number in range(100_000):
            row = number % len(review.labels)
            answer = {
                "id": str(number), "row": row, "kind": "label", "labels": [review.labels[row]], "run": review.id,
                "drawn": "queue", "seconds": 1.0,
            }  # fmt: skip
            review.decide(answer, "ann")
        os._exit(0)
    try:
        wait_for((run / "decisions.jsonl").exists)
        for i in range(count):
            done = call("clean", run, "--out", folder / f"during{i}.csv")
            problem = problem_of(done, codes=(0,))
            if problem is None and done.stderr:
                problem = f"a line of a whole log was reported: {done.stderr!r}"
            yield Attempt("clean during review", problem)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def clocks(folder: Path, _: int) -> Iterator[Attempt]:
    """Run with a clock that goes backwards, stands at 1970 or in the year 9999, and with files from the future."""
    table = write_table(folder / "table.csv")
    as_usual = time.time

    def backwards() -> float:
        backwards.now -= 1000.0  # type: ignore[attr-defined]
        return backwards.now  # type: ignore[attr-defined]

    backwards.now = as_usual()  # type: ignore[attr-defined]
    clocks_to_try = {"backwards": backwards, "1970": lambda: 0.0, "year 9999": lambda: 253_402_300_000.0}
    for name, clock in clocks_to_try.items():
        out = folder / f"run-{name}"
        time.time = clock
        try:
            attempts = [
                ("fit", call("fit", table, "--out", out, *SMALL)),
                ("fit again", call("fit", table, "--out", out, *SMALL)),
                ("clean", call("clean", out, "--out", folder / "labels.csv")),
                ("report", call("report", out, "--out", folder / "page.html")),
            ]
        finally:
            time.time = as_usual
        for command, done in attempts:
            yield Attempt(
                f"clock {name}: {command}", problem_of(done, codes=(0, 2) if command == "fit again" else (0,))
            )
    for path in (folder / "run-1970").rglob("*"):
        os.utime(path, (2**33, 2**33))
    yield Attempt(
        "files of 2242: clean", problem_of(call("clean", folder / "run-1970", "--out", folder / "l.csv"), codes=(0,))
    )


def _model_bytes(run: Path) -> bytes:
    path = run / "model.safetensors"
    return path.read_bytes() if path.exists() else b""
