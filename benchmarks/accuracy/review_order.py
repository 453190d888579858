"""Which rows should a person be asked about? Accuracy of all labels against the number of answers, for three orders.

    ONEOF_DATA=DIR python benchmarks/accuracy/review_order.py --seeds 150-159
    python benchmarks/accuracy/review_order.py --report

A scripted person who knows the truth answers 25, 50, 100 and 200 rows; after each step the sets of all rows are weighed again by
what the other rows say (`oneof.learners.kernel`: seconds, where networks would take minutes), and the next rows are chosen:
*ours* by `oneof.ensemble.review_order`, by the *least margin*, or at *random*. A seed draws other rows of a table (1,500 of them, or
nine in ten of the smaller one) and, on digits, other sets. Answers are all that an order sees of the truth.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from drawing import save
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict

from oneof.candidates.generate import InstanceRate, generate
from oneof.ensemble.review_order import expected_gain
from oneof.learners.kernel import leave_one_out_scores
from oneof.learners.scaling import append_ranks, scale
from oneof.storage.rows import Row, append, read
from oneof_paper.ablation import COLOURS
from oneof_paper.data.catalogue import data_folder, load
from oneof_paper.results import origin

ROOT = Path(__file__).parents[2]
ROWS, FIGURE = ROOT / "results/review_order.jsonl", ROOT / "docs/figures/review-order"
SETS = ("digits", "birdsong", "msrcv2", "music")
STEPS = (0, 25, 50, 100, 200)
SCALINGS = ("feature", "ranks")
MOST = 1500
Floats = NDArray[np.float64]


class Task(NamedTuple):
    """Rows with candidate sets, and what the scripted person knows."""

    x: Floats
    mask: NDArray[np.bool_]
    truth: NDArray[np.intp]
    prior: Floats | None  # counts of votes


def task(name: str, seed: int) -> Task:
    rng = np.random.default_rng([seed, 7])
    if name == "music":
        stored = np.load((data_folder(None) or Path()) / "votes/music-mturk/music.npz")
        counts = (stored["votes"][:, :, None] == np.arange(10)).sum(1)
        counts[counts.sum(1) == 0] = 1
        rows = np.sort(rng.permutation(len(counts))[: int(0.9 * len(counts))])
        named = counts[rows]
        return Task(stored["X_train"][rows].astype(float), named > 0, stored["y_train"][rows], np.maximum(named, 0.05))
    data = load(name)
    rows = np.sort(rng.permutation(len(data.x))[:MOST])
    x, truth = data.x[rows].reshape(len(rows), -1).astype(float), data.labels[rows]
    if data.candidates is not None:
        return Task(x, data.candidates[rows], truth, None)
    guess = LogisticRegression(C=0.002, max_iter=200)  # its errors decide which wrong labels join a set
    logits = cross_val_predict(guess, x / x.max(), truth, cv=3, method="decision_function")
    return Task(x, generate(truth, 10, InstanceRate(0.4), seed=seed, logits=logits), truth, None)


def candidate_weights(scaled: list[Floats], mask: NDArray[np.bool_], prior: Floats | None) -> Floats:
    """Return the weight of each candidate [n, c] by the other rows, in the mean over the scalings of the features."""
    log_prior = None if prior is None else np.log(np.maximum(prior, 1e-12))
    weights = []
    for features in scaled:
        scores = leave_one_out_scores(features, mask, log_prior=log_prior)
        weights.append(scores.weights)
    return np.asarray(np.mean(weights, axis=0))


def margins(weights: Floats) -> Floats:
    best = np.sort(weights, 1)
    return np.asarray(best[:, -1] - best[:, -2])


def by_gain(x: Floats, weights: Floats, free: NDArray[np.bool_], rng: np.random.Generator) -> Floats:
    known = np.eye(weights.shape[1])[weights.argmax(1)]
    return expected_gain(x, np.where(free[:, None], weights, known), free).astype(float)


ORDERS: dict[str, Callable[..., Floats]] = {
    "ours": by_gain,
    "least margin": lambda x, weights, free, rng: 1 - margins(weights),
    "random": lambda x, weights, free, rng: rng.random(len(x)),
}


def run(name: str, order: str, seed: int) -> list[float]:
    """Accuracy of all labels after every step; an answer is final."""
    given = task(name, seed)
    mask = given.mask.copy()
    prior = None if given.prior is None else given.prior.copy()
    ranked = append_ranks(given.x, torch.device("cpu")).values
    scaled = [scale(ranked, scaling)[0] for scaling in SCALINGS]
    answered = np.zeros(len(mask), dtype=bool)
    rng = np.random.default_rng(seed)
    found = []
    for done, then in zip(STEPS, (*STEPS[1:], STEPS[-1]), strict=True):
        weights = candidate_weights(scaled, mask, prior)
        found.append(float((weights.argmax(1) == given.truth).mean()))
        worth = np.where(answered, -np.inf, ORDERS[order](scaled[0], weights, ~answered, rng))
        picked = np.argsort(-worth, kind="stable")[: then - done]
        answered[picked] = True
        mask[picked] = np.eye(mask.shape[1], dtype=bool)[given.truth[picked]]
        if prior is not None:
            prior[picked] = 1.0
    return found


def measure(names: list[str], seeds: range, path: Path) -> None:
    done = {(row["set"], row["order"], row["seed"]) for row in read(path)} if path.exists() else set()
    for name, seed, order in ((n, s, o) for n in names for s in seeds for o in ORDERS):
        if (name, order, seed) in done:
            continue
        begun = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # logistic regression stops early on purpose
            found = run(name, order, seed)
        row = {"set": name, "order": order, "seed": seed, "decisions": STEPS, "accuracy": [round(a, 5) for a in found]}
        append(path, [row | {"seconds": round(time.perf_counter() - begun, 1), **origin("cpu")}])
        print(name, order, seed, [f"{a:.4f}" for a in found], flush=True)


def means(rows: list[Row], seeds: range) -> dict[tuple[str, str], Any]:
    keys = [(name, order) for name in SETS for order in ORDERS]
    own = {key: [r["accuracy"] for r in rows if (r["set"], r["order"]) == key and r["seed"] in seeds] for key in keys}
    return {key: np.array(values) for key, values in own.items() if values}


def table(rows: list[Row], seeds: range) -> str:
    head = [f"| set | order | {' | '.join(map(str, STEPS))} |", f"|---|---|{'---|' * len(STEPS)}"]
    cells = {key: [f"{100 * a:.2f}" for a in values.mean(0)] for key, values in means(rows, seeds).items()}
    return "\n".join([*head, *(f"| {name} | {order} | {' | '.join(line)} |" for (name, order), line in cells.items())])


def report(rows: list[Row], seeds: range) -> None:
    found = means(rows, seeds)
    print(table(rows, seeds))
    for name in dict.fromkeys(name for name, _ in found):
        lead = 100 * (found[name, "ours"] - found[name, "least margin"])
        half = 100 * (found[name, "ours"].mean(0)[1:-1] - found[name, "random"].mean(0)[2:])
        spread = lead.std(0, ddof=1) / np.sqrt(len(lead))
        told = ", ".join(f"{a:+.2f} ± {b:.2f}" for a, b in zip(lead.mean(0)[1:], spread[1:], strict=True))
        print(f"{name}: ours less least margin {told}; ours with half the answers less random {half.round(2).tolist()}")
    save(draw(found), FIGURE)


def draw(found: dict[tuple[str, str], Any]) -> Any:
    names = list(dict.fromkeys(name for name, _ in found))
    figure, axes = plt.subplots(1, len(names), figsize=(3.2 * len(names), 3.2), layout="constrained", squeeze=False)
    for axis, name in zip(axes[0], names, strict=True):
        for order, colour in zip(ORDERS, COLOURS, strict=False):
            axis.plot(STEPS, 100 * found[name, order].mean(0), "o-", markersize=3, color=colour, label=order)
        axis.set(title=name, xlabel="answers")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0, 0].set_ylabel("labels that are right, %")
    axes[0, 0].legend(frameon=False)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--seeds", default="150-159", help="first-last")
    parser.add_argument("--rows", type=Path, default=ROWS)
    parser.add_argument("--report", action="store_true", help="print the table and draw the figure from the rows")
    asked = parser.parse_args()
    first, last = map(int, asked.seeds.split("-"))
    torch.set_num_threads(1)
    if not asked.report:
        measure(asked.sets, range(first, last + 1), asked.rows)
    report(read(asked.rows), range(first, last + 1))


if __name__ == "__main__":
    main()
