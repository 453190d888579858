"""Which numbers the default should have: what sets of held-out rows say, and the processor time, setting by setting.

    python benchmarks/accuracy/default_study.py --rows results/default_study.jsonl --data-dir DIR --part 1/1
    python benchmarks/accuracy/default_study.py --rows results/default_study.jsonl --report

Development seeds 0 to 9 of six tables; four fifths of the rows are learned from, and the *sets* of the others judge. Signals: `likelihood`,
the mean of log sum_{j in S} p_j; `sets`, that of `oneof.ensemble.set_likelihood`, which tells labels within a set apart; covering and approximated accuracy.
Accuracy on true labels is a column that chose nothing. Parts i/k share the work out; a row is written as soon as it is there, and what is there is not run again.
The stored rows are of the commit that added this script: since then no more trees are grown where the first are of no use.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import torch
from balance_signal import SKEWED, skewed
from numpy.typing import NDArray
from realworld import split
from rivals import Table, table_of
from scipy.special import softmax
from sklearn.datasets import load_digits

from oneof import PartialLabelClassifier
from oneof.candidates.generate import Flip, generate
from oneof.ensemble import learner_stages
from oneof.ensemble.set_likelihood import INVERSE_TEMPERATURES, set_likelihood
from oneof.learners.config import EnsembleConfig, FitConfig
from oneof.learners.kernel import cross_fit_scores
from oneof.learners.scaling import append_ranks, scale
from oneof.metrics import criteria
from oneof.storage.rows import Row, append, read
from oneof_paper.results import origin

STRANGE = ("ten classes", "five classes", *SKEWED, "msrcv2", "lost", "birdsong", "digits")
TABLES = ("lost", "msrcv2", "birdsong", "digits", "ten classes", "five classes")
LINEAR = ("embedded", "linear")  # see `made_linear`
SIGNALS = ("likelihood", "sets", "covering", "approximated")
COLUMNS = (
    ("likelihood", "likelihood, thousandths", 1000.0),
    ("sets", "sets, thousandths", 1000.0),
    ("covering", "covering, points", 100.0),
    ("approximated", "approximated, points", 100.0),
    ("accuracy", "test accuracy, points", 100.0),
    ("cpu_seconds", "processor time, ratio", 0.0),
)
Change = Callable[[EnsembleConfig, int], EnsembleConfig]  # of a config, for so many rows
BEFORE = "as before"  # candidates resolved in rounds are what the kernel learns, always


def _before(config: EnsembleConfig, n: int) -> EnsembleConfig:
    """Return the config with the numbers of then, in place of those that were chosen since."""
    return replace(config, hidden=(256, 128), trees=replace(config.trees, count=300))


def _trees(config: EnsembleConfig, n: int) -> EnsembleConfig:
    return replace(config, trees=replace(config.trees, count=150))


def _batch(config: EnsembleConfig, n: int) -> EnsembleConfig:
    """Return the config with batches of a fifth of the rows, at most 160, all about equal."""
    largest_batch = int(np.clip(n // 5, 16, 160))
    n_trained = n - n // 5
    n_batches = math.ceil(n_trained / largest_batch)
    return replace(config, batch_size=math.ceil(n_trained / n_batches))


def _narrow(config: EnsembleConfig, n: int) -> EnsembleConfig:
    return replace(config, hidden=(128, 128))


def _rounds(config: EnsembleConfig, n: int) -> EnsembleConfig:
    assert config.kernel is not None
    return replace(config, kernel=replace(config.kernel, rounds=10))


SETTINGS: dict[str, tuple[Change, ...]] = {
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
    """The estimator with other numbers in its config."""

    changes: tuple[Change, ...] = ()
    n = 0

    def _config(self) -> FitConfig:
        config = super()._config()
        ensemble = config.ensemble
        for change in self.changes:
            ensemble = change(ensemble, self.n)
        return replace(config, ensemble=ensemble)


def table(name: str, folder: str) -> Table:
    """Digits as in benchmarks/speed/default.py, with sets by chance; all others as in rivals.py and balance_signal.py."""
    if name in SKEWED:
        return skewed(name)
    if name != "digits":
        return table_of(name, folder)
    x, labels = load_digits(return_X_y=True)
    return Table(x, labels, generate(labels, 10, Flip(0.3), seed=0))


def signals_of(p: NDArray, sets: NDArray) -> dict[str, float]:
    """What sets [n, c] say of probabilities [n, c]."""
    by_sets = criteria(torch.from_numpy(np.log(p + 1e-9)), torch.from_numpy(sets))
    found = {"likelihood": float(np.log(0.99 * (p * sets).sum(1) + 0.01).mean()), "sets": set_likelihood(p, sets)}
    return {name: round(one, 5) for name, one in (found | {s: by_sets[s].item() for s in SIGNALS[2:]}).items()}


def run(setting: str, name: str, seed: int, given: Table) -> Row:
    train, test = split(len(given.x), seed)
    clf = Changed(random_state=seed)
    clf.changes = (_before, *SETTINGS[setting])
    clf.n = len(train)
    choose = learner_stages.choose_raw_set_temperature
    if setting == BEFORE:
        learner_stages.choose_raw_set_temperature = lambda *_: None
    begun = time.process_time()
    clf.fit(given.x[train], given.sets[train])
    seconds = time.process_time() - begun
    learner_stages.choose_raw_set_temperature = choose
    p = clf.predict_proba(given.x[test])
    return {
        "setting": setting,
        "dataset": name,
        "seed": seed,
        **signals_of(p, given.sets[test]),
        "learners": clf.result_.model.learners,
        "cpu_seconds": round(seconds, 2),
        "accuracy": round(float((p.argmax(1) == given.labels[test]).mean()), 5),
        **origin("cpu"),
    }


def made_linear(name: str) -> Table:
    """Tables on which linear models are good: few directions in many features, or labels by a linear rule."""
    rng = np.random.default_rng(7)
    if name == "embedded":
        labels = rng.integers(8, size=1000)
        inner = 0.55 * rng.normal(size=(8, 40))[labels] + rng.normal(size=(1000, 40))
        x = inner @ rng.normal(size=(40, 512)) / 6 + 0.3 * rng.normal(size=(1000, 512))
    else:
        rule, x = rng.normal(size=(30, 5)), rng.normal(size=(1000, 30))
        labels = (x @ rule + 0.5 * rng.gumbel(size=(1000, 5))).argmax(1)
    return Table(x.astype(np.float32), labels, generate(labels, int(labels.max()) + 1, Flip(0.3), seed=0))


def any_better(one: NDArray, other: NDArray, mask: NDArray, rule: str) -> bool:
    """How linear models took the place of networks before: by any gap."""
    logs = torch.from_numpy(np.log(np.stack([one, other]) + 1e-9))
    ours, others = sum(criteria(logs, torch.from_numpy(mask).expand(2, -1, -1)).values())
    return bool(ours > others)


def kinds(name: str, seed: int, folder: str) -> list[Row]:
    """Today's default, where linear models take the place of networks by any gap, and where they are clearly better."""
    given, rows = made_linear(name) if name in LINEAR else table(name, folder), []
    train, test = split(len(given.x), seed)
    clear = learner_stages.significantly_better
    for setting, better in (("any gap", any_better), ("clearly better", clear)):
        learner_stages.significantly_better = better
        clf = PartialLabelClassifier(random_state=seed).fit(given.x[train], given.sets[train])
        linear = "linear" in clf.result_.model.learners
        signals = signals_of(clf.predict_proba(given.x[test]), given.sets[test])
        rows.append({"setting": setting, "dataset": name, "seed": seed, "linear": linear, **signals, **origin("cpu")})
    learner_stages.significantly_better = clear
    return rows


def report_kinds(rows: list[Row]) -> str:
    """Where linear models were taken, and what the clear gap adds to the signals, in the mean over seeds."""
    lines = ["| | linear by any gap | where clearly better | likelihood | sets | covering, points |", "|---" * 6 + "|"]
    for name in ("lost", *LINEAR):
        loose, clear = (
            sorted(
                (one for one in rows if (one["setting"], one["dataset"]) == (way, name)), key=lambda one: one["seed"]
            )
            for way in ("any gap", "clearly better")
        )
        chosen = [f"{sum(one['linear'] for one in way)} of {len(way)}" for way in (loose, clear)]
        gains = [
            f"{factor * np.mean([b[key] - a[key] for a, b in zip(loose, clear, strict=True)]):+.{places}f}"
            for key, factor, places in (("likelihood", 1, 4), ("sets", 1, 4), ("covering", 100, 2))
        ]
        lines.append(f"| {name} | {' | '.join(chosen + gains)} |")
    return "\n".join(lines)


def strangers(name: str, seed: int, given: Table) -> Row:
    """How much likelier sets are by strangers that learned them as given than by resolved candidates, with each way at its best sharpness."""
    train, _ = split(len(given.x), seed)
    sets = np.asarray(given.sets[train])
    ranked = append_ranks(given.x[train].astype(float), torch.device("cpu")).values
    scaled, _ = scale(ranked, "both")
    said = [[softmax(a * one, axis=1) for a in INVERSE_TEMPERATURES] for one in cross_fit_scores(scaled, sets)]
    model, total = (
        [max(measure(p, sets) for p in ways) for ways in said]
        for measure in (set_likelihood, lambda p, sets: float(np.log(0.99 * (p * sets).sum(1) + 0.01).mean()))
    )
    gains = {"model": round(model[1] - model[0], 5), "sum": round(total[1] - total[0], 5)}
    return {"setting": "strangers", "dataset": name, "seed": seed, **gains, **origin("cpu")}


def report_strangers(rows: list[Row]) -> str:
    """The mean gain by either measure, and for how many seeds it is one."""
    lines = ["| | by the model of sets | seeds above 0 | by the sum | seeds above 0 |", "|---|---|---|---|---|"]
    for name in STRANGE:
        own = [one for one in rows if (one["setting"], one["dataset"]) == ("strangers", name)]
        cells = [
            f"{np.mean([one[key] for one in own]):+.3f} | {sum(one[key] > 0 for one in own)} of {len(own)}"
            for key in ("model", "sum")
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(rows: Path, part: str, folder: str) -> None:
    torch.set_num_threads(1)
    own, parts = map(int, part.split("/"))
    done = {(one["seed"], one["dataset"], one["setting"]) for one in read(rows)} if rows.exists() else set()
    # the settings of a table and seed go to one process: machines differ, and so do neighbours
    for seed, name in [one for i, one in enumerate(product(range(10), STRANGE)) if i % parts == own - 1]:
        missing = [one for one in ("strangers", *SETTINGS) if (seed, name, one) not in done]
        given = table(name, folder) if missing else None
        for setting in missing:
            if given and setting == "strangers":
                append(rows, [strangers(name, seed, given)])
            elif given and name in TABLES:
                append(rows, [run(setting, name, seed, given)])
    for name, seed in [("lost", seed) for seed in range(10)] + [(name, seed) for name in LINEAR for seed in range(3)]:
        if own == 1 and (seed, name, "any gap") not in done:
            append(rows, kinds(name, seed, folder))


def report(rows: list[Row]) -> str:
    """What each setting adds to the first, in the mean over seeds, with standard errors; a table for each signal, accuracy and time at the end."""
    found = {(one["setting"], one["dataset"], one["seed"]): one for one in rows}
    lines: list[str] = []
    for key, title, factor in COLUMNS:
        lines += ["", f"| {title} | {' | '.join(TABLES)} |", "|---" * (len(TABLES) + 1) + "|"]
        for setting in list(SETTINGS)[1:]:
            pairs = [
                np.array([[found[one, name, seed][key] for one in (setting, BEFORE)] for seed in range(10)])
                for name in TABLES
            ]
            cells = [_cell(pair, factor) for pair in pairs]
            lines.append(f"| {setting} | {' | '.join(cells)} |")
    return "\n".join(lines[1:])


def _cell(pair: np.ndarray, factor: float) -> str:
    """The mean difference and its standard error of pairs [seeds, 2]; without a factor, the ratio of the means."""
    if not factor:
        return f"{pair[:, 0].mean() / pair[:, 1].mean():.2f}"
    gap = factor * (pair[:, 0] - pair[:, 1])
    return f"{gap.mean():+.1f} ± {gap.std(ddof=1) / len(gap) ** 0.5:.1f}" if gap.any() else "0"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--part", default="1/1", help="i/k: the i-th of k shares")
    parser.add_argument("--data-dir", default="")
    parser.add_argument("--report", action="store_true", help="run nothing")
    asked = parser.parse_args()
    if not asked.report:
        main(asked.rows, asked.part, asked.data_dir)
    print(report(read(asked.rows)), report_strangers(read(asked.rows)), report_kinds(read(asked.rows)), sep="\n\n")
