"""Which numbers the default should have: what sets of held-out rows say, and the processor time, setting by setting.

    python benchmarks/accuracy/default_study.py --rows results/default_study.jsonl --data-dir DIR --part 1/1
    python benchmarks/accuracy/default_study.py --rows results/default_study.jsonl --report

Development seeds 0 to 9 of six tables; four fifths of the rows are learned from, and the *sets* of the others judge. Signals: `likelihood`,
the mean of log sum_{j in S} p_j; `sets`, that of `oneof.selection.as_given`, which tells labels within a set apart; covering and approximated accuracy.
Accuracy on true labels is a column that chose nothing. Parts i/k share the work out; a row is written as soon as it is there, and what is there is not run again.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from realworld import split
from rivals import Table, table_of
from sklearn.datasets import load_digits

import oneof.runs.learn
from oneof import PartialLabelClassifier
from oneof.candidates.generate import Flip, generate
from oneof.metrics import criteria
from oneof.paper.results import origin
from oneof.selection.as_given import likelihood
from oneof.selection.space import Space
from oneof.selection.trying import Search
from oneof.storage.rows import Row, append, read

TABLES = ("lost", "msrcv2", "birdsong", "digits", "ten classes", "five classes")
SIGNALS = ("likelihood", "sets", "covering", "approximated")
BEFORE = "as before"  # candidates resolved in rounds are what the kernel learns, always


def _trees(space: Space, n: int) -> Space:
    return replace(space, trees=replace(space.trees, count=150))


def _batch(space: Space, n: int) -> Space:
    """A fifth of the rows, at most 160, all about equal."""
    most, trained = int(np.clip(n // 5, 16, 160)), n - n // 5
    return replace(space, batch=-(-trained // -(-trained // most)))


def _narrow(space: Space, n: int) -> Space:
    return replace(space, hidden=((128, 128),))


def _rounds(space: Space, n: int) -> Space:
    assert space.kernel is not None
    return replace(space, kernel=replace(space.kernel, rounds=10))


SETTINGS: dict[str, tuple[Callable[[Space, int], Space], ...]] = {
    BEFORE: (),
    "sets as given": (),
    "150 trees": (_trees,),
    "batch 160": (_batch,),
    "hidden 128, 128": (_narrow,),
    "150 trees, batch 160": (_trees, _batch),
    "150 trees, batch 160, hidden 128, 128": (_trees, _batch, _narrow),
    "150 trees, batch 160, hidden 128, 128, 10 rounds": (_trees, _batch, _narrow, _rounds),
}  # all but the first: the kernel may learn the sets as they are given


class Changed(PartialLabelClassifier):
    """The estimator with other numbers in its space."""

    changes: tuple[Callable[[Space, int], Space], ...] = ()
    n = 0

    def _search(self) -> Search:
        asked = super()._search()
        for change in self.changes:
            asked = replace(asked, space=change(asked.space, self.n))
        return asked


def table(name: str, folder: str) -> Table:
    """Digits as in benchmarks/speed/default.py, with sets by chance; all others as in rivals.py."""
    if name != "digits":
        return table_of(name, folder)
    x, labels = load_digits(return_X_y=True)
    return Table(x, labels, generate(labels, 10, Flip(0.3), seed=0))


def run(setting: str, name: str, seed: int, given: Table) -> Row:
    train, test = split(len(given.x), seed)
    clf, as_given = Changed(random_state=seed), oneof.runs.learn.sharpness_as_given
    clf.changes, clf.n = SETTINGS[setting], len(train)
    if setting == BEFORE:
        oneof.runs.learn.sharpness_as_given = lambda *_: None
    begun = time.process_time()
    clf.fit(given.x[train], given.sets[train])
    seconds = time.process_time() - begun
    oneof.runs.learn.sharpness_as_given = as_given
    p, sets = clf.predict_proba(given.x[test]), given.sets[test]
    by_sets = criteria(torch.from_numpy(np.log(p + 1e-9)), torch.from_numpy(sets))
    return {
        "setting": setting,
        "dataset": name,
        "seed": seed,
        "likelihood": round(float(np.log(0.99 * (p * sets).sum(1) + 0.01).mean()), 5),
        "sets": round(likelihood(p, sets), 5),
        **{signal: round(by_sets[signal].item(), 5) for signal in SIGNALS[2:]},
        "learners": clf.learned_.model.learners,
        "cpu_seconds": round(seconds, 2),
        "accuracy": round(float((p.argmax(1) == given.labels[test]).mean()), 5),
        **origin("cpu"),
    }


def main(rows: Path, part: str, folder: str, names: list[str]) -> None:
    torch.set_num_threads(1)
    own, parts = map(int, part.split("/"))
    tables: dict[str, Table] = {}
    tasks = list(product(range(10), names, SETTINGS))
    # the settings of a table and seed go to one process: machines differ, and so do neighbours
    for seed, name, setting in [one for i, one in enumerate(tasks) if i // len(SETTINGS) % parts == own - 1]:
        done = {(one["seed"], one["dataset"], one["setting"]) for one in read(rows)} if rows.exists() else set()
        if (seed, name, setting) not in done:
            if name not in tables:
                tables[name] = table(name, folder)
            append(rows, [run(setting, name, seed, tables[name])])


def report(rows: list[Row]) -> str:
    """Differences to the first setting in the mean over seeds with their standard errors, and the time beside it."""
    found = {(one["setting"], one["dataset"], one["seed"]): one for one in rows}
    columns = (*SIGNALS, "accuracy")
    lines = [f"| table | setting | {' | '.join(columns)} | time |", "|---" * (len(columns) + 3) + "|"]
    for name, setting in product(TABLES, SETTINGS):
        pairs: Any = [
            (found[setting, name, seed], found[BEFORE, name, seed])
            for seed in range(10)
            if (setting, name, seed) in found and (BEFORE, name, seed) in found
        ]
        if pairs:
            gaps = [np.array([ours[key] - base[key] for ours, base in pairs]) for key in columns]
            cells = [f"{gap.mean():+.4f} ± {gap.std() / max(len(gap) - 1, 1) ** 0.5:.4f}" for gap in gaps]
            time = np.mean([ours["cpu_seconds"] for ours, _ in pairs]) / np.mean(
                [one["cpu_seconds"] for _, one in pairs]
            )
            lines.append(f"| {name} | {setting} | {' | '.join(cells)} | {time:.2f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--part", default="1/1", help="i/k: the i-th of k shares")
    parser.add_argument("--data-dir", default="")
    parser.add_argument("--names", nargs="*", default=[*TABLES])
    parser.add_argument("--report", action="store_true", help="run nothing")
    asked = parser.parse_args()
    if not asked.report:
        main(asked.rows, asked.part, asked.data_dir, asked.names)
    print(report(read(asked.rows)))
