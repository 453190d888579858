"""The default beside what people write by hand, on twelve real tables with three kinds of candidate sets, and on three real sets.

    python benchmarks/accuracy/suite.py --seeds 0-4 --jobs 16 --data-dir DIR                  # six tables to develop on, and the real sets
    python benchmarks/accuracy/suite.py --systems default "default:prepurify=False" --tables glass vowel --seeds 0-1
    python benchmarks/accuracy/suite.py --report --seeds 0-4                                  # run nothing, print what the rows show
    python benchmarks/accuracy/suite.py --final --tables all real --seeds 400-409 --jobs 16   # to report; look once

`on_tables/problems.py` has the tables (`made.py` those that are made), their splits and sets; `on_tables/systems.py` the systems and how variants of them are named; `on_tables/report.py` the rule by
which a system is behind. A row is appended as soon as it is there, and rows that are there are not run again. Seeds 0-9 and six tables are for choosing; seeds 400-409 and all
tables for reporting. With --store, the probabilities of test rows and of training rows are written for every trial, so that mixtures can be computed without fitting again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from on_tables.forms import FORMS, NESTED
from on_tables.made import MADE
from on_tables.problems import (
    CHOOSING_SEEDS,
    DEVELOP,
    HELD_BACK,
    KEEL,
    KEEL_DEVELOP,
    KEEL_HELD_BACK,
    KINDS,
    REAL,
    REAL_KIND,
    REPORTING_SEEDS,
    TABLES,
    load_table,
)
from on_tables.report import report
from on_tables.systems import CEILINGS, DEFAULT, RIVALS, find_system
from on_tables.trials import Settings, missing_trials, run_trials

from oneof.storage.did_you_mean import did_you_mean
from oneof.storage.rows import read

GROUPS = {
    "develop": DEVELOP,
    "held-back": HELD_BACK,
    "all": TABLES,
    "keel-develop": KEEL_DEVELOP,
    "keel-held-back": KEEL_HELD_BACK,
    "keel": KEEL,
    "real": REAL,
    "made": tuple(MADE),
}
SYSTEM_GROUPS = {"rivals": list(RIVALS), "ceilings": list(CEILINGS), "forms": list(FORMS), "nested": list(NESTED)}


def parse_seeds(text: str) -> list[int]:
    """Read seeds.

    >>> parse_seeds("0-2,7")
    [0, 1, 2, 7]
    """
    seeds: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        seeds += range(int(first), int(last or first) + 1)
    return seeds


def parse_tables(names: Sequence[str]) -> list[str]:
    """Replace the names of groups by their tables."""
    tables: list[str] = []
    for name in names:
        known = [*GROUPS, *TABLES, *KEEL, *REAL, *MADE]
        if name not in known:
            raise ValueError(f"--tables must be of {', '.join(known)}; got {name!r}.{did_you_mean(name, known)}")
        tables += GROUPS.get(name, (name,))
    return list(dict.fromkeys(tables))


def parse_systems(names: Sequence[str]) -> list[str]:
    """Replace the names of groups by their systems, and refuse a system that is none."""
    systems: list[str] = []
    for name in names:
        systems += SYSTEM_GROUPS.get(name, (name,))
    for system in systems:
        find_system(system)
    return list(dict.fromkeys(systems))


def check_seeds(seeds: Sequence[int], final: bool) -> None:
    """Refuse reporting seeds unless --final says that nothing is chosen any more."""
    reporting = sorted(set(seeds) & set(REPORTING_SEEDS))
    if reporting and not final:
        raise ValueError(
            f"seeds {REPORTING_SEEDS[0]}-{REPORTING_SEEDS[-1]} are for reporting; got {reporting[0]}. "
            f"Choose by seeds {CHOOSING_SEEDS[0]}-{CHOOSING_SEEDS[-1]}, or say --final."
        )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", default=["develop", "real"], help=f"names, or {', '.join(GROUPS)}")
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS), help="of made sets")
    parser.add_argument("--seeds", default="0-4", help="such as 0-4 or 0,3,7-9")
    parser.add_argument(
        "--systems",
        nargs="+",
        default=[DEFAULT, "rivals", "ceilings"],
        help="names, or rivals, ceilings, forms, nested",
    )
    parser.add_argument("--data-dir", help="folder with tables/ and real/; default: ONEOF_DATA")
    parser.add_argument("--rows", type=Path, default=Path("results/suite.jsonl"))
    parser.add_argument("--store", type=Path, help="folder for probabilities, an npz file for each trial")
    parser.add_argument("--jobs", type=int, default=1, help="processes, each on one core")
    parser.add_argument("--limit-seconds", type=float, default=float("inf"), help="end after this time")
    parser.add_argument("--commit", help="of the source, for rows made where there is no git")
    parser.add_argument("--final", action="store_true", help="allow the seeds for reporting")
    parser.add_argument(
        "--report", action="store_true", help="run nothing; print what the rows of these tables and seeds show"
    )
    parser.add_argument("--subject", default=DEFAULT, help="system that is compared with the rivals in the report")
    options = parser.parse_args(arguments)
    try:
        tables = parse_tables(options.tables)
        seeds = parse_seeds(options.seeds)
        check_seeds(seeds, options.final)
        systems = parse_systems(options.systems)
        if options.report:
            rows = [row for row in read(options.rows) if row["table"] in tables and row["seed"] in seeds]
            print(report([row for row in rows if row["kind"] in (*options.kinds, REAL_KIND)], options.subject))
            return 0
        rows = read(options.rows) if options.rows.exists() else []
        trials = missing_trials(tables, options.kinds, seeds, systems, rows)
        for table in {trial.table for trial in trials}:
            load_table(table, options.data_dir)
    except ValueError as error:
        parser.error(str(error))
    settings = Settings(
        options.rows, options.data_dir, options.store, options.jobs, options.limit_seconds, options.commit
    )
    failures = run_trials(trials, settings)
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
