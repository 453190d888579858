"""Candidate sets of images, drawn by a classifier trained on true labels, with a card that says how.

There is one file per data set and difficulty, `<dataset>-<teacher epochs>.npz`: the sets of the training part for every seed in DRAWS,
and the card. One classifier (seed 0) serves all draws, as in the paper, so seeds differ by the draw alone. The temperature is chosen
so that the average size is the paper's; MNIST's printed 8.71 is beyond the released generator's bound of 5, so its temperature is 1.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oneof.candidates.generate import Instance, InstancePaper, InstanceRate, calibrate_temperature, generate
from oneof.storage.files import atomic_write
from oneof.storage.settings import to_serializable
from oneof_paper.data.catalogue import NAMED, LabelledData
from oneof_paper.results import origin
from oneof_paper.teacher import dataset_logits

DIFFICULTIES = {"20": 20, "saturated": 200, "printed": 200, "tiny": 1}  # epochs of the classifier that draws the sets
DRAWS = (0, *range(100, 105))  # one seed to search on, five to report
RATE = 4.0  # over the number of classes: 0.4 for ten, 0.04 for a hundred


class ImageSets(NamedTuple):
    """The candidate sets of a data set's training part by seed, and how they were made."""

    masks: dict[int, NDArray[np.bool_]]  # each [m, c]
    card: dict[str, Any]


Describe = Callable[..., dict[str, Any]]  # of images, labels, sets, the classifier's logits and the generator


def path_of(folder: Path, dataset: str, difficulty: str) -> Path:
    """Return the file of a data set's candidate sets."""
    suffix = "-printed" if difficulty == "printed" else ""
    return folder / f"{dataset}-{DIFFICULTIES[difficulty]}{suffix}.npz"


def sets_of(
    folder: Path, data: LabelledData, difficulty: str, device: str, describe: Describe = lambda *_: {}
) -> ImageSets:
    """Return the stored sets; if there are none, draw and store them, with what `describe` returns for the first draw on the card."""
    path = path_of(folder, data.name, difficulty)
    if not path.exists():
        write(path, draw(data, difficulty, device, describe))
    sets = read(path)
    stored_count = len(sets.masks[DRAWS[0]])
    train_count = training_part(data)
    if stored_count != train_count:
        raise ValueError(
            f"{path} must hold a set per training image ({train_count}); got {stored_count}. Remove the file."
        )
    return sets


def training_part(data: LabelledData) -> int:
    """Return how many rows come before the publisher's test part."""
    if data.test is None:
        return len(data.x)
    return int(data.test[0])


def draw(data: LabelledData, difficulty: str, device: str, describe: Describe = lambda *_: {}) -> ImageSets:
    """Train the classifier, find the temperature that gives the paper's average size, and draw the sets of every seed."""
    train_count = training_part(data)
    n_classes = len(data.classes)
    epochs = DIFFICULTIES[difficulty]
    all_logits = dataset_logits(data, seed=0, epochs=epochs, device=device, progress=None)
    logits = all_logits[:train_count]
    labels = data.labels[:train_count]
    wanted_average = NAMED[data.name].paper.average  # type: ignore[union-attr]
    kind: Instance
    if difficulty == "printed":
        kind = InstancePaper()
        largest_average = float(n_classes)
    else:
        kind = InstanceRate(RATE / n_classes)
        largest_average = 1 + RATE
    is_reachable = wanted_average <= largest_average
    if is_reachable:
        kind = calibrate_temperature(kind, wanted_average, logits, labels)
    masks = {seed: generate(labels, n_classes, kind, seed=seed, logits=logits) for seed in DRAWS}
    is_right = all_logits.argmax(1) == data.labels
    card = {
        "dataset": data.name,
        "generator_seed": 0,
        "epochs": epochs,
        "generator": "GeneratorMLP, plain view" if data.x.ndim == 3 else "ResNet32, flips and crops",
        "train_accuracy": round(float(is_right[:train_count].mean()), 4),
        "test_accuracy": round(float(is_right[train_count:].mean()), 4),
        "kind": to_serializable(kind),
        "paper_average": wanted_average,
        "paper_average_reached": is_reachable,
        "average": {seed: round(float(mask.sum(1).mean()), 4) for seed, mask in masks.items()},
        **describe(data.x[:train_count], labels, masks[DRAWS[0]], logits, kind),
        **origin(device),
    }
    return ImageSets(masks, card)


def write(path: Path, sets: ImageSets) -> None:
    """Write the sets as packed bits, to a temporary file first so that no reader finds half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    packed = {f"seed_{seed}": np.packbits(mask) for seed, mask in sets.masks.items()}
    first_mask = next(iter(sets.masks.values()))
    shape = np.asarray(first_mask.shape)
    card = np.asarray(json.dumps(sets.card))
    with atomic_write(path) as file:
        np.savez_compressed(file, shape=shape, card=card, **packed)  # type: ignore[arg-type]


def read(path: Path) -> ImageSets:
    """Read what `write` wrote."""
    masks = {}
    with np.load(path) as stored:
        m, c = stored["shape"]
        for name in stored.files:
            if name.startswith("seed_"):
                seed = int(name.removeprefix("seed_"))
                bits = np.unpackbits(stored[name], count=m * c)
                masks[seed] = bits.reshape(m, c).astype(bool)
        card = json.loads(str(stored["card"]))
    return ImageSets(masks, card)
