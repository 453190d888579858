"""Which mixture of forms of learning is best on the suite: from probabilities that were stored, without fitting anything.

    python benchmarks/accuracy/suite.py --systems forms --store STORE --rows FILE --jobs 16 --data-dir DIR
    python benchmarks/accuracy/suite_mixtures.py --store STORE --rows FILE --data-dir DIR
    python benchmarks/accuracy/suite.py --report --rows FILE --subject "mean of all"

For every table, kind and seed of which all members of a pool have probabilities, every rule of `on_tables/mixtures.py` gives a row, named RULE of POOL, in the same file.
With --sharpen each member is first raised to the power under which its held-out probabilities put most mass on the sets. Processor seconds are the sum over members.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from on_tables.forms import FORMS
from on_tables.mixtures import RULES, best_power, mix, powered
from on_tables.problems import Floats, Problem, make_problem
from on_tables.rivals import Outcome
from on_tables.trials import Trial, environment, measure, store_path

from oneof.storage.rows import Row, append, read

POOLS: dict[str, list[str]] = {
    "all": list(FORMS),
    "forest and kernel": ["forest b=0", "forest b=0.25", "kernel b=0", "kernel b=0.25"],
    "balance 0": ["forest b=0", "kernel b=0", "boosting EM b=0", "logistic EM b=0", "networks b=0"],
    "balance 0.25": ["forest b=0.25", "kernel b=0.25", "boosting EM b=0.25", "logistic EM b=0.25", "networks b=0.25"],
    "forests": ["forest b=0", "forest b=0.25", "forest b=0.5"],
    "kernels": ["kernel b=0", "kernel b=0.25", "kernel b=0.5"],
    "joint": ["joint b=0", "joint b=0.25"],
}
POOLS["five learners"] = POOLS["balance 0"] + POOLS["balance 0.25"]
POOLS |= {f"{title}, nested": [f"{name}, nested" for name in members] for title, members in list(POOLS.items())}


class Pool(NamedTuple):
    """The probabilities of several forms on one problem."""

    test: Floats  # [k, m, c]
    train: Floats  # [k, n, c]


def load_pool(store: Path, table: str, kind: str, seed: int, members: list[str]) -> Pool | None:
    """Read the stored probabilities of all members, or return None where one has none."""
    paths = [store_path(store, Trial(table, kind, seed, name)) for name in members]
    if not all(path.is_file() for path in paths):
        return None
    test = []
    train = []
    for path in paths:
        with np.load(path) as arrays:
            test.append(normalised(arrays["test"]))
            train.append(normalised(arrays["train"]))
    return Pool(np.stack(test), np.stack(train))


def normalised(stored: Floats) -> Floats:
    """Return stored probabilities in double precision."""
    probabilities = stored.astype(np.float64) + 1e-7
    return probabilities / probabilities.sum(1, keepdims=True)


def sharpen(pool: Pool, problem: Problem) -> Pool:
    """Raise each member to the power that its held-out probabilities ask for."""
    test = []
    train = []
    for member_test, member_train in zip(pool.test, pool.train, strict=True):
        power = best_power(member_train, problem.sets)
        test.append(powered(member_test, power))
        train.append(powered(member_train, power))
    return Pool(np.stack(test), np.stack(train))


def mixture_row(trial: Trial, pool: Pool, problem: Problem, rule: str, seconds: float) -> Row:
    """Weigh the members by a rule, and judge the mixture by true labels."""
    weights = RULES[rule](pool.train, problem.sets)
    train = mix(pool.train, weights)
    best = train.argmax(1)
    covering = float(problem.sets[np.arange(len(best)), best].mean())
    outcome = Outcome(mix(pool.test, weights), train, covering=covering)
    return {
        **trial._asdict(),
        **measure(problem, outcome),
        "weights": [round(float(weight), 4) for weight in weights],
        "cpu_seconds": round(seconds, 3),
        **environment(None),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, required=True, help="folder of probabilities that suite.py wrote")
    parser.add_argument(
        "--rows", type=Path, required=True, help="rows of suite.py, to which those of mixtures are added"
    )
    parser.add_argument("--data-dir", help="folder with tables/ and real/; default: ONEOF_DATA")
    parser.add_argument("--pools", nargs="+", default=list(POOLS), choices=list(POOLS))
    parser.add_argument("--rules", nargs="+", default=list(RULES), choices=list(RULES))
    parser.add_argument("--members", nargs="+", help="a pool of these systems in place of --pools, named `own`")
    parser.add_argument("--sharpen", action="store_true", help="raise members to a power first")
    options = parser.parse_args()
    pools = {"own": options.members} if options.members else {name: POOLS[name] for name in options.pools}
    rows = read(options.rows)
    seconds = {(row["table"], row["kind"], row["seed"], row["system"]): row["cpu_seconds"] for row in rows}
    for table, kind, seed in sorted({key[:3] for key in seconds}):
        problem = None
        for name, members in pools.items():
            title = f"{name}, sharpened" if options.sharpen else name
            trials = {rule: Trial(table, kind, seed, f"{rule} of {title}") for rule in options.rules}
            missing = [rule for rule, trial in trials.items() if trial not in seconds]
            pool = load_pool(options.store, table, kind, seed, members) if missing else None
            if pool is None:
                continue
            if problem is None:
                problem = make_problem(table, kind, seed, options.data_dir)
            if options.sharpen:
                pool = sharpen(pool, problem)
            spent = sum(seconds.get((table, kind, seed, member), 0.0) for member in members)
            append(options.rows, [mixture_row(trials[rule], pool, problem, rule, spent) for rule in missing])
            print(f"{table}, {kind}, seed {seed}: {len(missing)} mixtures of {title}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
