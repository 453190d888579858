"""Peak memory of reading a large Parquet table, beside the size of the array that it becomes.

    python benchmarks/speed/read_parquet.py [--megabytes 300]

Each read runs in a process of its own, since peak memory never falls. The file has many row groups in one case and one in the other.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import oneof.data.files.columns  # noqa: F401  so that Arrow's own code counts as before
from oneof.data.table import read_table

FEATURES = 100


def write(path: Path, megabytes: int, group: int) -> None:
    """Random doubles, which do not compress, with sets of two labels as text."""
    rng = np.random.default_rng(0)
    rows = megabytes * 1_000_000 // (8 * FEATURES)
    names = [f"f{j}" for j in range(FEATURES)]
    schema = pa.schema([*((name, pa.float64()) for name in names), ("candidates", pa.string())])
    step = min(rows, group)
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, rows, step):
            size = min(step, rows - start)
            columns = [pa.array(rng.normal(size=size)) for _ in names]
            sets = pa.array([f"c{i % 10}|c{(i + 1) % 10}" for i in range(size)])
            writer.write_table(pa.table([*columns, sets], schema=schema), row_group_size=group)


def peak() -> float:
    """Megabytes; from Linux's own count, since getrusage carries the parent's peak over."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e6


def read(path: str) -> None:
    before, start = peak(), time.perf_counter()
    table = read_table(path)
    seconds, size = time.perf_counter() - start, table.columns.numbers.nbytes / 1e6
    print(
        f"x {size:.0f} MB; peak {peak():.0f} MB, of which {before:.0f} before; ratio {(peak() - before) / size:.2f}; {seconds:.1f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=300, help="size of the Parquet file")
    parser.add_argument("--one", metavar="FILE", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        read(asked.one)
        return
    with tempfile.TemporaryDirectory() as folder:
        for group in (10_000, 10_000_000):
            path = Path(folder) / "table.parquet"
            write(path, asked.megabytes, group)
            print(f"{path.stat().st_size / 1e6:.0f} MB Parquet, row groups of {group}: ", end="", flush=True)
            subprocess.run([sys.executable, __file__, "--one", str(path)], check=True)


if __name__ == "__main__":
    main()
