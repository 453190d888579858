"""`oneof fit --votes` on the 4,999 texts of sentiment-mturk (203 people): processor seconds of the default and of --quick.

    ONEOF_DATA=data python benchmarks/speed/vote_fits.py [--quick]

The bounds are 120 s of processor time, and 30 s with --quick. Exits with 1 where one is passed.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd

from oneof_paper.data.catalogue import data_folder

BOUNDS = {False: 120, True: 30}  # seconds of processor time, by whether the fit is quick


def processor_seconds(items: Path, votes: Path, out: Path, quick: bool) -> float:
    """Return the processor time of a fit in a process of its own."""
    command = [sys.executable, "-m", "oneof", "fit", items, "--text", "text", "--votes", votes, "--out", out]
    if quick:
        command.append("--quick")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([str(word) for word in command], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="only the quick fit")
    only_quick = parser.parse_args().quick
    folder = data_folder(None)
    assert folder is not None, "set ONEOF_DATA"
    source = folder / "votes/sentiment-mturk"
    is_passed = False
    with tempfile.TemporaryDirectory() as temporary:
        items = Path(temporary, "items.csv")
        pd.read_csv(source / "items.csv").drop(columns="truth").to_csv(items, index=False)
        for quick in (True,) if only_quick else (True, False):
            start = time.perf_counter()
            seconds = processor_seconds(items, source / "votes.csv", Path(temporary, f"run-{quick}"), quick)
            elapsed = time.perf_counter() - start
            name = "--quick" if quick else "default"
            print(
                f"{name}: {seconds:.1f} s of processor time, {elapsed:.1f} s in all; bound {BOUNDS[quick]} s",
                flush=True,
            )
            is_passed = is_passed or seconds > BOUNDS[quick]
    sys.exit(int(is_passed))


if __name__ == "__main__":
    main()
