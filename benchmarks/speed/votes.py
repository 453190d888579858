"""1,000,000 votes for 200,000 items to candidate sets: seconds and memory of each policy, each in a process of its own.

    python benchmarks/speed/votes.py [--items 200000] [--annotators 500] [--classes 10]

The bounds are 20 s and 2 GB on two cores, reading, summary and writing included. Exits with 1 where one is passed.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from oneof.votes import at_least, read_long, summarise, top_p, union, vaguest, write

POLICIES = {
    "union": union,
    "at-least": partial(at_least, k=2),
    "vaguest": vaguest,
    "dawid-skene": partial(top_p, p=0.9),
}
VOTES_PER_ITEM = 5


def make(path: Path, items: int, annotators: int, classes: int) -> None:
    """A long table: five votes an item, annotators right in 50 to 90 % of their votes, in random order."""
    rng = np.random.default_rng(0)
    truth = rng.integers(classes, size=items)
    item = rng.permutation(np.repeat(np.arange(items), VOTES_PER_ITEM))
    annotator = rng.integers(annotators, size=len(item))
    right = rng.random(len(item)) < rng.uniform(0.5, 0.9, annotators)[annotator]
    label = np.where(right, truth[item], rng.integers(classes, size=len(item)))
    names = pa.array([f"label-{j:04d}" for j in range(classes)])
    people = pa.array([f"person-{j}" for j in range(annotators)])
    columns = {"item": item, "annotator": people.take(annotator), "label": names.take(label)}
    pacsv.write_csv(pa.table(columns), path)


def run(path: Path, policy: str) -> None:
    """Read, make sets, summarise and write once; print what it took."""
    start = time.perf_counter()
    votes = read_long(path)
    read = time.perf_counter()
    sets = POLICIES[policy](votes)
    made = time.perf_counter()
    summary = summarise(votes, sets)
    write(votes, sets, path.with_name(f"{policy}.parquet"))
    end = time.perf_counter()
    gigabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{policy:12} {len(votes.item):>9,} votes {summary.items:>8,} items  read {read - start:5.2f} s  sets {made - read:5.2f} s  "
        f"summary and file {end - made:5.2f} s  all {end - start:5.2f} s  peak {gigabytes:4.2f} GB  "
        f"average set {summary.sets.average:.2f}  {sets.note}",
        flush=True,
    )
    sys.exit(int(end - start > 20 or gigabytes > 2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=200_000)
    parser.add_argument("--annotators", type=int, default=500)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--one", nargs=2, metavar=("FILE", "POLICY"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        run(Path(asked.one[0]), asked.one[1])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "votes.csv")
        make(path, asked.items, asked.annotators, asked.classes)
        codes = [subprocess.run([sys.executable, __file__, "--one", path, policy]).returncode for policy in POLICIES]
    sys.exit(max(codes))


if __name__ == "__main__":
    main()
