"""The data of `oneof demo`: scikit-learn's digits with votes of simulated people, and how often labels made from them are right."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from PIL import Image
from pyarrow.csv import read_csv
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from oneof.storage.sheets import write_sheet
from oneof.votes import dawid_skene, read_long

ACCURACIES = {"ann": 0.8, "bob": 0.7, "cleo": 0.6, "dora": 0.5, "emil": 0.4}  # how often each person is right
NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
N_NEW = 360  # digits without votes
MAX_LEVEL = 16  # of a pixel
SIDE = 8  # pixels of a picture
PICTURES = "pictures"  # the folder with a file per digit

Words = NDArray[np.str_]


class Digits(NamedTuple):
    """The digits in random order; the last N_NEW of them have no votes."""

    pixels: NDArray[np.float64]  # [n, 64]
    labels: Words  # [n] the truth
    votes: Words  # [n - N_NEW, people]


class LabelQuality(NamedTuple):
    """Accuracy of labels, and accuracy on new digits of a classifier trained on them."""

    source: str  # where the labels come from
    labels_right: float
    learner: str
    new_digits_right: float


def simulate_votes(seed: int = 0) -> Digits:
    """Return the digits with votes: a person who errs names a digit that looks similar."""
    rng = np.random.default_rng(seed)
    source = load_digits()
    order = rng.permutation(len(source.data))
    pixels = source.data[order]
    digits = source.target[order]
    confusion = _confusion(pixels, digits)
    voted_on = digits[:-N_NEW]
    votes = []
    for accuracy in ACCURACIES.values():
        thresholds = confusion[voted_on].cumsum(1)
        mistaken = (rng.random((len(voted_on), 1)) > thresholds).sum(1).clip(max=9)
        is_right = rng.random(len(voted_on)) < accuracy
        votes.append(np.where(is_right, voted_on, mistaken))
    names = np.array(NAMES)
    return Digits(pixels, names[digits], names[np.stack(votes, 1)])


def _confusion(pixels: NDArray[np.float64], digits: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return the probability [digit, other digit] that one is mistaken for another, by the distance of their mean pictures."""
    means = np.stack([pixels[digits == digit].mean(0) for digit in range(10)])
    distances = ((means[:, None] - means) ** 2).sum(-1)
    similarity = np.exp(-3 * distances / distances.mean()) * (1 - np.eye(10))
    similarity /= similarity.sum(1, keepdims=True)
    return np.asarray(similarity)


def write_tables(digits: Digits, folder: Path) -> None:
    """Write votes.csv with a line per vote; features.csv and new.csv with a line per digit; and the pictures of features.csv."""
    n_voted, n_people = digits.votes.shape
    items = np.arange(len(digits.pixels))
    votes = {
        "item": items[:n_voted].repeat(n_people),
        "annotator": list(ACCURACIES) * n_voted,
        "label": digits.votes.ravel(),
    }
    write_sheet(pa.table(votes), folder / "votes.csv")
    for name, rows in (("features.csv", slice(n_voted)), ("new.csv", slice(n_voted, None))):
        table: dict[str, Any] = {"item": items[rows]}
        if name == "features.csv":
            table["picture"] = _write_pictures(digits.pixels[rows], folder)
        for j, column in enumerate(digits.pixels[rows].T):
            table[f"pixel{j}"] = column
        write_sheet(pa.table(table), folder / name)


def _write_pictures(pixels: NDArray[np.float64], folder: Path) -> list[str]:
    """Write a PNG per digit, dark on white, for people to look at; return their paths below the folder."""
    (folder / PICTURES).mkdir(exist_ok=True)
    paths = []
    for i, levels in enumerate(pixels.reshape(-1, SIDE, SIDE)):
        brightness = 255 * (1 - levels / MAX_LEVEL)
        image = Image.fromarray(brightness.astype(np.uint8))
        path = f"{PICTURES}/{i:04}.png"
        image.resize((16 * SIDE, 16 * SIDE), Image.Resampling.BICUBIC).save(folder / path)
        paths.append(path)
    return paths


def compare_labels(digits: Digits, folder: Path) -> list[LabelQuality]:
    """Compare labels.csv and predictions.csv of a folder with other labels made from the votes, and with the truth.

    All but ours are followed by logistic regression, as one would do without this package.
    """
    n_voted = len(digits.votes)
    truth = digits.labels[:n_voted]
    new_truth = digits.labels[n_voted:]
    qualities = []
    for source, labels in _other_labels(digits, folder).items():
        classifier = LogisticRegression(max_iter=1000).fit(digits.pixels[:n_voted] / MAX_LEVEL, labels)
        predictions = classifier.predict(digits.pixels[n_voted:] / MAX_LEVEL)
        quality = LabelQuality(
            source, float(np.mean(labels == truth)), "logistic regression", float(np.mean(predictions == new_truth))
        )
        qualities.append(quality)
    ours = np.array(read_csv(folder / "labels.csv")["label"].to_pylist())
    our_predictions = np.array(read_csv(folder / "predictions.csv")["label"].to_pylist())
    our_quality = LabelQuality(
        "oneof", float(np.mean(ours == truth)), "its networks", float(np.mean(our_predictions == new_truth))
    )
    qualities.insert(-1, our_quality)  # the truth comes last
    return qualities


def _other_labels(digits: Digits, folder: Path) -> dict[str, Words]:
    """Return labels by majority, ties broken at random, and by Dawid-Skene; and the truth."""
    names = np.array(NAMES)
    counts = (digits.votes[..., None] == names).sum(1)
    tie_breaks = np.random.default_rng(0).random(counts.shape)
    votes = read_long(folder / "votes.csv")
    return {
        "majority vote": names[(counts + 0.1 * tie_breaks).argmax(1)],
        "Dawid-Skene": np.array(votes.labels)[dawid_skene(votes).posterior.argmax(1)],
        "the truth": digits.labels[: len(digits.votes)],
    }
