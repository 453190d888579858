"""Candidate sets of images, drawn from a classifier trained on clean labels, each with a card that says how hard they are.

One file per data set and difficulty, `<dataset>-<teacher epochs>.npz`: the sets of the training part for every seed in DRAWS, and
the card. One classifier (seed 0) serves all draws, as in the paper: seeds differ by the draw alone. The average size is the paper's,
reached by the temperature; MNIST's printed 8.71 is beyond the generator's bound of 5, so MNIST has temperature 1.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import KFold, cross_val_predict

from oneof.candidates.generate import Instance, InstancePaper, InstanceRate, generate, reach
from oneof.data.named.catalogue import NAMED, Dataset
from oneof.paper.results import origin
from oneof.storage.files import written_beside
from oneof.storage.settings import plain_value
from oneof.training.teacher import dataset_logits

DIFFICULTIES = {"20": 20, "saturated": 200, "printed": 200, "tiny": 1}  # epochs of the classifier that draws the sets
DRAWS = (0, *range(100, 105))  # one seed to search on, five to report
RATE = 4.0  # over the number of classes: 0.4 for ten, 0.04 for a hundred
PREDICTABLE = (
    "share of the variance of wrong labels' membership within a true class that ridge regression on 32 principal components "
    "of the pixels explains; 5,000 rows, 5 folds, the first draw"
)


class Sets(NamedTuple):
    """The sets of a data set's training part, by seed, and how they came about."""

    masks: dict[int, NDArray[np.bool_]]  # each [m, c]
    card: dict[str, Any]


def path_of(folder: Path, dataset: str, epochs: int, printed: bool = False) -> Path:
    return folder / f"{dataset}-{epochs}{'-printed' * printed}.npz"


def sets_of(folder: Path, data: Dataset, epochs: int, device: str, printed: bool = False) -> Sets:
    """The sets as saved, or made now and saved; by the generator as printed, or as released."""
    path = path_of(folder, data.name, epochs, printed)
    if not path.exists():
        write(path, make(data, epochs, device, printed))
    sets = read(path)
    if len(sets.masks[DRAWS[0]]) != training_part(data):
        raise ValueError(
            f"{path} must hold a set per training image ({training_part(data)}); got {len(sets.masks[DRAWS[0]])}. Remove it."
        )
    return sets


def training_part(data: Dataset) -> int:
    """How many rows come before the publisher's test part."""
    return len(data.x) if data.test is None else int(data.test[0])


def make(data: Dataset, epochs: int, device: str, printed: bool = False) -> Sets:
    """Train the classifier, find the temperature, draw."""
    m, classes = training_part(data), len(data.classes)
    every = dataset_logits(data, seed=0, epochs=epochs, device=device, progress=None)
    logits, labels = every[:m], data.labels[:m]
    wished = NAMED[data.name].paper.average
    kind, bound = (InstancePaper(), classes) if printed else (InstanceRate(RATE / classes), 1 + RATE)
    kind = reach(kind, wished, logits, labels) if wished <= bound else kind
    masks = {seed: generate(labels, classes, kind, seed=seed, logits=logits) for seed in DRAWS}
    right = every.argmax(1) == data.labels
    grey = data.x.ndim == 3
    card = {
        "dataset": data.name,
        "generator": "GeneratorMLP, plain view" if grey else "ResNet32, flips and crops",
        "generator_seed": 0,
        "epochs": epochs,
        "train_accuracy": round(float(right[:m].mean()), 4),
        "test_accuracy": round(float(right[m:].mean()), 4),
        "kind": plain_value(kind),
        "paper_average": wished,
        "paper_average_reached": wished <= bound,
        "average": {seed: round(float(mask.sum(1).mean()), 4) for seed, mask in masks.items()},
        **difficulty(data.x[:m], labels, masks[DRAWS[0]], logits, kind),
        **origin(device),
    }
    return Sets(masks, card)


def difficulty(
    x: NDArray[Any], labels: NDArray[np.intp], mask: NDArray[np.bool_], logits: NDArray[np.float64], kind: Instance
) -> dict[str, Any]:
    """What the card says of one draw beyond its size."""
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


def spread(values: NDArray[Any], labels: NDArray[np.intp]) -> float:
    """Summed squares of values [m, c] about their means within each true class."""
    parts = [values[labels == y].astype(float) for y in np.unique(labels)]
    return float(sum(((part - part.mean(0)) ** 2).sum() for part in parts))


def predictable(x: NDArray[Any], labels: NDArray[np.intp], mask: NDArray[np.bool_], rows: int = 5000) -> float:
    """See PREDICTABLE. Near 0: sets are noise given the class; the larger, the more systematic the confusion."""
    some = np.random.default_rng(0).permutation(len(labels))[:rows]
    pixels = x[some].reshape(len(some), -1).astype(np.float32)
    features = PCA(32, whiten=True, svd_solver="randomized", random_state=0).fit_transform(pixels)
    folds = KFold(5, shuffle=True, random_state=0)
    unexplained = total = 0.0
    for y in np.unique(labels[some]):
        of_class = labels[some] == y
        if of_class.sum() < 10:
            continue
        truth = mask[some][of_class].astype(float)
        guess = cross_val_predict(RidgeCV(np.logspace(0, 4, 5)), features[of_class], truth, cv=folds)
        unexplained += ((truth - guess) ** 2).sum()
        total += ((truth - truth.mean(0)) ** 2).sum()
    return float(1 - unexplained / total) if total else 0.0


def table(folder: Path) -> str:
    """The cards of all saved sets as a Markdown table; the average set is the mean over the draws."""
    head = ["data set", "generator's epochs", "its test / train accuracy %", "temperature", "average set (paper's)", "top wrong label in the set %"]  # fmt: skip
    head += ["variance of membership that its probabilities explain", "... that pixels explain"]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    cards = [read(path).card for path in folder.glob("*.npz")]
    for card in sorted(cards, key=lambda one: (one["dataset"], one["epochs"])):
        form = " (as printed)" if card["kind"]["kind"] == "InstancePaper" else ""
        cells = [NAMED[card["dataset"]].title, f"{card['epochs']}{form}"]
        cells.append(f"{100 * card['test_accuracy']:.1f} / {100 * card['train_accuracy']:.1f}")
        cells.append(f"{card['kind']['temperature']:.2f}")
        cells.append(f"{np.mean(list(card['average'].values())):.2f} ({card['paper_average']:.2f})")
        cells.append(f"{100 * card['top_wrong_in_set']:.1f}")
        cells += [f"{card[name]:.2f}" for name in ("explained_by_its_probabilities", "predictable")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def write(path: Path, sets: Sets) -> None:
    """Bits, packed and compressed; beside first, so that a half-written file never stands."""
    path.parent.mkdir(parents=True, exist_ok=True)
    packed = {f"seed_{seed}": np.packbits(mask) for seed, mask in sets.masks.items()}
    shape = np.asarray(next(iter(sets.masks.values())).shape)
    with written_beside(path) as file:
        np.savez_compressed(file, shape=shape, card=np.asarray(json.dumps(sets.card)), **packed)


def read(path: Path) -> Sets:
    """What `write` wrote."""
    with np.load(path) as stored:
        m, c = stored["shape"]
        names = [name for name in stored.files if name.startswith("seed_")]
        masks = {int(name[5:]): np.unpackbits(stored[name], count=m * c).reshape(m, c).astype(bool) for name in names}
        return Sets(masks, json.loads(str(stored["card"])))
