"""Fit a folder of Parquet files that is larger than the memory that the fit takes, and label every row: seconds and peak memory of both.

    python benchmarks/speed/fit_files.py [--files 40] [--rows 50000] [--columns 100] [--folder /tmp/fit-files] [--results results/scale.jsonl]

Five classes in ten informative columns, the others noise, as float64, which does not compress; each wrong label is in a set with probability 0.3.
`oneof fit 'rows/*.parquet'` and `oneof clean` run as processes of their own. Exits with 1 if one of them took more memory than the folder has bytes,
or if a row is missing.
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

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from oneof.storage.rows import append
from oneof_paper.results import origin

CLASSES = 5
INFORMATIVE = 10


def make(folder: Path, n_files: int, n_rows: int, n_columns: int) -> list[Path]:
    """Write the files, unless they are there."""
    folder.mkdir(parents=True, exist_ok=True)
    centres = np.random.default_rng(0).normal(size=(CLASSES, INFORMATIVE)) * 1.2
    names = np.array([f"class {j}" for j in range(CLASSES)])
    paths = []
    for i in range(n_files):
        path = folder / f"{i:04d}.parquet"
        paths.append(path)
        if path.exists() and pq.read_metadata(path).num_rows == n_rows:
            continue
        rng = np.random.default_rng(i + 1)
        truth = rng.integers(CLASSES, size=n_rows)
        x = rng.normal(size=(n_rows, n_columns))
        x[:, :INFORMATIVE] += centres[truth]
        sets = (rng.random((n_rows, CLASSES)) < 0.3) | (np.arange(CLASSES) == truth[:, None])
        columns: dict[str, object] = {f"x{j}": x[:, j] for j in range(n_columns)}
        columns["candidates"] = ["|".join(names[row]) for row in sets]
        columns["id"] = np.arange(i * n_rows, (i + 1) * n_rows)
        columns["truth"] = names[truth]
        pq.write_table(pa.table(columns), path, row_group_size=10_000)
    return paths


def measure(arguments: list[str]) -> tuple[float, float]:
    """Run a command; return its seconds by the clock and its peak memory in gigabytes."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "oneof", *arguments])
    _, status, used = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"oneof {arguments[0]} failed")
    return time.perf_counter() - start, used.ru_maxrss / 2**20


def main() -> None:
    """Make the folder, fit it, label it, and count what is right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=40)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--quick", action="store_true", help="fit without networks")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "oneof-fit-files")
    parser.add_argument("--results", type=Path)
    arguments = parser.parse_args()
    folder = arguments.folder
    files = make(folder / "rows", arguments.files, arguments.rows, arguments.columns)
    folder_gigabytes = sum(path.stat().st_size for path in files) / 2**30
    with tempfile.TemporaryDirectory(dir=folder) as out:
        options = ["--ignore", "id", "--ignore", "truth"]
        if arguments.quick:
            options.append("--quick")
        fit_seconds, fit_peak = measure(["fit", str(folder / "rows" / "*.parquet"), "--out", f"{out}/RUN", *options])
        clean = ["clean", f"{out}/RUN", "--out", f"{out}/labels", "--column", "id", "--column", "truth"]
        clean_seconds, clean_peak = measure(clean)
        described = json.loads(Path(out, "RUN", "run.json").read_text("utf-8"))["files"]
        n_right = 0
        ids = []
        for path in sorted(Path(out, "labels").glob("*.parquet")):
            labels = pq.read_table(path, columns=["label", "truth", "id"]).to_pandas()
            n_right += int((labels["label"] == labels["truth"]).sum())
            ids.append(labels["id"].to_numpy())
    every_row_once = np.array_equal(np.concatenate(ids), np.arange(arguments.files * arguments.rows))
    row = {
        "kind": "fit files",
        "rows": described["rows"],
        "columns": arguments.columns,
        "folder_gigabytes": round(folder_gigabytes, 2),
        "sampled": described["sampled"],
        "curve": described["curve"],
        "fit_seconds": round(fit_seconds, 1),
        "fit_peak_gigabytes": round(fit_peak, 2),
        "clean_seconds": round(clean_seconds, 1),
        "clean_peak_gigabytes": round(clean_peak, 2),
        "every_row_once": bool(every_row_once),
        "labels_right": round(n_right / described["rows"], 4),
        **origin("cpu"),
    }
    print(json.dumps(row), flush=True)
    if arguments.results is not None:
        append(arguments.results, [row])
    if max(fit_peak, clean_peak) > folder_gigabytes or not every_row_once:
        sys.exit("more memory than the folder has bytes, or a row is missing")


if __name__ == "__main__":
    main()
