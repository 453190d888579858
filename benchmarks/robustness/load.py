"""Many processes at once: 20 that predict from one run folder, and 8 that append 1,000 rows each to one file.

    python benchmarks/robustness/load.py [--predictors 20] [--writers 8] [--rows 1000]

Prints whether all predictions are those of one process alone, the peak memory of the largest process and of all together (PSS:
pages that processes share are counted once), and how many of the appended lines are whole.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from oneof.candidates.generate import Flip, generate
from oneof_paper.synthetic import mixture

ONEOF = [sys.executable, "-c", "from oneof.cli import main; main()"]
WRITER = """
import sys
from pathlib import Path
from oneof.storage.rows import append
path, writer, rows = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
for number in range(rows):
    append(path, [{"writer": writer, "number": number, "padding": "x" * (number % 400)}])
"""


def write_table(path: Path) -> None:
    data = mixture(n=2000, d=10, c=5, seed=0)
    sets = generate(data.labels, 5, Flip(0.3), seed=0)
    lines = [",".join([*(f"x{j}" for j in range(10)), "candidates"])]
    for x, row in zip(data.x, sets, strict=True):
        lines.append(",".join([*map(str, x), "|".join(str(j) for j in row.nonzero()[0])]))
    path.write_text("\n".join(lines))


def proportional(pid: int) -> int:
    """Kilobytes of a process, shared pages by their share; 0 once it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def wait_for(running: list[subprocess.Popen[bytes]]) -> tuple[list[int], float, float]:
    """Exit codes, the largest process's peak and the peak of all together, in megabytes."""
    codes, largest, together = [], 0, 0
    left = {process.pid for process in running}
    while left:
        together = max(together, sum(map(proportional, left)))
        for pid in list(left):
            done, status, usage = os.wait4(pid, os.WNOHANG)
            if done:
                left.remove(pid)
                codes.append(os.waitstatus_to_exitcode(status))
                largest = max(largest, usage.ru_maxrss)
        time.sleep(0.3)
    return codes, largest / 1024, together / 1024


def predict(folder: Path, count: int) -> None:
    table, run = folder / "table.csv", folder / "run"
    write_table(table)
    fit = [*ONEOF, "fit", table, "--out", run, "--networks", "2", "--epochs", "3"]
    subprocess.run(fit, check=True, stdout=subprocess.DEVNULL)
    start = time.perf_counter()
    subprocess.run(
        [*ONEOF, "predict", run, table, "--out", folder / "alone.csv"], check=True, stdout=subprocess.DEVNULL
    )
    alone = time.perf_counter() - start
    start = time.perf_counter()
    running = [
        subprocess.Popen([*ONEOF, "predict", run, table, "--out", folder / f"{i}.csv"], stdout=subprocess.DEVNULL)
        for i in range(count)
    ]
    codes, largest, together = wait_for(running)
    seconds = time.perf_counter() - start
    expected = (folder / "alone.csv").read_bytes()
    right = sum((folder / f"{i}.csv").read_bytes() == expected for i in range(count))
    print(
        f"predict: {right} of {count} right, exit codes {sorted(set(codes))}; {seconds:.1f} s, one alone {alone:.1f} s"
    )
    print(f"peak memory: {largest:.0f} MB of the largest process, {together:.0f} MB of all {count} together (PSS)")


def write(folder: Path, writers: int, rows: int) -> None:
    path = folder / "rows.jsonl"
    start = time.perf_counter()
    command = [sys.executable, "-c", WRITER, path]
    running = [subprocess.Popen([*command, str(writer), str(rows)]) for writer in range(writers)]
    codes, _, _ = wait_for(running)
    seconds = time.perf_counter() - start
    lines = path.read_text().splitlines()
    found = [json.loads(line) for line in lines]  # a damaged line would end this
    distinct = {(row["writer"], row["number"]) for row in found}
    whole = all(row["padding"] == "x" * (row["number"] % 400) for row in found)
    print(
        f"append: {len(lines)} lines of {writers} x {rows}, {len(distinct)} distinct, all whole: {whole}, "
        f"moved aside: {len(list(folder.glob('*.damaged')))}, exit codes {sorted(set(codes))}; {seconds:.1f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--predictors", type=int, default=20)
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--rows", type=int, default=1000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        write(Path(name), given.writers, given.rows)
        predict(Path(name), given.predictors)


if __name__ == "__main__":
    main()
