"""Candidate sets of images, drawn from a classifier trained on clean labels, with a card that says how.

One file per data set and difficulty, `<dataset>-<teacher epochs>.npz`: the sets of the training part for every seed in DRAWS, and
the card. One classifier (seed 0) serves all draws, as in the paper: seeds differ by the draw alone. The average size is the paper's,
reached by the temperature; MNIST's printed 8.71 is beyond the released generator's bound of 5, so MNIST has temperature 1 there.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oneof.candidates.generate import Instance, InstancePaper, InstanceRate, generate, reach
from oneof.storage.files import written_beside
from oneof.storage.settings import plain_value
from oneof_paper.data.catalogue import NAMED, Dataset
from oneof_paper.results import origin
from oneof_paper.teacher import dataset_logits

DIFFICULTIES = {"20": 20, "saturated": 200, "printed": 200, "tiny": 1}  # epochs of the classifier that draws the sets
DRAWS = (0, *range(100, 105))  # one seed to search on, five to report
RATE = 4.0  # over the number of classes: 0.4 for ten, 0.04 for a hundred


class Sets(NamedTuple):
    """The sets of a data set's training part, by seed, and how they came about."""

    masks: dict[int, NDArray[np.bool_]]  # each [m, c]
    card: dict[str, Any]


Describe = Callable[..., dict[str, Any]]  # of images, labels, sets, the classifier's logits and the generator


def path_of(folder: Path, dataset: str, difficulty: str) -> Path:
    return folder / f"{dataset}-{DIFFICULTIES[difficulty]}{'-printed' * (difficulty == 'printed')}.npz"


def sets_of(folder: Path, data: Dataset, difficulty: str, device: str, describe: Describe = lambda *_: {}) -> Sets:
    """The sets as saved, or drawn now and saved, with what `describe` says of the first draw on the card."""
    path = path_of(folder, data.name, difficulty)
    if not path.exists():
        write(path, draw(data, difficulty, device, describe))
    sets = read(path)
    if (there := len(sets.masks[DRAWS[0]])) != (m := training_part(data)):
        raise ValueError(f"{path} must hold a set per training image ({m}); got {there}. Remove it.")
    return sets


def training_part(data: Dataset) -> int:
    """How many rows come before the publisher's test part."""
    return len(data.x) if data.test is None else int(data.test[0])


def draw(data: Dataset, difficulty: str, device: str, describe: Describe = lambda *_: {}) -> Sets:
    """Train the classifier, find the temperature, draw."""
    m, classes, epochs = training_part(data), len(data.classes), DIFFICULTIES[difficulty]
    every = dataset_logits(data, seed=0, epochs=epochs, device=device, progress=None)
    logits, labels = every[:m], data.labels[:m]
    wished = NAMED[data.name].paper.average  # type: ignore[union-attr]
    kind: Instance = InstancePaper() if difficulty == "printed" else InstanceRate(RATE / classes)
    reached = wished <= (classes if difficulty == "printed" else 1 + RATE)
    kind = reach(kind, wished, logits, labels) if reached else kind
    masks = {seed: generate(labels, classes, kind, seed=seed, logits=logits) for seed in DRAWS}
    right = every.argmax(1) == data.labels
    card = {
        "dataset": data.name, "generator_seed": 0, "epochs": epochs,
        "generator": "GeneratorMLP, plain view" if data.x.ndim == 3 else "ResNet32, flips and crops",
        "train_accuracy": round(float(right[:m].mean()), 4),
        "test_accuracy": round(float(right[m:].mean()), 4), "kind": plain_value(kind), "paper_average": wished,
        "paper_average_reached": reached,
        "average": {seed: round(float(mask.sum(1).mean()), 4) for seed, mask in masks.items()},
        **describe(data.x[:m], labels, masks[DRAWS[0]], logits, kind), **origin(device),
    }  # fmt: skip
    return Sets(masks, card)


def write(path: Path, sets: Sets) -> None:
    """Bits, packed and compressed; beside first, so that a half-written file never stands."""
    path.parent.mkdir(parents=True, exist_ok=True)
    packed = {f"seed_{seed}": np.packbits(mask) for seed, mask in sets.masks.items()}
    shape = np.asarray(next(iter(sets.masks.values())).shape)
    with written_beside(path) as file:
        np.savez_compressed(file, shape=shape, card=np.asarray(json.dumps(sets.card)), **packed)  # type: ignore[arg-type]


def read(path: Path) -> Sets:
    """What `write` wrote."""
    with np.load(path) as stored:
        m, c = stored["shape"]
        names = [name for name in stored.files if name.startswith("seed_")]
        masks = {int(name[5:]): np.unpackbits(stored[name], count=m * c).reshape(m, c).astype(bool) for name in names}
        return Sets(masks, json.loads(str(stored["card"])))
