"""A sweep of 60 rows on two local Ray workers, one of which is killed half way: 60 rows, none twice, all as without Ray.

    python benchmarks/robustness/sweep.py
    ONEOF_DATA=DIR python benchmarks/robustness/sweep.py --threads

Six systems by ten seeds of a small set. When half of the rows are there, a worker that is in the middle of one gets SIGKILL;
Ray begins its row again on another worker, and the row's checkpoint says where it stood.

--threads: how far the rows of one thread and of two are apart, for PRODEN+POP and CC by ten seeds, on the same small set and on Lost.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from scipy.io import savemat

from oneof.candidates.generate import Flip, generate
from oneof.networks import Linear
from oneof.storage.rows import Row, read
from oneof.training.trials import Training
from oneof_paper.compute_rows import FIXED_MEMORY, Cell, compute_cells, compute_rows, reported
from oneof_paper.data.catalogue import NAMED, load
from oneof_paper.experiments import TABLES, TABULAR, Protocol
from oneof_paper.ray_executor import run_on_ray
from oneof_paper.synthetic import mixture

PROTOCOL = Protocol(Linear(), Training(epochs=100, batch=50), lr=(0.01, 0.1), weight_decay=(1e-3,))
SYSTEMS = ("proden", "proden+pop", "cc", "cc+pop", "rc", "rc+pop")


def write_data(folder: Path) -> None:
    """Something small where the file of Lost is looked for."""
    data = mixture(n=200, d=4, c=3, seed=0)
    sets = generate(data.labels, 3, Flip(0.3), seed=0)
    content = {"data": data.x, "target": np.eye(3)[data.labels].T, "partial_target": sets.T.astype(float)}
    path = folder / NAMED["lost"].files[0]
    path.parent.mkdir(parents=True)
    savemat(path, content)


def busy_workers() -> list[int]:
    """Processes below this one that run a job for Ray."""
    parents, titles = {}, {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            titles[int(entry.name)] = (entry / "cmdline").read_bytes()
        except OSError:
            continue  # it ended meanwhile
    return [pid for pid, title in titles.items() if title.startswith(b"ray::run_job") and _is_ours(pid, parents)]


def _is_ours(pid: int, parents: dict[int, int]) -> bool:
    while pid in parents and pid != os.getpid():
        pid = parents[pid]
    return pid == os.getpid()


def identities(rows: list[Row]) -> Counter[tuple[str, int]]:
    return Counter((row["setting"], row["seed"]) for row in rows if row["kind"] == "grid")


def compared(rows: list[Row]) -> list[Row]:
    """What two runs must agree in, in one order."""
    passing = ("seconds", "cpu_seconds", "commit")  # a commit may be made while it runs
    plain = [{key: value for key, value in row.items() if key not in passing} for row in rows]
    return sorted(plain, key=lambda row: (row["setting"], row["seed"], row["kind"], row.get("rule", "")))


def numbers(rows: list[Row]) -> dict[tuple[str, ...], float]:
    """All numbers that were measured, by where they stand."""
    chosen = [row for row in rows if row["kind"] == "chosen"]
    return {
        (name, row["rule"], str(row["seed"])): float(row[name])
        for row in chosen
        for name in (*reported(), "true_labels_removed", "epoch", "lr", "weight_decay")
        if name in row
    }


def compare_threads() -> None:
    with tempfile.TemporaryDirectory() as name:
        write_data(Path(name))
        small = load("lost", name)
    lost = load("lost", None)
    for title, data, protocol in (("small set", small, PROTOCOL), ("Lost", lost, TABULAR)):
        for system in ("proden+pop", "cc"):
            cell = Cell("lost", TABLES[4].systems[system], protocol, tuple(range(10)))
            ends = []
            for threads in (1, 2):
                torch.set_num_threads(threads)
                ends.append(numbers(compute_rows(cell, data, memory=FIXED_MEMORY)))
            apart = {key: abs(ends[0][key] - ends[1].get(key, float("nan"))) for key in ends[0]}
            most: dict[str, float] = {}
            for (field, *_), by in apart.items():
                most[field] = max(most.get(field, 0.0), by)
            differing = sum(by != 0 for by in apart.values())
            by_field = ", ".join(f"{field} {by:.6g}" for field, by in most.items() if by != 0)
            print(
                f"{title}, {system}: {differing} of {len(apart)} numbers differ; at most by: {by_field or '-'}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", action="store_true")
    if parser.parse_args().threads:
        compare_threads()
    else:
        sweep()


def sweep() -> None:
    killed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_data(folder / "data")
        cells = [Cell("lost", TABLES[4].systems[system], PROTOCOL, tuple(range(10))) for system in SYSTEMS]
        start = time.perf_counter()
        for done, _ in enumerate(
            compute_cells(cells, folder / "ray.jsonl", folder / "data", 2, executor=run_on_ray), 1
        ):
            if done >= 30 and not killed and (busy := busy_workers()):
                os.kill(busy[0], signal.SIGKILL)
                killed, at = busy[0], done
        seconds = time.perf_counter() - start
        assert killed, "no worker was killed"
        for _ in compute_cells(cells, folder / "processes.jsonl", folder / "data", 2):
            pass
        rows, without = read(folder / "ray.jsonl"), read(folder / "processes.jsonl")
        times = identities(rows)
        left = list(folder.glob(".ray-running"))
    print(f"worker {killed} killed after {at} rows; {seconds:.0f} s in all, two workers")
    print(f"{len(times)} rows, {sum(count > 1 for count in times.values()) or 'none'} twice ({len(rows)} lines)")
    print(f"as without Ray: {compared(rows) == compared(without)}; checkpoints left: {len(left)}")


if __name__ == "__main__":
    main()
