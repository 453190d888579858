"""1, 10 and 100 million votes in batches: seconds of processor and clock, and peak memory, each in a process of its own.

    python benchmarks/speed/streamed_votes.py [--votes 1000000 10000000 100000000] [--compare] [--folder /tmp/votes] [--results results/scale.jsonl]
    python benchmarks/speed/streamed_votes.py --draw docs/figures/many-votes.png

Five votes an item, a thousand an annotator (at most 100,000 annotators), ten labels; annotators are right in 50 to 90 % of their votes.
The bounds for 100 million are 4 GB and an hour on two cores: reading, Dawid-Skene until it converges, agreement and writing.
--compare also counts the votes of every pair (item, label) by pyarrow's group_by, by DuckDB (pip install duckdb), and by the parts
of oneof.votes.streaming, and runs Dawid-Skene in memory to compare posterior and labels. --draw draws seconds and memory from the rows.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from oneof.storage.rows import append, read
from oneof.votes import dawid_skene, read_long
from oneof.votes.ballots import tally
from oneof.votes.streaming import partition_votes, stream_dawid_skene, stream_votes
from oneof_paper.results import origin

RESULTS = Path(__file__).parents[2] / "results" / "scale.jsonl"
VOTES_PER_ITEM = 5
VOTES_PER_FILE = 10_000_000
LABELS = 10


def make(folder: Path, n_votes: int) -> list[Path]:
    """Write the votes in random order, in files of ten million."""
    folder.mkdir(parents=True, exist_ok=True)
    n_items = n_votes // VOTES_PER_ITEM
    n_annotators = min(100_000, max(100, n_votes // 1000))
    skill = np.random.default_rng(0).uniform(0.5, 0.9, n_annotators)
    people = pa.array([f"person-{j}" for j in range(n_annotators)])
    names = pa.array([f"label-{j}" for j in range(LABELS)])
    paths = []
    for i, start in enumerate(range(0, n_votes, VOTES_PER_FILE)):
        path = folder / f"{i:03d}.parquet"
        paths.append(path)
        if path.exists():
            continue
        rng = np.random.default_rng(i + 1)
        size = min(VOTES_PER_FILE, n_votes - start)
        item = rng.integers(n_items, size=size)
        annotator = rng.integers(n_annotators, size=size)
        truth = (item * 2_654_435_761 >> 7) % LABELS
        right = rng.random(size) < skill[annotator]
        label = np.where(right, truth, rng.integers(LABELS, size=size))
        table = {"item": item, "annotator": people.take(annotator), "label": names.take(label)}
        pq.write_table(pa.table(table), path, row_group_size=1 << 20)
    return paths


def peak_gigabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def measure(files: list[Path], folder: Path, policy: str) -> dict[str, float]:
    """Read, make sets, summarise and write once; return what it took."""
    start = time.perf_counter()
    parts = partition_votes(files, folder / "parts")
    read = time.perf_counter()
    summary = stream_votes(parts, policy, out=folder / "sets.parquet")
    end = time.perf_counter()
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "votes": summary.votes,
        "items": summary.items,
        "annotators": summary.annotators,
        "policy": policy,
        "note": summary.note,
        "alpha": summary.alpha,
        "seconds": round(end - start, 1),
        "seconds_reading": round(read - start, 1),
        "processor_seconds": round(used.ru_utime + used.ru_stime, 1),
        "peak_gigabytes": round(peak_gigabytes(), 2),
    }


def compare(files: list[Path], folder: Path, engine: str) -> dict[str, float]:
    """Count the votes for every pair (item, label) by one engine; or compare the posterior with that in memory."""
    start = time.process_time()
    if engine == "pyarrow":
        table = pa.concat_tables([pq.read_table(path, columns=["item", "label"]) for path in files])
        n_pairs = table.group_by(["item", "label"]).aggregate([([], "count_all")]).num_rows
    elif engine == "duckdb":
        import duckdb

        database = duckdb.connect(str(folder / "votes.duckdb"))
        database.execute("set memory_limit = '3GB'; set threads = 2")
        query = f"select count(*) from (select item, label, count(*) from read_parquet({[str(path) for path in files]}) group by item, label)"
        n_pairs = database.execute(query).fetchone()[0]
    elif engine == "parts":
        parts = partition_votes(files, folder / "parts")
        n_pairs = sum(len(tally(part).item) for part in parts)
    else:
        votes = read_long(pa.concat_tables([pq.read_table(path) for path in files]))
        expected = dawid_skene(votes)
        parts = partition_votes(files, folder / "parts")
        row_of = np.full(int(np.max(votes.items.to_numpy())) + 1, -1)
        row_of[votes.items.to_numpy()] = np.arange(len(votes.items))
        difference = 0.0
        n_other_labels = 0
        for part, posterior in stream_dawid_skene(parts).posteriors():
            in_memory = expected.posterior[row_of[part.items.to_numpy()]]
            difference = max(difference, float(np.abs(posterior - in_memory).max()))
            n_other_labels += int((posterior.argmax(1) != in_memory.argmax(1)).sum())
        return {
            "engine": "in memory",
            "votes": len(votes.item),
            "rounds": expected.rounds,
            "largest_difference": difference,
            "other_labels": n_other_labels,
            "peak_gigabytes": round(peak_gigabytes(), 2),
        }
    return {
        "engine": engine,
        "votes": sum(pq.read_metadata(path).num_rows for path in files),
        "pairs": n_pairs,
        "processor_seconds": round(time.process_time() - start, 1),
        "peak_gigabytes": round(peak_gigabytes(), 2),
    }


def main() -> None:
    """Measure each number of votes in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--votes", type=int, nargs="+", default=[1_000_000, 10_000_000, 100_000_000])
    parser.add_argument("--policy", default="dawid-skene")
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "oneof-votes")
    parser.add_argument("--results", type=Path)
    parser.add_argument("--draw", type=Path)
    parser.add_argument("--child", default="")
    arguments = parser.parse_args()
    if arguments.draw is not None:
        draw(arguments.results or RESULTS, arguments.draw)
        return
    if arguments.child:
        files = make(arguments.folder / str(arguments.votes[0]), arguments.votes[0])
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            if arguments.child == "measure":
                print(json.dumps(measure(files, Path(folder), arguments.policy)))
            else:
                print(json.dumps(compare(files, Path(folder), arguments.child)))
        return
    kinds = ["measure"]
    if arguments.compare:
        kinds += ["pyarrow", "duckdb", "parts", "posterior"]
    for n_votes in arguments.votes:
        make(arguments.folder / str(n_votes), n_votes)
        for kind in kinds:
            command = [sys.executable, __file__, "--votes", str(n_votes), "--child", kind]
            command += ["--folder", str(arguments.folder), "--policy", arguments.policy]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            row = {"kind": "votes", **json.loads(done.stdout.splitlines()[-1]), **origin("cpu")}
            print(json.dumps(row), flush=True)
            if arguments.results is not None:
                append(arguments.results, [row])


def draw(results: Path, out: Path) -> None:
    """Draw processor seconds and peak memory over the number of votes, from the last row of each number."""
    import matplotlib.pyplot as plt

    rows = {}
    for row in read(results):
        if row["kind"] == "votes" and "policy" in row:
            rows[row["votes"]] = row
    votes = sorted(rows)
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
    left.plot(votes, [rows[n]["processor_seconds"] for n in votes], marker="o")
    left.set(title="Seconds of one processor", yscale="log")
    right.plot(votes, [rows[n]["peak_gigabytes"] for n in votes], marker="o")
    right.set(title="Peak memory, GB", ylim=(0, 4.2))
    right.axhline(4, color="gray", linestyle="--", linewidth=1)
    right.text(votes[0], 3.95, "bound", color="gray", va="top")
    for axes in (left, right):
        axes.set(xscale="log", xlabel="votes")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=150)


if __name__ == "__main__":
    main()
