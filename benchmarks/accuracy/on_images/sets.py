"""Measure how hard the sets of `oneof_paper.image_sets` are, and make the table of all cards."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import KFold, cross_val_predict

from oneof.candidates.generate import Instance
from oneof_paper import image_sets
from oneof_paper.data.catalogue import NAMED
from oneof_paper.image_sets import read

PREDICTABLE = (
    "share of the variance of wrong labels' membership within a true class that ridge regression on 32 principal components "
    "of the pixels explains; 5,000 rows, 5 folds, the first draw"
)


def difficulty(
    x: NDArray[Any], labels: NDArray[np.intp], mask: NDArray[np.bool_], logits: NDArray[np.float64], kind: Instance
) -> dict[str, Any]:
    """Return what the card says of one draw beyond its size."""
    m = np.arange(len(labels))
    wrong = logits.copy()
    wrong[m, labels] = -np.inf
    own = spread(kind.probabilities(logits, labels), labels) / max(spread(mask, labels), 1e-12)
    return {
        "top_wrong_in_set": round(float(mask[m, wrong.argmax(1)].mean()), 4),
        "explained_by_its_probabilities": round(own, 4),  # what no model of the features can pass: the rest is the coin
        "predictable": round(predictable(x, labels, mask), 4),
        "predictable_is": PREDICTABLE,
    }


sets_of = partial(image_sets.sets_of, describe=difficulty)


def spread(values: NDArray[Any], labels: NDArray[np.intp]) -> float:
    """Return the summed squares of values [m, c] about their means within each true class."""
    total = 0.0
    for y in np.unique(labels):
        of_class = values[labels == y].astype(float)
        total += float(((of_class - of_class.mean(0)) ** 2).sum())
    return total


def predictable(x: NDArray[Any], labels: NDArray[np.intp], mask: NDArray[np.bool_], rows: int = 5000) -> float:
    """Compute what PREDICTABLE says. Near 0: sets are noise given the class; the larger, the more systematic the confusion."""
    sample = np.random.default_rng(0).permutation(len(labels))[:rows]
    pixels = x[sample].reshape(len(sample), -1).astype(np.float32)
    features = PCA(32, whiten=True, svd_solver="randomized", random_state=0).fit_transform(pixels)
    folds = KFold(5, shuffle=True, random_state=0)
    unexplained = total = 0.0
    for y in np.unique(labels[sample]):
        of_class = labels[sample] == y
        if of_class.sum() < 10:
            continue
        truth = mask[sample][of_class].astype(float)
        guess = cross_val_predict(RidgeCV(np.logspace(0, 4, 5)), features[of_class], truth, cv=folds)
        unexplained += ((truth - guess) ** 2).sum()
        total += ((truth - truth.mean(0)) ** 2).sum()
    return float(1 - unexplained / total) if total else 0.0


def table(folder: Path) -> str:
    """Return the cards of all saved sets as a Markdown table; the average set is the mean over the draws."""
    head = ["data set", "generator's epochs", "its test / train accuracy %", "temperature", "average set (paper's)", "top wrong label in the set %"]  # fmt: skip
    head += ["variance of membership that its probabilities explain", "... that pixels explain"]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    cards = [read(path).card for path in folder.glob("*.npz")]
    for card in sorted(cards, key=lambda card: (card["dataset"], card["epochs"])):
        form = " (as printed)" if card["kind"]["kind"] == "InstancePaper" else ""
        cells = [NAMED[card["dataset"]].title, f"{card['epochs']}{form}"]
        cells.append(f"{100 * card['test_accuracy']:.1f} / {100 * card['train_accuracy']:.1f}")
        cells.append(f"{card['kind']['temperature']:.2f}")
        cells.append(f"{np.mean(list(card['average'].values())):.2f} ({card['paper_average']:.2f})")
        cells.append(f"{100 * card['top_wrong_in_set']:.1f}")
        cells += [f"{card[name]:.2f}" for name in ("explained_by_its_probabilities", "predictable")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
