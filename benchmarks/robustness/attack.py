"""Attack oneof: hostile tables, votes, run folders and requests, kills, full disks, odd environments. Prints a table: tried, faults.

    python benchmarks/robustness/attack.py
    python benchmarks/robustness/attack.py --only kills links

A fault is a traceback or a foreign warning on the terminal, a command that does not end, an exit code other than 0 and 2, an error that
is not one line, a request without an answer, a file that is half there or written through a link, or another result after a kill. Faults
are described on standard error, and the exit code is then 1. `attacks/` has what is tried. `faults.py` kills far more often, and compares
checkpoints to the bit.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from attacks import folders, processes, servers, tables

ATTACKS = {
    "fuzzed tables": (tables.fuzzed_tables, 300),
    "ordinary data of unusual types": (tables.ordinary_data, 1),
    "hostile votes, 60,000 classes": (tables.hostile_votes, 1),
    "bombs and long answers": (tables.bombs, 1),
    "hostile pictures": (tables.hostile_pictures, 400),
    "kills": (processes.kills, 4),
    "kills inside a write or rename": (processes.kills_in_writes, 30),
    "full disk": (processes.full_disk, 4),
    "full disk or read-only at each write": (processes.failing_writes, 8),
    "code in the current folder": (processes.planted_modules, 1),
    "odd environments and outputs": (processes.environments, 1),
    "two writers": (processes.two_writers, 2),
    "commands at once": (processes.at_once, 10),
    "clocks": (processes.clocks, 1),
    "claims of a run": (folders.claims, 1),
    "tampered JSON of a run": (folders.tampered_json, 120),
    "tampered table of a run": (folders.tampered_tables, 1),
    "tampered weights of a run": (folders.tampered_tensors, 1),
    "tampered runs by slow commands": (folders.slow_commands, 1),
    "links, pipes and devices": (folders.links_and_pipes, 1),
    "hostile logs": (folders.hostile_logs, 1),
    "saved fits": (folders.saved_fits, 1),
    "tampered checkpoints": (folders.tampered_checkpoints, 25),
    "requests to a review": (servers.review_requests, 1),
    "requests to Label Studio's backend": (servers.label_studio_requests, 1),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", nargs="+", default=[""], metavar="WORDS", help="attacks whose names contain these words"
    )
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    faults = []
    n_tried = 0
    print("| attack | tried | faults | seconds |\n|---|---|---|---|")
    for name, (attack, count) in ATTACKS.items():
        if not any(words in name for words in options.only):
            continue
        begun = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            attempts = list(attack(Path(folder), count))
        found = [attempt for attempt in attempts if attempt.problem is not None]
        n_tried += len(attempts)
        faults += found
        print(f"| {name} | {len(attempts):,} | {len(found)} | {time.monotonic() - begun:.0f} |", flush=True)
        for attempt in found:
            print(f"{name}, {attempt.name}: {attempt.problem}", file=sys.stderr)
    print(f"| all | {n_tried:,} | {len(faults)} | |")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
