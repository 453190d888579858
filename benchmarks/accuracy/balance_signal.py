"""Can held-out sets tell whether balance pays? Signals that use no truth, with and without balance, beside the accuracy that they should foretell.

    python benchmarks/accuracy/balance_signal.py --seeds 0-1 --data-dir DIR
    python benchmarks/accuracy/balance_signal.py --report

Signals, all of rows that were left out: covering and approximated accuracy; *agreement*, how often networks and trees that learned apart find
the same label in the set; *sets*, the mean log-likelihood of the sets, sum_j p_ij prod_k P(k in S | j), with P counted on the other half
of the rows; *stable*, how often networks on two disjoint halves of the rows find the same label in the sets of all. True labels report.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from realworld import split
from rivals import MADE, REAL, Table, instance_dependent, table_of
from sklearn.datasets import load_digits, make_classification

from oneof.candidates.generate import Flip, generate
from oneof.candidates.mask import Candidates
from oneof.data.dataset import Dataset
from oneof.data.encode import Encoding
from oneof.ensemble.context import make_context
from oneof.ensemble.learner_stages import fit_kernel_stage, fit_label_learners, fit_networks, make_soft_labels
from oneof.ensemble.model import Model
from oneof.ensemble.stacking import combine_predictions, weigh_learners
from oneof.learners.base import Predictions, Resources, Targets, WarmStart
from oneof.learners.config import EnsembleConfig, FitConfig
from oneof.learners.kernel import KernelConfig
from oneof.methods import METHODS
from oneof.metrics import criteria
from oneof.storage.rows import append, read
from oneof_paper.results import origin

SKEWED = ("two digits in ten", "one class in five, by chance", "one class in five, by the row")
SIGNALS = ("covering", "approximated", "agreement", "sets", "stable")
Floats = NDArray[np.floating[Any]]


def skewed(name: str) -> Table:
    """Tables most of whose rows have one label, or one of two: there balance moves weight away from what is frequent."""
    if name == "two digits in ten":
        x, labels = load_digits(return_X_y=True)
        keep = np.concatenate([np.flatnonzero(labels == j)[: 178 if j < 2 else 12] for j in range(10)])
        return Table(x[keep], labels[keep], generate(labels[keep], 10, Flip(0.3), seed=0))
    shares = [0.8, 0.05, 0.05, 0.05, 0.05]
    x, labels = make_classification(
        1500, 20, n_informative=12, n_classes=5, n_clusters_per_class=2, weights=shares, random_state=1, flip_y=0
    )
    chance = name == "one class in five, by chance"
    return Table(x, labels, generate(labels, 5, Flip(0.4), seed=0) if chance else instance_dependent(x, labels))


CONFIGS = {
    "balance": EnsembleConfig(),
    "none": EnsembleConfig(method=METHODS["proden"](), kernel=KernelConfig(balance=0.0)),
}


class Ensemble(NamedTuple):
    """Weighted learners, and their predictions for the rows that they held out."""

    model: Model
    predictions: Predictions


def fit_ensemble(x: Floats, sets: NDArray[np.bool_], config: EnsembleConfig, seed: int) -> Ensemble:
    """Fit and weigh the learners on the sets as they are, without a search for noisy ones."""
    names = tuple(f"x{k}" for k in range(x.shape[1]))
    encoding = Encoding(names, (0.0,) * len(names), (), {}, ())
    classes = np.array([str(j) for j in range(sets.shape[1])])
    data = Dataset.build(x, Candidates(sets, classes), encoding)
    context, _ = make_context(data, FitConfig(config, seed=seed), Resources("cpu"), WarmStart())
    kernels = fit_kernel_stage(data, sets, None, context)
    networks = fit_networks(data, sets, kernels, context)
    targets = Targets(sets, make_soft_labels(data, sets, networks.learners, kernels.soft_labels))
    label_learners = fit_label_learners(data, targets, networks.best, kernels, context)
    learners = [*networks.best, *label_learners.learners]
    weights = weigh_learners(learners, data, context)
    model = Model(data.classes, encoding, (), {}).with_fitted(learners, weights)
    return Ensemble(model, combine_predictions(learners, weights))


def best(p: Floats, sets: NDArray[np.bool_]) -> NDArray[np.intp]:
    return np.asarray(np.where(sets, p, -1).argmax(1))


def likelihood_of_sets(p: Floats, sets: NDArray[np.bool_], seed: int) -> float:
    """Mean over rows; which labels come with which is counted on the other half, by the labels that p finds likely."""
    inside = np.where(sets, p + 1e-9, 0)
    inside /= inside.sum(1, keepdims=True)
    order = np.random.default_rng(seed).permutation(len(p))
    total = 0.0
    for own, other in ((order[::2], order[1::2]), (order[1::2], order[::2])):
        together = (inside[other].T @ sets[other] + 0.5) / (inside[other].sum(0)[:, None] + 1)  # [j, k]
        logs = sets[own] @ np.log(together).T + ~sets[own] @ np.log1p(-np.minimum(together, 1 - 1e-6)).T
        logs -= np.where(np.eye(len(together), dtype=bool), np.log(together), 0).sum(1)  # the label itself is there
        joint = np.where(sets[own], np.log(p[own] + 1e-9) + logs, -np.inf)
        total += float(np.logaddexp.reduce(joint, axis=1).sum())
    return total / len(p)


def row(name: str, given: Table, seed: int, kind: str) -> dict[str, Any]:
    torch.set_num_threads(1)
    train, test = split(len(given.x), seed)
    x = given.x[train].astype(float)
    sets = np.asarray(given.sets[train])
    config = CONFIGS[kind]
    networks_only = replace(config, learners=("networks",))
    whole = fit_ensemble(x, sets, config, seed)
    networks = fit_ensemble(x, sets, networks_only, seed)
    trees = fit_ensemble(x, sets, replace(config, learners=("trees",)), seed)
    p = whole.predictions.mean
    order = np.random.default_rng(seed).permutation(len(x))
    by_halves = []
    for half in (order[::2], order[1::2]):
        of_half = fit_ensemble(x[half], sets[half], networks_only, seed)
        by_halves.append(best(of_half.model.probabilities(x), sets))
    scores = criteria(torch.from_numpy(np.log(p + 1e-9)), torch.from_numpy(sets))
    found = whole.model.probabilities(given.x[test].astype(float)).argmax(1)
    return {
        "dataset": name,
        "seed": seed,
        "kind": kind,
        "accuracy": float((found == given.labels[test]).mean()),
        **{signal: scores[signal].item() for signal in SIGNALS[:2]},
        "agreement": float((best(networks.predictions.mean, sets) == best(trees.predictions.mean, sets)).mean()),
        "sets": likelihood_of_sets(p, sets, seed),
        "stable": float((by_halves[0] == by_halves[1]).mean()),
        **origin("cpu"),
    }


def report(rows: list[Any]) -> str:
    """What balance adds to the accuracy and to every signal, in the mean over seeds."""
    lines = [f"| | accuracy, % | {' | '.join(SIGNALS)} |", "|---" * (len(SIGNALS) + 2) + "|"]
    right = dict.fromkeys(SIGNALS, 0)
    names = list(dict.fromkeys(one["dataset"] for one in rows))
    for name in names:
        kinds = [[one for one in rows if (one["dataset"], one["kind"]) == (name, kind)] for kind in ("balance", "none")]
        gain = {
            key: float(np.mean([one[key] for one in kinds[0]]) - np.mean([one[key] for one in kinds[1]]))
            for key in ("accuracy", *SIGNALS)
        }
        for signal in SIGNALS:
            right[signal] += (gain[signal] > 0) == (gain["accuracy"] > 0)
        cells = [f"{gain[signal]:+.3f}" for signal in SIGNALS]
        lines.append(f"| {name} | {100 * gain['accuracy']:+.1f} | {' | '.join(cells)} |")
    lines.append(f"| agrees with the accuracy | | {' | '.join(f'{right[one]} of {len(names)}' for one in SIGNALS)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0-1", help="first-last")
    parser.add_argument("--data-dir", default="data")
    parser.add_argument("--names", nargs="*", default=[*REAL, *MADE, *SKEWED])
    parser.add_argument("--rows", type=Path, default=Path("results/balance_signal.jsonl"))
    parser.add_argument("--report", action="store_true", help="print the table of the rows and run nothing")
    asked = parser.parse_args()
    done = {(one["dataset"], one["seed"], one["kind"]) for one in read(asked.rows)} if asked.rows.exists() else set()
    first, last = map(int, asked.seeds.split("-"))
    work = [(name, seed, kind) for seed in range(first, last + 1) for name in asked.names for kind in CONFIGS]
    for name, seed, kind in [] if asked.report else work:
        if (name, seed, kind) not in done:
            append(
                asked.rows, [row(name, skewed(name) if name in SKEWED else table_of(name, asked.data_dir), seed, kind)]
            )
    print(report(read(asked.rows)))


if __name__ == "__main__":
    main()
