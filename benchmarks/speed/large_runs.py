"""`oneof clean` and `oneof report` of a run of millions of rows: seconds and peak memory of each, as processes of their own.

    python benchmarks/speed/large_runs.py [--rows 2000000 10000000] [--folder /tmp/large-runs] [--results results/scale.jsonl]

The run is a small fit whose purified table is repeated, with new row numbers; its files are then those that a fit of so many rows would have written.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from oneof.candidates.generate import Flip, generate
from oneof.learners.config import EnsembleConfig, FitConfig
from oneof.runs.fit_spec import FitSpec
from oneof.runs.fit_table import fit_table
from oneof.storage.rows import append
from oneof_paper.results import origin
from oneof_paper.synthetic import mixture

ROWS = 2000
COLUMNS = 20
CLASSES = 5


def fit_small(folder: Path) -> Path:
    """Fit a small table, unless that was done before."""
    run = folder / "small"
    if (run / "run.json").exists():
        return run
    data = mixture(n=ROWS, d=COLUMNS, c=CLASSES, separation=3.0, seed=0)
    sets = generate(data.labels, CLASSES, Flip(0.3), seed=0)
    columns: dict[str, object] = {f"x{j}": data.x[:, j].astype(np.float32) for j in range(COLUMNS)}
    columns["candidates"] = ["|".join(f"class {j}" for j in np.flatnonzero(row)) for row in np.asarray(sets)]
    pq.write_table(pa.table(columns), folder / "table.parquet")
    fit_table(folder / "table.parquet", run, FitSpec(config=FitConfig(EnsembleConfig(n_networks=2).without_networks())))
    return run


def repeat(small: Path, run: Path, n_rows: int) -> None:
    """Write a run whose purified table is that of a small one, again and again."""
    if (run / "run.json").exists():
        return
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(small, run, ignore=shutil.ignore_patterns("purified.parquet", "run.json"))
    table = pq.read_table(small / "purified.parquet")
    position = table.column_names.index("row")
    with pq.ParquetWriter(run / "purified.parquet", table.schema, compression="zstd") as writer:
        copies = pa.concat_tables([table] * 50)
        for start in range(0, n_rows, copies.num_rows):
            rows = pa.array(np.arange(start, start + copies.num_rows), table.schema.field("row").type)
            writer.write_table(copies.set_column(position, "row", rows).slice(0, n_rows - start))
    metadata = json.loads((small / "run.json").read_text("utf-8"))
    (run / "run.json").write_text(json.dumps({**metadata, "n": n_rows}), "utf-8")


def measure(command: str, arguments: list[str], n_rows: int) -> dict[str, object]:
    """Run a command; return its seconds and its peak memory."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "oneof", command, *arguments])
    _, status, used = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"oneof {command} failed")
    return {
        "kind": command,
        "rows": n_rows,
        "seconds": round(time.perf_counter() - start, 1),
        "processor_seconds": round(used.ru_utime + used.ru_stime, 1),
        "peak_gigabytes": round(used.ru_maxrss / 2**20, 2),
        **origin("cpu"),
    }


def main() -> None:
    """Measure both commands at each number of rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[2_000_000, 10_000_000])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "oneof-large-runs")
    parser.add_argument("--results", type=Path)
    arguments = parser.parse_args()
    folder = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    small = fit_small(folder)
    for n_rows in arguments.rows:
        run = folder / str(n_rows)
        repeat(small, run, n_rows)
        rows = [
            measure("report", [str(run), "--out", str(folder / "report.html")], n_rows),
            measure("clean", [str(run), "--out", str(folder / "labels.parquet")], n_rows),
        ]
        for row in rows:
            print(json.dumps(row), flush=True)
        if arguments.results is not None:
            append(arguments.results, rows)
        shutil.rmtree(run)


if __name__ == "__main__":
    main()
